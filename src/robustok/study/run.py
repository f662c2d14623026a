"""Runs the cells of a study, keeps each result, and continues an interrupted run.

A folder holds `study.json` (the resolved study), `cells/KEY/` (one folder a cell, finished when
it has a `cell.json`), `results.jsonl` (a row for every finished measurement), `items/` (the results
for each question) and `run.json` (what to cite: versions, seeds and digests).
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, NotRequired, Protocol, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from robustok.attack.settings import is_attack, worst_label
from robustok.errors import RobustokError
from robustok.evaluation.intervals import share
from robustok.runtime.environment import available_cores
from robustok.runtime.files import (
    JsonFields,
    JsonObject,
    clear_parts,
    disk_full_in_one_line,
    locked,
    read_json_or_none,
    read_object,
    write_json,
    write_rows,
    write_whole,
)
from robustok.runtime.packages import versions
from robustok.runtime.processes import Processes, Worker, dispatch
from robustok.runtime.records import (
    check_unused,
    digests_of,
    read_finished,
    sha256_of,
    write_record,
)
from robustok.study.cell import Cell
from robustok.study.config import STRICT, check_fields
from robustok.study.measurements import MeasuredCell
from robustok.study.models import StepCell, close_model
from robustok.study.planner import plan
from robustok.study.schema import Study
from robustok.study.sections import Paper

OWN_FILES = (".lock", "cells")  # what a folder may hold before its study.json
RECORD = "cell.json"  # written last
LOG = "log.txt"
SAVED_EVERY = 30  # seconds between two writes of the time spent on an unfinished cell


class Watch(Protocol):
    """Callbacks for the progress of a run, which do nothing; the command line draws its bars here.

    >>> from robustok.study import find_study, plan
    >>> class Labels(Watch):
    ...     def finish(self, cell, record):
    ...         print("done:", cell.label)
    >>> Labels().finish(plan(find_study("quick"))[0], {})
    done: data

    The arguments:

    - `cells`: in `plan`, called once at the start: all cells of the study.
    - `finished`: in `plan`: the records of the cells that an earlier run finished, by key.
    - `cell`: in `start`, `progress` and `finish`: the cell concerned.
    - `done`: in `progress`: work done, in the cell's own unit.
    - `total`: in `progress`: all work of the cell.
    - `record`: in `finish`: the record of the cell, with its summary.
    """

    def plan(self, cells: tuple[Cell, ...], finished: Mapping[str, object]) -> None:
        pass

    def start(self, cell: Cell) -> None:
        pass

    def progress(self, cell: Cell, done: int, total: int) -> None:
        pass

    def finish(self, cell: Cell, record: JsonFields) -> None:
        pass


class NoWatch(Watch):
    """What watches a run by default."""


@dataclass(frozen=True)
class Run:
    """A finished run.

    >>> Run(Path("runs/demo"), []).folder.name
    'demo'

    Args:
        folder: the folder of the run.
        rows: rows of results.jsonl, in the order of the study's cells.
    """

    folder: Path
    rows: Sequence[Any]


def run_study(
    study: Study,
    folder: Path,
    *,
    cells_folder: Path | None = None,
    jobs: int | None = None,
    by_content: bool = True,
    watch: Watch | None = None,
) -> Run:
    """Run the unfinished cells of a study, and write its results.

    >>> from robustok.study import load_study
    >>> text = '''
    ... name: demo
    ... title: A study of seconds
    ... seed: 0
    ... task: {kind: langgame, format: short, words: 20, train: 64, test: 12}
    ... tokenizer: {size: 300}
    ... model: {layers: 1, width: 16, heads: 2, kv_heads: 2, feed_forward: 32, max_length: 256}
    ... pretrain: {schemes: [canonical], steps: 1, batch_size: 8, learning_rate: 1.0e-3}
    ... finetune: {schemes: [canonical, uniform], steps: 1, batch_size: 8, learning_rate: 1.0e-3}
    ... evaluate: {eval_schemes: [canonical, uniform], items: 12, draws: 2}
    ... '''
    >>> run = run_study(load_study(text, "demo.yaml"), Path("runs/demo"))
    >>> [(row["train_scheme"], row["eval_scheme"], row["n"]) for row in run.rows]
    [('canonical', 'canonical', 12), ('canonical', 'uniform', 12), ('uniform', 'canonical', 12),
     ('uniform', 'uniform', 12)]

    Args:
        study: the study, as :func:`load_study` and :func:`find_study` read it.
        folder: folder of the run; it is created, or holds an earlier run of the same study.
        cells_folder: folder of cells that several runs share; by default each run has its own.
        jobs: cells at work at once, at least 1; by default as many as the cores allow. Only for a
            study that sets `threads`.
        by_content: whether files and models are identified by their content, as :func:`plan` does.
            False suits a folder that no other run continues.
        watch: callbacks for progress, by default none.

    The same call after an interruption continues from the last finished cell and ends with the same
    accuracies. A study that sets the `threads` of a cell runs its cells in separate processes;
    then the number of cores changes no result.

    After a change of the study, the cells that depend on it run; the others stay finished.

    Raises RobustokError where the folder holds another study, is in use, or the disk is full.
    """
    watch = watch or NoWatch()
    cells = plan(study, by_content=by_content)
    with disk_full_in_one_line(folder), locked(folder):
        _claim(study, folder)
        with _cells_locked(folder, cells_folder):
            kept = {cell.key: record_of(cell, folder) for cell in cells}
            records = {key: record for key, record in kept.items() if record is not None}
            _keep_copies(cells, records, folder)
            for copy in (folder / "items").glob("*.jsonl"):
                if copy.stem not in kept:  # of other settings
                    copy.unlink()
            watch.plan(cells, dict(records))
            todo = [cell for cell in cells if cell.key not in records]
            rows = _write_results(study, cells, records, folder)  # without those of other settings
            for cell in run_cells(todo, folder, watch, records, study.threads, jobs):
                record = record_of(cell, folder)
                if record is None:
                    raise RobustokError(
                        f"the files of '{cell.label}' changed right after they were written: check "
                        "the disk, and that no other program writes to them"
                    )
                records[cell.key] = record
                _keep_copies([cell], records, folder)
                watch.finish(cell, record)
                rows = _write_results(study, cells, records, folder)
            return Run(folder, rows)


def _write_results(
    study: Study, cells: Sequence[Cell], records: Mapping[str, JsonObject], folder: Path
) -> list[Row]:
    rows, missing = rows_and_missing(study, cells, records)
    write_rows(folder / "results.jsonl", rows)
    hub_names = {name for cell in cells for name in cell.hub_names}
    write_json(
        folder / "run.json",
        {
            "study": study.name,
            "title": study.title,
            "paper": study.paper.where if study.paper else None,
            "software": f"robustok {versions()['robustok']}",
            "scale": study.scale,
            "seeds": [study.seed + repeat for repeat in study.repeat_numbers],
            "versions": versions(),
            "hub": sorted(name for name in hub_names if not Path(name).exists()),
            "cells": {"finished": len(records), "of": len(cells)},
            "missing": missing,
            "seconds": round(sum(record["seconds"] for record in records.values()), 1),
            "results_sha256": sha256_of(folder / "results.jsonl"),
            "configuration": study.as_dict(),
        },
    )
    return rows


def _keep_copies(cells: Iterable[Cell], records: Mapping[str, JsonObject], folder: Path) -> None:
    """Copy the results by question of finished cells, since a shared cells folder may change."""
    for cell in cells:
        name, copy = "items.jsonl", folder / "items" / f"{cell.key}.jsonl"
        digest = records[cell.key]["files"].get(name) if cell.key in records else None
        if digest and not (copy.exists() and sha256_of(copy) == digest):
            write_whole(copy, (cell.path(folder) / name).read_bytes())


@contextmanager
def _cells_locked(folder: Path, cells_folder: Path | None) -> Iterator[None]:
    """Lock the folder of the cells, and link to it where several runs share it."""
    link = folder / "cells"
    if cells_folder is None and link.is_symlink() and not link.exists():
        raise RobustokError(
            f"{folder} has its cells in {link.readlink()}, which is gone: give the folder that "
            "they are in as cells_folder, or run in another one"
        )
    with locked((cells_folder or link).resolve()):
        if cells_folder is None:
            pass
        elif not link.exists():
            link.unlink(missing_ok=True)  # a link to a folder that was moved or removed
            link.symlink_to(cells_folder.resolve(), target_is_directory=True)
        elif link.resolve() != cells_folder.resolve():
            raise RobustokError(
                f"{folder} already has its cells in {link.resolve()}: give that one as "
                "cells_folder, or run in another folder"
            )
        yield


def _claim(study: Study, folder: Path) -> None:
    """Write the resolved study into the folder, which is new or holds a run of this study."""
    path = folder / "study.json"
    resolved = study.as_dict()
    for subfolder in (folder, folder / "items", folder / "figures"):
        clear_parts(subfolder)
    if not path.exists():
        check_unused(folder, (p for p in folder.iterdir() if p.name not in OWN_FILES))
        write_json(path, resolved)
        return
    written = read_object(path)
    check_fields(written, StudyRecord, path, "remove it, or run in another folder")
    if written.get("name") != resolved["name"]:
        raise RobustokError(
            f"{folder} holds a run of the study '{written.get('name')}', not '{resolved['name']}': "
            "run in another folder, or remove this one"
        )
    first = written.get("first_repeat", 0)
    if left := set(range(first, first + written.get("repeats", 1))).difference(
        study.repeat_numbers
    ):
        raise RobustokError(
            f"{folder} also holds repeat {min(left)}, which first_repeat {study.first_repeat} with "
            f"repeats {study.repeats} leaves out: change --first-repeat or --repeats so that all "
            "are among them, or run in another folder"
        )
    write_json(path, resolved)


def run_cells(
    todo: Sequence[Cell],
    folder: Path,
    watch: Watch,
    finished: Container[str],
    threads: int | None = None,
    jobs: int | None = None,
) -> Iterator[Cell]:
    """Run the unfinished cells; yield each when it is finished.

    ``todo`` has each cell after its inputs. The caller adds the keys of finished cells to
    ``finished``. With ``threads`` each cell has a process of its own, of which ``jobs`` run at
    once. An error in one cell ends all.
    """

    def progress(cell: Cell, value: tuple[int, int]) -> None:
        watch.progress(cell, *value)

    def is_ready(cell: Cell) -> bool:
        return all(other.key in finished for other in cell.inputs.values())

    if not threads:
        try:
            for cell in todo:
                watch.start(cell)
                _run_cell(folder, cell, partial(progress, cell))
                yield cell
        finally:
            close_model()
        return
    make = partial(Worker, _runner, folder, threads)
    count = min(cells_at_once(threads, jobs), len(todo))
    with Processes(make, count, progress, _raise_death) as pool:
        for cell, _ in dispatch(todo, pool, is_ready=is_ready, on_start=watch.start):
            yield cell


def cells_at_once(threads: int | None, jobs: int | None) -> int:
    """The number of cells that :func:`run_cells` runs at once on this machine."""
    return (jobs or max(1, available_cores() // threads)) if threads else 1


def _raise_death(worker: Worker) -> None:
    task = f"that ran '{worker.task.label}'" if worker.task else "that was idle"
    raise RobustokError(
        f"the process {task} was {worker.exit_reason()}, perhaps because memory ran out: the same"
        " command continues after the last finished cell"
    )


def record_of(cell: Cell, folder: Path) -> JsonObject | None:
    """The record of a finished cell, or None if it is unfinished or, as is logged, was damaged."""
    return read_finished(cell.path(folder) / RECORD, f"cell '{cell.label}'")


def _runner(folder: Path) -> Callable[..., None]:
    return partial(_run_cell, folder)


def _run_cell(folder: Path, cell: Cell, progress: Callable[[tuple[int, int]], None]) -> None:
    """Run one cell, from its last checkpoint if it has one, and write its record."""
    cell_folder = cell.path(folder)
    cell_folder.mkdir(parents=True, exist_ok=True)
    seconds_file = cell_folder / "seconds.json"  # by interrupted runs
    earlier = read_json_or_none(seconds_file)
    start = time.monotonic() - (earlier if isinstance(earlier, (int, float)) else 0.0)
    saved_at = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal saved_at
        if time.monotonic() - saved_at > SAVED_EVERY:
            saved_at = time.monotonic()
            write_json(seconds_file, saved_at - start)
        progress((done, total))

    log = cell_folder / LOG
    _log_line(log, f"{cell.label}: started, process {os.getpid()} on {platform.node()}")
    try:
        result = cell.run(folder, on_progress)
    except BaseException:
        _log_line(log, traceback.format_exc())
        raise
    record = {
        "kind": cell.kind,
        "fields": cell.fields,
        "inputs": {role: other.key for role, other in cell.inputs.items()},
        "seconds": round(time.monotonic() - start, 2),
        "versions": versions(),
        "result": result,
    }
    seconds_file.unlink(missing_ok=True)
    record["files"] = digests_of(cell_folder, skip=(RECORD, LOG))
    write_record(cell_folder / RECORD, record)
    _log_line(log, f"finished after {record['seconds']} s")


def _log_line(log: Path, text: str) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{now} {text}\n")


def first_change(old: object, new: object, name: str = "") -> tuple[str, object, object] | None:
    """The dotted name of the first field in which two configurations differ, and its two values.

    >>> first_change({"model": {"steps": 5, "seed": 0}}, {"model": {"steps": 9, "seed": 0}})
    ('model.steps', 5, 9)

    ``old`` and ``new`` are JSON values; the name begins with ``name``. None where they are equal.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            field = f"{name}.{key}" if name else key
            if change := first_change(old.get(key), new.get(key), field):
                return change
        return None
    return None if old == new else (name, old, new)


