"""Share of each segmentation of a word among the draws with as many segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from robustok.analysis.draws import boundaries_inside, in_blocks, one_of, place_of
from robustok.display import visible
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.samplers import sampler
from robustok.vocabulary import Text, Vocabulary


@dataclass(frozen=True, eq=False)
class Segmentations:
    """Shares of the segmentations of one canonical token, for 1, 2, … splits.

    >>> result = segmentations(vocab, " revolution", ["uniform"], seed=0)
    >>> result.token, list(result.shares)
    ('·revolution', ['uniform'])

    Args:
        token: the token as text, spaces as "·".
        by_splits: all segmentations with s splits at index s - 1, such as "rev-olution".
        shares: by spec, at index s - 1 the share of each of these segmentations among the draws
            with s splits, float64 [segmentations].
        draws: by spec, at index s - 1 the number of draws with s splits.
    """

    token: str
    by_splits: tuple[tuple[str, ...], ...]
    shares: dict[str, tuple[np.ndarray, ...]]
    draws: dict[str, tuple[int, ...]]


def segmentations(
    vocab: Vocabulary,
    text: Text,
    specs: list[str],
    *,
    seed: int,
    token: int = 0,
    splits: int = 4,
    draws: int = 50_000,
    progress: Callable[[int, int], None] | None = None,
) -> Segmentations:
    """Draw tokenizations of a text and count how its ``token``-th canonical token was split.

    >>> result = segmentations(vocab, " revolution", ["uniform"], seed=0)
    >>> result.by_splits[0][:3]
    ('·revolutio-n',)

    Args:
        vocab: the vocabulary.
        text: one text.
        specs: specs of the schemes to compare.
        seed: any integer; it and the number of a draw decide the draw.
        token: position of the token in the canonical tokenization, from 0.
        splits: greatest number of splits counted; draws with more are left out.
        draws: draws of the text for each scheme, at least 1.
        progress: called with (draws done, all draws), over all schemes.

    A draw counts where it has boundaries at both ends of the token and 1 to ``splits`` inside. An
    unbiased scheme gives the same share to all segmentations with the same number of splits.

    Raises RobustokError for a token that the text does not have.
    Source: the paper's appendix "Different tokenisers and their effect".
    """
    place = place_of(vocab, text, token)
    own = int(place.canonical[token])
    lattice = Lattice(vocab, [own])
    levels = [
        [tuple(row.tolist()) for row in lattice.enumerate(segments=s + 1)]
        for s in range(1, splits + 1)
    ]
    shares, counted = {}, {}
    for number, spec in enumerate(specs):
        scheme = sampler(spec, vocab)
        seen: Counter[tuple[int, ...]] = Counter()
        scheme_progress = one_of(number, len(specs), progress)
        for _, drawn in in_blocks(scheme, place.canonical, draws, seed, scheme_progress):
            seen.update(_cuts(vocab, drawn, place.begin, place.end, splits))
        totals = [sum(seen[cut] for cut in level) for level in levels]
        shares[scheme.spec] = tuple(
            np.array([seen[cut] / total if total else 0.0 for cut in level])
            for level, total in zip(levels, totals, strict=True)
        )
        counted[scheme.spec] = tuple(totals)
    names = tuple(tuple(_shown(vocab, cut) for cut in level) for level in levels)
    return Segmentations(_shown(vocab, (own,)), names, shares, counted)


def _cuts(
    vocab: Vocabulary, rows: Ragged, begin: int, end: int, splits: int
) -> list[tuple[int, ...]]:
    """The ids between two boundaries, of the rows that have both and few enough splits between."""
    lengths = np.diff(vocab.token_offsets)
    inside = boundaries_inside(vocab, rows, begin, end)
    cuts = []
    for i in np.flatnonzero((inside > 0) & (inside <= splits)).tolist():
        row = rows[i]
        ends = np.cumsum(lengths[row])
        first, last = np.searchsorted(ends, [begin, end - 1], "right")
        if ends[last] == end and (ends[first] - lengths[row[first]]) == begin:
            cuts.append(tuple(row[first : last + 1].tolist()))
    return cuts


def _shown(vocab: Vocabulary, ids: tuple[int, ...]) -> str:
    return "-".join(visible(vocab.tokens[i]) for i in ids)
