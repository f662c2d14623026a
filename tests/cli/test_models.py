"""The commands that need a model: train one, then evaluate and attack it."""

from __future__ import annotations

import json
import shutil
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
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    train_tokenizer([item.question + item.answer for item in ITEMS], 290).save(
        str(folder / "tokenizer.json")
    )
    small_model(290, Shape(1, 16, 2, 2, 32, 256), seed=0, end_id=0).save_pretrained(folder)
    write_items(folder / "items.jsonl", ITEMS)
    return folder


def test_finetune_then_evaluate_then_attack(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = ["--items", str(model / "items.jsonl"), "--seed", "0", "--json"]
    trained = tmp_path / "trained"

    def rows_of(*args: str) -> list[dict]:
        code = run([*args, *items])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    recipe = ["--steps", "4", "--batch-size", "2", "--learning-rate", "1e-3"]
    tokenizer = ["-t", str(model / "tokenizer.json")]
    (training,) = rows_of(
        "finetune", str(model), *tokenizer, "--out", str(trained), "-s", "uniform", *recipe
    )
    assert training["steps"] == 4 and training["scheme"] == "uniform"
    canonical, uniform = rows_of("evaluate", str(trained), "--draws", "3")
    assert (canonical["query"], canonical["draws"]) == ("canonical", 1)
    assert (uniform["query"], uniform["draws"], uniform["n"]) == ("uniform", 3, len(ITEMS))
    shown = ["-k", "2", "--example-scheme", "uniform"]
    (with_examples,) = rows_of("icl", str(trained), "-s", "canonical", *shown)
    assert with_examples["n"] == len(ITEMS) - 2
    *_, in_context = rows_of("icl", str(trained), "-s", "canonical", "--attack", *shown)
    assert in_context["accuracy"] <= in_context["start_accuracy"]
    (attacked,) = rows_of("attack", str(trained), "--steps", "1")
    assert attacked["accuracy"] <= attacked["start_accuracy"]
    rows = tmp_path / "items.jsonl"
    rows_of("evaluate", str(trained), "--draws", "2", "-s", "uniform", "--out", str(rows))
    assert [json.loads(x)["query"] for x in rows.read_text().splitlines()] == ["uniform"] * 4


def test_a_training_log_has_steps_and_losses_at_intervals(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ["--steps", "500", "--batch-size", "1", "--learning-rate", "1e-3"]
    args = ["finetune", str(model), "--items", str(model / "items.jsonl"), "--seed", "0"]
    assert run([*args, "--out", str(tmp_path / "out"), "-s", "canonical", *recipe]) == 0
    out, err = capsys.readouterr()
    lines = [line for line in out.splitlines() if line.startswith("step ")]
    assert err == ""
    assert lines[-1].startswith("step 500 of 500: loss ")
    assert 10 <= len(lines) <= 21


@pytest.mark.parametrize(
    "options",
    [
        ["evaluate", "--table", "{file}/table.md"],
        ["evaluate", "--table", "{folder}"],
        ["evaluate", "-o", "{file}/rows.jsonl"],
        ["evaluate", "-o", "{folder}/rows.csv"],
        ["icl", "-o", "{folder}"],
        ["attack", "-o", "{file}/rows.jsonl"],
        ["attack", "--curve", "{file}/curve.png"],
        ["certify", "-o", "{file}"],
        ["embeddings", "-o", "{file}/further/out"],
    ],
)
def test_a_bad_output_path_is_refused_before_the_model_is_loaded(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    command, *given = [part.format(file=tmp_path / "file", folder=tmp_path) for part in options]
    items = [] if command == "embeddings" else ["--items", "missing.jsonl"]
    assert run([command, "missing/model/", *items, "--seed", "0", *given]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert "missing" not in error
    assert error.count("\n") == 1


def test_attack_with_all_its_settings_a_control_and_a_curve(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, curve = tmp_path / "attacks.jsonl", tmp_path / "curve.png"
    settings = [
        "--objective",
        "log-probability",
        "--max-neighbors",
        "5",
        "--beam",
        "2",
        "--restarts",
        "1",
        "--distance",
        "2",
        "--distance",
        "4",
        "--start",
        "uniform",
        "--steps",
        "2",
        "--control",
        "--seed",
        "0",
        "--json",
    ]
    args = ["attack", str(model), "--items", str(model / "items.jsonl"), *settings]
    args += ["--out", str(out), "--curve", str(curve)]
    outputs = []
    for _ in range(2):  # the second finds every attack in its file
        assert run(args) == 0
        outputs.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    searched, control = outputs[0]
    assert [row["search"] for row in outputs[0]] == ["greedy", "random, same number scored"]
    assert control["n_scored"] <= searched["n_scored"]
    assert searched["curve"][-1]["accuracy"] == searched["accuracy"]
    assert [row["accuracy"] for row in outputs[1]] == [row["accuracy"] for row in outputs[0]]
    assert curve.read_bytes().startswith(b"\x89PNG")
    assert out.with_name("attacks-control.jsonl").exists()


def test_attack_leaves_the_chat_template_alone(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}answer:"
    )
    folder = tmp_path / "chat"
    shutil.copytree(model, folder)
    tokenizer.save_pretrained(folder)
    question = ["--text", "is this street safe?", "--option", " safe", "--option", " unsafe"]
    args = ["attack", str(folder), *question, "--system", "judge it", "--seed", "0", "--json"]
    assert run(args) == 0
    record = json.loads(capsys.readouterr().out)
    import robustok as rt

    vocab = rt.Vocabulary.load(str(folder))
    assert vocab.decode(record["ids"]) == "is this street safe?"
    assert run(["attack", str(model), *question, "--chat", "--seed", "0"]) == 2
    assert "chat template" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--text", "a", "--option", "b", "--option", "c", "--control"], "give --items"),
        (["--items", "{items}", "--search", "lucky"], "search"),
        (["--items", "{items}", "--objective", "loss"], "objective"),
        (
            ["--items", "{items}", "--limit", "1", "--steps", "1", "--curve", "c.txt"],
            ".png or .svg",
        ),
    ],
)
def test_a_wrong_attack_is_one_line(
    model: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [a.format(items=model / "items.jsonl") for a in args]
    assert run(["attack", str(model), "--seed", "0", *given]) == 2
    line = capsys.readouterr().err
    assert message in line and line.count("\n") == 1


def test_attack_one_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ITEMS[0].question
    options = ["--option", " street", "--option", " house"]
    args = ["attack", str(model), "--text", text, *options, "--seed", "0"]
    assert run([*args, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["margins"] == sorted(record["margins"])
    assert record["n_scored"] >= 1
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


def test_finetune_with_lora_on_pairs_with_a_schedule(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"say house number {i}:", "answer": f" {i}"} for i in range(8)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = ["finetune", str(model), "--items", str(pairs), "--seed", "0", "--json"]
    more = [
        "-s",
        "stochastok(alpha=0->2)",
        "--lora",
        "--preset",
        "paper-finetune",
        "--warmup-steps",
        "0",
    ]
    size = ["--steps", "4", "--batch-size", "4", "--out", str(tmp_path / "out")]
    assert run([*args, *more, *size]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["steps"], done["scheme"]) == (4, "stochastok(alpha=0->2)")
    kept = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "training.json"} <= kept


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--batch-size", "4"],
            "give --steps and --learning-rate, or a --preset (paper-tiny-llm-pretrain",
        ),
        (["--preset", "paper-fintune"], "did you mean 'paper-finetune'?"),
        (["--preset", "paper-finetune", "-s", "stochastok(alpha=0->x)"], "alpha"),
        (["--preset", "paper-finetune", "--overflow", "cut"], "unknown overflow policy"),
    ],
)
def test_finetune_says_what_is_wrong(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    args = ["finetune", str(model), "--items", str(model / "items.jsonl"), "--seed", "0"]
    scheme = [] if "-s" in more else ["-s", "uniform"]
    assert run([*args, *scheme, *more, "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
