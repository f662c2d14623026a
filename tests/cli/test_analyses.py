"""The studies of embeddings and of the bound, as their users type them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell, save_model

from robustok.study import find_study
from robustok.study.measurements.bound import power_of_ten


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, questions and words."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(["canonical", "uniform"]):
        save_model(folder / name, seed=seed, layers=2)
    (folder / "words.txt").write_text("street\nhouse\nwhich\nword\n")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_embeddings_of_a_model_as_it_is(tmp_path: Path, shell: Shell) -> None:
    line = f"study run embeddings --model canonical --words-file words.txt --out {tmp_path}/run"
    shell.ok(line)
    (row,) = map(json.loads, (tmp_path / "run/results.jsonl").read_text().splitlines())
    assert row["scale"] == "measure" and row["training"] == ""
    assert [layer["layer"] for layer in row["layers"]] == [0, 1, 2]
    assert len(rows_of(tmp_path / "run/figures/embeddings.csv")) == 3


def test_bound_of_a_model_as_it_is(tmp_path: Path, shell: Shell) -> None:
    text = find_study("bound", scale="measure").as_dict()
    assert text["finetune"] is None and text["bound"]["items"] == 100
    yaml = tmp_path / "bound.yaml"
    yaml.write_text(
        "name: bound\ntitle: Bound\nseed: 0\nmodel: {name: canonical}\n"
        "questions: {items: [canonical/items.jsonl]}\nbound: {draws: 3}\n"
    )
    shell.ok(f"study run {yaml} --out {tmp_path}/run")
    (row,) = map(json.loads, (tmp_path / "run/results.jsonl").read_text().splitlines())
    assert {one["kind"] for one in row["changes"]} == {"sampled", "adversarial"}
    whole = row["bound"][-1]
    gammas = [power_of_ten(whole[f"log10_gamma_{reading}"]) for reading in ("theorem", "proof")]
    assert f"| canonical | {' | '.join(gammas)} |" in (tmp_path / "run/report.md").read_text()
