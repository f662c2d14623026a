"""The commands embeddings, bound and certify, as their users type them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.conftest import ITEMS, Shell, save_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, questions and words."""
    folder = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(["canonical", "uniform"]):
        save_model(folder / name, seed=seed, layers=2)
    (folder / "words.txt").write_text("street\nhouse\nwhich\nword\n")
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_embeddings_of_two_models_alone_and_in_a_sentence(
    folder: Path, tmp_path: Path, shell: Shell
) -> None:
    models = [str(folder / "canonical"), f"other={folder / 'uniform'}"]
    given = ["--words-file", str(folder / "words.txt"), "--draws", "6", "--seed", "0"]
    given += ["--sentence", "the {word} was", "--start-token", "<|endoftext|>"]
    given += ["--out", str(tmp_path)]
    first = shell.rows("embeddings", *models, *given)
    assert [(r["model"], r["sentence"]) for r in first] == [
        ("canonical", ""), ("canonical", "the {word} was"),
        ("other", ""), ("other", "the {word} was"),
    ]  # fmt: skip
    assert all(len(r["mean"]) == 3 and r["words"] == 4 for r in first)
    again = shell.rows("embeddings", *models, *given)  # from the files
    assert [r["mean"] for r in again] == [r["mean"] for r in first]
    assert len(rows_of(tmp_path / "embeddings.csv")) == 4 * 3
    assert {f.name for f in tmp_path.glob("*.png")} == {"embeddings.png"}
    assert "4 words × 6 draws" in shell.ok("embeddings", *models, *given)


def test_bound_with_and_without_questions(folder: Path, tmp_path: Path, shell: Shell) -> None:
    models = [str(folder / name) for name in ("canonical", "uniform")]
    plain = shell.rows("bound", *models, "--distance", "4")
    assert [row["model"] for row in plain] == ["canonical", "uniform"]
    assert [layer["layer"] for layer in plain[0]["layers"]] == [1, 2, "whole"]
    assert "c1_proof" not in plain[0]["layers"][0]
    given = ["--items", str(folder / "canonical" / "items.jsonl"), "--seed", "0", "--draws", "3"]
    given += ["--out", str(tmp_path)]
    measured = shell.rows("bound", *models, *given)
    assert {row["kind"] for row in measured[0]["measured"]} == {"sampled", "adversarial"}
    assert measured[0]["tokens"] > 5
    written = rows_of(tmp_path / "bound.csv")
    assert {row["kind"] for row in written} == {"sampled", "adversarial", "theorem", "proof"}
    assert (tmp_path / "bound.svg").exists()
    out = shell.ok("bound", *models, "--tokens", "9", "--tolerance", "0.01")
    assert "C1 proof" in out and "whole" in out


def test_certify_a_task_and_one_question(folder: Path, tmp_path: Path, shell: Shell) -> None:
    models = [str(folder / name) for name in ("canonical", "uniform")]
    given = ["--items", str(folder / "canonical" / "items.jsonl"), "--seed", "0", "--draws", "20"]
    given += ["--enumerate", "300", "--distance", "all", "--distance", "2", "--out", str(tmp_path)]
    first = shell.rows("certify", *models, *given)
    assert [(r["model"], r["distance"]) for r in first] == [
        ("canonical", 2), ("canonical", "all"), ("uniform", 2), ("uniform", "all"),
    ]  # fmt: skip
    assert all(r["same"] + r["open"] + r["flips"] + r["attacked"] == r["n"] == 4 for r in first)
    assert shell.rows("certify", *models, *given) == first
    assert len(rows_of(tmp_path / "gap.csv")) == 4
    kept = (tmp_path / "certificates-canonical.jsonl").read_text().splitlines()
    assert len(kept) == 1 + len(ITEMS)
    question = ["--text", "which house?", "--option", " street", "--option", " house"]
    (one,) = shell.rows("certify", models[0], *question, "--distance", "2", "--seed", "0")
    assert one["method"] == "enumeration" and int(one["tokenizations"]) == one["n_scored"]
    out = shell.ok("certify", models[0], *question, "--distance", "2", "--seed", "0")
    assert "within distance 2" in out
