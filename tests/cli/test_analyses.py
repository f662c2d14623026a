"""The commands analyze, embeddings and bound, as their users type them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.conftest import Shell, save_model
from tests.guard.tokenizers_of import byte_level

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
    rows = shell.json("analyze split-counts -t a=small/tokenizer.json --seed 0 --draws 9", *TEXT)
    assert {r["scheme"] for r in rows} >= {"uniform", "uniform-k(alpha=1)"}
    rows = shell.json(f"analyze segmentations {same} --draws 100", *TEXT)
    assert {r["splits"] for r in rows} >= {1}
    rows = shell.json(f"analyze dropout {same} --draws 20", *TEXT)
    assert [r["rule"] for r in rows][:9:4] == ["provilkov", "hf", "sentencepiece"]


def test_an_analysis_has_a_table_and_a_figure(shell: Shell, tmp_path: Path) -> None:
    given = f"--seed 0 --draws 200 --out {tmp_path}"
    out = shell.ok(f"analyze segmentations -t mine=small/tokenizer.json {given}", *TEXT)
    assert "segmentations" in out and "mine" in out
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == ["segmentations.csv", "segmentations.png", "segmentations.svg"]


def test_embeddings_of_two_models_alone_and_in_a_sentence(tmp_path: Path, shell: Shell) -> None:
    line = "embeddings canonical other=uniform --words-file words.txt --draws 6 --seed 0"
    given = ("--sentence", "the {word} was", "--start-token", "<|endoftext|>")
    given += ("--out", str(tmp_path))
    first = shell.rows(line, *given)
    assert [(r["model"], r["sentence"]) for r in first] == [
        ("canonical", ""), ("canonical", "the {word} was"),
        ("other", ""), ("other", "the {word} was"),
    ]  # fmt: skip
    assert all(len(r["mean"]) == 3 and r["words"] == 4 for r in first)
    again = shell.rows(line, *given)  # from the files
    assert [r["mean"] for r in again] == [r["mean"] for r in first]
    assert len(rows_of(tmp_path / "figures/embeddings.csv")) == 4 * 3
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# embeddings: canonical, other\n")
    head = (
        "| layer | canonical | canonical in “the {word} was” | other | other in “the {word} was” |"
    )
    assert head in report
    assert "4 words × 6 draws" in shell.ok(line, *given)


def test_bound_with_and_without_questions(tmp_path: Path, shell: Shell) -> None:
    plain = shell.rows("bound canonical uniform --distance 4")
    assert [row["model"] for row in plain] == ["canonical", "uniform"]
    assert [layer["layer"] for layer in plain[0]["layers"]] == [1, 2, "whole"]
    assert "c1_proof" not in plain[0]["layers"][0]
    items = f"--items canonical/items.jsonl --seed 0 --draws 3 --out {tmp_path}"
    measured = shell.rows(f"bound canonical uniform {items}")
    assert {row["kind"] for row in measured[0]["measured"]} == {"sampled", "adversarial"}
    assert measured[0]["tokens"] > 5
    written = rows_of(tmp_path / "figures/bound.csv")
    assert {row["kind"] for row in written} == {"sampled", "adversarial", "theorem", "proof"}
    whole = measured[0]["layers"][-1]
    gammas = [power_of_ten(whole[f"log10_gamma_{reading}"]) for reading in ("theorem", "proof")]
    assert f"| canonical | {' | '.join(gammas)} |" in (tmp_path / "report.md").read_text()
    assert "whole" in shell.ok("bound canonical uniform")
