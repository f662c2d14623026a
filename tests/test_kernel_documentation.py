"""Every kernel documents every argument and takes at most eight."""

from __future__ import annotations

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


def _mentions(doc: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", doc) is not None


def _kernels(path: Path) -> Iterator[ast.FunctionDef]:
    """Each function of a module that numba compiles."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(d) for d in node.decorator_list]
            if any(d.split("(")[0] in ("njit", "jit") for d in decorators):
                yield node


def _parameters(node: ast.FunctionDef) -> list[str]:
    a = node.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_kernels_document_every_parameter_and_take_at_most_eight(path: Path) -> None:
    module, shared = _docstring(path), _shared_arguments()
    missing, many = [], []
    for node in _kernels(path):
        doc = f"{ast.get_docstring(node) or ''}\n{module}"
        missing += [
            f"{node.name}({p})"
            for p in _parameters(node)
            if p not in shared and not _mentions(doc, p)
        ]
        if len(_parameters(node)) > 8:
            many.append(node.name)
    assert not missing, f"undocumented: {', '.join(missing)}"
    assert not many, f"more than eight arguments: {', '.join(many)}"
