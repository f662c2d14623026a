"""robustok evaluate and lm-eval: accuracy on questions, drawn and attacked, and perplexity.

`evaluate` is a study of models that exist. `robustok evaluate MODEL --items F --out DIR` runs in
DIR, where the same command goes on after an interruption, also with more schemes or models, and
without --out in a temporary folder. `lm-eval` is the command line of lm-eval, with the model
`robustok` registered.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import click

from robustok.attack.settings import is_attack
from robustok.cli.options import (
    by_name,
    figure_folder,
    folder_option,
    option,
    sample_by_option,
    scheme_option,
    served_tokenizer_option,
)
from robustok.cli.printing import print_json, print_model, print_written
from robustok.cli.terminal import ProgressCallback, bar, print_table
from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference
from robustok.models.load import overflow_option
from robustok.runtime.files import JsonFields, JsonObject, write_whole
from robustok.runtime.inputs import read_rows
from robustok.study import Cell, Watch, run_study
from robustok.study.config import checked_study
from robustok.study.measurements import Attack, MeasuredCell, OnQuestions
from robustok.study.run import answers_of, worst_rows
from robustok.study.sections import SOURCES, ChatModel

Row = dict[str, Any]
_FLAGS = {  # the option of a field of the study
    "questions.items": "--items",
    "corpus.held_out": "--texts",
    "corpus.sample_by": "--sample-by",
    "evaluate.eval_schemes": "--scheme",
    "perplexity.eval_schemes": "--scheme",
    "few_shot.schemes": "--examples",
    "few_shot.examples": "--few-shot",
    "model.start_token": "--start-token",
    "tokenizer": "--tokenizer",
}


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ChatModel):
    """What is measured, how the study runs, and how its rows are printed."""

    items: tuple[str, ...] = option(SOURCES, default=(), metavar="SOURCE")
    texts: tuple[str, ...] = option(
        "text to measure perplexity on: .txt, .jsonl or .parquet", default=(), metavar="FILE"
    )
    schemes: tuple[str, ...] = scheme_option(
        "how questions and texts are tokenized, or an attack on the questions as "
        "'adversarial(distances=(2, 4), steps=10, search=beam)'",
        default=("canonical", "uniform"),
    )
    draws: int | None = option(
        "draws of each question or text  [default: 10, of a text 1]", "--draws", "-n",
        default=None, min=1,
    )  # fmt: skip
    limit: int | None = option("questions of each task, and texts, at most", default=None, min=1)
    few_shot: int | None = option(
        "solved examples before each question: the last questions, which are not evaluated",
        "--few-shot", "-k", default=None, min=1, metavar="N", panel="Few-shot examples",
    )  # fmt: skip
    examples: tuple[str, ...] = option(
        "how the questions of the examples are tokenized, in turn",
        default=("canonical",), metavar="SCHEME", panel="Few-shot examples",
    )  # fmt: skip
    sample_by: str = sample_by_option()
    tokenizer: str | None = served_tokenizer_option()
    overflow: str = overflow_option()
    seed: int = option("the same seed, the same draws", default=0)
    out: Path | None = folder_option(
        "folder of the results; the same command goes on there, also with more schemes or models",
        check=figure_folder,
    )
    as_json: bool = option("print JSON", "--json", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.items and not self.texts:
            raise RobustokError(
                "give --items: a file of questions, a folder, or a benchmark's name; or --texts"
            )
        if self.examples != EvaluateOptions.examples and self.few_shot is None:
            raise RobustokError("--examples needs their number: give --few-shot")
        if self.attacks and not self.items:
            raise RobustokError(
                f"--scheme {self.attacks[0]}: an attack is on questions: give --items"
            )
        if self.texts and not self.drawn:
            raise RobustokError("--texts needs a scheme that draws: give one with --scheme")

    @property
    def attacks(self) -> list[str]:
        return [scheme for scheme in self.schemes if is_attack(scheme)]

    @property
    def drawn(self) -> list[str]:
        return [scheme for scheme in self.schemes if not is_attack(scheme)]


def evaluate(models: tuple[str, ...], given: Annotated[dict, EvaluateOptions]) -> None:
    """Measure MODELS under drawn and attacked tokenizations.

    Prints the accuracy on multiple-choice questions with a 95% interval, also by log-probabilities
    per character (acc_norm, as in lm-eval), and the difference of each scheme from the first one.
    An attack is a scheme; of several the worst of each question is reported, too. Several models
    are compared with the first one. A model that vLLM serves is an address such as
    http://127.0.0.1:8000/v1, with --tokenizer. --texts measures perplexity. Items without a
    question, such as BLiMP's, are scored as whole sentences.
    """
    options, named = EvaluateOptions(**given), by_name(models)
    study = checked_study(_fields_of(named, options), _error_of_option)
    with nullcontext(options.out) if options.out else TemporaryDirectory() as place:
        folder = Path(place)
        with bar("evaluate") as progress:
            printed = _Printed(folder, options.as_json, progress)
            run_study(study, folder, by_content=options.out is not None, watch=printed)
        printed.print_worst()
        if len(named) > 1:
            print_comparison(printed.by_model, options.as_json)
            if options.items and not options.as_json:
                from robustok.report import Results
                from robustok.report.source import read_source

                print_accuracies(Results(read_source(folder).rows))
        if options.out is not None:
            from robustok.report import write_report

            print_written([write_report(folder)], options.as_json)
            _write_parquet(printed.by_model, folder / "items.parquet")


def print_accuracies(results: Any) -> None:
    """Print the accuracies of a report's results as a table, a line for each model."""
    from robustok.report.tables import accuracy_table

    table = accuracy_table(results)
    shares = [[f"{entry.text} {entry.interval}" for entry in line] for line in table.lines]
    print_table(table.head, shares, left=1)


