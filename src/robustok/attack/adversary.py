"""Attacks on the batches of a fine-tuning, for adversarial training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robustok.attack.engine import attack_prompts
from robustok.attack.objectives import TargetLikelihood
from robustok.attack.records import Prompt
from robustok.attack.settings import AttackSettings
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids
from robustok.ragged import Ragged
from robustok.tasks.item import Item
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
    batch is loaded, which is a step before the batch is trained on. A question too long for the
    model is not attacked.

    Raises RobustokError for a number out of range.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        vocab: Vocabulary,
        items: Sequence[Item],
        *,
        every: int = 4,
        max_scored: int = 32,
        prefix: Ids | None = None,
        seed: int = 0,
    ) -> None:
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
        """A tokenization with a low probability of the answer, for some numbers of ``items``."""
        prompts: list[Prompt] = []
        ids: dict[str, np.ndarray] = {}
        losses: dict[str, _AnswerLoss] = {}
        for number in dict.fromkeys(numbers):
            key, item = str(number), self.items[number]
            ids[key] = self.vocab.encode(item.question)
            losses[key] = _AnswerLoss(self.model, self.vocab, item.answer, prefix=self.prefix)
            longest = losses[key].max_length
            # A question too long for an attack is left to the data set's overflow policy.
            if longest is None or len(ids[key]) <= longest:
                prompts.append(Prompt(key, item.question))
        if prompts:
            attacks = attack_prompts(
                self.vocab,
                prompts,
                lambda prompt: losses[prompt.key],
                settings=self.settings,
                seed=self.seed,
            )
            self.n_scored += sum(attack.n_scored for attack in attacks)
            ids |= {attack.key: attack.ids for attack in attacks}
        return Ragged.from_rows([ids[str(number)] for number in numbers])


class _AnswerLoss(TargetLikelihood):
    """Minus the log-probability of an answer."""

    name = "loss"

    def read(self, log_probs: np.ndarray) -> np.ndarray:
        return -super().read(log_probs)
