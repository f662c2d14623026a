"""Keep the results of a run in `results/`: its rows with the answers, and its LoRA adapters.

A kept folder has `study.json`, `run.json`, and `results.jsonl` with the share of right answers to
each question in every row, and the names and kinds of the questions in one row of a task, so that
all intervals and differences can be derived again without the run. The configuration of a row has
the fields of its measurement, model and questions, and a digest of what the model was trained from.
`adapters/SCHEME-SEED` has the trained weights of LoRA in bfloat16, under 1 MB: with those of its
base model, which are not kept, it is a model that can be asked more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.claims import RESULTS
from robustok.errors import RobustokError, nearest
from robustok.evaluation.intervals import clustered
from robustok.models.load import save_tokenizer
from robustok.report.frame import check_repeats, without_seeds
from robustok.report.source import read_source
from robustok.report.style import Row
from robustok.runtime.files import read_json, write_json, write_rows
from robustok.runtime.records import json_digest
from robustok.study.run import measurement_of

ROOT = Path(__file__).parents[1]
_MOST_LISTED = 100  # entries of a list in the configuration of a row


def keep(run: Path, name: str, commit: str | None = None) -> Path:
    """Write what the page of a run needs into results/NAME; returns this folder.

    Rows of results/NAME that the run does not have stay, as those of other seeds.
    """
    folder = RESULTS / name
    folder.mkdir(parents=True, exist_ok=True)
    known = ("study", "scale", "seeds", "versions", "missing")
    record: dict[str, Any] = {field: read_json(run / "run.json")[field] for field in known} | {
        "commit": commit or _commit(),
        "date": datetime.fromtimestamp((run / "run.json").stat().st_mtime, UTC).date().isoformat(),
    }
    new = [_rounded(row) for row in read_source(run).rows]
    before = read_source(folder).rows if (folder / "results.jsonl").is_file() else []
    replaced = {_planned(row) for row in new}
    stay = [row for row in before if _planned(row) not in replaced]
    if stay:
        _check_same_settings(stay, new)
        record = _joined(read_json(folder / "run.json"), record)
    else:
        study = (run / "study.json").read_text(encoding="utf-8")
        study = re.sub(r'"/[^"]*/([^"/]+)"', r'"\1"', study)  # files of the machine by their names
        (folder / "study.json").write_text(study, encoding="utf-8")
    measured = {_planned(row) for row in (*stay, *new)}
    missing = {_planned(one): one for one in record["missing"]}
    record["missing"] = [one for place, one in missing.items() if place not in measured]
    write_json(folder / "run.json", record)
    write_rows(folder / "results.jsonl", _questions_once([*stay, *new]))
    _keep_adapters(run, folder)
    return folder


def _planned(row: Row) -> tuple[Any, ...]:
    """The measurement and the seed of a row, or of one that is missing, which names no model."""
    return (*measurement_of({**row, "model": None}), row["seed"])


def _questions_once(rows: Sequence[Row]) -> list[Row]:
    """The rows with the names and kinds of the questions of a task in its row with most answers.

    Kinds are a list where this row has all questions, and so are the answers of the other rows,
    where they are to the first of these questions. :func:`read_source` gives every row its own
    names and kinds again.
    """
    longest: dict[Any, Row] = {}
    kinds: dict[Any, Row] = {}
    for row in rows:
        task, answers = row.get("task"), row.get("answers", {})
        kinds.setdefault(task, {}).update(row.get("kinds", {}))
        if len(answers) > len(longest.get(task, {}).get("answers", ())):
            longest[task] = row
    kept = []
    for row in rows:
        task, answers = row.get("task"), row.get("answers", {})
        one = {name: value for name, value in row.items() if name != "kinds"}
        if row is longest.get(task):
            if of := kinds[task]:
                one["kinds"] = [of[key] for key in answers] if of.keys() == {*answers} else of
        elif answers and list(answers) == list(longest[task]["answers"])[: len(answers)]:
            one["answers"] = list(answers.values())
        kept.append(one)
    return kept


def _joined(before: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The record of two runs whose rows stand in one folder."""

    def both(one: str, other: str) -> str:
        return ", ".join(dict.fromkeys([*one.split(", "), other]))

    versions = new["versions"].items()
    return new | {
        "seeds": sorted({*before["seeds"], *new["seeds"]}),
        "missing": [*before["missing"], *new["missing"]],
        "versions": {k: both(before["versions"].get(k, v), v) for k, v in versions},
        "commit": both(before["commit"], new["commit"]),
    }


