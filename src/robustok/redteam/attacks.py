"""Attack of one prompt or many through their tokenization, for any objective."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.checks import check_list
from robustok.display import Progress
from robustok.errors import RobustokError
from robustok.evaluation.intervals import clustered
from robustok.redteam.objective import Objective
from robustok.redteam.searches import SEARCH_FUNCTIONS, Scorer

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary


class PromptStep(NamedTuple):
    """A tokenization better than all before it.

    >>> PromptStep([5, 6], -1.5, 7).n_scored
    7

    Args:
        ids: the token ids, a list of int.
        score: its score.
        n_scored: tokenizations scored by then.
    """

    ids: list[int]
    score: float
    n_scored: int


@dataclass(frozen=True)
class PromptAttack:
    """The tokenization of one prompt with the highest score that a search reached.

    >>> from robustok.redteam import TargetLikelihood
    >>> objective = TargetLikelihood(model, vocab, " the revolution")
    >>> result = attack_prompt(vocab, "hello world", objective, seed=0)
    >>> vocab.decode(result.ids), result.score >= result.canonical_score
    ('hello world', True)

    Args:
        key: key of the prompt, or the text itself.
        text: the prompt.
        objective: name of what was maximized.
        settings: the attack's settings as a string.
        seed: seed of its random choices.
        ids: the tokenization with the highest score, a list of int.
        score: its score.
        canonical_score: score of the canonical tokenization.
        success: whether ``score`` exceeds the objective's threshold; None without a threshold.
        reached_at: number of tokenizations scored at the first success; None for never.
        n_scored: tokenizations scored, each counted once.
        seconds: wall-clock time.
        steps: each tokenization that was better than all before it.
        overflowed: number of candidates that did not fit the model.
    """

    key: str
    text: str
    objective: str
    settings: str
    seed: int
    ids: list[int]
    score: float
    canonical_score: float
    success: bool | None
    reached_at: int | None
    n_scored: int
    seconds: float
    steps: tuple[PromptStep, ...]
    overflowed: int = 0

    def as_row(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        return asdict(self) | {"steps": [step._asdict() for step in self.steps]}

    def score_after(self, n_scored: int) -> float:
        """The highest score among the first tokenizations scored.

        Args:
            n_scored: how many, at least 1.
        """
        reached = [step.score for step in self.steps if step.n_scored <= n_scored]
        return reached[-1] if reached else -np.inf

    def __str__(self) -> str:
        gain = f"{self.objective} {self.canonical_score:+.3f} → {self.score:+.3f}"
        outcome = {True: ", broken", False: ", held", None: ""}[self.success]
        return f"{gain}{outcome}, {self.n_scored} tokenizations scored"


def attack_prompt(
    vocab: Vocabulary,
    text: str,
    objective: Objective,
    *,
    settings: AttackSettings | None = None,
    seed: int,
    key: str | None = None,
    **changes: Any,
) -> PromptAttack:
    """Search the tokenization of ``text`` with the highest score of an objective.

    >>> from robustok.redteam import as_objective
    >>> shortest = as_objective(lambda rows: -rows.lengths, name="short")
    >>> attack_prompt(vocab, "hello", shortest, start="characters", distances=(1,), seed=0).score
    -1.0

    Args:
        vocab: the model's vocabulary.
        text: the prompt, not empty.
        objective: what is maximized, such as :class:`TargetLikelihood`.
        settings: how to search; by default as in the paper. Its ``objective`` has no effect here
            and must be the default.
        seed: any integer; decides all random draws.
        key: name of the prompt in the result, by default the text.
        changes: fields of :class:`AttackSettings` in place of those of ``settings``.

    Raises RobustokError for an empty prompt, for one longer than the model's longest input, and on
    an unknown setting.
    """
    settings = (settings or AttackSettings()).replaced(**changes)
    if settings.objective != AttackSettings().objective:
        raise RobustokError("the objective is given as an object: leave the setting out")
    if settings.stop_when_wrong:
        raise RobustokError("stop_when_wrong is for attacks on questions: leave it out")
    if not text:
        raise RobustokError("the prompt is empty: give a text to attack")
    began = time.perf_counter()
    scorer = Scorer(vocab, text, objective, settings.max_scored)
    SEARCH_FUNCTIONS[settings.search](scorer, settings, seed)
    ids, score, _ = scorer.steps[-1]
    canonical = scorer.scores.get(scorer.canonical.tobytes())
    if canonical is None:  # a search from another start
        from robustok.ragged import Ragged

        canonical = float(objective(Ragged.from_rows([scorer.canonical]))[0])
    return PromptAttack(
        key=text if key is None else key,
        text=text,
        objective=objective.name,
        settings=str(settings),
        seed=seed,
        ids=ids.tolist(),
        score=score,
        canonical_score=canonical,
        success=None if objective.threshold is None else scorer.succeeded,
        reached_at=scorer.reached_at,
        n_scored=len(scorer.scores),
        seconds=time.perf_counter() - began,
        steps=tuple(PromptStep(i.tolist(), s, n) for i, s, n in scorer.steps),
        overflowed=scorer.overflowed,
    )


class Prompt(NamedTuple):
    """A prompt to attack, with what a file says about it.

    >>> Prompt("a", "hello world", {"target": " Sure"}).fields["target"]
    ' Sure'

    Args:
        key: its name, unique among the prompts.
        text: the text that is attacked.
        fields: further fields of its row, such as ``target``, ``options`` and ``label``.
    """

    key: str
    text: str
    fields: dict[str, Any] = {}  # noqa: RUF012


def attack_prompts(
    vocab: Vocabulary,
    prompts: Sequence[Prompt],
    objective: Callable[[Prompt], Objective],
    *,
    settings: AttackSettings | None = None,
    seed: int,
    progress: Progress | None = None,
    **changes: Any,
) -> list[PromptAttack]:
    """Attack several prompts, each on its own.

    >>> from robustok.redteam import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> prompts = [Prompt("a", "hello"), Prompt("b", "world")]
    >>> [a.key for a in attack_prompts(vocab, prompts, lambda prompt: length, seed=0)]
    ['a', 'b']

    Args:
        vocab: the model's vocabulary.
        prompts: the prompts, each with its own key.
        objective: the objective of a prompt.
        settings: how to search, as in :func:`attack_prompt`.
        seed: any integer; a draw depends on it and the text.
        progress: called with (prompts done, prompts).
        changes: fields of :class:`AttackSettings` in place of those of ``settings``.

    Raises RobustokError as :func:`attack_prompt`, and for prompts that share a key.
    """
    prompts = check_prompts(prompts)
    results = []
    for prompt in prompts:
        result = attack_prompt(
            vocab, prompt.text, objective(prompt), settings=settings, seed=seed, key=prompt.key,
            **changes,
        )  # fmt: skip
        results.append(result)
        if progress is not None:
            progress(len(results), len(prompts))
    return results


def check_prompts(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The prompts as a list; raises RobustokError where they are missing or share a key."""
    prompts = check_list("prompts", prompts)
    if not prompts:
        raise RobustokError("there are no prompts to attack: give at least one")
    for key, count in Counter(prompt.key for prompt in prompts).items():
        if count > 1:
            raise RobustokError(f"two prompts have the key '{key}': give each its own")
    return prompts


