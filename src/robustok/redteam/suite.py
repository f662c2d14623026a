"""Standard suite: several searches on the same prompts under one limit, and the worst of all.

A single search understates how far a model can be moved. The suite runs every search of the library
with the same number of scored tokenizations for each, and reports the worst result of each prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.attack_settings import AttackSettings, suite_label
from robustok.display import Progress
from robustok.errors import RobustokError, nearest
from robustok.redteam.attacks import (
    Prompt,
    PromptAttack,
    attack_prompt,
    broken_share,
    check_prompts,
    curve_of,
    success_curve,
)
from robustok.redteam.objective import Objective

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

SUITES = ("standard",)


def suite_settings(suite: str = "standard", max_scored: int = 500) -> dict[str, AttackSettings]:
    """The searches of a suite, by name.

    >>> list(suite_settings())
    ['greedy', 'wide', 'beam', 'restarts', 'annealing', 'random']

    Args:
        suite: its name; ``"standard"`` is the only one.
        max_scored: tokenizations that each search may score for a prompt, at least 1.

    Raises RobustokError for an unknown name.
    """
    if suite not in SUITES:
        raise RobustokError(f"unknown suite '{suite}': {nearest(suite, SUITES)}")
    limit = AttackSettings(steps=1000, max_scored=max_scored)
    return {
        "greedy": limit,
        "wide": limit.replaced(distances=(2, 4), max_neighbors=128),
        "beam": limit.replaced(beam=4, max_neighbors=128),
        "restarts": limit.replaced(restarts=1000, max_neighbors=64),
        "annealing": limit.replaced(search="annealing", beam=8),
        "random": limit.replaced(search="random"),
    }


@dataclass(frozen=True)
class SuiteResult:
    """The attacks of every search of a suite, and the worst for each prompt.

    >>> from robustok.redteam import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> result = run_suite(vocab, [Prompt("a", "hello world")], lambda _: length, seed=0)
    >>> result.worst[0].score == max(attacks[0].score for attacks in result.parts.values())
    True

    Args:
        suite: the name of the suite.
        seed: seed of all random choices.
        max_scored: tokenizations that each search could score for a prompt.
        parts: the attacks of each search, by its name, in the order of the prompts.
    """

    suite: str
    seed: int
    max_scored: int
    parts: dict[str, list[PromptAttack]]

    @property
    def worst(self) -> list[PromptAttack]:
        """The attack with the highest score, for each prompt; the first one among equals."""
        rows = zip(*self.parts.values(), strict=True)
        return [max(attacks, key=lambda attack: attack.score) for attacks in rows]

    @property
    def label(self) -> str:
        """The suite as one string, for a column of results, in the place of a scheme."""
        return suite_label(self.suite, self.max_scored)

    def table(self) -> list[dict[str, Any]]:
        """A row for each search and one for the worst of all.

        >>> from robustok.redteam import as_objective
        >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
        >>> result = run_suite(vocab, [Prompt("a", "hello world")], lambda _: length, seed=0)
        >>> [row["search"] for row in result.table()][-1]
        'worst of all'

        A row has ``n``, the mean ``score`` and ``canonical_score``, ``n_scored`` and ``seconds``,
        and with a threshold the share of broken prompts ``success`` with its 95% bounds ``low`` and
        ``high``.
        """
        named = [*self.parts.items(), ("worst of all", self.worst)]
        rows = [_row(name, attacks) for name, attacks in named]
        rows[-1]["n_scored"] = sum(row["n_scored"] for row in rows[:-1])
        rows[-1]["seconds"] = sum(row["seconds"] for row in rows[:-1])
        if "success" in rows[-1]:  # a prompt is broken if any search broke it
            broken = [
                any(attack.success for attack in attacks)
                for attacks in zip(*self.parts.values(), strict=True)
            ]
            rows[-1] |= broken_share(broken)
        return rows

    def curves(self, limits: Sequence[int]) -> dict[str, list[dict[str, float]]]:
        """The share of broken prompts by the number of tokenizations scored, for each search.

        >>> from robustok.redteam import as_objective
        >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
        >>> result = run_suite(vocab, [Prompt("a", "hello world")], lambda _: length, seed=0)
        >>> result.curves([1])["worst of all"][0]["success"]
        0.0

        Args:
            limits: numbers of tokenizations that each search scores.

        "worst of all" is a prompt that any search broke within the number.
        """
        curves = {name: success_curve(attacks, limits) for name, attacks in self.parts.items()}
        reached = [
            min((a.reached_at for a in attacks if a.reached_at is not None), default=None)
            for attacks in zip(*self.parts.values(), strict=True)
        ]
        return curves | {"worst of all": curve_of(reached, limits)}


def run_suite(
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    objective: Callable[[Prompt], Objective],
    *,
    suite: str = "standard",
    max_scored: int = 500,
    seed: int,
    progress: Progress | None = None,
) -> SuiteResult:
    """Attack every prompt with every search of a suite.

    >>> from robustok.redteam import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> run_suite(vocab, [Prompt("a", "hello")], lambda _: length, max_scored=50, seed=0).label
    'standard-suite(query_budget=50)'

    Args:
        vocab: the model's vocabulary.
        prompts: the prompts, each with its own key.
        objective: the objective of a prompt.
        suite: name of the suite, ``"standard"``.
        max_scored: tokenizations that each search may score for a prompt, at least 1.
        seed: any integer; decides all random choices.
        progress: called with (searches of prompts done, all of them).

    Raises RobustokError as :func:`attack_prompts`, and for an unknown suite.
    """
    settings = suite_settings(suite, max_scored)
    prompts = check_prompts(prompts)
    parts: dict[str, list[PromptAttack]] = {name: [] for name in settings}
    done = 0
    for prompt in prompts:
        shared = objective(prompt)
        for name, search in settings.items():
            parts[name].append(
                attack_prompt(vocab, prompt.text, shared, settings=search, seed=seed,
                              key=prompt.key)
            )  # fmt: skip
            done += 1
            if progress is not None:
                progress(done, len(prompts) * len(settings))
    return SuiteResult(suite, seed, max_scored, parts)


def _row(name: str, attacks: Sequence[PromptAttack]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "search": name,
        "n": len(attacks),
        "canonical_score": float(np.mean([a.canonical_score for a in attacks])),
        "score": float(np.mean([a.score for a in attacks])),
        "n_scored": sum(a.n_scored for a in attacks),
        "seconds": sum(a.seconds for a in attacks),
    }
    if all(a.success is not None for a in attacks):
        row |= broken_share([bool(a.success) for a in attacks])
    return row
