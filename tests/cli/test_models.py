"""The commands that need a model: train one, then evaluate and attack it."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import ITEMS, Shell, rows_in, save_model

from robustok import Vocabulary
from robustok.attack import attack
from robustok.cli.measuring import print_comparison
from robustok.evaluation import perplexity
from robustok.models import load_model
from robustok.tokenizer.vocabulary import start_token_ids

TOKEN = "<start>"


def test_finetune_then_evaluate_then_attack(model: Path, tmp_path: Path, shell: Shell) -> None:
    trained = tmp_path / "trained"

    def rows_of(line: str) -> list[dict]:
        return shell.rows(f"{line} --items {model}/items.jsonl --seed 0")

    recipe = "--steps 4 --batch-size 2 --learning-rate 1e-3"
    line = f"finetune {model} -t {model}/tokenizer.json --out {trained} -s uniform {recipe}"
    (training,) = rows_of(line)
    assert training["steps"] == 4 and training["scheme"] == "uniform"
    canonical, uniform = rows_of(f"evaluate {trained} --draws 3")
    assert (canonical["eval_scheme"], canonical["draws"]) == ("canonical", 1)
    assert (uniform["eval_scheme"], uniform["draws"], uniform["n"]) == ("uniform", 3, len(ITEMS))
    with_examples, in_context = rows_of(
        f"icl {trained} -s canonical --attack -k 2 --example-scheme uniform"
    )
    assert with_examples["n"] == len(ITEMS) - 2
    assert in_context["accuracy"] <= in_context["start_accuracy"]
    (attacked,) = rows_of(f"attack {trained} --steps 1")
    assert attacked["accuracy"] <= attacked["start_accuracy"]
    low, high = attacked["start_low"], attacked["start_high"]
    assert low <= attacked["start_accuracy"] <= high and low < high
    folder = tmp_path / "evaluated"
    rows_of(f"evaluate {trained} --draws 2 -s uniform --out {folder}")
    (row,) = rows_in(folder / "results.jsonl")
    items = rows_in(folder / "items" / f"{row['cell']}.jsonl")
    assert [len(item["predictions"]) for item in items] == [2] * 4


def test_a_resumed_command_prints_what_a_whole_one_does(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    line = f"evaluate one={model} two={model} --items {model}/items.jsonl --seed 0 --draws 2"
    whole = shell.ok(f"{line} -s canonical -s uniform --out {tmp_path}/out")
    first = rows_in(tmp_path / "out/one/results.jsonl")[0]
    assert first["eval_scheme"] == "canonical"
    (tmp_path / "out/cells" / first["cell"] / "cell.json").unlink()
    assert shell.ok(f"{line} -s canonical -s uniform --out {tmp_path}/out") == whole


def test_models_are_compared_scheme_by_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"task": "t", "eval_scheme": scheme,
         "answers": {0: {str(i): float(i < right) for i in range(40)}}}
        for scheme, right in (("canonical", 36), ("uniform", 10))
    ]  # fmt: skip
    print_comparison({"one": rows, "two": rows[::-1]}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[2].partition(" ")[0] for line in lines] == ["+0.000"] * 2


def test_rows_say_which_examples_were_before_the_questions(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    line = f"icl {model} --items {model}/items.jsonl --seed 0 -s canonical -k 2 --out {tmp_path}/o"
    schemes = ("canonical", "uniform")
    line += "".join(f" --example-scheme {scheme}" for scheme in schemes)
    assert [row.get("few_shot_scheme") for row in shell.rows(line)] == [*schemes]
    table = pq.read_table(tmp_path / "o/items.parquet").to_pylist()
    assert [row["few_shot_scheme"] for row in table[::2]] == [*schemes]
    printed = shell.ok(line).splitlines()[1:3]
    assert [text.partition(": ")[0] for text in printed] == [
        "canonical examples, canonical",
        "uniform examples, canonical",
    ]


@pytest.mark.parametrize("name", ["cells", "figures"])
def test_a_model_cannot_have_the_name_of_a_part_of_the_folder(
    name: str, model: Path, tmp_path: Path, shell: Shell
) -> None:
    line = f"evaluate {name}={model} two={model} --items {model}/items.jsonl --seed 0"
    assert f"has its own '{name}'" in shell.fails(f"{line} --out {tmp_path}/out")


def test_a_training_log_has_steps_and_losses_at_intervals(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    recipe = f"-s canonical --steps 500 --batch-size 1 --learning-rate 1e-3 --out {tmp_path}/out"
    out = shell.ok(f"finetune {model} --items {model}/items.jsonl --seed 0 {recipe}")
    lines = [line for line in out.splitlines() if line.startswith("step ")]
    assert lines[-1].startswith("step 500 of 500: loss ")
    assert 10 <= len(lines) <= 21


@pytest.mark.parametrize(
    "options",
    [
        "evaluate -o {file}/rows", "evaluate -o {file}", "icl -o {file}",
        "attack -o {file}/rows",
        "embeddings -o {file}/further/out",
    ],
)  # fmt: skip
def test_a_bad_output_path_is_refused_before_the_model_is_loaded(
    options: str, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "file").write_text("")
    line = options.format(file=tmp_path / "file", folder=tmp_path) + " missing/model/ --seed 0"
    items = "" if line.startswith("embeddings") else " --items missing.jsonl"
    error = shell.fails(line + items)
    assert str(tmp_path) in error
    assert "missing" not in error


def test_attack_with_all_its_settings(model: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "attacks"
    line = (
        f"attack {model} --items {model}/items.jsonl --seed 0 --objective log-probability "
        "--search greedy --max-scored 50 --distance 2 --distance 4 --start uniform --steps 2 "
        f"--out {out}"
    )
    first, again = shell.rows(line), shell.rows(line)  # which finds every attack in its file
    (searched,) = first
    assert searched["search"] == "greedy" and searched["n_scored"] <= 50 * len(ITEMS)
    assert searched["curve"][-1]["accuracy"] == searched["accuracy"]
    assert [row["accuracy"] for row in again] == [row["accuracy"] for row in first]
    assert len(list((out / "items").iterdir())) == 1


def test_attack_leaves_the_chat_template_alone(model: Path, tmp_path: Path, shell: Shell) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}answer:"
    )
    folder = tmp_path / "chat"
    shutil.copytree(model, folder)
    tokenizer.save_pretrained(folder)
    question = ["--text", "is this street safe?", "--option", " safe", "--option", " unsafe"]
    record = shell.json(f"attack {folder} --seed 0", *question, "--system", "judge it")
    assert Vocabulary.load(str(folder)).decode(record["ids"]) == "is this street safe?"
    assert "chat template" in shell.fails(f"attack {model} --chat --seed 0", *question)


def test_pretrain(model: Path, tmp_path: Path, shell: Shell) -> None:
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street or with house " * 40)
    recipe = "-s uniform --steps 2 --batch-size 2 --learning-rate 1e-3 --shape quick --seed 0"
    where = f"-t {model}/tokenizer.json --out {tmp_path}/out --held-out {text}"
    done = shell.json(f"pretrain {text} {recipe} {where}")
    assert done["steps"] == 2
    assert {entry["scheme"] for entry in done["perplexities"]} == {"canonical", "uniform"}


def test_finetune_with_lora_on_pairs_with_a_schedule(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"say house number {i}:", "answer": f" {i}"} for i in range(8)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = "--preset paper-finetune --warmup-steps 0 --steps 4 --batch-size 4 --seed 0"
    where = f"--items {pairs} --out {tmp_path}/out"
    scheme = "-s stochastok(alpha=0->2) --keep-every 2"
    done = shell.json(f"finetune {model} --lora {scheme} {recipe} {where}")
    assert (done["steps"], done["scheme"]) == (4, "stochastok(alpha=0->2)")
    kept = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "tokenizer.json", "training.json"} <= kept
    assert (tmp_path / "out/steps/2/tokenizer.json").is_file()
    again = f"{recipe} --items {pairs} --out {tmp_path}/again -s canonical"
    error = shell.fails(f"finetune {tmp_path}/out --lora {again}")
    assert "which a new adapter would lose" in error
    assert shell.json(f"finetune {tmp_path}/out {again}")["steps"] == 4  # all weights


def test_evaluate_compares_models(model: Path, tmp_path: Path, shell: Shell) -> None:
    out, table = tmp_path / "out", tmp_path / "table.md"
    items = f"--items {model}/items.jsonl --seed 0 -s canonical --out {out}"
    printed = shell.ok(f"evaluate one={model} two={model} {items}")
    assert "acc_norm" in printed
    assert "two against one, canonical: +0.000 [-0.750, +0.750], p = 1\n" in printed
    both = [str(out / "one"), str(out / "two")]
    shell.ok("study report", *both, "--out", str(out), "--table", str(table))
    assert table.read_text().count("50.0 [6.8, 93.2]") == 2
    rows = pq.read_table(out / "items.parquet").to_pylist()
    assert [row["model"] for row in rows] == ["one"] * len(ITEMS) + ["two"] * len(ITEMS)
    assert (out / "report.html").is_file()
    *_, difference = shell.rows(f"evaluate one={model} two={model} {items}")
    assert (difference["model"], difference["against"]) == ("two", "one")
    assert (difference["difference"], difference["n"]) == (0, len(ITEMS))
    assert difference["low"] < 0 < difference["high"]


def test_results_of_other_settings_are_not_replaced(
    model: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    same = f"evaluate {model} --items {model}/items.jsonl --out {out} --seed 0 --draws 2"
    printed = shell.ok(same)
    kept = (out / "results.jsonl").read_bytes()
    with monkeypatch.context() as patch:  # nothing is measured again, and no model is loaded
        patch.setattr("robustok.study.cells.models.load_model", None)
        assert shell.ok(same) == printed
    for change in ("--seed 1", "--limit 2", "--draws 3", "--scheme canonical"):
        error = shell.fails(f"{same} {change}")
        assert "holds a run with another configuration" in error
        assert "run in another folder" in error
    assert (out / "results.jsonl").read_bytes() == kept


# --- with a start token ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose own start token is another one."""
    return save_model(tmp_path_factory.mktemp("started"), tokens=[TOKEN])


