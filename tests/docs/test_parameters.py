"""Public functions and classes document every parameter by name."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

PUBLIC = ("robustok", "robustok.scoring", "robustok.evaluation", "robustok.training",
          "robustok.models", "robustok.tasks", "robustok.guard", "robustok.guard.rollouts",
          "robustok.corpus", "robustok.attack", "robustok.study",
          "robustok.report", "robustok.play")  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_document_every_parameter(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    missing: list[str] = []
    # A module without a list of names imports helpers too.
    is_list = hasattr(module, "__path__")
    listed = re.findall(r"import \w+ as (\w+)", inspect.getsource(module))  # some load on first use
    origin, known = ("robustok", listed) if is_list else (name, vars(module))
    for key in getattr(module, "__all__", known):
        value = getattr(module, key)
        if key.startswith("_") or not getattr(value, "__module__", "").startswith(origin):
            continue
        if inspect.isclass(value):
            missing += _undocumented_in_class(key, value)
        elif inspect.isfunction(value):
            missing += _undocumented(key, inspect.signature(value).parameters, _doc(value))
    assert not missing, f"{len(missing)} undocumented: {', '.join(missing)}"


def _undocumented_in_class(label: str, cls: type) -> Iterator[str]:
    """The parameters of the constructor and the methods; the class may document both."""
    class_doc, bases = _doc(cls), inspect.getmro(cls)
    if hasattr(cls, "_fields"):  # a NamedTuple has no __init__
        yield from _undocumented(label, cls._fields, class_doc)
    for name, member in vars(cls).items():
        function = getattr(member, "__func__", member)
        if not inspect.isfunction(function) or not function.__module__.startswith("robustok"):
            continue  # an attribute, or a method that the standard library put there
        if name == "__init__" or not name.startswith("_"):
            # A method that overrides another one has its parameters.
            docs = [_doc(vars(base)[name]) for base in bases if name in vars(base)]
            if is_dataclass(cls) and name == "__init__":  # a base class documents its own fields
                docs = [_doc(base) for base in bases if is_dataclass(base)]
            elif name == "__init__":
                docs = docs[:1]
            doc = "\n\n".join([class_doc, *docs])
            described = (
                {f.name for f in fields(cls) if "help" in f.metadata}
                if is_dataclass(cls)
                else set()
            )
            names = [n for n in inspect.signature(function).parameters if n not in described]
            yield from _undocumented(f"{label}.{name}", names, doc)


def _doc(value: Any) -> str:
    """The docstring, unless it is the signature that a dataclass generates."""
    doc = inspect.getdoc(value) or ""
    return "" if inspect.isclass(value) and doc.startswith(f"{value.__name__}(") else doc


def _undocumented(label: str, parameters: Any, doc: str) -> Iterator[str]:
    """The parameters that a docstring does not name outside its examples."""
    prose = "\n\n".join(part for part in re.split(r"\n\s*\n", doc) if ">>>" not in part)
    for name in parameters:
        hidden = name in ("self", "cls") or name.startswith("_")
        if not hidden and not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", prose):
            yield f"{label}({name})"
