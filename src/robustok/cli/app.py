"""All commands, and the conversion of errors to one line and an exit code."""

from __future__ import annotations

import gc
import os
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.errors import RobustokError
from robustok.runtime.environment import EXTRAS, missing_line
from robustok.version import __version__

# Each command's module and the first line of its help, in the order of --help.
_COMMANDS = {
    "sample": ("texts", "Draw tokenizations of TEXT."),
    "count": ("texts", "Count the tokenizations of TEXT, exactly."),
    "inspect": ("texts", "Show the tokenizations of TEXT."),
    "play": ("texts", "Serve an interactive page about the tokenizations of a text."),
    "corpus": ("corpus", "Re-tokenize every document of a corpus with a scheme."),
    "data": ("corpus", "Generate a data set of questions about letters."),
    "pretrain": ("training", "Train a small model on drawn tokenizations."),
    "finetune": ("training", "Fine-tune MODEL on drawn tokenizations."),
    "evaluate": ("evaluate", "Measure MODELS under drawn tokenizations."),
    "icl": ("evaluate", "Measure MODEL with few-shot examples before every question."),
    "attack": ("attack", "Attack MODELS through the tokenization of their questions."),
    "red-team": ("attack", "Attack prompts through their tokenization: answers, refusals or the "
                 "verdict of a guard."),
    "perplexity": ("evaluate", "Measure MODEL's perplexity on text, canonical and drawn."),
    "lm-eval": ("evaluate", "Run lm-eval with contexts tokenized by a scheme."),
    "certify": ("evaluate", "Certify the answers of MODELS against retokenization."),
    "embeddings": ("evaluate", "Compare the tokenizations of a word inside MODELS."),
    "bound": ("evaluate", "Compute the bound of MODELS from their weights."),
    "guard": ("guard", "Compare IDS with the canonical encoding of their text."),
    "audit": ("guard", "Report how far id sequences in PATHS drifted."),
    "doctor": ("doctor",
               "Show versions, hardware, caches and missing packages, or check a tokenizer."),
    "study": ("study", "List, plan and run studies. `study NAME` is `study run NAME`."),
    "analyze": ("analyze", "Analyze schemes without a model, as the paper's appendix does."),
}  # fmt: skip
_GROUPS = ("study", "analyze")  # commands that have commands
_SHORT = ("sample", "count", "inspect", "guard", "audit")  # mostly start-up

_PANIC = "PanicException"
_OUTPUT_CLOSED = 141  # as a shell reports a command that SIGPIPE ended


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"robustok {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="print the version"),
    ] = False,
) -> None:
    """Options of `robustok` itself."""


def application(only: str | None = None) -> typer.Typer:
    """All commands; of ``only`` one the others are not imported, which takes longer than it."""
    from robustok.cli.options import add_commands  # not for a page of names alone

    app = _empty_application()
    for name, (module, _) in _COMMANDS.items():
        if only not in (None, name):
            continue
        commands = import_module(f"robustok.cli.commands.{module}")
        if name in _GROUPS:
            app.add_typer(commands.app, name=name)
        else:
            settings = commands.LM_EVAL if name == "lm-eval" else {}
            add_commands(app, getattr(commands, name.replace("-", "_")), **settings)
    return app


def names_alone() -> typer.Typer:
    """The application for `--help`, `--version` and wrong names: no command is imported."""
    app = _empty_application()
    for name, (_, help) in _COMMANDS.items():
        app.command(name, help=help)(lambda: None)
    return app


def _empty_application() -> typer.Typer:
    app = typer.Typer(
        name="robustok",
        help="Sample, count, train on, evaluate on and attack with every tokenization of a string.",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="Add --debug to any command for the traceback of an error.",
    )
    app.callback()(_options)
    return app


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
    first = next((arg for arg in args if not arg.startswith("-")), None)
    try:
        completes = "_ROBUSTOK_COMPLETE" in os.environ  # a shell asks for the options of a command
        if first in _COMMANDS or completes:
            app = application(first if first in _COMMANDS else None)
        else:
            app = names_alone()
        code = typer.main.get_command(app).main(
            [arg for arg in args if arg != "--debug"] or ["--help"],
            prog_name="robustok",
            standalone_mode=False,
        )
        sys.stdout.flush()
        if code == 130:  # what typer makes of a KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped; nothing finished is lost", 130)
    except (SystemExit, BrokenPipeError) as error:
        # typer and rich turn a broken pipe into exit code 1. typer also ends so after completion.
        pipe = error if isinstance(error, BrokenPipeError) else error.__context__
        if isinstance(pipe, BrokenPipeError):
            return _broken_pipe(pipe)
        code = getattr(error, "code", 0)
        return code if isinstance(code, int) else 0
    except BaseException as error:
        # A panic of a Rust library is no Exception.
        if debug or not (isinstance(error, Exception) or type(error).__name__ == _PANIC):
            raise
        return _fail(error_line(error), 2)


def error_line(error: BaseException) -> str:
    """One line on what is wrong and what to do.

    >>> error_line(OSError(28, "No space left on device", "out.jsonl"))
    'No space left on device: out.jsonl'
    """
    # Typer's own errors, of the copy of click that it carries or of click itself.
    if callable(message := getattr(error, "format_message", None)):
        command = getattr(getattr(error, "ctx", None), "command_path", "robustok")
        text = str(message()).replace("Value error, ", "")  # pydantic's mark, no part of ours
        text = " ".join(text.split()).rstrip(".") + _hint(error, command.partition(" ")[2])
        return f"{text}{' See' if text.endswith('?') else '; see'} {command} --help"
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


def _hint(error: BaseException, command: str) -> str:
    """What helps against a wrong command line, beside typer's own words.

    A text without quotes is several arguments. An option may be one of another command, of which
    those in the same module are imported already.
    """
    module = _COMMANDS[command][0] if command in _COMMANDS else ""
    if module == "texts" and "unexpected extra argument" in str(error):
        return ": put the text in quotes"
    option = getattr(error, "option_name", None)
    if type(error).__name__ != "NoSuchOption" or option is None:
        return ""
    for name in (name for name, (own, _) in _COMMANDS.items() if own == module != ""):
        group: Any = typer.main.get_command(application(name))
        if any(option in one.opts for one in group.commands[name].params):
            return f"; robustok {name} has it"
    return ""


def _broken_pipe(error: BrokenPipeError) -> int:
    if not _reader_left():  # the pipe to a process of ours
        return _fail(error_line(error), 2)
    _drop_output()
    return _OUTPUT_CLOSED


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
