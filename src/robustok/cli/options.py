"""Options: made from the fields of settings classes, or declared here once for several commands."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Container, Iterable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, make_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from robustok.checks import check_settings
from robustok.checks import option as option
from robustok.errors import RobustokError
from robustok.samplers import schemes
from robustok.tasks import frequent_words, read_words

SCHEMES = "<schemes>"  # in the help of an option: replaced by the names of all schemes
_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
_FILES = (".jsonl", ".json", ".parquet", ".csv", ".md", ".png", ".svg")  # no names of folders
_KEYWORD = Parameter.KEYWORD_ONLY


def with_settings(command: Callable[..., object]) -> Callable[..., Any]:
    """The command with an option for each field of its settings classes, as typer reads it.

    A parameter whose default is made by :func:`option` is an option of the command's own. One with
    a plain type is what ``SHARED`` has by its name. One annotated with a dataclass gets an instance
    of it, one with ``Annotated[dict, CLASS]`` the fields that are given, by name. Fields without
    ``help`` or with empty ``flags`` are no options, nor are those that the command has as own
    parameters.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    classes = {name: cls for name, hint in hints.items() if (cls := _settings_class(hint))}
    taken = hints.keys() - classes.keys()
    given_parameters = signature(command).parameters.items()
    own = [
        (name, hints[name], one.default)
        for name, one in given_parameters
        if isinstance(one.default, Field)
    ]
    own_options = make_dataclass(command.__name__, own, kw_only=True)
    parameters = [Parameter("context", _KEYWORD, annotation=typer.Context)]
    for name, parameter in given_parameters:
        if name in classes:
            partial, types = is_partial(hints[name]), typing.get_type_hints(classes[name])
            parameters += [
                _as_parameter(one, types[one.name], f"{name}_{one.name}", partial=partial)
                for one in _options_of(classes[name], taken)
            ]
        elif isinstance(parameter.default, Field):
            parameters.append(_as_parameter(parameter.default, hints[name], name))
        elif name != "context":
            hint = hints[name]
            if typing.get_origin(hint) is not Annotated and name in SHARED:
                hint = Annotated[hint, SHARED[name]]
            parameters.append(parameter.replace(annotation=hint, kind=_KEYWORD))

    def run(context: Any, **values: object) -> Any:
        values |= {name: _unlisted(values[name]) for name, *_ in own}
        check_settings(own_options, values)
        for name, cls in classes.items():
            partial, given = is_partial(hints[name]), {}
            for one in _options_of(cls, taken):
                option = f"{name}_{one.name}"
                value = _unlisted(values.pop(option))
                if not partial or context.get_parameter_source(option).name != "DEFAULT":
                    given[one.name] = value
            check_settings(cls, given)
            values[name] = given if partial else cls(**given)
        return command(**values, **({"context": context} if "context" in hints else {}))

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _unlisted(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def is_partial(hint: object) -> bool:
    """Whether a parameter gets the given fields only, and no instance of its settings class."""
    return typing.get_origin(hint) is Annotated and typing.get_args(hint)[0] is dict


def _settings_class(hint: object) -> Any:
    cls = typing.get_args(hint)[1] if is_partial(hint) else hint
    return cls if is_dataclass(cls) else None


def _options_of(cls: Any, taken: Container[str]) -> list[Field[Any]]:
    """The fields of a settings class that are options, without those of ``taken`` names."""
    return [
        one
        for one in fields(cls)
        if one.metadata.get("help") and one.metadata.get("flags") != () and one.name not in taken
    ]


def _as_parameter(
    one: Field[object], hint: object, name: str, *, partial: bool = False
) -> Parameter:
    """A field as a parameter of a command, called ``name`` there."""
    kind = next((kind for kind in typing.get_args(hint) if kind is not NoneType), hint)
    if typing.get_origin(hint) is Literal:
        kind = hint = str
    elif typing.get_args(kind):  # several types, of which the settings make one
        kind = str
    several = typing.get_origin(hint) is tuple
    text, bracket, default = one.metadata["help"].partition("[default")
    parts = filter(None, (text.rstrip(), "repeatable" if several else ""))
    info = typer.Option(
        *one.metadata.get("flags", (f"--{one.name.replace('_', '-')}",)),
        help="; ".join(parts) + (f"  {bracket}{default}" if bracket else ""),
        show_default=not bracket,
        rich_help_panel=one.metadata.get("panel"),
        metavar=one.metadata.get("metavar", _METAVARS.get(kind)),
        **{key: one.metadata[key] for key in ("min", "max", "callback") if key in one.metadata},
    )
    required = one.default is MISSING and not partial
    return Parameter(
        name,
        _KEYWORD,
        annotation=Annotated[list[kind] if several else hint, info],
        default=Parameter.empty if required else None if one.default is MISSING else one.default,
    )


class Command(TyperCommand):
    """A command whose `--help` groups options by panel, and names the schemes of all packages."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in sorted(
            self.get_params(ctx), key=lambda one: ("--help" in one.opts, "--json" in one.opts)
        ):
            text = getattr(param, "help", None)
            if text and SCHEMES in text:
                param.help = text.replace(SCHEMES, ", ".join(schemes()))  # type: ignore[attr-defined]
            own = "Arguments" if param.param_type_name == "argument" else "Options"
            panel = getattr(param, "rich_help_panel", None) or own
            if record := param.get_help_record(ctx):
                name, text = record
                if own == "Arguments":
                    name = name.partition(" <")[0]  # without the type
                sections.setdefault(panel, []).append((name, text.replace("]  [", "; ")))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def add_commands(app: typer.Typer, *commands: Callable[..., object], **settings: Any) -> None:
    """Register commands under the names of their functions."""
    for command in commands:
        name = command.__name__.strip("_").replace("_", "-")
        app.command(name, cls=Command, **settings)(with_settings(command))


def output_folder(path: Path | None) -> Path | None:
    """The path, or RobustokError where it is a file or its folder cannot be written."""
    if path is not None:
        if path.exists() and not path.is_dir():
            raise RobustokError(f"{path} is a file: give a folder")
        if path.suffix in _FILES and not path.exists():
            raise RobustokError(f"{path} is the name of a file: give a folder")
        _check_writable(path)
    return path


def figure_folder(path: Path | None) -> Path | None:
    """As ``output_folder``; also raises where figures cannot be drawn."""
    if path is not None:
        import matplotlib  # noqa: F401
    return output_folder(path)


def folder_option(help: str, *, required: bool = False, check: object = output_folder) -> Any:
    """A field that is a folder to write to."""
    default = MISSING if required else None
    return option(help, "--out", "-o", default=default, metavar="FOLDER", callback=check)


def scheme_option(help: str = "how texts are tokenized", default: object = ()) -> Any:
    """A field of one scheme or several."""
    return option(help, "--scheme", "-s", default=default, metavar="SCHEME")


def limit_option() -> Any:
    """A field of a number of items to read."""
    return option("number of items to read", default=None, min=1)


def draws_option(help: str, default: int | None) -> Any:
    """A field of a number of draws."""
    return option(help, "--draws", "-n", default=default, min=1)


def _check_writable(path: Path) -> None:
    """Raise RobustokError unless the nearest existing folder above can be written."""
    while not path.exists():
        path = path.parent
        if path.is_file():
            raise RobustokError(f"{path} is a file: give another path")
    for needed in (path, path.parent) if path.is_file() else (path,):
        if not os.access(needed, os.W_OK):
            raise RobustokError(f"{needed} cannot be written: give another path")


TOKENIZER = "tokenizer.json, a folder with one, a hub name, or demo, which is small and built in"
TEXTS = ".txt, .jsonl or .parquet; the first two also .gz, .xz or .zst"
# What a command's parameter of this name is, where the command does not say it.
SHARED = {
    "model": typer.Argument(metavar="MODEL", help="folder or hub name of a model"),
    "models": typer.Argument(
        metavar="MODEL", help="folders or hub names; NAME=FOLDER sets the name"
    ),
    "tokenizer": typer.Option("--tokenizer", "-t", metavar="PATH", help=TOKENIZER),
    "scheme": typer.Option(
        "--scheme", "-s", metavar="SCHEME",
        help=f"such as 'uniform-k(alpha=0.5)'; one of {SCHEMES}",
    ),
    "seed": typer.Option("--seed", metavar="N", help="the same seed, the same draws"),
    "texts": typer.Option("--texts", metavar="FILE", help=TEXTS),
    "sample_by": typer.Option(
        "--sample-by", metavar="UNIT",
        help="documents of a .txt file: line (each line) or document (the file)",
    ),
    "out": typer.Option(
        "--out", "-o", metavar="FOLDER", callback=output_folder,
        help="folder for figure, CSV and rows; also resumes an interrupted run",
    ),
    "as_json": typer.Option("--json", help="print JSON"),
}  # fmt: skip


@dataclass(frozen=True)
class WordOptions:
    """Which words a command is about."""

    words: int = option("number of the most frequent words", default=1000, min=1)
    words_file: str | None = option(
        "file with one word per line, instead of --words", default=None, metavar="FILE"
    )

    def read(self, **settings: Any) -> list[str]:
        if self.words_file:
            return read_words(self.words_file)
        return frequent_words(self.words, **settings)


def by_name(paths: Iterable[str], kind: str = "model") -> dict[str, str]:
    """Paths by name; the name is the last part of the path unless given before "=".

    A tokenizer.json has the name of its folder, as "." has.

    >>> by_name(["runs/a/canonical", "other=runs/b/model"])
    {'canonical': 'runs/a/canonical', 'other': 'runs/b/model'}

    Raises RobustokError where two have one name.
    """
    named: dict[str, str] = {}
    for argument in paths:
        name, mark, path = argument.partition("=")
        if not mark or "/" in name:
            name, path = Path(argument).name, argument
            if name in ("", "..") and argument:
                name = Path(argument).resolve().name
            if name.startswith("tokenizer."):
                name = Path(path).resolve().parent.name
        if not name or not path:
            raise RobustokError(f"'{argument}' names no {kind}: give NAME=FOLDER, or a folder")
        if name in named:
            raise RobustokError(f"two {kind}s are called '{name}': write NAME={path} for one")
        named[name] = path
    return named
