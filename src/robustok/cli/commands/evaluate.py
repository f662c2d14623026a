"""robustok evaluate, icl, perplexity and lm-eval: a model under drawn tokenizations.

`lm-eval` is the command line of lm-eval, with the model `robustok` registered.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from robustok import attack as attacks
from robustok import evaluation
from robustok.cli.commands.attack import attack_row
from robustok.cli.options import (
    ScoringOptions,
    StartOptions,
    by_name,
    draws_option,
    file_option,
    limit_option,
    option,
    scheme_option,
)
from robustok.cli.printing import bar, print_json, print_result, row_of
from robustok.errors import RobustokError
from robustok.evaluation.results import item_rows, model_table, table
from robustok.models.devices import PRECISIONS, precision_of
from robustok.runtime.files import write_rows, write_whole
from robustok.tasks import Item, benchmark_files, read_items, read_texts


@dataclass(frozen=True, kw_only=True)
class TaskOptions(ScoringOptions):
    """What `evaluate` and `icl` measure, and the files that they write."""

    items: tuple[str, ...] = option(
        "JSON Lines with question, choices and label, a folder of such files, or the name of a "
        "benchmark on the hub",
        metavar="SOURCE",
    )
    seed: int = option("the same seed, the same draws")
    draws: int = draws_option("draws of each question; a canonical scheme is drawn once", 10)
    scheme: tuple[str, ...] = scheme_option(default=("canonical", "uniform"))
    limit: int | None = limit_option()
    out: Path | None = file_option(
        "file for per-item results, .jsonl or .parquet; also resumes an interrupted run of the "
        "same settings, which FILE.part.jsonl keeps",
        "--out", "-o", suffixes=(".jsonl", ".parquet"),
    )  # fmt: skip
    table: Path | None = file_option("file for a Markdown table in the paper's form")


def evaluate(models: list[str], options: TaskOptions) -> None:
    """Measure MODELS under drawn tokenizations.

    Prints the accuracy on multiple-choice questions with a 95% interval, also by log-probabilities
    per character (acc_norm, as in lm-eval), and a paired test of each scheme against the first one.
    Several models are also compared with the first one. Items without a question, such as BLiMP's,
    are scored as whole sentences.
    """
    _evaluate(by_name(models), _read_tasks(options.items, options.limit), options)


def icl(
    model: str,
    count: int = option(
        "solved examples before each question", "--num-fewshot", "-k", default=10, min=1
    ),
    example_scheme: str = option(
        "scheme of the examples' questions", default="canonical", metavar="SCHEME"
    ),
    attack: bool = option(
        "also the greedy attack on every question", "--attack/--no-attack", default=False
    ),
    *,
    options: TaskOptions,
) -> None:
    """Measure MODEL with few-shot examples before every question.

    The last items of a task are the examples, and are not evaluated. Their questions are drawn with
    --example-scheme; their answers stay canonical.
    """
    from robustok.evaluation.questions import check_questions

    tasks = _read_tasks(options.items, options.limit + count if options.limit else None)
    for name, questions in tasks.items():
        if len(questions) <= count:
            raise RobustokError(
                f"'{name}' has {len(questions)} items: too few for {count} examples"
            )
        if attack:
            check_questions(questions)
    loaded, vocab = _evaluate(
        {model: model}, tasks, options, evaluation.FewShot(count, example_scheme)
    )
    for name, questions in tasks.items() if attack else ():
        prefix = evaluation.solved_examples(
            vocab, questions[-count:], example_scheme, seed=options.seed,
            start=options.start_ids(vocab),
        )  # fmt: skip
        with bar(f"attack {name}") as progress:
            result = attacks.attack_items(
                loaded, vocab, questions[:-count], seed=options.seed, prefix=prefix,
                overflow=options.overflow, progress=progress,
            )  # fmt: skip
        row = {"model": model, "task": name} | attack_row(result)
        print_result(result, row, options.as_json)


def _evaluate(
    models: Mapping[str, str], tasks: Mapping[str, list[Item]], options: TaskOptions,
    few_shot: evaluation.FewShot | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Evaluate models by name, print and write the results; returns the last one with its vocab."""
    results: dict[str, list[evaluation.TaskResult]] = {}
    loaded = vocab = None
    for (name, path), part in zip(models.items(), _part_files(options.out, models), strict=True):
        vocab = options.vocabulary(path)
        start = options.start_ids(vocab)
        loaded = options.load(path)
        with bar("evaluate") as progress:
            results[name] = evaluation.evaluate_tasks(
                loaded, vocab, tasks, options.scheme, draws=options.draws, seed=options.seed,
                few_shot=few_shot, start=start, overflow=options.overflow, resume_file=part,
                progress=progress,
            )  # fmt: skip
        _print_results(name, results[name], options.as_json)
    several = len(results) > 1
    if several:
        _compare_models(results, options.as_json)
    if options.table is not None:
        text = model_table(results) if several else table(*results.values())
        write_whole(options.table, text + "\n")
    if options.out is not None:
        _write_items(results, options.out)
    return loaded, vocab