Share = Annotated[float, Field(ge=0, le=1)]
_Name = Annotated[str, Field(max_length=500)]
Count = Annotated[int, Field(ge=1, lt=2**53)]
Number = Annotated[float, Field(gt=-1e300, lt=1e300)]


@with_config(STRICT)
class StudyRecord(TypedDict, total=False):
    """study.json, of which a report and the next run read these fields."""

    name: Required[str]
    title: Required[str]
    about: str
    repeats: Annotated[int, Field(ge=1, le=1_000_000)]
    first_repeat: int
    paper: Paper | None


class _ModelFields(TypedDict, total=False):
    name: str | None
    architecture: str
    parameters: Count | None  # None of a served model
    training_seconds: float


class _Layer(TypedDict):
    model: _Name
    sentence: str
    layer: int
    mean: Number
    low: Number
    high: Number
    words: Count


class _BoundOfLayer(TypedDict):
    model: _Name
    layer: int | str
    log10_gamma_theorem: Number
    log10_gamma_proof: NotRequired[Number | None]


class _Change(TypedDict):
    model: _Name
    kind: str
    depth: Annotated[int, Field(ge=0, le=10_000)]
    mean: Number
    p95: Number
    max: Number


@with_config(STRICT)
class Row(TypedDict, total=False):
    """One measurement. A row has `accuracy`, or `perplexity`, or `layers`, with what is beside it.

    >>> "eval_scheme" in Row.__annotations__
    True

    Every row has the fields up to `versions`, and of the others those of its measurement.
    """

    study: _Name
    scale: _Name  # of the study's YAML
    pretrain_scheme: _Name  # the spec that the model was pre-trained with
    train_scheme: _Name  # the spec of its last training; "as published" where that is unknown
    training: _Name  # the last training: "fine-tuning", "pre-training", or "" for none
    eval_scheme: _Name  # "canonical", a spec, "adversarial(...)", "bound" or "embeddings"
    task: _Name  # "langgame", "cute", a benchmark, or "text"
    seed: int
    seconds: Number
    model: _ModelFields | None  # its name or sizes, `parameters` and `training_seconds`
    tokenizer: str  # the fingerprint of its vocabulary, where the tokenizer existed
    cell: Annotated[str, Field(max_length=200)]  # the key of the cell
    configuration: JsonObject  # every field that decided the result
    versions: dict[str, str]

    few_shot_scheme: _Name  # the spec of the few-shot examples, where the study has some
    step: int  # of a model that a fine-tuning kept on its way
    train_spec: str  # the spec of a training scheme that is named by its measured strength
    eval_spec: str  # the same of an evaluation scheme
    accuracy: Share
    low: Number  # the 95% interval
    high: Number
    n: Count  # questions
    draws: Count  # of each
    chance: Share  # the accuracy of a guess
    consistency: Share  # of questions with the same answer in all draws
    start_accuracy: Share  # before an attack
    start_low: Number
    start_high: Number
    proved: Share  # of questions that no tokenization at an attack's distances breaks
    unsearched_ids: int  # second ids that an attack does not try
    n_scored: int
    overflowed: int  # rows longer than the model's longest input
    tokens_per_question: Number
    precision: str  # of the model's weights
    # Of results that are kept, without `versions`: the share of right answers to each question, and
    # its kind. A list has the order of the questions of the task's row with most answers.
    answers: dict[str, Share] | list[Share]
    kinds: dict[str, str] | list[str]
    start_answers: dict[str, Share]  # before an attack
    perplexity: Annotated[float, Field(gt=0)]
    bits_per_byte: Number
    layers: Annotated[list[_Layer], Field(min_length=1)]  # distances between tokenizations
    bound: Annotated[list[_BoundOfLayer], Field(min_length=1)]  # the bound from the weights
    # Of hidden states per root of a distance.
    changes: Annotated[list[_Change], Field(min_length=1)]
    splits: Number  # measured strength, per canonical token
    distance: Number
    length_ratio: Number


