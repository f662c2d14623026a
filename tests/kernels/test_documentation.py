"""Every kernel documents every argument, arrays with dtype and shape, and takes at most eight."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import robustok

KERNELS = Path(robustok.__file__).parent / "kernels"
MODULES = sorted(KERNELS.glob("*.py"))


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or ""


def _shared_arguments() -> set[str]:
    """The arguments that the package docstring documents, each in an indented line `name: ...`."""
    _, _, section = _docstring(KERNELS / "__init__.py").partition(
        "Arguments that every kernel uses with one meaning"
    )
    return set(re.findall(r"^    ([a-z_0-9]+):", section, flags=re.MULTILINE))


def _kernels(path: Path) -> Iterator[ast.FunctionDef]:
    """Each function of a module that numba compiles."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(d) for d in node.decorator_list]
            if any(d.split("(")[0] in ("njit", "jit") for d in decorators):
                yield node


def _is_array(node: ast.FunctionDef, name: str) -> bool:
    """Whether the function indexes the parameter, borrows it or takes its length."""
    for x in ast.walk(node):
        if isinstance(x, ast.Subscript) and ast.unparse(x.value) == name:
            return True
        if ast.unparse(x) in (f"borrow({name})", f"len({name})"):
            return True
    return False


def _has_type(doc: str, name: str) -> bool:
    """Whether a sentence on an array states `dtype [shape]`, or refers to another name.

    The other name is a named tuple, which documents its arrays, or a function that returns it.
    """
    for sentence in re.split(r"\.\s", " ".join(doc.split())):
        mention = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)(.*)", sentence)
        if mention and re.search(r"\b(u?int(8|16|32|64)?|float64|bool) \[", mention[1]):
            return True
        if mention and re.search(r"`[\w.]+`", re.sub("``[^`]*``", "", mention[1])):
            return True
    return False


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_kernels_document_every_parameter_and_take_at_most_eight(path: Path) -> None:
    module, shared = _docstring(path), _shared_arguments()
    for node in _kernels(path):
        doc = f"{ast.get_docstring(node) or ''}\n{module}"
        parameters = [x.arg for x in node.args.args]
        assert len(parameters) <= 8, f"{node.name} takes more than eight arguments"
        for name in parameters:
            text = f"{doc}\n{_docstring(KERNELS / '__init__.py')}" if name in shared else doc
            assert re.search(rf"(?<!\w){name}(?!\w)", text), f"{node.name}: {name} has no text"
            if _is_array(node, name):
                assert _has_type(text, name), f"{node.name}: {name} lacks `dtype [shape]`"


def test_an_array_without_shape_is_reported() -> None:
    assert _has_type("``a``: int32 [n], the ids.", "a")
    assert _has_type("``a`` is that of `long.edges_of`.", "a")
    assert not _has_type("``a``: int32, the ids. ``b``: int32 [n].", "a")
    assert not _has_type("``a``: the ids of ``b``.", "a")
