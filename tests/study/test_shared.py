"""Cells that several studies share, and cells on a cluster of two machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.study import load_study, plan, run_study

TEXT = """
name: {name}
title: A study of seconds
seed: 3
threads: {threads}
task: {{kind: langgame, format: short, words: 60, train: 32, test: 8}}
tokenizer: {{size: 300}}
model: {{layers: 1, width: 16, heads: 2, kv_heads: 2, feed_forward: 32, max_length: 512}}
pretrain: {{schemes: [canonical], steps: 2, batch_size: 4, learning_rate: 3e-3}}
finetune: {{schemes: [{schemes}], steps: 2, batch_size: 4, learning_rate: 3e-3}}
evaluate: {{eval_schemes: [canonical, uniform], items: 4, draws: 2}}
"""


def small(name: str, schemes: str, threads: str = "null") -> Any:
    return load_study(TEXT.format(name=name, schemes=schemes, threads=threads), "a")


def measured(folder: Path) -> list[tuple[str, str, float]]:
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return [(row["train"], row["query"], row["accuracy"]) for row in rows]


def test_what_two_studies_have_in_common_is_done_once(tmp_path: Path) -> None:
    one, two = small("one", "canonical"), small("two", "canonical, uniform")
    shared = tmp_path / "cells"
    run_study(one, tmp_path / "one", cells_folder=shared)
    finished = {p: p.stat().st_mtime_ns for p in shared.glob("*/cell.json")}
    assert len(finished) == len(plan(one))
    run_study(two, tmp_path / "two", cells_folder=shared)
    assert {p: p.stat().st_mtime_ns for p in finished} == finished
    assert measured(tmp_path / "two")[:2] == measured(tmp_path / "one")
    # A run keeps what was measured of each question, whatever becomes of the shared folder.
    assert len(list((tmp_path / "two" / "items").iterdir())) == 4
    record = json.loads((tmp_path / "two" / "run.json").read_text())
    assert record["cells"] == {"finished": len(plan(two)), "of": len(plan(two))}
    assert record["seeds"] == [3]


def test_a_run_does_not_change_its_cells_for_others(tmp_path: Path) -> None:
    study = small("one", "canonical")
    run_study(study, tmp_path / "one", cells_folder=tmp_path / "cells")
    with pytest.raises(RobustokError, match="already has its cells in"):
        run_study(study, tmp_path / "one", cells_folder=tmp_path / "others")


def test_a_run_finds_cells_that_were_moved(tmp_path: Path) -> None:
    study = small("one", "canonical")
    run_study(study, tmp_path / "one", cells_folder=tmp_path / "cells")
    results = (tmp_path / "one" / "results.jsonl").read_bytes()
    (tmp_path / "cells").rename(tmp_path / "moved")
    with pytest.raises(RobustokError, match="which is gone: give the folder"):
        run_study(study, tmp_path / "one")
    run_study(study, tmp_path / "one", cells_folder=tmp_path / "moved")
    assert (tmp_path / "one" / "cells").resolve() == tmp_path / "moved"
    assert (tmp_path / "one" / "results.jsonl").read_bytes() == results


def test_a_cell_leaves_a_log(tmp_path: Path) -> None:
    run_study(small("one", "canonical"), tmp_path)
    for log in tmp_path.glob("cells/*/log.txt"):
        lines = log.read_text().splitlines()
        assert "started" in lines[0]
        assert "finished after" in lines[-1]


def test_on_a_cluster_of_two_machines_the_results_are_the_same(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    study = small("one", "canonical, uniform", threads="1")
    run_study(study, tmp_path / "here", jobs=1)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        run_study(study, tmp_path / "there", engine="ray")
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert measured(tmp_path / "there") == measured(tmp_path / "here")