def rows_and_missing(
    study: Study, cells: Iterable[Cell], records: Mapping[str, dict[str, object]]
) -> tuple[list[Row], list[Row]]:
    """A row for each finished measurement, in the order of the plan, and the names of the others.

    One whose model or tokenizer has no record, because its folder was removed, is unfinished.
    """
    rows, missing = [], []
    for cell in (cell for cell in cells if isinstance(cell, MeasuredCell)):
        if all(c.key in records for c in (cell, cell.model, cell.tokenizer)):
            rows.append(_row(study, cell, records))
        else:
            missing.append({**_names(study, cell), "cell": cell.key})
    return rows, missing


# The fields of a row that say what it measured, which repeats with other seeds have, too.
NAMES = (
    "study", "scale", "pretrain_scheme", "train_scheme", "training", "eval_scheme", "task",
    "few_shot_scheme", "step",
)  # fmt: skip


def model_name(row: JsonFields) -> str:
    """The name of a model that exists; empty for one from random weights."""
    model = row.get("model")
    return model.get("name") or "" if isinstance(model, dict) else ""


def measurement_of(row: JsonFields) -> tuple[Any, ...]:
    """What a row measured: the names that its repeats with other seeds have, too."""
    return (model_name(row), *(row.get(name) for name in NAMES))