@pytest.fixture(scope="module")
def loaded(folder: Path) -> tuple[Any, Vocabulary, int]:
    """The model, its vocabulary and the id of the token."""
    vocab = Vocabulary.load(str(folder / "tokenizer.json"))
    return load_model(folder), vocab, start_token_ids(vocab, TOKEN)[0]


def test_attack_puts_the_start_token_before_the_question(
    shell: Shell, folder: Path, loaded: tuple[Any, Vocabulary, int]
) -> None:
    model, vocab, start = loaded
    item = ITEMS[0]
    given = [f"attack {folder} --seed 0", "--text", item.question]
    given += ["--option", item.choices[0], "--option", item.choices[1]]
    (without,) = shell.rows(*given)
    (after,) = shell.rows(*given, "--start-token", TOKEN)
    assert "margins" in shell.ok(*given)
    expected = attack(model, vocab, item.question, item.choices, 0, seed=0, prefix=[start])
    assert after["margins"] == pytest.approx(list(expected.margins))
    assert after["margins"][0] != pytest.approx(without["margins"][0], abs=1e-12)
    annealed = ["--search", "random", "--max-scored", "3"]
    first, second = (
        shell.rows(*given, *annealed, *token)[0]["margins"][0]
        for token in ([], ["--start-token", TOKEN])
    )
    assert first != second


