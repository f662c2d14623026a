"""The commands embeddings, bound and certify, as their users type them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from robustok.cli.app import run
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import Item, write_items

ITEMS = [
    Item(f"q{i}", f"which word starts with {letter}? Answer:", (" street", " house"), label)
    for i, (letter, label) in enumerate([("s", 0), ("h", 1), ("st", 0), ("ho", 1)])
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, questions and words."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([item.question + item.answer for item in ITEMS], 290)
    for seed, name in enumerate(["canonical", "uniform"]):
        model = small_model(290, Shape(2, 16, 2, 2, 32, 256), seed=seed, end_id=0)
        model.save_pretrained(folder / name)
        tokenizer.save(str(folder / name / "tokenizer.json"))
    write_items(folder / "items.jsonl", ITEMS)
    (folder / "words.txt").write_text("street\nhouse\nwhich\nword\n")
    return folder


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict]:
    code = run([*args, "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_embeddings_of_two_models_alone_and_in_a_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [str(folder / "canonical"), f"other={folder / 'uniform'}"]
    given = ["--words-file", str(folder / "words.txt"), "--draws", "6", "--seed", "0"]
    given += ["--sentence", "the {word} was", "--start-token", "--out", str(tmp_path)]
    first = run_json(capsys, "embeddings", *models, *given)
    assert [(r["model"], r["sentence"]) for r in first] == [
        ("canonical", ""), ("canonical", "the {word} was"),
        ("other", ""), ("other", "the {word} was"),
    ]  # fmt: skip
    assert all(len(r["mean"]) == 3 and r["words"] == 4 for r in first)
    again = run_json(capsys, "embeddings", *models, *given)  # from the files
    assert [r["mean"] for r in again] == [r["mean"] for r in first]
    assert len(rows_of(tmp_path / "embeddings.csv")) == 4 * 3
    assert {f.name for f in tmp_path.glob("*.png")} == {"embeddings.png"}
    assert run(["embeddings", *models, *given]) == 0
    assert "4 words × 6 draws" in capsys.readouterr().out


def test_bound_with_and_without_questions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [str(folder / name) for name in ("canonical", "uniform")]
    plain = run_json(capsys, "bound", *models, "--distance", "4")
    assert [row["model"] for row in plain] == ["canonical", "uniform"]
    assert [layer["layer"] for layer in plain[0]["layers"]] == [1, 2, "whole"]
    assert "c1_proof" not in plain[0]["layers"][0]
    given = ["--items", str(folder / "items.jsonl"), "--seed", "0", "--draws", "3"]
    given += ["--out", str(tmp_path)]
    measured = run_json(capsys, "bound", *models, *given)
    assert {row["kind"] for row in measured[0]["measured"]} == {"sampled", "adversarial"}
    assert measured[0]["tokens"] > 5
    written = rows_of(tmp_path / "bound.csv")
    assert {row["kind"] for row in written} == {"sampled", "adversarial", "theorem", "proof"}
    assert (tmp_path / "bound.svg").exists()
    assert run(["bound", *models, "--tokens", "9", "--tolerance", "0.01"]) == 0
    out = capsys.readouterr().out
    assert "C1 proof" in out and "whole" in out


def test_certify_a_task_and_one_question(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = [str(folder / name) for name in ("canonical", "uniform")]
    given = ["--items", str(folder / "items.jsonl"), "--seed", "0", "--draws", "20"]
    given += ["--enumerate", "300", "--distance", "all", "--distance", "2", "--out", str(tmp_path)]
    first = run_json(capsys, "certify", *models, *given)
    assert [(r["model"], r["distance"]) for r in first] == [
        ("canonical", 2), ("canonical", "all"), ("uniform", 2), ("uniform", "all"),
    ]  # fmt: skip
    assert all(r["same"] + r["open"] + r["flips"] + r["attacked"] == r["n"] == 4 for r in first)
    assert run_json(capsys, "certify", *models, *given) == first
    assert len(rows_of(tmp_path / "gap.csv")) == 4
    kept = (tmp_path / "certificates-canonical.jsonl").read_text().splitlines()
    assert len(kept) == 1 + len(ITEMS)
    question = ["--text", "which house?", "--option", " street", "--option", " house"]
    (one,) = run_json(capsys, "certify", models[0], *question, "--distance", "2", "--seed", "0")
    assert one["method"] == "enumeration" and int(one["tokenizations"]) == one["n_scored"]
    assert run(["certify", models[0], *question, "--distance", "2", "--seed", "0"]) == 0
    assert "within distance 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["embeddings", "{m}", "--seed", "0", "--words-file", "{w}", "--sentence", "x"],
            "{word} once",
        ),
        (
            ["embeddings", "{m}", "a={m}", "a={m}", "--seed", "0", "--words-file", "{w}"],
            "called 'a'",
        ),
        (["embeddings", "=x", "--seed", "0", "--words-file", "{w}"], "names no model"),
        (["bound", "{m}", "--items", "{i}"], "--seed"),
        (["bound", "{m}", "--tolerance", "1e-9"], "tolerance"),
        (["certify", "{m}", "--seed", "0"], "either --text"),
        (["certify", "{m}", "--seed", "0", "--items", "{i}", "--distance", "far"], "or all"),
        (["certify", "{m}", "--seed", "0", "--items", "{i}", "--confidence", "2"], "confidence"),
        (["certify", "{m}", "--seed", "0", "--text", "a", "--out", "x"], "--items"),
        (["certify", "{m}", "--seed", "0", "--text", "a", "--option", " b"], "two options"),
        (["certify", "{m}", "--seed", "0", "--items", "{i}", "--chat"], "chat template"),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"m": str(folder / "canonical"), "i": str(folder / "items.jsonl"),
              "w": str(folder / "words.txt")}  # fmt: skip
    filled = [a.replace("{m}", places["m"]).replace("{i}", places["i"]) for a in args]
    assert run([a.replace("{w}", places["w"]) for a in filled]) == 2
    line = capsys.readouterr().err
    assert message in line and line.count("\n") == 1
