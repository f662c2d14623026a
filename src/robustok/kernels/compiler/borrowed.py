"""The numba type of arrays without reference counts, and the compiled code of `borrow`.

Numba counts references with atomic operations at every call that passes an array, which costs small
functions ten times their own work.

A borrowed array has a numba type of its own, `Borrowed`, for which numba generates no code that
counts references. A function that a kernel calls with borrowed arrays is compiled for plain ones
(`plain`), so that it is compiled once for both.

Borrowed arrays are still passed field by field, a kilobyte for a store and a trie, so functions
that are called for every block or token are inlined too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from numba.core import cgutils, types
from numba.core.datamodel.models import StructModel
from numba.extending import lower_builtin, lower_cast, register_model, type_callable

if TYPE_CHECKING:
    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext
    from numba.core.datamodel import DataModelManager
    from numba.core.types import Type
    from numba.core.typing import Signature


class Borrowed(types.Array):
    """The type of an array that holds no reference to its memory; otherwise as its base class."""

    def __init__(self, array: types.Array) -> None:
        super().__init__(
            array.dtype,
            array.ndim,
            array.layout,
            not array.mutable,
            f"borrowed {array.name}",
            array.aligned,
        )


@register_model(Borrowed)
class _BorrowedModel(StructModel):
    """The fields of numba's model of arrays, with an owner that numba does not count."""

    def __init__(self, manager: DataModelManager, kind: Borrowed) -> None:
        fields = [
            ("meminfo", types.voidptr),
            ("parent", types.pyobject),
            ("nitems", types.intp),
            ("itemsize", types.intp),
            ("data", types.CPointer(kind.dtype)),
            ("shape", types.UniTuple(types.intp, kind.ndim)),
            ("strides", types.UniTuple(types.intp, kind.ndim)),
        ]
        super().__init__(manager, kind, fields)


def plain(kind: Type) -> Type:
    """A numba type with `numba.types.Array` in place of `Borrowed`, also within tuples."""
    if isinstance(kind, Borrowed):
        return kind.copy()
    return _replaced(kind, plain)


def _borrowed(kind: Type) -> Type:
    """A numba type with `Borrowed` in place of all arrays, also within tuples."""
    if isinstance(kind, types.Array):
        return kind if isinstance(kind, Borrowed) else Borrowed(kind)
    return _replaced(kind, _borrowed)


def _replaced(kind: Type, replace: Callable[[Type], Type]) -> Type:
    if not isinstance(kind, types.BaseTuple):
        return kind
    parts = [replace(part) for part in kind]
    if all(new is old for new, old in zip(parts, kind, strict=True)):
        return kind
    return types.BaseTuple.from_types(parts, getattr(kind, "instance_class", None))


@lower_cast(Borrowed, types.Array)
@lower_cast(Borrowed, Borrowed)
def _cast_borrowed(
    context: BaseContext, builder: IRBuilder, source: Type, target: Type, value: Value
) -> Value:
    return value  # the fields are the same, and the owner is null


@lower_cast(types.Array, Borrowed)  # a function that is compiled for borrowed arrays alone
def _cast_plain(
    context: BaseContext, builder: IRBuilder, source: Type, target: Type, value: Value
) -> Value:
    return _without_references(context, builder, source, value)


@lower_cast(types.BaseNamedTuple, types.BaseNamedTuple)
def _cast_tuple(
    context: BaseContext, builder: IRBuilder, source: Type, target: Type, value: Value
) -> Value:
    if type(source) is type(target):
        return value
    parts = zip(cgutils.unpack_tuple(builder, value, len(source)), source, target, strict=True)
    cast = [context.cast(builder, part, before, after) for part, before, after in parts]
    return context.make_tuple(builder, target, cast)


@cache
def declare(borrow: Callable) -> None:
    """Tell numba the type and the code of ``borrow``, once a process."""

    @type_callable(borrow)
    def _type_of(context: BaseContext) -> Callable[[Type], Type]:
        return lambda value: _borrowed(value)

    @lower_builtin(borrow, types.Any)
    def _code_of(
        context: BaseContext, builder: IRBuilder, signature: Signature, arguments: list[Value]
    ) -> Value:
        return _without_references(context, builder, signature.args[0], arguments[0])


def _without_references(
    context: BaseContext, builder: IRBuilder, kind: Type, value: Value
) -> Value:
    """The LLVM value of numba type ``kind`` with null pointers to the owners of its arrays."""
    if isinstance(kind, types.Array):
        model = context.data_model_manager[kind]
        for owner in ("meminfo", "parent"):
            at = model.get_field_position(owner)
            value = builder.insert_value(value, value.type.elements[at](None), at)
    elif isinstance(kind, types.BaseTuple):
        for i, part in enumerate(kind.types):
            stripped = _without_references(context, builder, part, builder.extract_value(value, i))
            value = builder.insert_value(value, stripped, i)
    return value