def success_curve(attacks: Sequence[PromptAttack], limits: Sequence[int]) -> list[dict[str, float]]:
    """Share of the prompts broken by the number of tokenizations scored, with 95% intervals.

    >>> from robustok.redteam import as_objective
    >>> length = as_objective(lambda rows: rows.lengths, name="length", threshold=2)
    >>> attacks = [attack_prompt(vocab, "hello world", length, seed=0)]
    >>> success_curve(attacks, [1, 100])[0]["success"]
    0.0

    Args:
        attacks: the attacks, all with a threshold.
        limits: numbers of tokenizations scored.

    Raises RobustokError for an attack whose objective has no threshold.
    """
    if any(attack.success is None for attack in attacks):
        raise RobustokError("the objective has no threshold, so nothing counts as a success")
    return curve_of([attack.reached_at for attack in attacks], limits)


def curve_of(reached_at: Sequence[int | None], limits: Sequence[int]) -> list[dict[str, float]]:
    """A row for each limit, from the number scored when each prompt was broken; None for never."""
    return [
        {"n_scored": limit, **broken_share([n is not None and n <= limit for n in reached_at])}
        for limit in limits
    ]


def broken_share(broken: Sequence[bool]) -> dict[str, float]:
    """The share of broken prompts as ``success``, with its 95% bounds ``low`` and ``high``."""
    success, low, high = clustered([float(one) for one in broken])
    return {"success": success, "low": low, "high": high}