def subject_of(row: JsonFields) -> tuple[Any, ...]:
    """The model, the questions and the seed of a row, whatever the scheme or attack."""
    return (*measurement_of({**row, "eval_scheme": ""}), row.get("seed"))


def _names(study: Study, cell: MeasuredCell) -> Row:
    """The `NAMES` of a measurement's row and its seed, which are known before it runs."""
    names: Row = {
        "study": study.name,
        "scale": study.scale,
        "pretrain_scheme": cell.model.origin.scheme,
        "train_scheme": cell.model.trained_with,
        "training": cell.model.training,
        "eval_scheme": cell.eval_scheme,
        "task": cell.task,
        "seed": cell.seed,
    }
    if cell.few_shot:
        names["few_shot_scheme"] = cell.few_shot.scheme
    if isinstance(cell.model, StepCell):
        names["step"] = cell.model.step
    return names


def _row(study: Study, cell: MeasuredCell, records: Mapping[str, JsonObject]) -> Row:
    record, model_record = records[cell.key], records[cell.model.key]
    name = cell.model.origin.description
    model, tokenizer = model_record["result"], records[cell.tokenizer.key]["result"]
    row: Any = {
        **_names(study, cell),
        **({"train_spec": model["train_spec"]} if "train_spec" in model else {}),
        **record["result"],
        "eval_scheme": cell.eval_scheme,
        "seconds": record["seconds"],
        "model": {
            **(study.model.sizes() if study.model.name is None else {"name": name}),
            "parameters": model["parameters"],
            "training_seconds": model_record["seconds"],
        },
        **({"tokenizer": tokenizer["fingerprint"]} if "fingerprint" in tokenizer else {}),
        "cell": cell.key,
        "configuration": _configuration(cell),
        "versions": record["versions"],
    }
    return row


