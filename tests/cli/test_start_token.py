"""--start-token of attack and perplexity, and the options of finetune of the paper's recipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.test_models import ITEMS

from robustok import Vocabulary
from robustok.cli.app import run
from robustok.evaluation import attack, marginal, perplexity
from robustok.models import Shape, load_model, small_model, train_tokenizer
from robustok.special_tokens import special_token
from robustok.tasks import write_items

TOKEN = "<start>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose own start token is another one."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer([item.question + item.answer for item in ITEMS], 290)
    tokenizer.add_special_tokens([TOKEN])
    tokenizer.save(str(folder / "tokenizer.json"))
    small_model(291, Shape(1, 16, 2, 2, 32, 256), seed=0, end_id=0).save_pretrained(folder)
    write_items(folder / "items.jsonl", ITEMS)
    return folder


class Shell:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.vocab = Vocabulary.load(str(folder / "tokenizer.json"))
        self.model = load_model(folder)
        self.start = special_token(self.vocab, TOKEN)

    def rows(self, command: str, *args: str) -> list[dict]:
        code = run([command, str(self.folder), *args, "--seed", "0", "--json"])
        out, err = self.capsys.readouterr()
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    def error(self, command: str, *args: str) -> str:
        assert run([command, str(self.folder), *args, "--seed", "0"]) == 2
        line = self.capsys.readouterr().err
        assert line.count("\n") == 1
        return line


@pytest.fixture
def shell(folder: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(folder, capsys)


def test_attack_puts_it_before_the_question(shell: Shell) -> None:
    item = ITEMS[0]
    given = ["--text", item.question, "--option", item.choices[0], "--option", item.choices[1]]
    (without,) = shell.rows("attack", *given)
    (after,) = shell.rows("attack", *given, "--start-token", TOKEN)
    expected = attack(
        shell.model, shell.vocab, item.question, item.choices, 0, seed=0, prefix=[shell.start]
    )
    assert after["margins"] == pytest.approx(list(expected.margins))
    assert after["margins"][0] != pytest.approx(without["margins"][0], abs=1e-12)
    annealed = ["--search", "annealing", "--max-scored", "3"]
    first, second = (
        shell.rows("attack", *given, *annealed, *token)[0]["canonical_score"]
        for token in ([], ["--start-token", TOKEN])
    )
    assert first != second


def test_perplexity_measures_after_it(shell: Shell, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("which word starts with street")
    given = ["--texts", str(text), "--start-token", TOKEN]
    (row,) = shell.rows("perplexity", *given, "-s", "canonical")
    texts = ["which word starts with street"]
    expected = perplexity(shell.model, shell.vocab, texts, "canonical", seed=0, start=shell.start)
    assert row["perplexity"] == pytest.approx(expected.perplexity)
    (row,) = shell.rows("perplexity", *given, "--marginal", "-n", "4")
    (one,) = marginal(shell.model, shell.vocab, texts, draws=4, seed=0, start=shell.start)
    assert row["log_marginal"] == pytest.approx(one.log_marginal)


def test_a_token_that_cannot_be_is_one_line(shell: Shell) -> None:
    given = ["--text", "word", "--option", " a", "--option", " b"]
    assert "no special token '<s>'" in shell.error("attack", *given, "--start-token", "<s>")
    message = shell.error("attack", *given, "--chat", "--start-token", TOKEN)
    assert "leave --start-token out" in message


def test_finetune_packs_drops_and_draws_as_given(shell: Shell, tmp_path: Path) -> None:
    recipe = ["--steps", "2", "--batch-size", "2", "--learning-rate", "1e-3", "-s", "uniform"]
    items = ["--items", str(shell.folder / "items.jsonl"), "--out", str(tmp_path / "out")]
    options = ["--pack", "64", "--fixed-draws", "3", "--dropout", "0.1"]
    (row,) = shell.rows("finetune", *items, *recipe, *options)
    assert row["tokens"] == 2 * 2 * 64
    identity = json.loads((tmp_path / "out" / "training.json").read_text())["identity"]
    assert (identity["pack"], identity["fixed_draws"], identity["dropout"]) == (64, 3, 0.1)
