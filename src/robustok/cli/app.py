"""The commands by name, and one command line: its errors become one line and an exit code.

The module of a command is imported when it is used. A page of names alone (`--help`, a wrong name)
imports none.
"""

from __future__ import annotations

import gc
import os
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from robustok.errors import RobustokError, nearest
from robustok.runtime.packages import EXTRAS, missing_line
from robustok.runtime.registry import import_for_all
from robustok.version import __version__

_SHORT = ("sample", "count", "inspect", "guard", "audit")  # mostly start-up

_PANIC = "PanicException"
_OUTPUT_CLOSED = 141  # as a shell reports a command that SIGPIPE ended


# Each command's module and the first line of its help, in the order of --help.
COMMANDS = {
    "sample": ("texts", "Draw tokenizations of TEXT."),
    "count": ("texts", "Count the tokenizations of TEXT, exactly."),
    "inspect": ("texts", "Show the tokenizations of TEXT."),
    "play": ("texts", "Serve an interactive page about the tokenizations of a text."),
    "corpus": ("corpus", "Re-tokenize every document of a corpus with a scheme."),
    "data": ("corpus", "Generate a data set of questions about letters."),
    "pretrain": ("training", "Train a small model on drawn tokenizations."),
    "finetune": ("training", "Fine-tune MODEL on drawn tokenizations."),
    "evaluate": ("evaluate", "Measure MODELS under drawn and attacked tokenizations."),
    "red-team": ("red_team", "Attack prompts through their tokenization: answers, refusals or the "
                 "verdict of a guard."),
    "lm-eval": ("evaluate", "Run lm-eval with contexts tokenized by a scheme."),
    "guard": ("guard", "Compare IDS with the canonical encoding of their text."),
    "audit": ("guard", "Report how far the sampled ids in PATHS drifted from the encoding of their "
              "text."),
    "doctor": ("doctor",
               "Show versions, hardware, caches and missing packages, or check a tokenizer."),
    "study": ("study", "List, plan and run studies. `study NAME` is `study run NAME`."),
}  # fmt: skip


class Group(click.Group):
    """Commands in the order in which they were added, whose names may be mistyped."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            ctx.fail(f"unknown command '{args[0]}': {nearest(args[0], names)}")
        return super().resolve_command(ctx, args)


class _AllCommands(Group):
    """`robustok`: makes a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


def command(name: str) -> click.Command:
    """A command, by its name."""
    module = import_module(f"robustok.cli.{COMMANDS[name][0]}")
    if name == "study":
        return module.group
    from robustok.cli.options import with_settings  # not for a page of names alone

    settings = module.LM_EVAL if name == "lm-eval" else {}
    return with_settings(getattr(module, name.replace("-", "_")), **settings)


ROBUSTOK = click.version_option(__version__, message="robustok %(version)s")(
    _AllCommands(
        "robustok",
        help="Sample, count, train on, evaluate on and attack with every tokenization of a string.",
        epilog="Add --debug to any command for the traceback of an error, and --import FILE.py for "
        "schemes of your own.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    0: success. 1: findings of `guard` and `audit`. 2: an error, after its one line. 130: an
    interrupt. 141: the reader of the output closed it.
    """
    # transformers draws a bar for each load of weights, between our bars, and logs an unreachable
    # hub many times before our error.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if {*args[:1]} & {*_SHORT}:
        # numpy starts a thread for each core, which first waits for work in a loop, for 0.1 s.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.set_threshold(100_000)  # what is imported and loaded is no garbage: a tenth of the time
    # Of the processes of a distributed launcher, the first alone prints.
    prints = "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        nullcontext() if prints else redirect_stdout(nowhere),
    ):
        return _run(args, "--debug" in args)


def _run(args: Sequence[str], debug: bool) -> int:
    try:
        if "_ROBUSTOK_COMPLETE" in os.environ:  # a shell asks for the names of commands and options
            ROBUSTOK.main(prog_name="robustok")
        given = _without_imports([arg for arg in args if arg != "--debug"])
        try:
            with ROBUSTOK.make_context("robustok", given or ["--help"]) as context:
                ROBUSTOK.invoke(context)
            code = 0
        except click.exceptions.Exit as end:
            code = end.exit_code
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("stopped; nothing finished is lost", 130)
    except (SystemExit, BrokenPipeError) as error:
        return _code_of(error)
    except BaseException as error:
        # A panic of a Rust library is no Exception.
        if debug or not (isinstance(error, Exception) or type(error).__name__ == _PANIC):
            raise
        return _fail(error_line(error), 2)


def _without_imports(args: Sequence[str]) -> list[str]:
    """The arguments without `--import FILE.py`, which any command takes; the files are run."""
    rest: list[str] = []
    given = iter(args)
    for arg in given:
        name, mark, path = arg.partition("=")
        if name != "--import":
            rest.append(arg)
            continue
        path = path if mark else next(given, "")
        if not path:
            raise RobustokError("--import needs a file: give --import FILE.py")
        import_for_all(path)
    return rest


def error_line(error: BaseException) -> str:
    """One line on what is wrong and what to do.

    >>> error_line(OSError(28, "No space left on device", "out.jsonl"))
    'No space left on device: out.jsonl'
    """
    if isinstance(error, click.ClickException):
        path = getattr(getattr(error, "ctx", None), "command_path", "robustok")
        text = " ".join(error.format_message().split()).rstrip(".")
        is_of_text = path.split()[-1] in ("sample", "count", "inspect")
        if is_of_text and "unexpected extra argument" in text:
            text += ": put the text in quotes"
        return f"{text}{' See' if text.endswith('?') else '; see'} {path} --help"
    if isinstance(error, RobustokError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        return missing_line(error.name)
    if isinstance(error, OSError) and error.strerror:
        return ": ".join(str(part) for part in (error.strerror, error.filename) if part is not None)
    if isinstance(error, MemoryError):
        return "out of memory: give less input at once"
    name = type(error).__name__
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{'a library failed' if name == _PANIC else name}: {reason} (--debug shows where)"


def _code_of(error: SystemExit | BrokenPipeError) -> int:
    # rich turns a broken pipe into exit code 1. click ends so after completion.
    pipe = error if isinstance(error, BrokenPipeError) else error.__context__
    if isinstance(pipe, BrokenPipeError):
        if not _reader_left():  # the pipe to a process of ours
            return _fail(error_line(pipe), 2)
        _drop_output()
        return _OUTPUT_CLOSED
    code = getattr(error, "code", None)
    if isinstance(code, str):  # as `sys.exit("what is wrong")` of a library
        return _fail(" ".join(code.split()), 2)
    return code if isinstance(code, int) else 0


def _reader_left() -> bool:
    """Whether standard output is a pipe without a reader, as `head` leaves it."""
    try:
        if os.path.sameopenfile(sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)):
            return True  # rich replaces such a pipe by it
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no poll on Windows; no file behind stdout
        return False


def _drop_output() -> None:
    """Discard what is not printed yet: Python would fail at its own exit, trying to print it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    sys.stderr.write(f"robustok: {line}\n")
    return code
