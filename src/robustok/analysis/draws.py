"""Many draws of one text, and the position of a canonical token in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.samplers import Sampler
from robustok.tokenizer.vocabulary import Text, Vocabulary

# With its final full stop GPT-2 cuts it into 20 tokens, and the paper's numbers are those of 20.
SENTENCE = (
    "revolution is a rapid, fundamental transformation of a society's class, state, "
    "ethnic or religious structures."
)
DRAWS = 50_000  # of a text, in the paper
BLOCK = 5_000  # draws at a time


class TokenPlace(NamedTuple):
    """The ``token``-th of ``canonical`` ids, from byte ``begin`` to ``end`` of their text."""

    canonical: np.ndarray
    token: int
    begin: int
    end: int


def place_of(vocab: Vocabulary, text: Text, token: int) -> TokenPlace:
    """Find a canonical token; raises RobustokError where the text has no such."""
    canonical = vocab.encode(text)
    token = check_integer("token", token)
    if not 0 <= token < len(canonical):
        valid = f"it has 0 to {len(canonical) - 1}" if len(canonical) else "it is empty"
        raise RobustokError(f"the text has no canonical token {token}: {valid}")
    end = int(np.diff(vocab.token_offsets)[canonical[: token + 1]].sum())
    return TokenPlace(canonical, token, end - len(vocab.tokens[canonical[token]]), end)


def in_blocks(
    scheme: Sampler,
    canonical: np.ndarray,
    draws: int,
    seed: int,
    progress: Progress | None,
) -> Iterator[tuple[Ragged, Ragged]]:
    """Blocks of draws of one text, each beside as many canonical rows.

    Every draw has its own key, so that the size of a block changes no draw.
    """
    draws = check_integer("draws", draws, 1)
    for done in range(0, draws, BLOCK):
        size = min(BLOCK, draws - done)
        rows = Ragged(np.tile(canonical, size), np.arange(size + 1) * len(canonical))
        yield rows, scheme.sample_batch(rows, seed=seed, keys=np.arange(done, done + size))
        if progress:
            progress(done + size, draws)


def one_of(number: int, count: int, progress: Progress | None) -> Progress | None:
    """The progress of one of several equal jobs as that of all of them."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, count * total)


def boundaries_inside(vocab: Vocabulary, rows: Ragged, begin: int, end: int) -> np.ndarray:
    """How many token boundaries each row has strictly between two byte positions, int64 [rows]."""
    ends = np.cumsum(np.diff(vocab.token_offsets)[rows.values])
    before = np.concatenate([[0], ends])[rows.offsets[:-1]]
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    position = ends - before[row]
    return np.bincount(row[(position > begin) & (position < end)], minlength=len(rows))
