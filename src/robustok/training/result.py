"""Result of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Perplexity(NamedTuple):
    """How well held-out text was predicted at a step, when drawn by a scheme.

    >>> Perplexity(500, "uniform", 61.2, 1.31).bits_per_byte
    1.31

    ``perplexity`` is per id of the drawn sequences, so longer tokenizations
    lower it; ``bits_per_byte`` counts the same text for every scheme.
    """

    step: int
    scheme: str
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Training:
    """What a training run did.

    >>> from robustok.training import finetune
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=4, learning_rate=1e-3, seed=0, out="runs/b")
    >>> done.output_dir, done.steps, done.overflowed
    ('runs/b', 2, 0)

    Args:
        output_dir: the output folder.
        steps: number of optimizer steps.
        losses: (step, mean loss of the steps since the last entry), in nats, every 10 steps.
        tokens: ids trained on, padding not counted.
        seconds: wall-clock time of the steps. Time before a restart counts as far as the last
            checkpoint.
        waiting: share of ``seconds`` spent on waiting for batches, from 0 to 1.
        overflowed: number of rows that were longer than the longest input.
        perplexities: what pre-training measured on held-out text.
    """

    output_dir: str
    steps: int
    losses: tuple[tuple[int, float], ...]
    tokens: int
    seconds: float
    waiting: float
    overflowed: int
    perplexities: tuple[Perplexity, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0
