"""Results that are damaged, edited or of another program give one line that names the file."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.report import style, write_report
from robustok.report.source import read_source
from robustok.runtime.files import write_whole

KEPT = Path(__file__).parents[2] / "experiments/results"
STEPS = {  # the folders, and every how many-th of their rows is taken
    "icl-adversarial": 6, "tiny-llm-perplexity": 12, "embeddings": 8, "bound-smollm2": 3,
}  # fmt: skip
STEP = {"ids": [5], "n_scored": 1, "score": -1.5, "log_probs": [-1.0, -2.5]}
ATTACK = {
    "text": "up", "fields": {"choices": [" yes", " no"], "label": 0}, "steps": [STEP, STEP],
    "score": -1.5, "canonical_score": None, "n_scored": 2, "reached_at": None,
    "canonical_ids": [5], "canonical_tokens": ["up"], "tokens": ["up"],
}  # fmt: skip
REMOVED = object()


def files_of(name: str) -> dict[str, list[Any]]:
    """The values of each file of a folder of results, as JSON."""
    folder, step = KEPT / name, STEPS[name]
    rows = [dict(row) for row in read_source(folder).rows[::step]]
    values: dict[str, list[Any]] = {"results.jsonl": rows}
    for row in rows:
        answers, kinds = row.pop("answers", {}), row.pop("kinds", {})
        if answers:
            is_attack = "adversarial" in row["eval_scheme"]
            values[f"items/{row['cell']}.jsonl"] = [
                {"key": key} | (ATTACK | {"success": not right} if is_attack else
                                {"kind": kinds.get(key, ""), "correct": right})
                for key, right in [*answers.items()][:9]
            ]  # fmt: skip
    for file in ("study.json", "run.json"):
        values[file] = [json.loads((folder / file).read_text())]
    return json.loads(json.dumps(values))


def report(folder: Path, values: dict[str, list[Any]]) -> None:
    for name, rows in values.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(json.dumps(row) for row in rows))
    write_report(folder)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "save_figure", lambda _, path: write_whole(path, "<svg/>"))


@pytest.mark.parametrize("name", STEPS)
def test_the_folders_have_reports_before_they_are_damaged(name: str, tmp_path: Path) -> None:
    report(tmp_path, files_of(name))


@pytest.mark.parametrize(("name", "file", "place", "value"), [
    ("icl-adversarial", "results.jsonl", ["accuracy"], "x" * 3000),
    ("icl-adversarial", "results.jsonl", ["accuracy"], math.nan),
    ("icl-adversarial", "results.jsonl", ["low"], 10**400),
    ("icl-adversarial", "results.jsonl", ["n"], -1),
    ("icl-adversarial", "results.jsonl", ["seed"], "a"),
    ("icl-adversarial", "results.jsonl", ["seed"], REMOVED),
    ("icl-adversarial", "results.jsonl", ["eval_scheme"], "x" * 3000),
    ("icl-adversarial", "results.jsonl", ["eval_scheme"], "uniform("),
    ("icl-adversarial", "results.jsonl", ["eval_scheme"], "adversarial(steps=)"),
    ("icl-adversarial", "results.jsonl", ["model"], []),
    ("icl-adversarial", "evaluate-", ["key"], REMOVED),
    ("icl-adversarial", "evaluate-", ["correct"], 1.5),
    ("icl-adversarial", "attack-", ["steps"], []),
    ("icl-adversarial", "attack-", ["steps", 0, "log_probs"], [-1.0]),
    ("icl-adversarial", "attack-", ["fields", "label"], 2),
    ("icl-adversarial", "attack-", ["tokens"], REMOVED),
    ("icl-adversarial", "study.json", ["title"], None),
    ("icl-adversarial", "study.json", ["paper"], ["a|b\n$c$"]),
    ("icl-adversarial", "run.json", ["missing"], {"a": 1}),
    ("tiny-llm-perplexity", "results.jsonl", ["perplexity"], 0),
    ("tiny-llm-perplexity", "results.jsonl", ["bits_per_byte"], REMOVED),
    ("embeddings", "results.jsonl", ["layers"], []),
    ("embeddings", "results.jsonl", ["layers", 0, "mean"], "\ud800"),
    ("bound-smollm2", "results.jsonl", ["bound", 0], None),
    ("bound-smollm2", "results.jsonl", ["changes", 0, "kind"], REMOVED),
])  # fmt: skip
def test_a_damaged_value_is_one_line_that_names_its_file(
    name: str, file: str, place: list[Any], value: Any, tmp_path: Path
) -> None:
    values = files_of(name)
    file = next(one for one in values if file in one)
    node = values[file][0]
    for part in place[:-1]:
        node = node[part]
    if value is REMOVED:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    with pytest.raises(RobustokError) as error:
        report(tmp_path, values)
    assert file in str(error.value) or place == ["eval_scheme"]
    assert "\n" not in str(error.value) and len(str(error.value)) < 4000
