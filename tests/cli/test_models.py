"""The commands that need a model: train one, evaluate and attack it; the files that they leave."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import ITEMS, Shell, save_model

from robustok import Vocabulary
from robustok.attack.settings import AttackSettings
from robustok.cli import evaluate as command
from robustok.cli.app import run
from robustok.cli.evaluate import print_comparison
from robustok.evaluation import evaluate, perplexity
from robustok.models import load_model
from robustok.runtime.inputs import read_rows
from robustok.study import find_study
from robustok.study.measurements.bound import power_of_ten
from robustok.tasks import Item, write_items
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
        f"evaluate {trained} -s canonical -s adversarial --few-shot 2 --examples uniform"
    )
    assert with_examples["n"] == len(ITEMS) - 2
    assert in_context["accuracy"] <= in_context["start_accuracy"]
    (attacked,) = rows_of(f"evaluate {trained} -s adversarial(steps=1)")
    assert attacked["accuracy"] <= attacked["start_accuracy"]
    low, high = attacked["start_low"], attacked["start_high"]
    assert low <= attacked["start_accuracy"] <= high and low < high
    folder = tmp_path / "evaluated"
    rows_of(f"evaluate {trained} --draws 2 -s uniform --out {folder}")
    (row,) = read_rows(folder / "results.jsonl")
    items = read_rows(folder / "items" / f"{row['cell']}.jsonl")
    assert [len(item["predictions"]) for item in items] == [2] * 4


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
    line = f"evaluate {model} --items {model}/items.jsonl -s canonical -k 2 --out {tmp_path}/o"
    schemes = ("canonical", "uniform")
    line += "".join(f" --examples {scheme}" for scheme in schemes)
    assert [row.get("few_shot_scheme") for row in shell.rows(line)] == [*schemes]
    table = pq.read_table(tmp_path / "o/items.parquet").to_pylist()
    assert [row["few_shot_scheme"] for row in table[::2]] == [*schemes]
    printed = shell.ok(line).splitlines()[1:3]
    assert [text.partition(": ")[0] for text in printed] == [
        "canonical examples, canonical",
        "uniform examples, canonical",
    ]


def test_a_comparison_of_models_says_which_examples_were_before_the_questions(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    two = save_model(tmp_path / "two", seed=7)
    line = f"evaluate one={model} {two} --items {model}/items.jsonl -s canonical -k 2"
    line += f" --examples canonical --examples uniform --out {tmp_path}/o"
    compared = [row for row in shell.rows(line) if "against" in row]
    assert [row["few_shot_scheme"] for row in compared] == ["canonical", "uniform"]
    printed = re.findall(r"\ntwo against one, (.*?): ", shell.ok(line))
    assert printed == ["canonical examples, canonical", "uniform examples, canonical"]


@pytest.mark.parametrize(
    "options",
    [
        "evaluate -o {file}/rows", "evaluate -o {file}", "evaluate -o {file}/further/out",
    ],
)  # fmt: skip
def test_a_bad_output_path_is_refused_before_the_model_is_loaded(
    options: str, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "file").write_text("")
    line = options.format(file=tmp_path / "file", folder=tmp_path) + " missing/model/ --seed 0"
    error = shell.fails(line + " --items missing.jsonl")
    assert str(tmp_path) in error
    assert "missing" not in error


def test_attacks_are_schemes_and_the_worst_of_them_is_reported(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    out = tmp_path / "attacks"
    schemes = (
        "adversarial(distances=(2, 4), start=uniform, steps=2, max_scored=50, "
        "objective=log-probability)",
        "adversarial(search=random, max_scored=20)",
    )
    line = (f"evaluate {model} --items {model}/items.jsonl --out {out}", *_given(*schemes))
    *rows, worst = shell.rows(*line)
    assert [row["eval_scheme"] for row in rows] == [
        str(AttackSettings.parse(scheme)) for scheme in schemes
    ]
    assert worst["eval_scheme"] == "worst of 2 attacks" and worst["n"] == len(ITEMS)
    broken: set[str] = set()
    for row, kept in zip(rows, read_rows(out / "results.jsonl"), strict=True):
        items = read_rows(out / "items" / f"{kept['cell']}.jsonl")
        broken |= {item["key"] for item in items if item["success"]}
        assert row["proved"] == kept["proved"] <= row["accuracy"]
    assert worst["accuracy"] == 1 - len(broken) / len(ITEMS)
    text = shell.ok(*line)
    assert "worst of 2 attacks: accuracy" in text and " proved, " in text
    page = (out / "report.md").read_text()
    # An attack from canonical questions has measured these, too.
    assert "| canonical | attack d = 2, 4 from uniform | " in page
    assert "## Attacked texts, before and after" in page and "| canonical | " in page
    curve = (out / "figures/curve.csv").read_text().splitlines()
    assert curve[0].startswith("attack,name,n_scored,accuracy,low,high") and len(curve) > 2
    table = pq.read_table(out / "items.parquet").to_pylist()
    assert len(table) == 2 * len(ITEMS) and {type(row["ids"]) for row in table} == {list}
    # The same command with one more scheme, and one more model, goes on there.
    cells = {path.name for path in (out / "cells").iterdir()}
    other = save_model(tmp_path / "other", seed=7)
    more = shell.rows(f"{line[0]} {other}", *line[1:], "-s", "canonical")
    measured = [row["model"] for row in more if "curve" in row or "acc_norm" in row]
    assert measured == [model.name] * 3 + ["other"] * 3
    assert f"## Difference to {model.name}" in (out / "report.md").read_text()
    assert cells < {path.name for path in (out / "cells").iterdir()}


def _given(*schemes: str) -> list[str]:
    return [word for scheme in schemes for word in ("-s", scheme)]


def test_one_folder_has_questions_few_shot_and_texts_of_all_models(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "a.txt").write_text("which word\nthe house\n")
    two = save_model(tmp_path / "two", seed=7)
    line = (
        f"evaluate one={model} {two} --items {model}/items.jsonl --texts {tmp_path}/a.txt "
        f"-n 2 --out {tmp_path}/out"
    )
    rows = [row for row in shell.rows(line) if "against" not in row]
    measured = [(row["model"], row["task"], row["eval_scheme"]) for row in rows]
    schemes = ("canonical", "uniform")
    tasks = [("text", s) for s in schemes] + [("items", s) for s in schemes]
    assert measured == [(name, *one) for name in ("one", "two") for one in tasks]
    assert [row["draws"] for row in rows[:4]] == [1, 2, 1, 2]
    kept = read_rows(tmp_path / "out/results.jsonl")
    assert [row["model"]["name"] for row in kept] == ["one"] * 4 + ["two"] * 4


def test_attack_leaves_the_chat_template_alone(model: Path, tmp_path: Path, shell: Shell) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(model / "tokenizer.json"))
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}answer:"
    )
    folder = tmp_path / "chat"
    shutil.copytree(model, folder)
    tokenizer.save_pretrained(folder)
    items = tmp_path / "safe.jsonl"
    write_items(items, [Item("a", "is this street safe?", (" safe", " unsafe"), 0)])
    line = f"evaluate {folder} --items {items} -s canonical -s adversarial --dtype float32"
    with_system, attacked = shell.rows(line, "--system", "judge it", "--out", f"{tmp_path}/out")
    row = read_rows(tmp_path / "out/results.jsonl")[1]
    (item,) = read_rows(tmp_path / "out/items" / f"{row['cell']}.jsonl")
    vocab = Vocabulary.load(str(folder))
    assert vocab.decode(item["ids"]) == "is this street safe?"
    assert "judge it" in vocab.decode(item["prefix"]) and "answer" in vocab.decode(item["suffix"])
    # The questions of `evaluate` stand in the same place.
    frame = {name: item[name] for name in ("prefix", "suffix")}
    question = Item("a", "is this street safe?", (" safe", " unsafe"), 0)
    expected = evaluate(load_model(folder), vocab, [question], "canonical", seed=0, **frame)
    (kept,) = read_rows(
        tmp_path / "out/items" / f"{read_rows(tmp_path / 'out/results.jsonl')[0]['cell']}.jsonl"
    )
    assert kept["margins"] == pytest.approx(list(expected.outcomes[0].margins), abs=1e-4)
    assert with_system["accuracy"] == attacked["start_accuracy"]
    assert "chat template" in shell.fails(f"evaluate {model} --chat --items {items}")
    # The space before the content is a part of its first token.
    write_items(items, [Item("b", "street or house?", (" street", " house"), 0)])
    joined = shell.rows(line, "--chat", "--out", f"{tmp_path}/joined")[1]
    row = read_rows(tmp_path / "joined/results.jsonl")[1]
    (item,) = read_rows(tmp_path / "joined/items" / f"{row['cell']}.jsonl")
    assert vocab.decode(item["canonical_ids"]) == " street or house?"
    assert joined["distance"] >= 0


def test_pretrain(model: Path, tmp_path: Path, shell: Shell) -> None:
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street or with house " * 40)
    recipe = "-s uniform --steps 2 --batch-size 2 --learning-rate 1e-3 --shape quick --seed 0"
    where = f"-t {model}/tokenizer.json --out {tmp_path}/out"
    done = shell.json(f"pretrain {text} {recipe} {where}")
    assert done["steps"] == 2


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


BLIMP = {"id": "b1", "query": "", "UID": "island", "choices": ["He runs.", "He run."], "label": 0}


def test_sentences_are_evaluated_and_refused_where_questions_are_needed(
    model: Path, tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "blimp.jsonl"
    path.write_text(json.dumps(BLIMP) + "\n")
    given = f"{model} --items {path} --seed 0"
    assert shell.rows(f"evaluate {given}")[0]["n"] == 1
    assert "'b1'" in shell.fails(f"evaluate {given} -s adversarial --out {tmp_path}/out")
    recipe = f"-s uniform --steps 1 --batch-size 1 --learning-rate 1e-3 --out {tmp_path}/tuned"
    assert "'b1'" in shell.fails(f"finetune {given} {recipe}")


def test_evaluate_compares_models(model: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "out"
    items = f"--items {model}/items.jsonl --seed 0 -s canonical --out {out}"
    two = save_model(tmp_path / "two", seed=7)
    printed = shell.ok(f"evaluate one={model} {two} {items}")
    assert "acc_norm" in printed
    assert re.search(r"\ntwo against one, canonical: [-+0-9.]+ \[.*\], p = ", printed)
    error = shell.fails(f"evaluate one={model} two={model} {items}")
    assert "one and two are one model, with the same weights" in error
    rows = pq.read_table(out / "items.parquet").to_pylist()
    assert [row["model"] for row in rows] == ["one"] * len(ITEMS) + ["two"] * len(ITEMS)
    assert (out / "report.html").is_file()
    first, second, difference = shell.rows(f"evaluate one={model} {two} {items}")
    assert (difference["model"], difference["against"]) == ("two", "one")
    change = second["accuracy"] - first["accuracy"]
    assert (difference["difference"], difference["n"]) == (pytest.approx(change), len(ITEMS))
    assert difference["low"] <= change <= difference["high"]


def test_a_folder_goes_on_with_other_settings_and_keeps_what_is_finished(
    model: Path, tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    same = f"evaluate {model} --items {model}/items.jsonl --out {out} --seed 0 --draws 2"
    printed = shell.ok(same)
    kept = (out / "results.jsonl").read_bytes()
    cells = {path.name for path in (out / "cells").iterdir()}
    with monkeypatch.context() as patch:  # nothing is measured again, and no model is loaded
        patch.setattr("robustok.study.models.load_model", None)
        assert shell.ok(same) == printed
    for change in ("--seed 1", "--limit 2", "--draws 3", "--scheme characters"):
        shell.ok(f"{same} {change}")
        assert (out / "results.jsonl").read_bytes() != kept
    assert cells < {path.name for path in (out / "cells").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("robustok.study.models.load_model", None)
        assert shell.ok(same) == printed
    assert (out / "results.jsonl").read_bytes() == kept
    (out / "cells" / read_rows(out / "results.jsonl")[0]["cell"] / "cell.json").unlink()
    assert shell.ok(same) == printed
    assert "holds other files" in shell.fails(f"{same[: same.index(' --out')]} --out {model}")


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


def test_perplexity_measures_after_the_start_token(
    shell: Shell, folder: Path, loaded: tuple[Any, Vocabulary, int], tmp_path: Path
) -> None:
    model, vocab, start = loaded
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street")
    line = f"evaluate {folder} --texts {text} --start-token {TOKEN}"
    (row,) = shell.rows(f"{line} -s canonical")
    texts = ["which word starts with street"]
    expected = perplexity(model, vocab, texts, "canonical", seed=0, start=start)
    assert row["perplexity"] == pytest.approx(expected.perplexity)
    # One text has no upper bound, and JSON has no infinity.
    assert (row["low"], row["high"], expected.high) == (0, None, math.inf)
    assert "[0.0000, ∞] bits per byte, 1 text" in shell.ok(f"{line} -s canonical")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with the runs of questions that are drawn and attacked."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        for line in (
            "evaluate -s canonical -s uniform --draws 3 --out predictions",
            "evaluate -s adversarial(steps=1) --out attacks",
        ):
            assert run(f"{line} {model} --items {model}/items.jsonl --seed 0".split()) == 0
    return folder


def test_several_folders_have_one_report(results: Path, tmp_path: Path) -> None:
    files = [str(results / name) for name in ("predictions", "attacks")]
    assert run(["study", "report", *files]) == 2
    assert run(["study", "report", *files, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Accuracy of model when the tokenization of a text changes\n")
    assert "model | uniform |" in text and "model | adversarial(" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no results.jsonl"),
        ("", "has no rows"),
        ("text", "is not JSON"),
        ("[1]\n", "give the folder of a study"),
        ("null\n", "give the folder of a study"),
        ("5\n", "results.jsonl is damaged, or of another program"),
        ('{"query": "a", "choices": ["b", "c"], "label": 0}\n', "has a row without eval_scheme"),
        ('{"accuracy": 0.5}\n', "has a row without eval_scheme"),
    ],
)
def test_another_folder_is_refused_in_one_line(
    content: str | None, message: str, tmp_path: Path, shell: Shell
) -> None:
    if content is not None:
        (tmp_path / "results.jsonl").write_text(content)
    assert message in shell.fails("study", "report", str(tmp_path))
    assert not (tmp_path / "report.html").exists()


def test_results_open_in_pandas_and_datasets_in_one_line(results: Path, tmp_path: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    items = tmp_path / "items"  # as of one run with schemes and attacks
    for name in ("predictions", "attacks"):
        shutil.copytree(results / name / "items", items, dirs_exist_ok=True)
    table = pandas.read_parquet(results / "predictions" / "items.parquet")
    cache = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    drawn, attacked = (
        datasets.load_dataset("json", data_files=f"{items}/{kind}-*.jsonl", **cache)
        for kind in ("evaluate", "attack")
    )
    keys = [item.key for item in ITEMS]
    assert table["key"].tolist() == drawn["key"][:] == keys * 2
    assert attacked["key"][:] == keys
    assert sorted(table["correct"]) == sorted(drawn["correct"][:])


def test_without_pyarrow_there_is_no_table_of_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"model": [{"model": "m", "eval_scheme": "canonical", "items": [{"correct": 1.0}]}]}
    command._write_parquet(rows, tmp_path / "with")
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    command._write_parquet(rows, tmp_path / "without")
    assert [path.name for path in tmp_path.iterdir()] == ["with"]


def test_a_folder_of_folders_of_results_is_refused_with_their_names(
    tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.jsonl").write_text("")
    assert f"such as {tmp_path / 'a'}" in shell.fails("study", "report", str(tmp_path))


def test_embeddings_of_a_model_as_it_is(model: Path, tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "words.txt").write_text("street\nhouse\nwhich\nword\n")
    given = f"--model {model} --words-file {tmp_path}/words.txt"
    shell.ok(f"study run embeddings {given} --out {tmp_path}/run")
    (row,) = read_rows(tmp_path / "run/results.jsonl")
    assert row["scale"] == "measure" and row["training"] == ""
    assert [layer["layer"] for layer in row["layers"]] == [0, 1]
    figure = (tmp_path / "run/figures/embeddings.csv").read_text()
    assert len(figure.splitlines()) == 1 + 2


def test_bound_of_a_model_as_it_is(model: Path, tmp_path: Path, shell: Shell) -> None:
    text = find_study("bound", scale="measure").as_dict()
    assert text["finetune"] is None and text["bound"]["items"] == 100
    yaml = tmp_path / "bound.yaml"
    yaml.write_text(
        f"name: bound\ntitle: Bound\nseed: 0\nmodel: {{name: {model}}}\n"
        f"questions: {{items: [{model}/items.jsonl]}}\nbound: {{draws: 3}}\n"
    )
    shell.ok(f"study run {yaml} --out {tmp_path}/run")
    (row,) = read_rows(tmp_path / "run/results.jsonl")
    assert {one["kind"] for one in row["changes"]} == {"sampled", "adversarial"}
    whole = row["bound"][-1]
    gammas = [power_of_ten(whole[f"log10_gamma_{reading}"]) for reading in ("theorem", "proof")]
    page = (tmp_path / "run/report.md").read_text()
    assert f"| {model.name} | {' | '.join(gammas)} |" in page
