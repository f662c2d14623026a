"""Count the functions that are too complex or have too many parameters; both counts only fall.

    python .ci/complexity.py          # fails above the ceilings, and says where
    python .ci/complexity.py --list   # prints all of them

Complexity is one more than the branches, loops, conditional expressions, comprehensions with their
conditions, operands of `and` and `or` behind the first, and exception handlers of a function. Those
of functions inside it do not count. Ruff's count leaves out comprehensions and operands.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

COMPLEXITY, PARAMETERS = 15, 8  # of one function, at most
CEILINGS = 6, 4  # functions above them; lower these numbers where a count has fallen
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.IfExp, ast.ExceptHandler, ast.match_case)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function but those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from inside(child)


def complexity(function: ast.AST) -> int:
    count = 1
    for node in inside(function):
        count += isinstance(node, (*BRANCHES, ast.Assert))
        if isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of parameters without ``self`` and ``cls``."""
    names = function.args
    listed = [name.arg for name in (*names.posonlyargs, *names.args, *names.kwonlyargs)]
    return len(listed) - (listed[:1] in (["self"], ["cls"]))


def main() -> None:
    above: tuple[list[str], list[str]] = [], []
    for path in sorted(Path("src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, FUNCTIONS):
                values = complexity(node), parameters(node)
                for value, most, lines in zip(values, (COMPLEXITY, PARAMETERS), above, strict=True):
                    if value > most:
                        lines.append(f"{value:4} {path}:{node.lineno} {node.name}")
    for name, lines, ceiling in zip(("complexity", "parameters"), above, CEILINGS, strict=True):
        print(f"{name}: {len(lines)} functions above the limit, at most {ceiling} allowed")
        if len(lines) > ceiling or "--list" in sys.argv:
            print(*sorted(lines, reverse=True), sep="\n")
    if any(len(lines) > ceiling for lines, ceiling in zip(above, CEILINGS, strict=True)):
        sys.exit("split the functions above; the counts only fall")


if __name__ == "__main__":
    main()