def _read_tasks(sources: Sequence[str], limit: int | None) -> dict[str, list[Item]]:
    """Every task by name, from files, folders and the hub."""
    tasks: dict[str, list[Item]] = {}
    for source in sources:
        name = Path(source).stem if source.endswith(".jsonl") else source
        files = benchmark_files(source) if Path(source).is_dir() else {name: source}
        for task, path in files.items():
            if task in tasks:
                raise RobustokError(f"two tasks are called '{task}': give each once")
            tasks[task] = read_items(path, limit=limit)
    return tasks


def _part_files(out: Path | None, names: Collection[str]) -> Sequence[Path | None]:
    """The files that keep the finished results of each model, with their settings.

    Raises RobustokError where the file of results is there, but none that says its settings.
    """
    if out is None:
        return [None] * len(names)
    several = len(names) > 1
    parts = [out.with_name(f"{out.name}{f'.{n}' if several else ''}.part.jsonl") for n in names]
    if out.exists() and not any(part.exists() for part in parts):
        raise RobustokError(
            f"'{out}' holds results with other settings: delete it, or name another file"
        )
    return parts


def _compare_models(results: Mapping[str, Sequence[evaluation.TaskResult]], as_json: bool) -> None:
    """Print the paired differences of several models from the first one."""
    if not as_json:
        typer.echo("\n" + model_table(results))
        return
    for one in evaluation.compare_models(results):
        names = {"model": one.model, "against": one.against, "task": one.task}
        print_json(names | {"eval_scheme": one.eval_scheme} | _difference_row(one.paired))


def _difference_row(change: evaluation.Difference) -> dict[str, Any]:
    names = ("low", "high", "lost", "won", "n", "p")
    return {"difference": change.mean} | {name: getattr(change, name) for name in names}


def _print_results(model: str, results: Sequence[evaluation.TaskResult], as_json: bool) -> None:
    several = len({result.task for result in results}) > 1
    for result in results:
        one, against = result.evaluation, result.against
        row = {"model": model, "task": result.task} | row_of(
            one, "eval_scheme", "accuracy", "low", "high", "acc_norm", "acc_norm_low",
            "acc_norm_high", "n", "draws", "seed", "seconds", "precision",
        )  # fmt: skip
        row |= {} if one.consistency is None else {"consistency": one.consistency}
        text = f"{result.task}, {one}" if several else str(one)
        if against:
            row |= {"difference": against.mean, "p": against.p}
            text += (
                f"; against the first {against.mean:+.3f} "
                f"[{against.low:+.3f}, {against.high:+.3f}], p = {against.p:.2g}"
            )
        print_result(text, row, as_json)


def _write_items(results: Mapping[str, Sequence[evaluation.TaskResult]], out: Path) -> None:
    """Write the outcome of every item, as JSON Lines or Parquet."""
    rows = [{"model": name, **row} for name, one in results.items() for row in item_rows(one)]
    if out.suffix == ".jsonl":
        write_rows(out, rows)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    write_whole(out, sink.getvalue().to_pybytes())


