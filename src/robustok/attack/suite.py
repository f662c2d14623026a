"""The suite: attacks on the same prompts by several searches, and the worst of each prompt.

A single search understates how far a model can be moved. The suite runs six searches
(:func:`suite_settings`) with the same number of scored tokenizations for each, and reports the
worst result of each prompt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from robustok.attack.engine import attack_prompts
from robustok.attack.objectives import Objective
from robustok.attack.records import Attack, Prompt, finite_or_none
from robustok.attack.settings import SUITE_LIMIT, AttackSettings, suite_label
from robustok.evaluation.intervals import curve_of, share
from robustok.evaluation.questions import check_keyed
from robustok.runtime.display import Progress, no_progress, part_of_progress
from robustok.runtime.files import JsonObject
from robustok.tokenizer.vocabulary import Vocabulary


def suite_settings(max_scored: int = SUITE_LIMIT) -> dict[str, AttackSettings]:
    """The searches of the suite, by name.

    >>> list(suite_settings())
    ['greedy', 'wide', 'beam', 'restarts', 'annealing', 'random']

    Args:
        max_scored: tokenizations that each search may score for a prompt, at least 1.
    """
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
    """The attacks of every search of the suite, and the worst for each prompt.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> result = run_suite(vocab, [Prompt("a", "hello world")], lambda _: length, seed=0)
    >>> result.worst[0].score == max(attacks[0].score for attacks in result.parts.values())
    True
    >>> result.table()[-1]["search"], result.curves([1])["worst of all"][0]["success"]
    ('worst of all', 0.0)

    Args:
        seed: seed of all random choices.
        max_scored: tokenizations that each search could score for a prompt.
        parts: the attacks of each search, by its name, in the order of the prompts.
        seconds: wall-clock time of each search, by its name; 0 where they were made before.
    """

    seed: int
    max_scored: int
    parts: dict[str, list[Attack]]
    seconds: dict[str, float]

    @property
    def by_prompt(self) -> list[tuple[Attack, ...]]:
        """The attacks of all searches on each prompt."""
        return list(zip(*self.parts.values(), strict=True))

    @property
    def worst(self) -> list[Attack]:
        """The attack with the highest score, for each prompt; of equals one that succeeded."""
        return [
            max(attacks, key=lambda a: (a.score, bool(a.success))) for attacks in self.by_prompt
        ]

    @property
    def label(self) -> str:
        """The suite as one string, for a column of results, in the place of a scheme."""
        return suite_label(self.max_scored)

    def table(self) -> list[JsonObject]:
        """A row for each search and one for the worst of all.

        A row has ``n``, the mean ``score`` and ``canonical_score`` (None where the objective
        excludes one), ``n_scored`` and ``seconds``, and with a threshold the share of broken
        prompts ``success`` with its 95% bounds ``low`` and ``high``.
        """
        rows = [_row(name, part, self.seconds[name]) for name, part in self.parts.items()]
        rows.append(_row("worst of all", self.worst, sum(self.seconds.values())))
        rows[-1]["n_scored"] = sum(row["n_scored"] for row in rows[:-1])
        if "success" in rows[-1]:  # a prompt is broken if any search broke it
            broken = [any(attack.success for attack in attacks) for attacks in self.by_prompt]
            rows[-1] |= share("success", broken)
        return rows

    def curves(self, limits: Sequence[int]) -> dict[str, list[dict[str, float]]]:
        """The share of broken prompts for each search that scores ``limits`` tokenizations.

        "worst of all" is a prompt that any search broke within the number.
        """
        reached = {name: [a.reached_at for a in part] for name, part in self.parts.items()}
        reached["worst of all"] = [
            min((a.reached_at for a in attacks if a.reached_at is not None), default=None)
            for attacks in self.by_prompt
        ]
        return {name: curve_of("success", numbers, limits) for name, numbers in reached.items()}


def run_suite(
    vocab: Vocabulary,
    prompts: Iterable[Prompt],
    objective: Callable[[Prompt], Objective],
    *,
    max_scored: int = SUITE_LIMIT,
    seed: int,
    progress: Progress = no_progress,
) -> SuiteResult:
    """Attack every prompt with every search of the suite.

    >>> from robustok.attack import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=9)
    >>> run_suite(vocab, [Prompt("a", "hello")], lambda _: length, max_scored=50, seed=0).label
    'standard-suite(max_scored=50)'

    Args:
        max_scored: tokenizations that each search may score for a prompt, at least 1; by default
            500.
        seed: any integer; decides all random choices.
        progress: called with (searches of prompts done, all of them).

    ``vocab``, ``prompts`` and ``objective`` are those of :func:`attack_prompts`.

    Raises RobustokError as :func:`attack_prompts`.
    """
    searches = suite_settings(max_scored)
    prompts = check_keyed("prompt", prompts)
    parts: dict[str, list[Attack]] = {}
    seconds: dict[str, float] = {}
    for number, (name, settings) in enumerate(searches.items()):
        began = time.perf_counter()
        parts[name] = attack_prompts(
            vocab,
            prompts,
            objective,
            settings=settings,
            seed=seed,
            progress=part_of_progress(
                progress, number * len(prompts), len(prompts) * len(searches)
            ),
        )
        seconds[name] = time.perf_counter() - began
    return SuiteResult(seed, max_scored, parts, seconds)


def _row(name: str, attacks: Sequence[Attack], seconds: float) -> JsonObject:
    row: JsonObject = {
        "search": name,
        "n": len(attacks),
        "canonical_score": finite_or_none(float(np.mean([a.canonical_score for a in attacks]))),
        "score": finite_or_none(float(np.mean([a.score for a in attacks]))),
        "n_scored": sum(a.n_scored for a in attacks),
        "seconds": seconds,
    }
    if all(a.success is not None for a in attacks):
        row |= share("success", [bool(a.success) for a in attacks])
    return row
