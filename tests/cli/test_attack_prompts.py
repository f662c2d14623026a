"""robustok attack with objectives beyond the answer options: what a user types and reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from tests.cli.conftest import Shell, rows_in
from tests.oracles.models import tiny_model

from robustok import Vocabulary
from robustok.models import save_tokenizer, train_tokenizer

SENTENCES = ["Which baby starts with glad rain: happen? Answer: up carry half garden straight"]
PROMPTS = [
    {"key": "a", "prompt": "happen, glad", "target": " rain", "choices": [" up", " rain"],
     "label": 0},
    {"key": "b", "prompt": "straight garden", "target": " up", "choices": [" up", " rain"],
     "label": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("redteam")
    tokenizer = train_tokenizer(SENTENCES * 3, 330)
    size = Vocabulary.load(tokenizer).size
    tokenizer.save(str(folder / "tokenizer.json"))
    for seed, name in enumerate(("one", "two")):
        tiny_model("llama", size, seed=seed).save_pretrained(folder / name)
        save_tokenizer(folder / "tokenizer.json", folder / name)
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = tf.BertConfig(vocab_size=size, num_attention_heads=4, initializer_range=0.5, **shape)
    tf.BertForSequenceClassification(config).save_pretrained(folder / "classifier")
    save_tokenizer(folder / "tokenizer.json", folder / "classifier")
    lines = [json.dumps(prompt) for prompt in PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "judges.py").write_text(
        "def length(prompt, answer):\n    return len(answer)\n"
        "def short(rows):\n    return -rows.lengths\n"
        "def allowed(rows):\n    return rows.lengths < 40\n"
    )
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


TARGET = ("one", "--objective", "target", "--prompts", "prompts.jsonl", "--seed", "0")


def test_attacks_are_written_and_replayed_on_the_same_and_another_model(shell: Shell) -> None:
    attacked = shell.rows("attack", *TARGET, "--out", "attacks.jsonl", "--steps", "2")
    assert [row["key"] for row in attacked] == ["a", "b"]
    assert all(row["score"] >= row["canonical_score"] for row in attacked)
    again = shell.rows("attack", "one", "--replay", "attacks.jsonl")
    for row, replayed in zip(attacked, again, strict=True):
        assert replayed["score"] == pytest.approx(row["score"], abs=1e-4)
        assert replayed["ids"] == row["ids"]
    other = shell.rows("attack", "two", "--replay", "attacks.jsonl")
    moved = shell.rows("attack", *TARGET, "--steps", "2", "--transfer", "two")[2:]
    assert [row["score"] for row in moved] == pytest.approx([row["score"] for row in other])
    assert moved[0]["model"] == "two"


def test_a_transfer_to_the_model_itself_has_its_tokenizer(shell: Shell, folder: Path) -> None:
    (folder / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "bare" / name).write_bytes((folder / "one" / name).read_bytes())
    rows = shell.rows(
        "attack", "bare", *TARGET[1:], "--steps", "1", "-t", "one", "--transfer", "bare"
    )  # fmt: skip
    attacked, moved = rows[:2], rows[2:]
    scores = [row["score"] for row in attacked]
    assert [row["score"] for row in moved] == pytest.approx(scores, abs=1e-4)


def test_a_suite_prints_its_parts_and_the_worst_of_all(shell: Shell) -> None:
    (result,) = shell.rows(
        "attack", "one", "--prompts", "prompts.jsonl", "--suite", "--max-scored", "40",
        "--seed", "0", "--curve", "suite.svg",
    )  # fmt: skip
    names = [row["search"] for row in result["parts"]]
    assert names == ["greedy", "wide", "beam", "restarts", "annealing", "random", "worst of all"]
    *parts, worst = result["parts"]
    assert worst["success"] >= max(part["success"] for part in parts)
    assert all(part["n_scored"] <= 80 for part in parts)
    assert result["curves"]["worst of all"][-1]["success"] == worst["success"]
    assert Path("suite.svg").read_text().startswith("<?xml")


def test_answers_are_written_and_judged(shell: Shell) -> None:
    output = shell.ok(
        "attack", *TARGET, "--steps", "1", "--generate", "answers.jsonl", "--judge",
        "judges:length", "--max-new-tokens", "4",
    )  # fmt: skip
    assert "judge: mean" in output
    answers = rows_in(Path("answers.jsonl"))
    assert [a["attacked_verdict"] for a in answers] == [len(a["attacked"]) for a in answers]


@pytest.mark.parametrize(
    "settings",
    [
        ("one", "--objective", "refusal", "--unwanted", " up", "--wanted", " rain"),
        ("one", "--objective", "guard", "--unwanted", " up", "--wanted", " rain"),
        ("one", "--objective", "margin"),
        ("one", "--objective", "judges:short"),
        ("one", "--objective", "target", "--constraint", "judges:allowed"),
        ("one", "--objective", "target", "--search", "annealing", "--max-scored", "20"),
        ("classifier", "--objective", "classifier", "--flagged", "LABEL_1"),
    ],
)
def test_every_objective_runs(shell: Shell, settings: tuple[str, ...]) -> None:
    common = ("--prompts", "prompts.jsonl", "--seed", "0", "--steps", "1")
    attacked = shell.rows("attack", *settings, *common)
    assert [row["key"] for row in attacked] == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("one", "--objective", "target", "--text", "a", "--seed", "0"), "has no target"),
        (("one", "--objective", "margin", "--text", "a", "--seed", "0"), "no answer options"),
        (("one", "--objective", "nothing", "--text", "a", "--seed", "0"), "unknown objective"),
        (("one", "--objective", "no:thing", "--text", "a", "--seed", "0"), "no function"),
        ((*TARGET, "--chat"), "no chat template"),
        ((*TARGET, "--judge", "judges:length"), "give --generate"),
        (("one", "--replay", "a.jsonl", "--out", "b.jsonl"), "--replay scores recorded attacks"),
        (("one", "--replay", "a.jsonl", "--steps", "3"), "--replay scores recorded attacks"),
        (("one", "--items", "i", "--option", "a", "--seed", "0"), "are about one --text"),
        ((*TARGET, "--text", "a"), "give one of --text"),
        (("one", "--replay", "missing.jsonl"), "missing.jsonl"),
        (("one", "--replay", "prompts.jsonl"), "not an attack"),
        (("one", "--objective", "classifier", "--text", "a", "--seed", "0"), "classifier"),
        (("one", "--text", "a", "--option", "b", "--option", "c"), "give --seed"),
        (("one", "--text", "a", "--transfer", "two", "--seed", "0"), "another --objective"),
        ((*TARGET, "--suite", "--beam", "2"), "no setting but --max-scored"),
        ((*TARGET, "--control"), "leave them out"),
        ((*TARGET, "--overflow", "left"), "leave them out"),
        (
            ("one", "--prompts", "prompts.jsonl", "--seed", "0", "--objective", "log-probability"),
            "give margin",
        ),
    ],
)
def test_a_mistake_is_one_line(shell: Shell, args: tuple[str, ...], message: str) -> None:
    assert message in shell.fails("attack", *args)


def test_the_vote_over_draws_is_certified(shell: Shell) -> None:
    args = ("certify", "one", "--smoothed", "uniform", "--draws", "20", "--seed", "0")
    output = shell.ok(*args, "--text", "glad", "--option", " up", "--option", " rain")
    first, second = output.splitlines()
    assert first == "one: weights in float32"
    assert second.startswith("answer ' ") and "of uniform" in second
    lines = [{"query": p["prompt"], "choices": p["choices"], "label": 0} for p in PROMPTS]
    Path("items.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    certificates = shell.rows(*args, "--items", "items.jsonl", "--enumerate", "1")
    assert [c["method"] for c in certificates] == ["sampling"] * 2
    assert all(c["certified"] == (c["lower"] > 0.5) for c in certificates)
    assert "vote.distances" in shell.fails(
        *args, "--text", "a", "--option", "b", "--option", "c", "--distance", "2"
    )
