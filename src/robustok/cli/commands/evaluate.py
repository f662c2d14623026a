"""robustok evaluate, icl, perplexity, embeddings, bound and lm-eval: measure a model.

`lm-eval` is the command line of lm-eval, with the model `robustok` registered.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import click

from robustok.cli.measuring import RunOptions, measure, print_comparison
from robustok.cli.options import limit_option, option
from robustok.cli.terminal import print_table
from robustok.errors import RobustokError
from robustok.runtime.files import JsonObject
from robustok.study.measurements import Bound, Embeddings, Evaluate, Perplexity
from robustok.study.sections import FewShot, Sources


def evaluate(
    models: tuple[str, ...],
    questions: Annotated[dict, Sources],
    measurement: Annotated[dict, Evaluate],
    options: RunOptions,
) -> None:
    """Measure MODELS under drawn tokenizations.

    Prints the accuracy on multiple-choice questions with a 95% interval, also by log-probabilities
    per character (acc_norm, as in lm-eval), and the difference of each scheme from the first one.
    Several models are also compared with the first one. Items without a question, such as BLiMP's,
    are scored as whole sentences.
    """
    _check_items(questions)
    rows = measure(models, "evaluate", options, evaluate=measurement, questions=questions)
    print_comparison(rows, options.as_json)


def icl(
    model: str,
    questions: Annotated[dict, Sources],
    few_shot: Annotated[dict, FewShot],
    attack: bool = option(
        "also the greedy attack on every question", "--attack/--no-attack", default=False
    ),
    *,
    measurement: Annotated[dict, Evaluate],
    options: RunOptions,
) -> None:
    """Measure MODEL with few-shot examples before every question.

    The last items of a task are the examples, and are not evaluated. Their questions are drawn with
    --example-scheme; their answers stay canonical.
    """
    _check_items(questions)
    attacked = {name: measurement[name] for name in ("items", "overflow") if name in measurement}
    measure(
        [model],
        "icl",
        options,
        evaluate=measurement,
        questions=questions,
        few_shot=few_shot,
        attacks=[attacked] if attack else [],
    )


def _check_items(questions: JsonObject) -> None:
    """Raise RobustokError where no questions are given to a command that takes no single text."""
    if not questions.get("items"):
        raise RobustokError("give --items: a file of questions, a folder, or a benchmark's name")


def perplexity(
    model: str,
    texts: tuple[Path, ...],
    measurement: Annotated[dict, Perplexity],
    options: RunOptions,
    limit: int | None = limit_option(),
    sample_by: str = "line",
) -> None:
    """Measure MODEL's perplexity on text, canonical and drawn.

    Each text is after the model's own start token, or else after --start-token.
    """
    held_out = tuple(map(str, texts))
    corpus = {"held_out": held_out, "measured": limit, "sample_by": sample_by}
    measure([model], "perplexity", options, corpus=corpus, perplexity=measurement)


LM_EVAL_HELP = """\
robustok lm-eval runs lm-eval with contexts tokenized by a scheme. Its own settings are in
--model_args, as pretrained=PATH,scheme=uniform,draws=10,seed=0:
  pretrained  a model's folder or hub name
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


def embeddings(
    models: tuple[str, ...],
    measurement: Annotated[dict, Embeddings],
    options: RunOptions,
) -> None:
    """Compare the tokenizations of a word inside MODELS.

    Prints the mean distance between unit-normalized last-token states of the canonical and of
    uniformly drawn tokenizations, per layer. The report in --out has one figure of all models and
    sentences.
    """
    if {"words", "words_file"} <= measurement.keys():
        raise RobustokError("--words-file has all words: leave out --words")
    measure(models, "embeddings", options, embeddings=measurement)


@dataclass(frozen=True, kw_only=True)
class BoundOptions(RunOptions):
    """How a study runs that draws nothing without questions, and reads no start token."""

    seed: int | None = option("of the draws, with --items", default=None)  # type: ignore[assignment]
    start_token: None = None


def bound(
    models: tuple[str, ...],
    questions: Annotated[dict, Sources],
    measurement: Annotated[dict, Bound],
    options: BoundOptions,
) -> None:
    """Compute the bound of MODELS from their weights.

    Prints C1, C2 and the bound by layer and for the whole model, as in the theorem and as in its
    proof. --items adds the measured ratio, over drawn and over attacked tokenizations.
    """
    if questions and options.seed is None:
        raise RobustokError("--items draws tokenizations: give a --seed")
    if options.seed is not None and not questions:
        raise RobustokError("--seed: nothing is drawn without --items: leave it out")
    options = replace(options, seed=options.seed or 0)
    measure(models, "bound", options, bound=measurement, questions=questions or None)
