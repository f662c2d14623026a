"""robustok lm-eval: the command line of lm-eval, with the model `robustok` registered."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from robustok.errors import RobustokError, nearest
from robustok.models.devices import PRECISIONS

HELP = """\
robustok lm-eval runs lm-eval with contexts tokenized by a scheme. Its own settings are in
--model_args, as pretrained=PATH,scheme=uniform,draws=10,seed=0:
  pretrained  a model's folder or hub name
  scheme      such as 'uniform-k(alpha=0.5)'; default canonical
  draws       tokenizations of each context, over which accuracies are averaged
  seed        the same seed gives the same draws
  dtype       type of the weights; --dtype float32 sets it too; default as saved
--model is robustok if not given. All other arguments are lm-eval's:
"""
SETTINGS = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}


def lm_eval(
    context: typer.Context,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="TYPE", help="auto, float32 or bfloat16")
    ] = None,
) -> None:
    """Run lm-eval with contexts tokenized by a scheme.

    All arguments are lm-eval's own; --model is robustok if not given, and --model_args takes
    pretrained=PATH,scheme=uniform,draws=10,seed=0. Accuracies are averaged over the draws, with
    the spread between them beside the standard error.
    """
    from lm_eval._cli import HarnessCLI

    from robustok.integrations.lm_eval import draw_by_draw

    args = list(context.args)
    subcommand = args[0] if args and not args[0].startswith("-") else "run"
    if subcommand == "run" and not {"--model", "-M"} & {arg.split("=")[0] for arg in args}:
        args = [*(["run"] if args[:1] != ["run"] else []), *args]
        args[1:1] = ["--model", "robustok"]
    if dtype is not None:
        args = _with_dtype(args, dtype)
    if {"-h", "--help"} & set(args) or not args:
        typer.echo(HELP)
    before, sys.argv = sys.argv, ["lm-eval", *(args or ["--help"])]
    try:
        harness = HarnessCLI()
        with draw_by_draw():
            harness.execute(harness.parse_args())
    finally:
        sys.argv = before


def _with_dtype(args: list[str], dtype: str) -> list[str]:
    """The arguments with the type of the weights in --model_args."""
    if dtype not in PRECISIONS:
        raise RobustokError(f"unknown dtype '{dtype}': {nearest(dtype, PRECISIONS)}")
    for number, arg in enumerate(args):
        if arg.startswith("--model_args="):
            return [*args[:number], f"{arg},dtype={dtype}", *args[number + 1 :]]
        if arg == "--model_args" and number + 1 < len(args):
            value = f"{args[number + 1]},dtype={dtype}"
            return [*args[: number + 1], value, *args[number + 2 :]]
    raise RobustokError("--dtype is of a model: name one with --model_args pretrained=MODEL")
