"""robustok lm-eval: the command line of lm-eval, with the model `robustok` registered."""

from __future__ import annotations

import sys

import click

from robustok.cli.options import option
from robustok.cli.terminal import print_table
from robustok.errors import RobustokError

LM_EVAL_HELP = """\
robustok lm-eval runs lm-eval with contexts tokenized by a scheme. Its own settings are in
--model_args, as pretrained=PATH,scheme=uniform,draws=10,seed=0:
  pretrained  a model's folder or hub name, or an address such as http://127.0.0.1:8000/v1
  tokenizer   of a model behind a server: a folder or a hub name
  scheme      such as 'uniform-k(alpha=0.5)'; default canonical
  draws       tokenizations of each context, over which accuracies are averaged; default 1
  seed        the same seed gives the same draws; default 0
  dtype       type of the weights: float32 or bfloat16; default as saved
--scheme, given several times, runs each scheme and compares it with the first one.
--model is robustok if not given. All other arguments are lm-eval's:
"""
LM_EVAL = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}


def lm_eval(
    context: click.Context,
    schemes: tuple[str, ...] = option(
        "scheme instead of that in --model_args; several are compared with the first one",
        "--scheme",
        default=(),
        metavar="SCHEME",
    ),
) -> None:
    """Run lm-eval with contexts tokenized by a scheme.

    All other arguments are lm-eval's own; --model is robustok if not given, and --model_args takes
    pretrained=PATH,scheme=uniform,draws=10,seed=0. Accuracies are averaged over the draws, with
    the spread between them beside the standard error.
    """
    from lm_eval.__main__ import cli_evaluate

    from robustok.integrations.lm_eval import comparisons, draw_by_draw

    command, *args = context.args or ["run"]
    if command.startswith("-"):
        command, args = "run", context.args
    if command == "run" and not {"--model", "-M"} & {arg.split("=")[0] for arg in args}:
        args = ["--model", "robustok", *args]
    runs = [_with_scheme(args, scheme) for scheme in schemes] or [args]
    if {"-h", "--help"} & set(args):
        click.echo(LM_EVAL_HELP)
    before = sys.argv
    try:
        with draw_by_draw(keep=len(runs) > 1) as results:
            for arguments in runs:
                sys.argv = ["lm-eval", command, *arguments]  # where lm-eval's command reads them
                cli_evaluate()
    except RobustokError:
        raise
    except ValueError as error:
        hint = "; `robustok lm-eval ls tasks` lists them" if "Tasks not found" in str(error) else ""
        raise RobustokError(f"lm-eval: {error}{hint}") from error
    finally:
        sys.argv = before
    if results:
        rows = [
            [
                *names,
                f"{change.before:.3f}",
                f"{change.after:.3f}",
                f"{change.mean:+.3f}",
                change.bounds_text(),
                change.p_text(),
            ]
            for *names, change in comparisons(schemes, results)
        ]
        titles = ["scheme", "task", "metric", schemes[0], "this scheme", "difference", "95%", "p"]
        print_table(titles, rows, left=3)


def _with_scheme(args: list[str], scheme: str) -> list[str]:
    """The arguments with a scheme in --model_args."""
    names = [arg.partition("=")[0] for arg in args]
    at = names.index("--model_args") if "--model_args" in names else len(args)
    at += at < len(args) and "=" not in args[at]
    if at >= len(args):
        raise RobustokError("--scheme is of a model: name one with --model_args pretrained=MODEL")
    return [*args[:at], f"{args[at]},scheme={scheme}", *args[at + 1 :]]
