"""The commands that need a model: train one, then evaluate and attack it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from robustok.cli.app import run
from robustok.models import Shape, tiny_llama, train_tokenizer
from robustok.tasks import Item, write_items

ITEMS = [
    Item(f"q{i}", f"which word starts with {letter}? Answer:", (" street", " house"), label)
    for i, (letter, label) in enumerate([("s", 0), ("h", 1), ("st", 0), ("ho", 1)])
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train_tokenizer([item.query + item.answer for item in ITEMS], 290).save(
        str(folder / "tokenizer.json")
    )
    tiny_llama(290, Shape(1, 16, 2, 2, 32, 256), seed=0).save_pretrained(folder)
    write_items(folder / "items.jsonl", ITEMS)
    return folder


def test_finetune_then_evaluate_then_attack(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = ["--items", str(model / "items.jsonl"), "--seed", "0", "--json"]
    trained = tmp_path / "trained"

    def said(*args: str) -> list[dict]:
        code = run([*args, *items])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    recipe = ["--steps", "4", "--batch-size", "2", "--learning-rate", "1e-3"]
    tokenizer = ["-t", str(model / "tokenizer.json")]
    (training,) = said(
        "finetune", str(model), *tokenizer, "--out", str(trained), "-s", "uniform", *recipe
    )
    assert training["steps"] == 4 and training["scheme"] == "uniform"
    shutil.copy(model / "tokenizer.json", trained)
    canonical, uniform = said("evaluate", str(trained), "--draws", "3")
    assert (canonical["query"], canonical["draws"]) == ("canonical", 1)
    assert (uniform["query"], uniform["draws"], uniform["n"]) == ("uniform", 3, len(ITEMS))
    shown = ["--examples", str(model / "items.jsonl"), "-k", "2", "--example-scheme", "uniform"]
    (with_examples,) = said("icl", str(trained), "-s", "canonical", *shown)
    assert with_examples["n"] == len(ITEMS)
    (attacked,) = said("attack", str(trained), "--steps", "1")
    assert attacked["accuracy"] <= attacked["start_accuracy"]


def test_attack_one_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ITEMS[0].query
    options = ["--option", " street", "--option", " house"]
    args = ["attack", str(model), "--text", text, *options, "--seed", "0"]
    assert run([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["margins"] == sorted(found["margins"])
    assert found["queries"] >= 1
    assert run(args) == 0
    assert "margins" in capsys.readouterr().out


def test_pretrain(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street or with house " * 40)
    args = ["pretrain", str(text), "-t", str(model / "tokenizer.json"), "-s", "uniform"]
    recipe = ["--steps", "2", "--batch-size", "2", "--learning-rate", "1e-3", "--shape", "quick"]
    where = ["--seed", "0", "--out", str(tmp_path / "out"), "--held-out", str(text)]
    assert run([*args, *recipe, *where, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["steps"] == 2
    assert {entry["scheme"] for entry in done["perplexities"]} == {"canonical", "uniform"}