def _check_same_settings(stay: Sequence[Row], new: Sequence[Row]) -> None:
    """Refuse rows that are no repeats of the kept ones that measured the same."""
    measured: dict[Any, list[Row]] = {}
    for row in (*stay, *new):
        measured.setdefault(measurement_of(row), []).append(row)
    for rows in measured.values():
        name = f"{rows[0]['train_scheme']} on {rows[0]['eval_scheme']}"
        try:
            check_repeats(name, rows)
        except RobustokError as error:
            sys.exit(f"{error}; or keep them under another name")


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _rounded(row: Row) -> Row:
    """A row whose shares of right answers have five digits, which is exact for 0 and 1.

    The bounds are those that today's code gives these answers; other numbers have eight significant
    digits. What stands elsewhere leaves: the versions in run.json, and what was made before the
    inputs of the measurement in study.json.
    """
    row = {name: row[name] for name in row if name not in ("start_answers", "versions")}
    configuration = _with_digests(row.get("configuration", {}))
    for one in configuration.get("inputs", {}).values():
        if "inputs" in one:
            one["inputs"] = json_digest(without_seeds(one["inputs"]))
    if "answers" in row:
        answers = {key: round(share, 5) for key, share in row["answers"].items()}
        _, row["low"], row["high"] = clustered(list(answers.values()), row["draws"])
        row["answers"] = {key: int(one) if one in (0, 1) else one for key, one in answers.items()}
    short = {name: _short(value) for name, value in row.items()}
    return short | {"configuration": configuration}


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def _with_digests(value: Any) -> Any:
    """A configuration without fields that have no value; a long list, as of words, has a digest."""
    if isinstance(value, dict):
        return {name: _with_digests(one) for name, one in value.items() if one is not None}
    is_long = isinstance(value, list) and len(value) > _MOST_LISTED
    return {"identity": json_digest(value)} if is_long else value


def _keep_adapters(run: Path, folder: Path) -> None:
    """Copy the LoRA adapters of the finished trainings of a run, whose base has a name."""
    import torch
    from safetensors.torch import load_file, save_file

    for record in sorted(run.glob("cells/finetune-*/cell.json")):
        weights = record.parent / "model/adapter_model.safetensors"
        if weights.is_file():
            fields = read_json(record)["fields"]
            scheme = re.sub(r"[^\w.=-]+", "-", fields["scheme"]).strip("-")
            out = folder / f"adapters/{scheme}-{fields['seed']}"
            out.mkdir(parents=True, exist_ok=True)
            rounded = {name: one.to(torch.bfloat16) for name, one in load_file(weights).items()}
            save_file(rounded, out / weights.name, {"format": "pt"})
            base = read_json(run / "study.json")["model"]["name"]
            config = read_json(weights.with_name(CONFIG)) | {"base_model_name_or_path": base}
            write_json(out / CONFIG, {name: one for name, one in config.items() if one})


CONFIG = "adapter_config.json"


def restore_adapter(name: str, out: Path, results: Path = RESULTS) -> Path:
    """Make a model folder of a kept adapter, with the tokenizer of its base model.

    Args:
        name: as `lora/uniform-k-alpha=1-0`, of a folder of results/ and one of its adapters.
        out: the new folder, which every command takes as a model.
    """
    run, _, adapter = name.partition("/")
    kept = results / run / "adapters" / adapter
    if not kept.is_dir():
        known = sorted(f"{one.parts[-3]}/{one.name}" for one in results.glob("*/adapters/*"))
        raise RobustokError(f"there is no adapter '{name}': {nearest(name, known)}")
    shutil.copytree(kept, out)
    save_tokenizer(read_json(kept / CONFIG)["base_model_name_or_path"], out)
    return out
