"""Scores that are not numbers: everything that they would decide ends in one line with a name."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.attack.conftest import attack_prompt
from tests.oracles.models import tiny_model

from robustok import Ragged, RobustokError, Vocabulary
from robustok.attack import (
    Attack,
    Prompt,
    as_objective,
    attack_items,
    attack_prompts,
    greedy_answer,
    read_attacks,
    write_attacks,
)
from robustok.evaluation import (
    embedding_distances,
    evaluate,
    lipschitz_ratios,
    perplexity,
    solved_examples,
)
from robustok.runtime.files import write_json, write_rows
from robustok.scoring import score
from robustok.scoring.engine import LOG_ZERO
from robustok.tasks import Item

OPTIONS = [" up", " baby"]


@pytest.fixture(scope="module")
def broken(vocab: Vocabulary) -> Any:
    """A model with weights that are NaN."""
    model = tiny_model("llama", vocab.size, seed=1)
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)
    return model


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda m, v, i: score(m, [[5, 6]], [[7], [8]]), "question 0"),
        (lambda m, v, i: evaluate(m, v, i[:2], "uniform", seed=0), "item '{key}'"),
        (lambda m, v, i: evaluate(m, v, i[:2], "uniform", seed=0, ensemble=True), "item '{key}'"),
        (
            lambda m, v, i: evaluate(
                m, v, i[:2], "canonical", seed=0, prefix=solved_examples(v, i[2:4], seed=0)
            ),
            "item '{key}'",
        ),
        (lambda m, v, i: attack_items(m, v, i[:2], seed=0), "'{key}'"),
        (lambda m, v, i: perplexity(m, v, ["happen", "glad"], "canonical", seed=0), "text 0"),
        (lambda m, v, i: embedding_distances(m, v, ["happen", "glad"], draws=2, seed=0), "happen"),
        (lambda m, v, i: lipschitz_ratios(m, v, i[:2], draws=2, seed=0), "item '{key}'"),
        (lambda m, v, i: greedy_answer(m, v, v.encode("happen"), max_new_tokens=2), "prompt"),
    ],
)
def test_nothing_is_decided_by_scores_that_are_no_numbers(
    broken: Any, vocab: Vocabulary, items: list[Item], call: Callable, name: str
) -> None:
    with pytest.raises(RobustokError, match="not a number") as error:
        call(broken, vocab, items)
    assert name.format(key=items[0].key) in str(error.value)
    assert "\n" not in str(error.value)


class RulesOut(torch.nn.Module):
    """An output layer that gives some ids a logit of minus infinity."""

    def __init__(self, head: torch.nn.Linear, ids: list[int]) -> None:
        super().__init__()
        self.head, self.ids, self.weight = head, ids, head.weight

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        logits = self.head(states)
        logits[..., self.ids] = -torch.inf
        return logits


def ruling_out(model: Any, ids: list[int]) -> Any:
    """The model with a probability of zero for some ids."""
    other = copy.deepcopy(model)
    other.lm_head = RulesOut(other.lm_head, ids)
    return other


def test_a_probability_of_zero_is_a_score(model: Any, vocab: Vocabulary, tmp_path: Path) -> None:
    up, baby = (vocab.encode(option) for option in OPTIONS)
    only = sorted({*up.tolist()} - {*baby.tolist()})
    masked = ruling_out(model, only)
    (row,) = score(masked, [vocab.encode("happen")], [up, baby]).log_probs
    assert row[0] == LOG_ZERO and -100 < row[1] < 0
    items = [Item(str(label), "happen", tuple(OPTIONS), label) for label in (0, 1)]
    for ensemble in (False, True):
        result = evaluate(masked, vocab, items, "uniform", draws=3, seed=0, ensemble=ensemble)
        assert [outcome.correct for outcome in result.outcomes] == [0.0, 1.0]
        write_rows(tmp_path / "items.jsonl", result.table())
    attacked = attack_items(masked, vocab, items, seed=0, steps=1)
    assert [attack.success for attack in attacked.attacks] == [True, False]
    write_attacks(tmp_path / "attacks.jsonl", attacked.attacks)
    for path in tmp_path.iterdir():
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)


def test_a_question_with_no_probable_option_is_refused(model: Any, vocab: Vocabulary) -> None:
    ids = sorted({i for option in OPTIONS for i in vocab.encode(option).tolist()})
    masked = ruling_out(model, ids)
    item = Item("q7", "happen", tuple(OPTIONS), 0)
    with pytest.raises(RobustokError, match=r"item 'q7': .*probability of zero"):
        evaluate(masked, vocab, [item], "canonical", seed=0)
    with pytest.raises(RobustokError, match=r"text 1: .*perplexity is infinite"):
        perplexity(masked, vocab, ["glad", " baby"], "canonical", seed=0)


@pytest.mark.parametrize("values", [[math.nan], [math.inf], [1.0, 2.0], 1.0])
def test_an_objective_gives_a_finite_score_to_each_candidate_or_excludes_it(vocab, values) -> None:
    class Own:
        name, threshold, max_length = "own", None, None

        def __call__(self, rows: Ragged) -> np.ndarray:
            return np.asarray(values)

    prompts = [Prompt("p1", "happen")]
    for objective in (Own(), as_objective(lambda rows: values, name="own")):
        with pytest.raises(RobustokError, match=r"'p1': objective 'own' gave .*: return a finite"):
            attack_prompts(vocab, prompts, lambda _, own=objective: own, seed=0)


def test_excluded_scores_are_finite_in_files_and_come_back(
    vocab: Vocabulary, tmp_path: Path
) -> None:
    nothing = as_objective(lambda rows: [-math.inf] * len(rows), name="nothing")
    attack = attack_prompt(vocab, "happen", nothing, seed=0)
    assert attack.score == attack.canonical_score == -math.inf
    write_attacks(tmp_path / "a.jsonl", [attack])
    json.loads((tmp_path / "a.jsonl").read_text(), parse_constant=pytest.fail)
    (read,) = read_attacks(tmp_path / "a.jsonl")
    assert (read.score, read.canonical_score) == (-math.inf, -math.inf)
    assert [step.score for step in read.steps] == [step.score for step in attack.steps]
    assert isinstance(read, Attack)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_finite_numbers_only(tmp_path: Path, value: float) -> None:
    for write in (write_json, lambda path, one: write_rows(path, [one])):
        with pytest.raises(RobustokError, match="a result is"):
            write(tmp_path / "a.json", {"accuracy": value})
    assert not any(tmp_path.iterdir())