def _write_parquet(by_model: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write the results of all questions as one table, where pyarrow is installed.

    That of an attack has no steps.
    """
    import pandas as pd

    names = ("model", "task", "eval_scheme", "few_shot_scheme")
    table = [
        {name: row[name] for name in names if name in row}
        | {name: value for name, value in item.items() if name not in ("steps", "fields")}
        | ({"correct": float(not item["success"])} if "success" in item else {})
        for rows in by_model.values()
        for row in rows
        for item in row["items"]
    ]
    if table and find_spec("pyarrow") is not None:
        write_whole(path, pd.DataFrame(table).to_parquet())


def _fields_of(named: Mapping[str, str], options: EvaluateOptions) -> JsonObject:
    """The fields of the study that the options are, as its YAML has them."""
    drawn = options.drawn
    loading = {one.name: getattr(options, one.name) for one in fields(ChatModel)}
    first, *others = [loading | {"name": p, "label": name} for name, p in named.items()]
    study: JsonObject = {
        "name": "evaluate",
        "title": f"Accuracy of {' and '.join(named)} when the tokenization of a text changes",
        "seed": options.seed,
        "model": first,
        "other_models": others,
        "tokenizer": {"name": options.tokenizer} if options.tokenizer else None,
    }
    if options.items:
        own = {"items": options.limit, "overflow": options.overflow}
        study["questions"] = {"items": list(options.items)}
        study["attacks"] = [Attack.parse(scheme).settings | own for scheme in options.attacks]
        draws = {"draws": options.draws} if options.draws else {}
        study["evaluate"] = own | draws | {"eval_schemes": drawn} if drawn else None
        if options.few_shot:
            examples = {"examples": options.few_shot, "schemes": list(options.examples)}
            study["few_shot"] = examples
    if options.texts:
        texts = {"held_out": list(options.texts), "measured": options.limit}
        study["corpus"] = texts | {"sample_by": options.sample_by}
        study["perplexity"] = {"eval_schemes": drawn, "draws": options.draws or 1}
    return study


def _error_of_option(field: str, message: str) -> RobustokError:
    """An error that names the option in place of the field of the study, where it is one."""
    name = ".".join(part for part in field.split(".") if not part.isdecimal())
    flag = _FLAGS.get(name)
    return RobustokError(message.replace(field, flag, 1) if flag else message)


class _Printed(Watch):
    """Prints the rows as their cells finish, and keeps them with their answers."""

    def __init__(self, folder: Path, as_json: bool, progress: ProgressCallback) -> None:
        self._folder, self._as_json, self._progress = folder, as_json, progress
        self._several_tasks = False
        self._todo: list[MeasuredCell] = []
        self._records: dict[str, Any] = {}
        self.by_model: dict[str, list[Row]] = {}

    def plan(self, cells: tuple[Cell, ...], finished: Mapping[str, Any]) -> None:
        self._todo = [cell for cell in cells if isinstance(cell, MeasuredCell)]
        self._several_tasks = len({cell.task for cell in self._todo}) > 1
        self._records = dict(finished)
        self._print_finished()

    def progress(self, cell: Cell, done: int, total: int) -> None:
        self._progress(done, total, cell.label)

    def finish(self, cell: Cell, record: JsonFields) -> None:
        self._records[cell.key] = record
        self._print_finished()

    def _print_finished(self) -> None:
        """Print in the order of the plan, also what an earlier run has finished of it."""
        while self._todo and self._todo[0].key in self._records:
            cell = self._todo.pop(0)
            self._print(cell, self._records[cell.key])

    def _print(self, cell: MeasuredCell, record: JsonFields) -> None:
        measurement, model = cell.measurement, cell.model.description
        row: Row = {
            "model": model,
            "task": cell.task,
            **record["result"],
            "eval_scheme": cell.eval_scheme,
            **({"few_shot_scheme": cell.few_shot.scheme} if cell.few_shot else {}),
            "seed": cell.seed,
            "seconds": record["seconds"],
        }
        items = self._folder / "items" / f"{cell.key}.jsonl"
        row["items"] = read_rows(items) if items.is_file() else []
        row["answers"] = {cell.seed: answers_of(row["items"])}
        rows = self.by_model.setdefault(model, [])
        if not rows and "precision" in row and not self._as_json:
            print_model(model, row["precision"], cell.seed)
        first = next((one for one in rows if one["task"] == row["task"]), None)
        change = None
        if first is not None and isinstance(measurement, OnQuestions):
            change = difference(first, row)
            row |= {"difference": change.mean, "p": change.p}
        rows.append(row)
        for printed in measurement.rows(row):
            self._print_row(printed, measurement.line(printed), change)

    def _print_row(self, row: JsonFields, line: str, change: Difference | None = None) -> None:
        if self._as_json:
            print_json(row)
            return
        against = "" if change is None else f"; against the first {change_text(change)}"
        click.echo(f"{_questions_of(row, self._several_tasks)}{line}{against}")

    def print_worst(self) -> None:
        """Print the worst of several attacks by question."""
        hidden = ("answers", "cell", "configuration")
        for model, rows in self.by_model.items():
            known = [row | {"answers": row["answers"][row["seed"]]} for row in rows]
            for row in worst_rows(known):
                printed = {name: row[name] for name in row if name not in hidden}
                of_model = f"{model}, " if len(self.by_model) > 1 else ""
                self._print_row(printed, of_model + Attack().line(printed))


def _questions_of(row: JsonFields, several_tasks: bool) -> str:
    """The task of a row, where there are several, and the examples before its questions."""
    task = f"{row['task']}, " if several_tasks else ""
    return task + (f"{row['few_shot_scheme']} examples, " if "few_shot_scheme" in row else "")


def change_text(change: Difference) -> str:
    """A difference with its interval and its p, on one line."""
    return f"{change.mean:+.3f} {change.bounds_text()}, p = {change.p_text()}"


def print_comparison(rows: Mapping[str, Sequence[Row]], as_json: bool) -> None:
    """Print the paired differences of several models from the first one, by task and scheme."""
    (against, first), *others = rows.items()
    several_tasks = len({row["task"] for row in first}) > 1
    for (name, theirs), one in ((other, one) for other in others for one in first):
        same = [row for row in theirs if _measured(row) == _measured(one)]
        if not same or not any(one["answers"].values()):
            continue
        change = difference(one, same[0])
        measured = ("task", "eval_scheme", "few_shot_scheme")
        names = {"model": name, "against": against} | {n: one[n] for n in measured if n in one}
        if as_json:
            numbers = ("low", "high", "lost", "won", "n", "p")
            values = {number: getattr(change, number) for number in numbers}
            print_json({**names, "difference": change.mean, **values})
            continue
        questions = f"{_questions_of(one, several_tasks)}{one['eval_scheme']}"
        click.echo(f"{name} against {against}, {questions}: {change_text(change)}")


def _measured(row: Row) -> tuple[str, ...]:
    return row["task"], row["eval_scheme"], row.get("few_shot_scheme", "")


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
    pretrained=PATH,scheme=uniform,draws=10,seed=0, the tokenizer of a model behind a server and the
    dtype of the weights. Accuracies are averaged over the draws, with the spread between them
    beside the standard error.
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
        click.echo(lm_eval.__doc__)
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
            [*names, f"{change.before:.3f}", f"{change.after:.3f}", change_text(change)]
            for *names, change in comparisons(schemes, results)
        ]
        titles = ["scheme", "task", "metric", schemes[0], "this scheme", "difference with its 95%"]
        print_table(titles, rows, left=3)


def _with_scheme(args: list[str], scheme: str) -> list[str]:
    """The arguments with a scheme in --model_args, or -a in short."""
    is_ours = [arg.partition("=")[0] in ("--model_args", "-a") for arg in args]
    at = is_ours.index(True) if any(is_ours) else len(args)
    at += at < len(args) and "=" not in args[at]
    if at >= len(args):
        raise RobustokError("--scheme is of a model: name one with --model_args pretrained=MODEL")
    return [*args[:at], f"{args[at]},scheme={scheme}", *args[at + 1 :]]
