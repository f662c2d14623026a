"""Options: made from the fields of settings classes, or declared here once for several commands."""

from __future__ import annotations

import os
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass, fields
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

import click

from robustok.checks import check_setting
from robustok.checks import option as option
from robustok.errors import RobustokError
from robustok.runtime.hub import is_served, served_label
from robustok.runtime.packages import require
from robustok.samplers import schemes

SCHEMES = "<schemes>"  # in the help of an option: replaced by the names of all schemes
_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Argument:
    """What an argument of a command is called, and its help text."""

    metavar: str
    help: str = ""


def with_settings(command: Callable[..., object], **settings: Any) -> Command:
    """The command with an option for each field of its settings classes.

    A parameter whose default is made by :func:`option` is an option of the command's own, one
    annotated with an :class:`Argument` an argument. One with a plain type is what ``SHARED`` has by
    its name. One annotated with ``Annotated[dict, CLASS]`` gets the fields of the class that are
    given, by name. Fields without ``help`` or with empty ``flags`` are no options, nor are those
    that the command has as own parameters. ``context`` is click's; ``settings`` are those of
    ``click.Command``.
    """
    hints = typing.get_type_hints(command, include_extras=True)
    hints = {name: hints[name] for name in signature(command).parameters}
    classes = {n: args[1] for n in hints if (args := typing.get_args(hints[n]))[:1] == (dict,)}
    options = {
        name: {
            f"{name}_{one.name}": one
            for one in fields(cls)
            if one.metadata.get("help") and one.metadata.get("flags") != ()
            if one.name not in hints
        }
        for name, cls in classes.items()
    }
    parameters: list[click.Parameter] = []
    for name, hint in hints.items():
        if name in classes:
            types = typing.get_type_hints(classes[name])
            parameters += [
                _option(one, types[one.name], one.name, key, one.default, required=False)
                for key, one in options[name].items()
            ]
        elif name != "context":
            parameters.append(_parameter(name, hint, signature(command).parameters[name].default))

    def run(**values: object) -> Any:
        context = click.get_current_context()
        for name, by_key in options.items():
            given = {key: (one.name, values.pop(key)) for key, one in by_key.items()}
            values[name] = dict(given[key] for key in given if not _is_default(context, key))
        result = command(**values, **({"context": context} if "context" in hints else {}))
        for one in context.command.params:  # the seed of a command that draws, beside its output
            if "--seed" in one.opts and _is_default(context, str(one.name)):
                click.echo(f"seed {context.params[str(one.name)]}", err=True)
        return result

    return Command(
        command.__name__.strip("_").replace("_", "-"),
        callback=run,
        params=parameters,
        help=cleandoc(command.__doc__ or ""),
        **settings,
    )


