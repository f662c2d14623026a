"""Results that are damaged, edited or of another program give a report or a line on the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustok.errors import RobustokError
from robustok.report import style, write_report
from robustok.runtime.files import write_whole

KEPT = Path(__file__).parents[2] / "experiments/results"
ROWS = {  # the folders, and every how many-th of their rows is taken
    "icl-adversarial": 6, "tiny-llm-perplexity": 12, "embeddings": 8, "bound-smollm2": 3,
}  # fmt: skip
STEP = {"ids": [5], "n_scored": 1, "score": -1.5, "log_probs": [-1.0, -2.5]}
ATTACK = {
    "text": "up", "fields": {"choices": [" yes", " no"], "label": 0}, "steps": [STEP, STEP],
    "score": -1.5, "canonical_score": None, "n_scored": 2, "reached_at": None,
    "canonical_ids": [5], "canonical_tokens": ["up"], "tokens": ["up"],
}  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from([
        -1, 10**400, 1e308, "x" * 3000, "uniform(", "uniform-k(alpha=x)", "adversarial(steps=)",
        "\ud800", "a|b\n$c$", "../../x", "ensemble(uniform)",
    ]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=2) | st.dictionaries(st.text(max_size=3), one),
    max_leaves=3,
)  # fmt: skip


@pytest.fixture(scope="module", params=ROWS)
def files(request: pytest.FixtureRequest) -> dict[str, list[Any]]:
    """The values of each file of a folder of results, as JSON."""
    folder, step = KEPT / request.param, ROWS[request.param]
    rows = [json.loads(one) for one in (folder / "results.jsonl").read_text().splitlines()[::step]]
    values: dict[str, list[Any]] = {"results.jsonl": rows}
    for row in rows:
        answers, kinds = row.pop("answers", {}), row.pop("kinds", {})
        if answers:
            values[f"items/{row['cell']}.jsonl"] = [
                {"key": key, "kind": kinds.get(key, ""), "correct": right}
                if "adversarial" not in row["eval_scheme"]
                else ATTACK | {"key": key, "success": not right}
                for key, right in [*answers.items()][:9]
            ]
    for name in ("study.json", "run.json"):
        values[name] = [json.loads((folder / name).read_text())]
    return values


@st.composite
def damages(draw: st.DrawFn) -> Any:
    """A function that changes the values of a file at one place."""
    choices = draw(st.lists(st.integers(0, 10**6), min_size=9, max_size=9))
    how, value = draw(st.sampled_from(["set", "set", "remove", "name", "add"])), draw(VALUES)

    def change(node: Any) -> None:
        for choice in choices:
            names = [*node] if isinstance(node, dict) else [*range(len(node))]
            if not names:
                return
            name = names[choice % len(names)]
            inner = node[name]
            if not (isinstance(inner, (dict, list)) and choice % 5):
                break
            node = inner
        if how == "remove":
            del node[name]
        elif how == "name" and isinstance(node, dict):
            node[f"{name}s"] = node.pop(name)
        elif how == "add" and isinstance(node, list):
            node.append(node[name])
        else:
            node[name] = value

    return change


def shows(folder: Path, values: dict[str, list[Any]]) -> bool:
    """Whether there is a report, or else one line that names a file or what is to be done."""
    for name, rows in values.items():
        text = "\n".join(json.dumps(row) for row in rows)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    try:
        write_report(folder)
    except RobustokError as error:
        assert "\n" not in str(error) and len(str(error)) < 4000
        return False
    return True


@pytest.fixture(scope="module")
def no_pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(style, "save_figure", lambda _, path: write_whole(path, "<svg/>"))
        yield


def test_the_folders_have_reports_before_they_are_damaged(files, tmp_path, no_pictures) -> None:
    assert shows(tmp_path, files)


@settings(max_examples=6)
@given(data=st.data())
def test_damaged_values_end_in_one_line(files, tmp_path_factory, data, no_pictures) -> None:
    values = json.loads(json.dumps(files))
    for _ in range(data.draw(st.integers(1, 2))):
        name = data.draw(st.sampled_from(sorted(values)))
        data.draw(damages())(values[name])
    shows(tmp_path_factory.mktemp("damaged"), values)