def test_perplexity_measures_after_the_start_token(
    shell: Shell, folder: Path, loaded: tuple[Any, Vocabulary, int], tmp_path: Path
) -> None:
    model, vocab, start = loaded
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street")
    line = f"perplexity {folder} --seed 0 --texts {text} --start-token {TOKEN}"
    (row,) = shell.rows(f"{line} -s canonical")
    texts = ["which word starts with street"]
    expected = perplexity(model, vocab, texts, "canonical", seed=0, start=start)
    assert row["perplexity"] == pytest.approx(expected.perplexity)
    # One text has no upper bound, and JSON has no infinity.
    assert (row["low"], row["high"], expected.high) == (0, None, math.inf)
    assert "[0.0000, ∞] bits per byte, 1 text" in shell.ok(f"{line} -s canonical")


def test_finetune_packs_drops_draws_and_starts_as_given(
    shell: Shell, folder: Path, tmp_path: Path
) -> None:
    recipe = "--steps 2 --batch-size 2 --learning-rate 1e-3 -s uniform --seed 0"
    options = f"--pack 64 --fixed-draws 3 --dropout 0.1 --start-token {TOKEN} --out {tmp_path}/out"
    (row,) = shell.rows(f"finetune {folder} --items {folder}/items.jsonl {recipe} {options}")
    assert row["tokens"] == 2 * 2 * 64
    identity = json.loads((tmp_path / "out" / "training.json").read_text())["identity"]
    assert (identity["pack"], identity["fixed_draws"], identity["dropout"]) == (64, 3, 0.1)
    assert identity["prefix"] == start_token_ids(Vocabulary.load(str(folder)), TOKEN)
