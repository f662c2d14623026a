"""The studies of tokenizers alone, of embeddings and of the bound, as their users type them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell, save_model
from tests.guard.tokenizers_of import byte_level

from robustok.study import find_study
from robustok.study.measurements.bound import power_of_ten

TEXT = ("--text", "the theater is there")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, questions, words, a text and another tokenizer."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(["canonical", "uniform"]):
        save_model(folder / name, seed=seed, layers=2)
    (folder / "words.txt").write_text("street\nhouse\nwhich\nword\n")
    (folder / "common.txt").write_text("the\nrest\nthen\n")
    (folder / "small").mkdir()
    byte_level(None).data.source.save(str(folder / "small" / "tokenizer.json"))
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_each_analysis_tells_its_rows(shell: Shell) -> None:
    same = "-t small/tokenizer.json --seed 0"
    rows = shell.json("study run split-counts -t a=small/tokenizer.json --seed 0 --draws 9", *TEXT)
    assert {r["scheme"] for r in rows} >= {"uniform", "uniform-k(alpha=1)"}
    rows = shell.json(f"study segmentations {same} --draws 100", *TEXT)
    assert {r["splits"] for r in rows} >= {1}
    rows = shell.json(f"study dropout {same} --draws 20", *TEXT)
    assert [r["rule"] for r in rows][:9:4] == ["provilkov", "hf", "sentencepiece"]


def test_an_analysis_has_a_table_and_a_figure(shell: Shell, tmp_path: Path) -> None:
    given = f"--seed 0 --draws 200 --out {tmp_path}"
    out = shell.ok(f"study segmentations -t mine=small/tokenizer.json {given}", *TEXT)
    assert "segmentations" in out and "mine" in out
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["segmentations.csv", "segmentations.png", "segmentations.svg"]


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
    assert {one["kind"] for one in row["changes"]} == {
        "sampled", "adversarial", "theorem", "proof",
    }  # fmt: skip
    whole = row["bound"][-1]
    gammas = [power_of_ten(whole[f"log10_gamma_{reading}"]) for reading in ("theorem", "proof")]
    assert f"| canonical | {' | '.join(gammas)} |" in (tmp_path / "run/report.md").read_text()
