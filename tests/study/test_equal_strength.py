"""A study that sets its schemes by measured strength instead of by their own parameter."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.data import real
from tests.study.conftest import tiny

from robustok.report import write_report
from robustok.report.frame import nominal_splits
from robustok.samplers.spec import Spec
from robustok.samplers.strength import at_splits, measure, sampler_at_splits, splits_in
from robustok.study import find_study, load_study, plan, run_study
from robustok.study.models import FinetuneCell
from robustok.tasks import frequent_words, langgame

PARTS: dict[str, Any] = {
    "task": {"words": 60, "train": 60},
    "strength": {"splits": [0.25, 0.5]},
    "finetune": {"schemes": ["canonical", "stochastok", "uniform-k(alpha=1)"]},
    "evaluate": {"eval_schemes": ["canonical", "stochastok(alpha=1)"], "draws": 3},
}


def test_a_scheme_is_named_by_its_splits_and_keeps_its_other_parameters() -> None:
    name = at_splits("stochastok-uniform(alpha=1, support=pairwise)", 0.5)
    assert name == 'stochastok-uniform(support="pairwise", splits=0.5)'
    assert splits_in(name) == 0.5
    for spec in ("canonical", "uniform", "uniform-k(k=3)"):
        assert at_splits(spec, 0.5) == spec
        assert splits_in(spec) is None


def test_every_scheme_is_planned_at_every_strength_and_others_once() -> None:
    cells = [c for c in plan(tiny(**PARTS)) if isinstance(c, FinetuneCell)]
    assert [cell.scheme for cell in cells] == [
        "canonical", "stochastok(splits=0.25)", "stochastok(splits=0.5)",
        "uniform-k(splits=0.25)", "uniform-k(splits=0.5)",
    ]  # fmt: skip
    assert len({cell.key for cell in cells}) == len(cells)
    again = load_study(json.dumps(tiny(**PARTS).as_dict()), "study.json")
    assert [cell.key for cell in plan(again)] == [cell.key for cell in plan(tiny(**PARTS))]
    without = tiny(**PARTS | {"strength": None})
    (canonical,) = (c for c in plan(without) if getattr(c, "scheme", "") == "canonical"
                    and isinstance(c, FinetuneCell))  # fmt: skip
    assert canonical.key == cells[0].key


def test_rows_say_scheme_and_splits_and_hold_what_was_solved_for(tmp_path: Path) -> None:
    rows = run_study(tiny(**PARTS), tmp_path).rows
    assert len(rows) == 5 * 3
    solved_for = {row["train_scheme"]: row.get("train_spec") for row in rows}
    assert solved_for["canonical"] is None
    alphas = {name: Spec.parse(spec).strength for name, spec in solved_for.items() if spec}
    weak, strong = alphas["stochastok(splits=0.25)"], alphas["stochastok(splits=0.5)"]
    assert isinstance(weak, float) and isinstance(strong, float) and weak < strong
    drawn = [row for row in rows if row["eval_scheme"].startswith("stochastok")]
    assert {row["eval_scheme"] for row in drawn} == {
        "stochastok(splits=0.25)", "stochastok(splits=0.5)",
    }  # fmt: skip
    for row in drawn:
        assert row["splits"] == pytest.approx(splits_in(row["eval_scheme"]), rel=0.15)
        assert Spec.parse(row["eval_spec"]).name == "stochastok"
    assert (
        nominal_splits("stochastok(splits=0.5)") is None
    )  # no alpha, so not on the axis of alphas
    write_report(tmp_path)
    assert "uniform-k(splits=0.5)" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_whole_sentences_are_drawn_at_the_strength(tmp_path: Path) -> None:
    words = frequent_words(60)
    sentences = [
        f"the {one} is not a {other}" for one, other in zip(words, words[7:], strict=False)
    ]
    items = [{"question": "", "choices": pair, "label": 0} for pair in pairwise(sentences)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    study = tiny(
        strength={"splits": [0.3]}, finetune=None, benchmarks={"folder": str(tmp_path)},
        evaluate={"eval_schemes": ["stochastok"], "items": None},
    )  # fmt: skip
    rows = run_study(study, tmp_path / "run").rows
    (drawn,) = (r for r in rows if r["task"] == "pairs" and r["eval_scheme"] != "stochastok()")
    assert drawn["splits"] == pytest.approx(0.3, rel=0.1)


def test_the_solved_scheme_has_the_strength() -> None:
    gpt2 = real("gpt2")
    texts = [item.question for item in langgame(frequent_words(1000), 300, seed=0)]
    ids = gpt2.encode_batch(texts)
    for name in ("stochastok(ways=3, splits=0.5)", "uniform-k(splits=0.5)"):
        sampler = sampler_at_splits(name, gpt2, texts)
        assert sampler is not None
        mean = measure(gpt2, ids, sampler.sample_batch(ids, seed=7)).mean()
        assert mean["splits"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("name", ["finetuning-table", "support"])
def test_the_comparison_at_equal_strength_shares_the_canonical_model(name: str) -> None:
    first = "finetuning-table" if name == "finetuning-table" else "support-langgame"
    keys = [
        {cell.key for cell in plan(find_study(study, scale="cpu"), by_content=False)}
        for study in (first, f"{name}-strength")
    ]
    shared = {key.split("-")[0] for key in keys[0] & keys[1]}
    assert {"data", "tokenizer", "pretrain"} <= shared
    assert ("finetune" in shared) == (name == "finetuning-table")