def perplexity(
    model: str,
    texts: list[Path],
    seed: int,
    scheme: tuple[str, ...] = scheme_option(default=("canonical", "uniform")),
    draws: int | None = draws_option("draws of each text  [default: 1; 256 with --marginal]", None),
    marginal: bool = option("sum over all tokenizations of a text, for short texts", default=False),
    *,
    options: StartOptions,
    limit: int | None = limit_option(),
    sample_by: str = "line",
) -> None:
    """Measure MODEL's perplexity on text, canonical and drawn.

    Each text is after the model's own start token, or else after --start-token.

    --marginal prints the probability of each text over all its tokenizations, estimated by
    importance sampling, and that of its canonical tokenization.
    """
    vocab = options.vocabulary(model)
    documents = list(islice(read_texts(texts, sample_by=sample_by), limit))
    start = next(iter(options.start_ids(vocab)), None)
    loaded = options.load(model)
    precision = {"precision": precision_of(loaded)}
    if marginal:
        with bar("marginal") as progress:
            sums = evaluation.marginal(
                loaded, vocab, documents, draws=draws or 256, seed=seed, start=start,
                progress=progress,
            )  # fmt: skip
        for text, one in zip(documents, sums, strict=True):
            # A count of any size does not fit a JSON number, and neither does infinity.
            error = one.error if math.isfinite(one.error) else None
            row = asdict(one) | {"tokenizations": str(Decimal(one.tokenizations)), "error": error}
            row = {"text": text} | row | precision
            print_result(_marginal_line(text, one), row, options.as_json)
        return
    for spec in scheme:
        with bar(spec) as progress:
            result = evaluation.perplexity(
                loaded, vocab, documents, spec, draws=draws or 1, seed=seed, start=start,
                progress=progress,
            )  # fmt: skip
        print_result(result, {"model": model} | asdict(result) | precision, options.as_json)


def _marginal_line(text: str, one: Any) -> str:
    gain = one.log_marginal - one.log_canonical
    return (
        f"{one.log_marginal:.3f} ± {one.error:.3f} nats over {Decimal(one.tokenizations):.3g} "
        f"tokenizations, {gain:.3f} above the canonical one; worth {one.effective:.1f} of "
        f"{one.draws} draws: {text[:50]!r}"
    )


LM_EVAL_HELP = """\
robustok lm-eval runs lm-eval with contexts tokenized by a scheme. Its own settings are in
--model_args, as pretrained=PATH,scheme=uniform,draws=10,seed=0:
  pretrained  a model's folder or hub name
  scheme      such as 'uniform-k(alpha=0.5)'; default canonical
  draws       tokenizations of each context, over which accuracies are averaged
  seed        the same seed gives the same draws
  dtype       type of the weights; --dtype float32 sets it too; default as saved
--model is robustok if not given. All other arguments are lm-eval's:
"""
LM_EVAL = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}


def lm_eval(
    context: typer.Context,
    dtype: str | None = option(
        "auto, float32 or bfloat16", default=None, choices=PRECISIONS, metavar="TYPE"
    ),
) -> None:
    """Run lm-eval with contexts tokenized by a scheme.

    All arguments are lm-eval's own; --model is robustok if not given, and --model_args takes
    pretrained=PATH,scheme=uniform,draws=10,seed=0. Accuracies are averaged over the draws, with
    the spread between them beside the standard error.
    """
    from lm_eval._cli import HarnessCLI

    from robustok.integrations.lm_eval import draw_by_draw

    command, *args = context.args or ["run"]
    if command.startswith("-"):
        command, args = "run", context.args
    if command == "run" and not {"--model", "-M"} & {arg.split("=")[0] for arg in args}:
        args = ["--model", "robustok", *args]
    if dtype is not None:
        args = _with_dtype(args, dtype)
    if {"-h", "--help"} & set(args):
        typer.echo(LM_EVAL_HELP)
    before, sys.argv = sys.argv, ["lm-eval", command, *args]
    try:
        harness = HarnessCLI()
        with draw_by_draw():
            harness.execute(harness.parse_args())
    finally:
        sys.argv = before


def _with_dtype(args: list[str], dtype: str) -> list[str]:
    """The arguments with the type of the weights in --model_args."""
    value = next(
        (number + ("=" not in arg) for number, arg in enumerate(args)
         if arg.partition("=")[0] == "--model_args"), len(args)
    )  # fmt: skip
    if value >= len(args):
        raise RobustokError("--dtype is of a model: name one with --model_args pretrained=MODEL")
    return [*args[:value], f"{args[value]},dtype={dtype}", *args[value + 1 :]]