def _configuration(cell: Cell) -> JsonObject:
    """Every field that decided a result: the cell's own and, by their role, its inputs'."""
    inputs = {role: _configuration(other) for role, other in cell.inputs.items()}
    return {**cell.fields, **({"inputs": inputs} if inputs else {})}


def answers_of(items: Iterable[JsonFields]) -> dict[str, float]:
    """The share of right answers to each question, by its key, of the rows of an items.jsonl.

    >>> answers_of([{"key": "a", "correct": 0.5}, {"key": "b", "success": True}])
    {'a': 0.5, 'b': 0.0}

    An attack that succeeds makes the answer wrong. Empty where the rows have no answers.
    """
    answers: dict[str, float] = {}
    for item in items:
        right = item.get("correct", not item["success"] if "success" in item else None)
        if right is None:
            return {}
        answers[item["key"]] = float(right)
    return answers


def worst_rows(rows: Sequence[JsonObject]) -> list[JsonObject]:
    """A row of the worst of several attacks by question, for each model, task and seed with them.

    >>> rows = [{"eval_scheme": f"adversarial(steps={n})", "answers": dict(a=1.0, b=float(n == 1))}
    ...         for n in (1, 2)]
    >>> (row,) = worst_rows(rows)
    >>> row["eval_scheme"], row["accuracy"], row["n"]
    ('worst of 2 attacks', 0.5, 2)

    ``rows`` are rows of results.jsonl with `answers`, the share of right answers by the key of the
    question. An answer is right where no attack made it wrong. Questions that some attacks lack are
    left out.
    """
    groups: dict[tuple[Any, ...], list[JsonObject]] = {}
    for row in rows:
        if is_attack(row["eval_scheme"]) and row.get("answers"):
            groups.setdefault(subject_of(row), []).append(row)
    return [row for attacks in groups.values() if len(attacks) > 1 for row in _worst(attacks)]


def _worst(attacks: list[JsonObject]) -> Iterator[JsonObject]:
    attacks.sort(key=itemgetter("eval_scheme"))  # seeds may have been attacked in another order
    by_attack = [attack["answers"] for attack in attacks]
    keys = [key for key in by_attack[0] if all(key in answers for answers in by_attack)]
    if not keys:
        return
    answers = {key: min(answers[key] for answers in by_attack) for key in keys}
    fields = ("model", "seed", *NAMES, "chance", "precision", "tokenizer", "versions", "kinds")
    yield {
        **{name: attacks[0][name] for name in fields if name in attacks[0]},
        "eval_scheme": worst_label(len(attacks)),
        **share("accuracy", [right > 0 for right in answers.values()]),
        "n": len(keys),
        "draws": 1,
        "n_scored": sum(attack.get("n_scored", 0) for attack in attacks),
        "seconds": sum(attack.get("seconds", 0.0) for attack in attacks),
        "answers": answers,
        "cell": "+".join(str(attack.get("cell")) for attack in attacks),
        "configuration": {str(i): attack.get("configuration") for i, attack in enumerate(attacks)},
    }
