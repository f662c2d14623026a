"""--start-token of attack and perplexity, and the options of finetune of the paper's recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import ITEMS, Shell, save_model

from robustok import Vocabulary
from robustok.attack import attack
from robustok.evaluation import marginal, perplexity
from robustok.models import load_model
from robustok.tokenizer.vocabulary import special_token

TOKEN = "<start>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose own start token is another one."""
    return save_model(tmp_path_factory.mktemp("started"), tokens=[TOKEN])


@pytest.fixture(scope="module")
def loaded(folder: Path) -> tuple[Any, Vocabulary, int]:
    """The model, its vocabulary and the id of the token."""
    vocab = Vocabulary.load(str(folder / "tokenizer.json"))
    return load_model(folder), vocab, special_token(vocab, TOKEN)


def test_attack_puts_it_before_the_question(
    shell: Shell, folder: Path, loaded: tuple[Any, Vocabulary, int]
) -> None:
    model, vocab, start = loaded
    item = ITEMS[0]
    given = [f"attack {folder} --seed 0", "--text", item.question]
    given += ["--option", item.choices[0], "--option", item.choices[1]]
    (without,) = shell.rows(*given)
    (after,) = shell.rows(*given, "--start-token", TOKEN)
    expected = attack(model, vocab, item.question, item.choices, 0, seed=0, prefix=[start])
    assert after["margins"] == pytest.approx(list(expected.margins))
    assert after["margins"][0] != pytest.approx(without["margins"][0], abs=1e-12)
    annealed = ["--search", "annealing", "--max-scored", "3"]
    first, second = (
        shell.rows(*given, *annealed, *token)[0]["canonical_score"]
        for token in ([], ["--start-token", TOKEN])
    )
    assert first != second


def test_perplexity_measures_after_it(
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
    (row,) = shell.rows(f"{line} --marginal -n 4")
    (one,) = marginal(model, vocab, texts, draws=4, seed=0, start=start)
    assert row["log_marginal"] == pytest.approx(one.log_marginal)


def test_a_token_that_cannot_be_is_one_line(shell: Shell, folder: Path) -> None:
    line = f"attack {folder} --seed 0 --text word --option a --option b --start-token"
    assert "no special token '<s>'" in shell.fails(f"{line} <s>")
    assert "leave --start-token out" in shell.fails(f"{line} {TOKEN} --chat")


def test_finetune_packs_drops_and_draws_as_given(
    shell: Shell, folder: Path, tmp_path: Path
) -> None:
    recipe = "--steps 2 --batch-size 2 --learning-rate 1e-3 -s uniform --seed 0"
    options = f"--pack 64 --fixed-draws 3 --dropout 0.1 --out {tmp_path}/out"
    (row,) = shell.rows(f"finetune {folder} --items {folder}/items.jsonl {recipe} {options}")
    assert row["tokens"] == 2 * 2 * 64
    identity = json.loads((tmp_path / "out" / "training.json").read_text())["identity"]
    assert (identity["pack"], identity["fixed_draws"], identity["dropout"]) == (64, 3, 0.1)
