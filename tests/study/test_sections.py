"""Groups of attacks, the worst of several, the bound, and models kept on the way, in a study."""

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.oracles.data import real
from tests.study.conftest import TRAINING, rows_of, tiny

from robustok.models import load
from robustok.report import write_report
from robustok.report.frame import nominal_splits
from robustok.runtime.inputs import read_rows
from robustok.samplers.spec import Spec
from robustok.samplers.strength import at_splits, measure, sampler_at_splits, splits_in
from robustok.study import find_study, load_study, plan, run_study
from robustok.study.measurements import MeasuredCell, base
from robustok.study.measurements.bound import power_of_ten
from robustok.study.models import FinetuneCell, StepCell
from robustok.tasks import frequent_words, langgame

SECTIONS = {
    "finetune": TRAINING | {"schemes": ["canonical", "uniform"]},
    "evaluate": None,
    "attacks": [{"items": 5, "steps": 1, "max_neighbors": 3}],
    "bound": {"items": 3, "draws": 2},
}


class Stopped(Exception):
    pass


def stop_in_the_second_group(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Raise Stopped there; returns the sizes of the groups that start."""
    started: list[int] = []
    in_groups = base.OpenedCell.in_groups

    def stops_once(self, items, run):
        def counted(group, progress):
            started.append(len(group))
            if len(started) == 2:
                raise Stopped
            return run(group, progress)

        return in_groups(self, items, counted)

    monkeypatch.setattr(base.OpenedCell, "in_groups", stops_once)
    return started


def test_a_stopped_cell_repeats_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "GROUP", 2)
    run_study(tiny(**SECTIONS), tmp_path / "whole")
    started = stop_in_the_second_group(monkeypatch)
    with pytest.raises(Stopped):
        run_study(tiny(**SECTIONS), tmp_path / "stopped")
    started.append(0)  # past the one that stops
    run_study(tiny(**SECTIONS), tmp_path / "stopped")
    assert started[:5] == [2, 2, 0, 2, 1]
    assert rows_of(tmp_path / "stopped") == rows_of(tmp_path / "whole")
    for cell in (tmp_path / "whole" / "items").iterdir():
        assert read_rows(tmp_path / "stopped" / "items" / cell.name) == read_rows(cell)


def test_a_cell_that_goes_on_in_another_precision_mixes_no_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another machine, where `dtype: auto` is another one."""
    monkeypatch.setattr(base, "GROUP", 2)
    study, stopped = tiny(**SECTIONS | {"finetune": None, "bound": None}), tmp_path / "stopped"
    started = stop_in_the_second_group(monkeypatch)
    with pytest.raises(Stopped):
        run_study(study, stopped)
    monkeypatch.setattr(load, "_fast_bfloat16", lambda: True)
    monkeypatch.setattr(load, "_LEAST", 0)
    shutil.copytree(stopped, tmp_path / "begun")
    (attack,) = tmp_path.glob("begun/cells/attack-*")
    shutil.rmtree(attack)
    for folder in (stopped, tmp_path / "begun"):
        started.append(0)  # past the one that stops
        run_study(study, folder)
    assert rows_of(stopped) == rows_of(tmp_path / "begun")
    assert {row["precision"] for row in rows_of(stopped)} == {"bfloat16"}
    items = f"items/{attack.name}.jsonl"
    assert (stopped / items).read_bytes() == (tmp_path / "begun" / items).read_bytes()


def test_a_report_has_the_bound_of_each_model(tmp_path: Path) -> None:
    rows: list[Any] = [*run_study(tiny(**SECTIONS), tmp_path).rows]
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    bounds = [row for row in rows if "bound" in row]
    assert [row["train_scheme"] for row in bounds] == ["canonical", "uniform"]
    assert {one["kind"] for one in bounds[0]["changes"]} == {"sampled", "adversarial"}
    single, whole = bounds[1]["bound"]
    gammas = [power_of_ten(whole[f"log10_gamma_{one}"]) for one in ("theorem", "proof")]
    gammas += [power_of_ten(single["log10_gamma_theorem"])]
    logits = [one for one in bounds[1]["changes"] if one["depth"] == 2]
    measured = [f"{one['mean']:.4g}, at most {one['max']:.4g}" for one in logits[:2]]
    assert f"| uniform | {' | '.join([*gammas, *measured])} |" in text


def test_a_report_has_the_worst_of_several_attacks_by_question(tmp_path: Path) -> None:
    evaluate = {"eval_schemes": ["canonical"], "items": 5, "draws": 1}
    greedy: dict[str, Any] = {"steps": 2, "max_neighbors": 9}
    searches = [greedy, greedy | {"beam": 3}, {"search": "random", "max_scored": 12}]
    attacks = [{"items": 5, **search} for search in searches]
    rows = run_study(tiny(attacks=attacks, evaluate=evaluate), tmp_path).rows
    broken = set()
    for row in rows:
        if row["eval_scheme"].startswith("adversarial"):
            assert 0 <= row["proved"] <= row["accuracy"]
            items = read_rows(tmp_path / "items" / f"{row['cell']}.jsonl")
            broken |= {item["key"] for item in items if item["success"]}
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    head = next(line for line in text.splitlines() if "| worst of 3 attacks |" in line)
    line = text[text.index(head) :].splitlines()[2]
    assert line.rstrip(" |").rpartition("| ")[2].startswith(f"{100 - 20 * len(broken):.1f} [")


SCHEMES = ["canonical", "uniform-k(alpha=1)"]
PARTS: dict[str, Any] = {
    "evaluate": {"eval_schemes": ["canonical", "uniform"], "items": 8, "draws": 2},
    "finetune": TRAINING | {"schemes": SCHEMES, "steps": 5, "keep_every": 2},
}
CURVE = tiny(**PARTS)


def test_every_kept_model_has_a_cell_and_its_evaluations() -> None:
    cells = plan(CURVE)
    steps = [cell.step for cell in cells if isinstance(cell, StepCell)]
    assert steps == [2, 4, 2, 4]
    measured = [c for c in cells if isinstance(c, MeasuredCell) and isinstance(c.model, StepCell)]
    assert len(measured) == 4 * 2
    keys = {c.key for c in cells if isinstance(c, FinetuneCell)}
    without = plan(tiny(**PARTS | {"finetune": PARTS["finetune"] | {"keep_every": None}}))
    assert not keys & {cell.key for cell in without}  # other files are kept


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["full", "lora"])
def test_the_curve_is_measured_drawn_and_kept_out_of_the_tables(tmp_path: Path, lora: Any) -> None:
    finetune = PARTS["finetune"] | {"lora": lora, "schemes": SCHEMES[: 1 if lora else 2]}
    models = len(finetune["schemes"])
    run_study(tiny(**PARTS | {"finetune": finetune}), tmp_path)
    write_report(tmp_path)
    kept = [*tmp_path.glob("cells/finetune-*/model/steps/*")]
    assert len(kept) == models * 2
    assert all((folder / "tokenizer.json").is_file() for folder in kept)
    rows = rows_of(tmp_path)
    assert sum("step" in row for row in rows) == models * 2 * 2
    assert {row["precision"] for row in rows} == {"float32"}
    with (tmp_path / "figures" / "learning.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == models * 2 * 3
    assert {point["step"] for point in points} == {"2", "4", "5"}
    ends = [row for row in rows if "step" not in row]
    assert len(ends) == models * 2
    heatmap = tmp_path / "figures" / "heatmap.csv"
    assert heatmap.exists() == (models > 1)  # of one model the table has every cell
    if models > 1:
        with heatmap.open() as file:
            assert len(list(csv.DictReader(file))) == len(ends)
    text = (tmp_path / "report.md").read_text()
    assert "measurements are finished" not in text
    assert "learning.png" in text


def test_a_damaged_model_on_the_way_is_trained_again(tmp_path: Path) -> None:
    study = tiny(**PARTS | {"finetune": PARTS["finetune"] | {"schemes": ["uniform"]}})
    run_study(study, tmp_path)
    (weights,) = tmp_path.glob("cells/finetune-*/model/steps/2/model.safetensors")
    assert not [*tmp_path.glob("cells/*/model/checkpoints")]
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + b"x")
    run_study(study, tmp_path)
    assert weights.read_bytes() == before


AT_STRENGTH: dict[str, Any] = {
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
    cells = [c for c in plan(tiny(**AT_STRENGTH)) if isinstance(c, FinetuneCell)]
    assert [cell.scheme for cell in cells] == [
        "canonical", "stochastok(splits=0.25)", "stochastok(splits=0.5)",
        "uniform-k(splits=0.25)", "uniform-k(splits=0.5)",
    ]  # fmt: skip
    assert len({cell.key for cell in cells}) == len(cells)
    again = load_study(json.dumps(tiny(**AT_STRENGTH).as_dict()), "study.json")
    assert [cell.key for cell in plan(again)] == [cell.key for cell in plan(tiny(**AT_STRENGTH))]
    without = tiny(**AT_STRENGTH | {"strength": None})
    (canonical,) = (c for c in plan(without) if getattr(c, "scheme", "") == "canonical"
                    and isinstance(c, FinetuneCell))  # fmt: skip
    assert canonical.key == cells[0].key


def test_rows_say_scheme_and_splits_and_hold_what_was_solved_for(tmp_path: Path) -> None:
    rows = run_study(tiny(**AT_STRENGTH), tmp_path).rows
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
