"""`stochastok`: repeated random splits of random tokens, and `stochastok-uniform` (paper: `stok`).

`stochastok-uniform` (paper: `Stok-uni`) has the split counts of `stochastok` and cuts each token
uniformly.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import cache
from math import comb, inf, log

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Batch, Rows
from robustok.kernels.numbers import rounded_up
from robustok.kernels.stochastok import (
    MOST_PICKS,
    Pairs,
    PickRate,
    draw_stochastok,
    draw_stochastok_listed,
    pairs_of,
)
from robustok.kernels.stochastok_uniform import (
    MOST,
    MOST_PAIRWISE,
    Pairwise,
    draw_stochastok_uniform,
    is_pairwise,
)
from robustok.kernels.stochastok_uniform import spans as spans_of
from robustok.kernels.store import NOT_DRAWN
from robustok.lattice import Lattice
from robustok.runtime.environment import computed_once
from robustok.samplers.parameters import Choice, count, per_token
from robustok.samplers.stored import Kernel, StoredSampler
from robustok.tokenizer.vocabulary import Vocabulary

_MOST_LISTED = 1 << 19  # segmentations of a token that are enumerated


class StochasTok(StoredSampler):
    """⌈α·m⌉ times: pick a position uniformly, replace its token by one of its expansions.

    >>> [vocab.tokens[i] for i in StochasTok(vocab, alpha=1).sample("hello world", seed=0)]
    [b'hell', b'o', b' world']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, picks for each canonical token, from 0 to 10,000; m is the number of these tokens.
        ways: greatest number of tokens that a token is cut into, at least 2 (default).
        max_picks: greatest number of picks in a text (K_max of the paper's Algorithm 1), from 0 to
            2**31 - 1; by default none. Each run of ids between special tokens is a text.

    The expansions of a token are all its cuts into two tokens (with ``ways=3`` into two or three),
    listed together and equally likely. A pick whose token has none changes nothing.

    In 20 lines of plain Python: stochastok in ``tests/oracles/samplers.py``.
    """

    name = "stochastok"
    example = "stochastok(alpha=0.5)"
    variants = ("stochastok(alpha=2, ways=3)", "stochastok(alpha=2, max_picks=3)")
    parameters = {
        "alpha": per_token(0.1),
        "ways": count(2, least=2),
        "max_picks": count(),
    }
    strength = "alpha"
    nominal_splits = "alpha"
    color = "#e69f00"
    alpha: float
    ways: int
    max_picks: int | None

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        alpha: float = 0.1,
        ways: int = 2,
        max_picks: int | None = None,
    ) -> None:
        super().__init__(vocab, alpha=alpha, ways=ways, max_picks=max_picks)

    def picks_of(self, tokens: int) -> int:
        """The picks in a text with this many canonical tokens.

        Args:
            tokens: number of canonical tokens.
        """
        picks = int(rounded_up(self.alpha, tokens))
        return picks if self.max_picks is None else min(picks, self.max_picks)

    @computed_once
    def _pairs(self) -> Pairs:
        """The two-way cuts of every token, made once a vocabulary."""
        v = self.vocab
        return v.derived(
            "stochastok pairs",
            lambda: pairs_of(v.trie, v.token_bytes, v.token_offsets, v.ordinary),
        )

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        picks = int(self.alpha * tokens) + 2 * texts  # rounded up in each text
        return min(size, tokens + picks * (self.ways - 1))

    @computed_once
    def _rate(self) -> PickRate:
        most = MOST_PICKS if self.max_picks is None else self.max_picks
        return PickRate(np.float64(self.alpha), np.int64(most))

    @computed_once
    def _kernel(self) -> Kernel:
        return draw_stochastok_listed, self.vocab.kernel_tokens, (self._rate, self.ways)

    def _draw(self, batch: Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if self.ways > 2:
            super()._draw(batch, first, last, out, ends)
            return
        offsets, rows = self.vocab.token_offsets, Rows(out, ends)
        draw_stochastok(self._pairs, offsets, batch, self._rate, first, last, rows)


class StochasTokUniform(StoredSampler):
    """⌈α·m⌉ splits spread over the tokens, each token then cut uniformly into its share.

    >>> s = StochasTokUniform(vocab, alpha=1)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' wor', b'ld']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        alpha: α, splits for each canonical token, from 0 to 10,000; m is the number of these
            tokens.
        support: ``"all"`` (default), or ``"pairwise"`` for the segmentations only that repeated
            two-way splits through tokens reach.

    Tokens of more than 1,024 bytes stay whole, those of more than 256 under ``"pairwise"``. The
    shares are Dirichlet-multinomial with one unit per token; a share that its token does not allow
    is clipped to the greatest number of splits that it allows.

    In 20 lines of plain Python: stochastok_uniform in ``tests/oracles/samplers.py``.
    """

    name = "stochastok-uniform"
    example = "stochastok-uniform(alpha=0.5)"
    variants = ("stochastok-uniform(alpha=2, support=pairwise)",)
    parameters = {"alpha": per_token(0.5), "support": Choice(("all", "pairwise"))}
    strength = "alpha"
    color = "#56b4e9"
    exact = True
    alpha: float
    support: str
    _failures = StoredSampler._failures | {
        NOT_DRAWN: "too few segmentations of a token come from two-way splits: use "
        "support='all' or another alpha",
    }

    def __init__(self, vocab: Vocabulary, *, alpha: float = 0.5, support: str = "all") -> None:
        super().__init__(vocab, alpha=alpha, support=support)

    def splits_of(self, tokens: int) -> int:
        """The splits of a text with this many canonical tokens.

        Args:
            tokens: number of canonical tokens.
        """
        return int(rounded_up(self.alpha, tokens))

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """The probability of the split counts times that of each token's segmentation."""
        splits = self.splits_of(len(canonical))
        if splits == 0:
            return 0.0 if np.array_equal(canonical, ids) else -inf
        ends, canonical_ends = (np.cumsum(self.vocab.token_lengths[x]) for x in (ids, canonical))
        if not np.isin(canonical_ends, ends).all():  # a token crosses a canonical boundary
            return -inf
        segments = np.split(ids, np.searchsorted(ends, canonical_ends)[:-1] + 1)
        result = 0.0
        counts_of = cache(lambda token: segmentation_counts(self.vocab, token, self.support))
        shares = []  # (low, high) of the split counts that clip to the one in ``ids``; high or None
        for token, cut in zip(canonical.tolist(), segments, strict=True):
            counts = counts_of(token)
            if len(cut) >= len(counts) or not counts[len(cut)] or not self.allows(token, cut):
                return -inf
            result -= log(counts[len(cut)])
            larger = [s for s in range(len(cut) + 1, len(counts)) if counts[s]]
            shares.append((len(cut) - 1, larger[0] - 2 if larger else None))
        compositions = _compositions(splits, shares)
        if not compositions:
            return -inf
        m = len(canonical)
        return result + log(compositions) - log(comb(splits + m - 1, m - 1))

    def allows(self, token: int, cut: Sequence[int] | np.ndarray) -> bool:
        """Whether a draw may cut a token like this: whether the support holds the segmentation.

        Args:
            token: id of a canonical token.
            cut: ids of its segments, which spell the token.
        """
        if len(cut) == 1:
            return bool(cut[0] == token)
        if not self.vocab.ordinary[cut].all() or is_whole(self.vocab, token, self.support):
            return False
        if self.support == "all" or len(cut) == 2:
            return True
        return _pairwise_test(self.vocab, token)(np.asarray(cut, np.int32))

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        return min(size, tokens + int(self.alpha * tokens) + 2 * texts)  # rounded up in each text

    @computed_once
    def _kernel(self) -> Kernel:
        settings = (np.float64(self.alpha), True if self.support == "pairwise" else None)
        return draw_stochastok_uniform, self.vocab.kernel_tokens, settings