def _is_default(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def _parameter(name: str, hint: object, default: object) -> click.Parameter:
    """A parameter of a command that is an argument, an option of its own, or one of ``SHARED``."""
    info: Any = SHARED.get(name)
    if typing.get_origin(hint) is Annotated:
        hint, info = typing.get_args(hint)
    if isinstance(default, Field):
        info, default = default, default.default
    if isinstance(info, Argument):
        return _PositionalArgument(name, info, hint)
    if default is Parameter.empty:
        default = info.default if isinstance(info, Field) else MISSING
    return _option(info, hint, name, name, default)


def _option(
    one: Any, hint: object, field: str, name: str, default: object, required: bool = True
) -> click.Option:
    """A field of a settings class as an option, whose value the command gets as ``name``."""
    kind = next((kind for kind in typing.get_args(hint) if kind is not NoneType), hint)
    if typing.get_origin(hint) is Literal or typing.get_args(kind):
        kind = str  # of several types the settings make one
    several, metadata = typing.get_origin(hint) is tuple, one.metadata
    text, bracket, shown = metadata["help"].partition("[default")
    parts = filter(None, (text.rstrip(), "repeatable" if several else ""))
    set_default: Any = {} if default is MISSING else {"default": default}  # to click None is one

    def checked(_context: object, _parameter: object, value: object) -> Any:
        check_setting(field, value, metadata)
        return metadata["callback"](value) if "callback" in metadata else value

    click_option = click.Option(
        [*(metadata.get("flags") or (f"--{field.replace('_', '-')}",)), name],
        help="; ".join(parts) + (f"  {bracket}{shown}" if bracket else ""),
        show_default=not bracket,
        metavar=metadata.get("metavar", _METAVARS.get(kind)),  # type: ignore[arg-type]
        type=_type(kind, metadata.get("min"), metadata.get("max")),
        is_flag=True if kind is bool else None,  # with False, click takes an option without value
        multiple=several,
        required=required and default is MISSING,
        callback=checked,
        **set_default,
    )
    click_option.panel = metadata.get("panel")  # type: ignore[attr-defined]
    return click_option


def _type(kind: object, low: float | None = None, high: float | None = None) -> Any:
    """click's type of values of a Python type, in a range."""
    if kind is Path:
        return _PathType(path_type=Path)
    if low is None and high is None:
        return kind
    return (click.FloatRange if kind is float else click.IntRange)(low, high)  # type: ignore[arg-type]


class _PathType(click.Path):
    """A path; an empty one, as of a shell's unset variable, is not the current folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("it is empty: give a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class _PositionalArgument(click.Argument):
    """An argument with a help text; several where its hint is a tuple."""

    def __init__(self, name: str, about: Argument, hint: object) -> None:
        several = typing.get_origin(hint) is tuple
        kind = typing.get_args(hint)[0] if several else hint
        metavar = about.metavar + "..." * (several and not about.metavar.endswith("..."))
        super().__init__(
            [name], metavar=metavar, type=_type(kind), nargs=-1 if several else 1, required=True
        )
        self._about = about

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        return self._about.metavar, f"{self._about.help}  [required]".strip()


class Command(click.Command):
    """A command whose `--help` groups options by panel, and names the schemes of all packages."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # whose help an error of the parser names
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in sorted(
            self.get_params(ctx), key=lambda one: ("--help" in one.opts, "--json" in one.opts)
        ):
            own = "Arguments" if param.param_type_name == "argument" else "Options"
            panel = getattr(param, "panel", None) or own
            if record := param.get_help_record(ctx):
                name, text = record
                if SCHEMES in text:
                    text = text.replace(SCHEMES, ", ".join(schemes()))
                sections.setdefault(panel, []).append((name, text.replace("]  [", "; ")))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def output_folder(path: Path | None) -> Path | None:
    """The path, or RobustokError where it is a file or its folder cannot be written."""
    if path is None:
        return None
    existing = next(one for one in (path, *path.parents) if one.exists())
    if existing.is_file():
        raise RobustokError(f"{existing} is a file: give a folder")
    if not os.access(existing, os.W_OK):
        raise RobustokError(f"{existing} cannot be written: give another path")
    return path


def figure_folder(path: Path | None) -> Path | None:
    """As ``output_folder``; also raises where figures cannot be drawn."""
    if path is not None:
        require("matplotlib", "pandas")
    return output_folder(path)


def folder_option(help: str, *, required: bool = False, check: object = output_folder) -> Any:
    """A field that is a folder to write to."""
    default = MISSING if required else None
    return option(help, "--out", "-o", default=default, metavar="FOLDER", callback=check)


def scheme_option(help: str = "how texts are tokenized", default: object = ()) -> Any:
    """A field of one scheme or several."""
    return option(help, "--scheme", "-s", default=default, metavar="SCHEME")


def draws_option(help: str, default: int | None) -> Any:
    """A field of a number of draws."""
    return option(help, "--draws", "-n", default=default, min=1)


def sample_by_option() -> Any:
    """A field of what a document of a .txt file is."""
    text = "documents of a .txt file: line (each line) or document (the file)"
    return option(text, default="line", metavar="UNIT")


TOKENIZER = "tokenizer.json, a folder with one, a hub name, or demo, which is small and built in"
TEXTS = ".txt, .jsonl or .parquet; the first two also .gz, .xz or .zst"
# What a command's parameter of this name is, where the command does not say it.
SHARED = {
    "model": Argument("MODEL", "folder or hub name of a model"),
    "models": Argument(
        "MODEL", "folders, hub names or addresses of servers; NAME=FOLDER sets the name"
    ),
    "tokenizer": option(TOKENIZER, "--tokenizer", "-t", metavar="PATH"),
    "scheme": option(
        f"such as 'uniform-k(alpha=0.5)'; one of {SCHEMES}",
        "--scheme", "-s", metavar="SCHEME",
    ),
    "seed": option("the same seed, the same draws", "--seed", metavar="N", default=0),
    "as_json": option("print JSON", "--json"),
}  # fmt: skip


def served_tokenizer_option() -> Any:
    """A field of the tokenizer of a model behind a server, in commands that take one."""
    return option(
        "tokenizer of a model behind a server: a file, a folder or a hub name",
        "--tokenizer",
        default=None,
        metavar="TOKENIZER",
        panel="Model",
    )


def by_name(paths: Iterable[str], kind: str = "model") -> dict[str, str]:
    """Paths by name; the name is the last part of the path unless given before "=".

    A tokenizer.json has the name of its folder, as "." has, and a server that of its host.

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
            if is_served(path):
                name = served_label(path)
            if name.startswith("tokenizer."):
                name = Path(path).resolve().parent.name
        if not name or not path:
            raise RobustokError(f"'{argument}' names no {kind}: give NAME=FOLDER, or a folder")
        if name in named:
            raise RobustokError(f"two {kind}s are called '{name}': write NAME={path} for one")
        named[name] = path
    return named
