"""Adversarial training: every n-th batch of fine-tuning holds attacked tokenizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.attack_settings import AttackSettings
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids
from robustok.ragged import Ragged
from robustok.redteam.attacks import attack_prompt
from robustok.redteam.causal import TargetLikelihood
from robustok.redteam.objective import as_objective

if TYPE_CHECKING:
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary


class Adversary:
    """Attacks the questions of every n-th batch; the option ``adversary`` of ``finetune``.

    >>> from robustok.training import finetune
    >>> adversary = Adversary(model, vocab, items, every=2, max_scored=8, seed=0)
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=2, learning_rate=1e-3, seed=0, out="runs/adv",
    ...                 adversary=adversary)
    >>> adversary.n_scored > 0
    True

    Args:
        model: the model in training.
        vocab: its vocabulary.
        items: the questions that it is trained on, in the same order.
        every: attacks one batch of so many, at least 1.
        max_scored: tokenizations scored for a question, at least 2.
        prefix: ids before every question, those given to ``finetune``; by default none.
        seed: any integer; it decides which neighbors are scored.

    An attack is a greedy ascent of minus the log-probability of the answer, from the canonical
    tokenization, with a quarter of ``max_scored`` neighbors a step. It reads the weights when its
    batch is loaded, which is a step before the batch is trained on.

    Raises RobustokError for a number out of range.
    """

    def __init__(
        self, model: Any, vocab: Vocabulary, items: Sequence[Item], *, every: int = 4,
        max_scored: int = 32, prefix: Ids | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        if every < 1 or max_scored < 2:
            raise RobustokError("every must be at least 1, and max_scored at least 2")
        self.model, self.vocab, self.items = model, vocab, items
        self.every, self.prefix, self.seed, self.n_scored = every, prefix, seed, 0
        self.settings = AttackSettings(
            steps=8, max_neighbors=max(1, max_scored // 4), max_scored=max_scored
        )

    @property
    def spec(self) -> str:
        """The settings as one string, for the record of a training."""
        return f"every {self.every}: {self.settings}, seed {self.seed}"

    def __call__(self, numbers: Sequence[int]) -> Ragged:
        """A tokenization of each question with a low probability of its answer.

        Args:
            numbers: numbers of the questions among ``items``.
        """
        rows = []
        for number in numbers:
            item = self.items[number]
            target = TargetLikelihood(self.model, self.vocab, item.answer, prefix=self.prefix)
            objective = as_objective(
                lambda rows, target=target: -target(rows), name="loss", max_length=target.max_length
            )
            attack = attack_prompt(
                self.vocab, item.question, objective, settings=self.settings, seed=self.seed
            )
            self.n_scored += attack.n_scored
            rows.append(np.asarray(attack.ids, np.int32))
        return Ragged.from_rows(rows)