def is_whole(vocab: Vocabulary, token: int, support: str) -> bool:
    """Whether draws leave a token whole because of its length."""
    return len(vocab.tokens[token]) > (MOST if support == "all" else MOST_PAIRWISE)


def segmentation_counts(vocab: Vocabulary, token: int, support: str = "all") -> list[int]:
    """[s]: the exact number of segmentations of one token into s segments, in the support.

    Raises RobustokError for the pairwise support of a token with more than 2^19 segmentations.
    """
    if is_whole(vocab, token, support):
        return [0, 1]
    lattice = Lattice(vocab, [token])
    if support == "all":
        return lattice.counts(by="segments")
    n, count = len(vocab.tokens[token]), lattice.count()
    if count > _MOST_LISTED:
        raise RobustokError(
            f"support='pairwise' has too many segmentations to list for a token of {n} bytes:"
            f" {count:,}"
        )
    is_reachable = _pairwise_test(vocab, token)
    counts = Counter(len(segments) for segments in lattice.enumerate() if is_reachable(segments))
    return [counts[s] for s in range(n + 1)]


def _pairwise_test(vocab: Vocabulary, token: int) -> Callable[[np.ndarray], bool]:
    """A function that tells whether two-way splits of a token reach a segmentation, int32 ids."""
    begin, end = vocab.token_offsets[token : token + 2]
    spans = spans_of(vocab.trie, vocab.token_bytes, begin, end)
    size = end - begin + 1
    scratch = Pairwise(np.empty(size, np.int64), np.empty((size, size), np.bool_))
    return lambda segments: bool(
        is_pairwise(spans, segments, len(segments), vocab.token_offsets, scratch)
    )


def _compositions(total: int, shares: list[tuple[int, int | None]]) -> int:
    """The number of ordered shares, each within its bounds, that add up to ``total``.

    Of n shares that can exceed their lower bounds, some have an upper bound, s values in all. The
    number is a coefficient of G(x) = (1 - x)^-n * product of (1 - x^s) over the bounded ones.
    G' / G is a sum of fractions, whose common denominator gives a recurrence for the coefficients
    of G with as many terms as the sum of the distinct s.
    """
    rest = total - sum(low for low, _ in shares)
    if rest < 0:
        return 0
    bounded = Counter(high - low + 1 for low, high in shares if high is not None and high > low)
    n = bounded.total() + sum(high is None for _, high in shares)
    factors = [1, *bounded]
    denominator = _differences(factors)
    numerator = [n * x for x in _differences(factors[1:])]
    numerator += [0] * (len(denominator) - len(numerator))
    for x, (s, multiplicity) in enumerate(bounded.items(), 1):
        for j, y in enumerate(_differences(factors[:x] + factors[x + 1 :]), s - 1):
            numerator[j] -= multiplicity * s * y
    terms = [
        (j, a, b)
        for j, (a, b) in enumerate(zip(numerator, [*denominator[1:], 0], strict=True))
        if a or b
    ]
    counts = deque([1], len(denominator))  # the last coefficients, latest first
    for r in range(rest):
        next_count = sum((a - b * (r - j)) * counts[j] for j, a, b in terms if j <= r)
        counts.appendleft(next_count // (r + 1))
    return counts[0]


def _differences(sizes: list[int]) -> list[int]:
    """The coefficients of the product of 1 - x^s over sizes s, ascending."""
    result = [1]
    for s in sizes:
        shifted = [0] * s + result
        result = [a - b for a, b in zip(result + [0] * s, shifted, strict=True)]
    return result
