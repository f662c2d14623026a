"""Text and schemes of the analyses in the paper's appendix, and the numbers it prints."""

from __future__ import annotations

from typing import NamedTuple

# With its final full stop GPT-2 cuts it into 20 tokens, and the paper's numbers are those of 20.
SENTENCE = (
    "revolution is a rapid, fundamental transformation of a society's class, state, "
    "ethnic or religious structures."
)
DRAWS = 50_000


class Splits(NamedTuple):
    """Splits over many draws of one text.

    >>> Splits(mean=0.75, std=0.9, least=0, most=6).most
    6

    Attributes:
        mean: mean number of splits.
        std: standard deviation.
        least: smallest number.
        most: greatest number.
    """

    mean: float
    std: float
    least: int
    most: int


# Llama 3, by the probability of a drop (paper, table `bpedropout_splits`).
DROPOUT: dict[float, Splits] = {
    0.10: Splits(0.75, 0.90, 0, 6),
    0.25: Splits(3.01, 1.89, 0, 14),
    0.50: Splits(22.41, 4.62, 6, 44),
    0.75: Splits(53.06, 6.13, 29, 78),
}
