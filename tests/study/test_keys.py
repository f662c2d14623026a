"""The keys of cells: results of earlier releases are found by them, so they must not change."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from robustok.study import Study, find_study, load_study, plan
from robustok.study.cells import AttackCell, BenchmarkCell, EvaluateCell
from robustok.tasks import HUB

TEXT = (Path(__file__).parent / "study.yaml").read_text(encoding="utf-8")


def recorded() -> dict[str, list[str]]:
    """The keys of each study as commit 07d0562 computed them, in the order of its plan.

    gpt2-xl-langgame and tiny-llm-perplexity have newer ones: the first got questions in the paper's
    format, the second the paper's dropout, and both name commits of the hub.
    """
    keys = defaultdict(list)
    for line in (Path(__file__).parent / "keys.txt").read_text(encoding="utf-8").splitlines():
        study, key = line.split()
        keys[study].append(key)
    return dict(keys)


RECORDED = recorded()


def planned(name: str) -> Study:
    name, _, scale = name.partition("/")
    return find_study(name, scale=scale or None)


@pytest.mark.parametrize("name", RECORDED)
def test_keys_are_those_of_earlier_releases(name: str) -> None:
    cells = plan(planned(name), read=False)  # names of the hub stand for their commits
    assert [cell.key for cell in cells] == RECORDED[name]


def test_every_kind_of_cell_is_recorded() -> None:
    kinds = {key.split("-")[0] for keys in RECORDED.values() for key in keys}
    assert kinds == {
        "attack", "base", "corpus", "data", "embeddings", "evaluate", "examples", "finetune",
        "perplexity", "pretrain", "tokenizer",
    }  # fmt: skip


def test_only_cells_whose_result_changed_have_a_version() -> None:
    names = "benchmarks: {names: [hellaswag, copa], items: 10}\n"
    few_shot = "few_shot: {examples: 2, schemes: [canonical]}\n"
    for text, few in ((TEXT + names, False), (TEXT + names + few_shot, True)):
        for cell in plan(load_study(text, "a")):
            changed = isinstance(cell, BenchmarkCell) and cell.name == "hellaswag"
            changed |= isinstance(cell, EvaluateCell | AttackCell) and few
            assert cell.version == (2 if changed else 1)


def test_a_benchmark_of_the_hub_has_the_key_of_earlier_releases() -> None:
    assert BenchmarkCell("copa", 500).key == "benchmark-9f971f2d24334992"


def test_a_version_enters_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BenchmarkCell("copa", 10).key
    monkeypatch.setattr(BenchmarkCell, "version", 2)
    assert BenchmarkCell("copa", 10).key != before


def test_the_commit_of_a_hub_benchmark_enters_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT + "benchmarks: {names: [copa], items: 10}\n"
    keys = set()
    for commit in ("a" * 40, "b" * 40):
        monkeypatch.setitem(HUB, "copa", HUB["copa"]._replace(revision=commit))
        (cell,) = (c for c in plan(load_study(text, "a")) if isinstance(c, BenchmarkCell))
        assert cell.hub_names == (f"aps/super_glue@{commit}",)
        keys.add(cell.key)
    assert len(keys) == 2
