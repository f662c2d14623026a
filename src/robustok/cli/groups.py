"""The commands by name: the module of each is imported when it is used.

A page of names alone (`--help`, a wrong name) imports none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from robustok.errors import RobustokError, nearest
from robustok.version import __version__

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
    "lm-eval": ("lm_eval", "Run lm-eval with contexts tokenized by a scheme."),
    "guard": ("guard", "Compare IDS with the canonical encoding of their text."),
    "audit": ("guard", "Report how far the sampled ids in PATHS drifted from the encoding of their "
              "text."),
    "doctor": ("doctor",
               "Show versions, hardware, caches and missing packages, or check a tokenizer."),
    "study": ("study", "List, plan and run studies. `study NAME` is `study run NAME`."),
}  # fmt: skip
# Former commands: what to type instead.
MOVED = {
    "attack": "robustok evaluate MODEL --items FILE -s adversarial",
    "icl": "robustok evaluate MODEL --items FILE --few-shot 10 --examples SCHEME",
    "perplexity": "robustok evaluate MODEL --texts FILE",
    "certify": "robustok evaluate MODEL --items FILE -s adversarial, whose rows have the share "
               "proved",
    "embeddings": "robustok study run embeddings --model MODEL",
    "bound": "robustok study run bound --model MODEL",
    "analyze": "robustok study run split-counts, segmentations or dropout",
}  # fmt: skip


class Group(click.Group):
    """Commands in the order in which they were added, whose names may be mistyped."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        names = self.list_commands(ctx)
        if args[0] in MOVED and args[0] not in names and ctx.parent is None:
            raise RobustokError(f"there is no command '{args[0]}': type {MOVED[args[0]]}")
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
    module = import_module(f"robustok.cli.commands.{COMMANDS[name][0]}")
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
