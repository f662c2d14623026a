"""One table of token splits for many prompts, searched jointly.

A rule replaces every canonical occurrence of a token by a fixed segmentation of its bytes. Greedy
ascent changes one rule a step, the one that raises the mean score of all prompts most. The rules
apply to prompts that the search never saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from robustok.attack.objectives import Objective
from robustok.attack.records import Prompt
from robustok.checks import check_integer, check_seed
from robustok.evaluation.overflow import check_candidate_length
from robustok.evaluation.questions import check_keyed
from robustok.lattice import Lattice
from robustok.ragged import Ragged

if TYPE_CHECKING:
    from robustok.tokenizer.vocabulary import Vocabulary

Rules = Mapping[int, Sequence[int]]


@dataclass(frozen=True)
class JointAttack:
    """Rules that one search gave for many prompts.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> result = attack_jointly(vocab, [Prompt("a", "hello world")], lambda _: length, seed=0)
    >>> result.scores[-1] > result.scores[0]
    True

    Args:
        rules: ids that replace a canonical token, by its id.
        scores: mean score over the prompts, at the canonical tokenizations and after each step.
        n_scored: tokenizations scored.
        n: number of prompts.
    """

    rules: dict[int, list[int]]
    scores: list[float]
    n_scored: int
    n: int

    def apply(self, vocab: Vocabulary, text: str) -> np.ndarray:
        """The tokenization of any text by the rules, int32.

        >>> JointAttack({}, [0.0], 1, 1).apply(vocab, "hello").tolist() == [*vocab.encode("hello")]
        True

        Args:
            vocab: the vocabulary of the attacked model.
            text: the text.
        """
        return _applied(np.asarray(vocab.encode(text), np.int32), self.rules)


def attack_jointly(
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    objective: Callable[[Prompt], Objective],
    *,
    steps: int = 10,
    max_rules: int | None = None,
    seed: int,
) -> JointAttack:
    """Search rules that raise the mean score of all prompts.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> prompts = [Prompt("a", "hello world"), Prompt("b", "hello")]
    >>> attack_jointly(vocab, prompts, lambda _: length, steps=1, seed=0).n
    2

    Args:
        vocab: the model's vocabulary.
        prompts: the prompts, each with its own key.
        objective: the objective of a prompt.
        steps: greatest number of rules changed, at least 1.
        max_rules: greatest number of changes tried in a step, drawn uniformly; by default all.
        seed: any integer; decides these draws.

    A rule moves to a segmentation of its token at distance 2 from the one it has.

    Raises RobustokError for missing prompts and a prompt that does not fit the model.
    """
    check_integer("steps", steps, 1)
    prompts = check_keyed("prompt", prompts)
    objectives = [objective(prompt) for prompt in prompts]
    canonical = [np.asarray(vocab.encode(prompt.text), np.int32) for prompt in prompts]
    for ids, one, prompt in zip(canonical, objectives, prompts, strict=True):
        check_candidate_length(f"prompt '{prompt.key}'", len(ids), one.max_length)
    tokens = sorted({int(i) for ids in canonical for i in ids})
    lattices = {token: Lattice(vocab, [token]) for token in tokens}
    rules: dict[int, list[int]] = {}
    current = np.array([one(Ragged.from_rows([ids]))[0]
                        for one, ids in zip(objectives, canonical, strict=True)])  # fmt: skip
    scores, n_scored = [float(current.mean())], len(prompts)
    rng = np.random.default_rng(check_seed(seed))
    for _ in range(steps):
        changes = [
            (token, row.tolist())
            for token in tokens
            for row in lattices[token].neighbors(rules.get(token, [token]), distance=2)
        ]
        if max_rules is not None and len(changes) > max_rules:
            kept = np.sort(rng.choice(len(changes), max_rules, replace=False)).tolist()
            changes = [changes[i] for i in kept]
        if not changes:
            break
        table = np.tile(current, (len(changes), 1))
        for column, (one, ids) in enumerate(zip(objectives, canonical, strict=True)):
            n_scored += _score_changes(table[:, column], one, ids, rules, changes)
        best = int(table.mean(axis=1).argmax())
        if table[best].mean() <= scores[-1]:
            break
        token, ids = changes[best]
        rules[token], current = ids, table[best]
        scores.append(float(current.mean()))
    rules = {token: ids for token, ids in rules.items() if ids != [token]}
    return JointAttack(rules, scores, n_scored, len(prompts))


def _score_changes(
    column: np.ndarray,
    objective: Objective,
    canonical: np.ndarray,
    rules: Rules,
    changes: Sequence[tuple[int, list[int]]],
) -> int:
    """Write the scores of one prompt where a change concerns it; returns how many were scored."""
    present = set(canonical.tolist())
    concerned = [i for i, (token, _) in enumerate(changes) if token in present]
    rows = [_applied(canonical, {**rules, changes[i][0]: changes[i][1]}) for i in concerned]
    limit = objective.max_length
    fits = [limit is None or len(row) <= limit for row in rows]
    scored = [row for row, fit in zip(rows, fits, strict=True) if fit]
    column[[i for i, fit in zip(concerned, fits, strict=True) if not fit]] = -np.inf
    if scored:
        chosen = [i for i, fit in zip(concerned, fits, strict=True) if fit]
        column[chosen] = objective(Ragged.from_rows(scored))
    return len(scored)


def _applied(canonical: np.ndarray, rules: Rules) -> np.ndarray:
    ids = [part for token in canonical.tolist() for part in rules.get(token, (token,))]
    return np.asarray(ids, np.int32)
