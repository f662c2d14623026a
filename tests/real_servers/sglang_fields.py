"""The fields with lists of integers that SGLang's routes take, by path, from its source.

SGLang needs a GPU to be imported, so its source is parsed: the functions under routes, the classes
of their parameters, and the annotations of the fields of these, in whatever file they stand.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

_FOLDERS = ("entrypoints", "managers", "sampling")  # of sglang/srt, with the routes and their types
_METHODS = ("api_route", "post", "put")


class Source:
    """The classes, functions and names of types of a package by name."""

    def __init__(self, package: Path) -> None:
        self.routes: list[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef]] = []
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.types: dict[str, list[ast.expr]] = {}
        files = (file for folder in _FOLDERS for file in (package / "srt" / folder).rglob("*.py"))
        for file in sorted(files):
            for node in ast.walk(ast.parse(file.read_text())):
                match node:
                    case ast.ClassDef():
                        self.classes.setdefault(node.name, []).append(node)
                    case ast.AsyncFunctionDef() | ast.FunctionDef():
                        if not any(map(_is_for_operators, node.decorator_list)):
                            paths = (p for one in node.decorator_list for p in _paths_of(one))
                            self.routes += [(path, node) for path in paths]
                    case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() as value):
                        self.types.setdefault(name, []).append(value)
                    case _:
                        pass

    def fields_of(self, kind: ast.expr, names: tuple[str, ...], seen: frozenset) -> Iterator[str]:
        """The names of fields with lists of integers in a type, joined by dots."""
        match kind:
            case ast.Constant(value=str(text)):
                yield from self.fields_of(ast.parse(text, mode="eval").body, names, seen)
            case ast.Subscript(value=ast.Name("list" | "List"), slice=ast.Name("int")):
                yield ".".join(names)
            case ast.Subscript(value=ast.Name("Annotated"), slice=ast.Tuple(elts=[first, *_])):
                yield from self.fields_of(first, names, seen)
            case ast.Subscript(value=ast.Name("Literal")):
                pass
            case ast.Subscript(slice=inner):
                yield from self.fields_of(inner, names, seen)
            case ast.Tuple(elts=parts):
                for part in parts:
                    yield from self.fields_of(part, names, seen)
            case ast.BinOp(left=left, right=right):
                yield from self.fields_of(left, names, seen)
                yield from self.fields_of(right, names, seen)
            case ast.Name(name) if name not in seen:
                for meant in self.types.get(name, []):
                    yield from self.fields_of(meant, names, seen | {name})
                for one in self.classes.get(name, []):
                    yield from self.fields_of_class(one, names, seen | {name})
            case _:
                pass

    def fields_of_class(
        self, one: ast.ClassDef, names: tuple[str, ...], seen: frozenset
    ) -> Iterator[str]:
        for base in one.bases:
            yield from self.fields_of(base, names, seen)
        for part in one.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield from self.fields_of(part.annotation, (*names, part.target.id), seen)


def _paths_of(decorator: ast.expr) -> Iterator[str]:
    """The paths of `@app.post("/path")`, and of `os.environ.get("NAME", "/path")` in it."""
    match decorator:
        case ast.Call(func=ast.Attribute(attr=method), args=[path, *_]) if method in _METHODS:
            texts = [n.value for n in ast.walk(path) if isinstance(n, ast.Constant)]
            yield from (t for t in texts if isinstance(t, str) and t.startswith("/"))
        case _:
            pass


def _is_for_operators(decorator: ast.expr) -> bool:
    """Whether a route is one of `@auth_level(AuthLevel.ADMIN_OPTIONAL)`, which takes no prompts."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "auth_level"


def sglang_fields(package: Path) -> dict[str, list[str]]:
    """The fields with lists of integers of each path."""
    source = Source(package)
    fields: dict[str, set[str]] = {}
    for path, function in source.routes:
        kinds = [a.annotation for a in function.args.args if a.annotation is not None]
        of_path = fields.setdefault(path, set())
        for kind in kinds:
            of_path |= {*source.fields_of(kind, (), frozenset())} - {""}
    return {path: sorted(names) for path, names in sorted(fields.items())}
