"""All commands together, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from robustok.cli.commands import (
    analyze,
    attack,
    audit,
    bound,
    certify,
    corpus,
    count,
    data,
    doctor,
    embeddings,
    evaluate,
    finetune,
    guard,
    icl,
    inspect,
    lm_eval,
    perplexity,
    play,
    pretrain,
    report,
    sample,
    study,
)
from robustok.errors import RobustokError

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "accelerate": "train",
    "datasets": "train",
    "peft": "train",
    "safetensors": "train",
    "pydantic": "study",
    "yaml": "study",
    "matplotlib": "report",
    "jinja2": "report",
    "wordfreq": "words",
    "lm_eval": "lm-eval",
    "starlette": "play",
    "uvicorn": "play",
    "pyarrow": "corpus",
    "zstandard": "corpus",
    "ray": "ray",
}

app = typer.Typer(
    name="robustok",
    help="Sample, count, train on, evaluate on and attack with every tokenization of a string.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Add --debug to any command for the whole traceback of an error.",
)
COMMANDS = (
    study,
    report,
    sample,
    count,
    inspect,
    play,
    corpus,
    data,
    pretrain,
    finetune,
    evaluate,
    icl,
    attack,
    perplexity,
    lm_eval,
    certify,
    embeddings,
    bound,
    guard,
    audit,
    doctor,
)
for module in COMMANDS:
    app.command(module.NAME, **getattr(module, "SETTINGS", {}))(module.command)
app.add_typer(analyze.app, name=analyze.NAME)


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0, or 2 after one line on what is wrong."""
    debug = "--debug" in args
    # transformers draws a bar for each load of weights, in the middle of ours, and a hub that
    # cannot be reached is told of many times before the error that we show.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    try:
        code = typer.main.get_command(app).main(
            [arg for arg in args if arg != "--debug"] or ["--help"],
            prog_name="robustok",
            standalone_mode=False,
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return _say("stopped; nothing finished is lost", 130)
    except BrokenPipeError:
        # The reader went away, as `head` does; Python would complain again at its own exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug:
            raise
        return _say(_line(error), 2)


def _line(error: Exception) -> str:
    # Typer's own errors, of the copy of click that it carries or of click itself.
    if callable(said := getattr(error, "format_message", None)):
        at = getattr(getattr(error, "ctx", None), "command_path", "robustok")
        return " ".join(str(said()).split()).rstrip(".") + f"; see {at} --help"
    if isinstance(error, RobustokError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get(error.name or "")):
        return f"this needs {error.name}: pip install 'robustok[{extra}]'"
    reason = " ".join(str(error).split()) or "no reason given"
    return f"{type(error).__name__}: {reason} (--debug shows where)"


def _say(line: str, code: int) -> int:
    sys.stderr.write(f"robustok: {line}\n")
    return code
