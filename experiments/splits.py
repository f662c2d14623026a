"""How schemes split a canonical token, from draws and in theory, and the splits of BPE-dropout.

Every distribution is float64 of shape [highest + 1]: the probability of s = 0, 1, … splits. Source:
the paper's appendix "Empirical distribution over per-token split-counts".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import comb
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.lattice import Lattice, counts_product
from robustok.ragged import Ragged
from robustok.runtime.display import visible
from robustok.samplers import (
    BpeDropout,
    Sampler,
    StochasTok,
    StochasTokUniform,
    Uniform,
    UniformK,
    measure,
    sampler,
)
from robustok.samplers.bpe_dropout import RULES
from robustok.samplers.stochastok import segmentation_counts
from robustok.tokenizer.data import Text
from robustok.tokenizer.vocabulary import Vocabulary

# With its final full stop GPT-2 cuts it into 20 tokens, and the paper's numbers are those of 20.
SENTENCE = (
    "revolution is a rapid, fundamental transformation of a society's class, state, "
    "ethnic or religious structures."
)
DRAWS = 50_000  # of a text, in the paper
CHUNK = 5_000  # draws at a time
Cut = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SplitCounts:
    """The splits inside one canonical token: shares of the draws, and theoretical distributions."""

    scheme: str
    token: str
    draws: int
    observed: np.ndarray  # share of the draws with s splits inside the token, float64 [s]
    distributions: dict[str, np.ndarray]  # probabilities of s splits by name, of any lengths

    def table(self) -> list[dict[str, Any]]:
        """One plain dictionary for each distribution and number of splits."""
        return [
            {
                "scheme": self.scheme,
                "token": self.token,
                "distribution": name,
                "splits": splits,
                "share": float(share),
            }
            for name, shares in {f"{self.draws} draws": self.observed, **self.distributions}.items()
            for splits, share in enumerate(shares)
        ]


def split_counts(
    vocab: Vocabulary,
    text: Text,
    spec: str,
    *,
    seed: int,
    token: int = 0,
    draws: int = DRAWS,
) -> SplitCounts:
    """Draw tokenizations of a text and count the splits inside its ``token``-th canonical token.

    Theoretical distributions: for `stochastok` the Dirichlet-multinomial; for `stochastok-uniform`
    the same, and the exact one, which clips it to what the token allows; for `uniform-k` the
    paper's within tokens (by splits as in its formula, and by distance as in its figure) and the
    exact one (by distance, as it is sampled); for `uniform` the exact one and the paper's binomial.
    Other schemes have none.
    """
    scheme, place = sampler(spec, vocab), place_of(vocab, text, token)
    counts = np.zeros(place.end - place.begin, np.int64)
    for _, drawn in draw_chunks(scheme, place.canonical, draws, seed):
        inside = boundaries_inside(vocab, drawn, place.begin, place.end)
        counts += np.bincount(inside, minlength=len(counts))
    last = int(np.flatnonzero(counts)[-1])
    name = vocab.decode([place.canonical[token]])
    distributions = _distributions(scheme, place)
    return SplitCounts(scheme.spec, name, draws, counts[: last + 1] / draws, distributions)


def _distributions(scheme: Sampler, place: TokenPlace) -> dict[str, np.ndarray]:
    """The theoretical distributions of the splits of a token by name; empty for other schemes."""
    vocab, canonical, token = scheme.vocab, place.canonical, place.token
    m, span = len(canonical), (place.begin, place.end)
    if isinstance(scheme, Uniform):
        exact = exactly(Lattice(vocab, canonical), *span)
        return {"exact": exact, "binomial (paper)": binomial(place.end - place.begin)}
    if isinstance(scheme, UniformK):
        lattice = Lattice(vocab, canonical)
        k = lattice.feasible(scheme.distance_of(m))
        return {
            "by splits (paper)": by_splits(vocab, canonical, token, k),
            "by distance within tokens": by_distance_within(vocab, canonical, token, k),
            "by distance (exact)": exactly(lattice, *span, distance=k),
        }
    if isinstance(scheme, StochasTokUniform):
        shares = dirichlet_multinomial(scheme.splits_of(m), m)
        counts = segmentation_counts(vocab, int(canonical[token]), scheme.support)
        return {
            "Dirichlet-multinomial (paper)": shares,
            "clipped (exact)": clipped(shares, counts),
        }
    if isinstance(scheme, StochasTok) and scheme.ways == 2:
        return {"Dirichlet-multinomial (paper)": dirichlet_multinomial(scheme.picks_of(m), m)}
    return {}


def dirichlet_multinomial(splits: int, tokens: int) -> np.ndarray:
    """Draws from one of ``tokens`` Pólya urns among ``splits`` draws in all: [splits + 1].

    The paper's distribution for `stochastok` and `stochastok-uniform`. It ignores that a token
    has a greatest number of splits.
    """
    if tokens == 1:
        return np.eye(splits + 1)[splits]
    total = comb(splits + tokens - 1, tokens - 1)
    return np.array([comb(splits - s + tokens - 2, tokens - 2) / total for s in range(splits + 1)])


def clipped(distribution: np.ndarray, counts: list[int]) -> np.ndarray:
    """A distribution clipped to the splits a token allows, as `stochastok-uniform` does.

    ``counts[s]`` is the number of segmentations of the token into s segments.
    """
    possible = [s - 1 for s in range(1, len(counts)) if counts[s]]
    result = np.zeros(possible[-1] + 1)
    for s, p in enumerate(distribution):
        result[max(c for c in possible if c <= s)] += p
    return result


def by_splits(vocab: Vocabulary, canonical: np.ndarray, token: int, k: int) -> np.ndarray:
    """The paper's distribution for `uniform-k`: uniform over all segmentations with k splits.

    Tokens are split within their boundaries; ``token`` is a position in ``canonical``. Computed
    from the coefficients A_i(s)·[x^(k-s)]H_i / [x^k]G. If k splits are impossible, the largest
    possible number below k is used.
    """
    counts = [segmentation_counts(vocab, int(i))[1:] for i in canonical]
    return _within_tokens(counts, token, k, first_split=1)


def by_distance_within(vocab: Vocabulary, canonical: np.ndarray, token: int, k: int) -> np.ndarray:
    """The paper's distribution with x^(s+1) for s splits: at distance k, within token boundaries.

    A token that is split once is at distance 2, and each further split adds 1. A segment that is a
    lone space does not count. This is the nearest known reading of the line that the paper prints.
    """
    counts = [_counts_without_space(vocab, int(i))[1:] for i in canonical]
    return _within_tokens(counts, token, k, first_split=2)


def _counts_without_space(vocab: Vocabulary, token: int) -> list[int]:
    """[s]: segmentations of one token into s segments, none of which is a lone space."""
    lattice = Lattice(vocab, [token])
    n = len(lattice.text)
    ahead = [Counter[int]() for _ in range(n + 1)]
    ahead[n][0] = 1
    for i in range(n - 1, -1, -1):
        for _, j, _ in lattice._edges_of(i):
            if lattice.text[i:j] != b" " or n == 1:
                for segments, count in ahead[j].items():
                    ahead[i][segments + 1] += count
    return [ahead[0][s] for s in range(n + 1)]


def _within_tokens(counts: list[list[int]], token: int, k: int, first_split: int) -> np.ndarray:
    """Splits of one token where all tokens together have the degree k, or the largest below.

    ``counts[i][s]``: segmentations of token i with s splits. ``first_split``: the degree of one
    split; each further split adds 1.
    """
    by_degree = [(c[0], *[0] * (first_split - 1), *c[1:]) for c in counts]
    others = Counter(by_degree[:token] + by_degree[token + 1 :])
    powers = [(list(coefficients), power) for coefficients, power in others.items()]
    rest = counts_product(powers, k)
    this = by_degree[token]
    k = max(
        a + b
        for a, count in enumerate(this)
        for b, rest_count in enumerate(rest)
        if count and rest_count and a + b <= k
    )
    weights = [count * rest[k - a] if 0 <= k - a < len(rest) else 0 for a, count in enumerate(this)]
    return _normalized([weights[0], *weights[first_split:]])


def exactly(lattice: Lattice, begin: int, end: int, *, distance: int | None = None) -> np.ndarray:
    """Distribution of the boundaries strictly inside bytes ``begin`` to ``end``, uniform over T(x).

    Exact, including tokens that cross ``begin`` or ``end``. With ``distance``: uniform over the
    tokenizations at that distance. The distributions that `uniform` and `uniform-k` sample from.
    """
    n = len(lattice.text)
    ahead: list[Counter[tuple[int, int]]] = [Counter() for _ in range(n + 1)]
    ahead[n][0, 0] = 1
    for i in range(n - 1, -1, -1):
        for _, j, cost in lattice._edges_of(i):
            is_inside = begin < j < end
            for (after, cuts), count in ahead[j].items():
                here = 0 if distance is None else after + cost
                if here <= (distance or 0):
                    ahead[i][here, cuts + is_inside] += count
    return _normalized([ahead[0][distance or 0, s] for s in range(end - begin)])


def binomial(size: int) -> np.ndarray:
    """Splits of ``size`` bytes by `uniform` if every substring were a token, a binomial."""
    return np.array([comb(size - 1, s) for s in range(size)]) / 2.0 ** (size - 1)


def _normalized(counts: list[int]) -> np.ndarray:
    total = sum(counts)
    while len(counts) > 1 and not counts[-1]:
        counts = counts[:-1]
    return np.array([count / total for count in counts])


class TokenPlace(NamedTuple):
    """The ``token``-th of ``canonical`` ids, from byte ``begin`` to ``end`` of their text."""

    canonical: np.ndarray
    token: int
    begin: int
    end: int


def place_of(vocab: Vocabulary, text: Text, token: int) -> TokenPlace:
    """A canonical token and its bytes; raises RobustokError where the text has no such token."""
    canonical = vocab.encode(text)
    token = check_integer("token", token)
    if not 0 <= token < len(canonical):
        valid = f"it has 0 to {len(canonical) - 1}" if len(canonical) else "it is empty"
        raise RobustokError(f"the text has no canonical token {token}: {valid}")
    end = int(vocab.token_lengths[canonical[: token + 1]].sum())
    return TokenPlace(canonical, token, end - len(vocab.tokens[canonical[token]]), end)


def draw_chunks(
    scheme: Sampler,
    canonical: np.ndarray,
    draws: int,
    seed: int,
) -> Iterator[tuple[Ragged, Ragged]]:
    """Pairs of chunks: canonical rows of one text, and a draw of each.

    Every draw has its own key, so the size of a chunk changes no draw.
    """
    draws = check_integer("draws", draws, 1)
    for done in range(0, draws, CHUNK):
        size = min(CHUNK, draws - done)
        rows = Ragged(np.tile(canonical, size), np.arange(size + 1) * len(canonical))
        yield rows, scheme.sample_batch(rows, seed=seed, keys=np.arange(done, done + size))


def boundaries_inside(vocab: Vocabulary, rows: Ragged, begin: int, end: int) -> np.ndarray:
    """How many token boundaries each row has strictly between two byte positions, int64 [rows]."""
    ends = np.cumsum(vocab.token_lengths[rows.values])
    before = np.concatenate([[0], ends])[rows.offsets[:-1]]
    row = np.repeat(np.arange(len(rows)), rows.lengths)
    position = ends - before[row]
    return np.bincount(row[(position > begin) & (position < end)], minlength=len(rows))


class DropoutRow(NamedTuple):
    """The splits over many draws of one text by one dropout rule at one p."""

    rule: str
    p: float
    mean: float
    std: float
    min: int
    max: int
    draws: int


# Of SENTENCE under Llama 3 (paper, table `bpedropout_splits`).
DROPOUT = (
    DropoutRow("paper", 0.10, 0.75, 0.90, 0, 6, DRAWS),
    DropoutRow("paper", 0.25, 3.01, 1.89, 0, 14, DRAWS),
    DropoutRow("paper", 0.50, 22.41, 4.62, 6, 44, DRAWS),
    DropoutRow("paper", 0.75, 53.06, 6.13, 29, 78, DRAWS),
)


def dropout_splits(
    vocab: Vocabulary,
    text: Text,
    *,
    seed: int,
    probabilities: Sequence[float] = (0.1, 0.25, 0.5, 0.75),
    rules: Sequence[str] = RULES,
    draws: int = DRAWS,
) -> list[DropoutRow]:
    """Mean, standard deviation, minimum and maximum of the splits of a text, by rule and p.

    Splits are boundaries that the canonical tokenization does not have. Source: the paper's table
    `bpedropout_splits`.
    """
    canonical = vocab.encode(text)
    results = []
    for rule, p in product(rules, probabilities):
        scheme = BpeDropout(vocab, p=p, rule=rule)
        chunks = draw_chunks(scheme, canonical, draws, seed)
        splits = np.concatenate([measure(vocab, rows, samples).splits for rows, samples in chunks])
        results.append(
            DropoutRow(
                rule,
                p,
                float(splits.mean()),
                float(splits.std()),
                int(splits.min()),
                int(splits.max()),
                draws,
            )
        )
    return results


@dataclass(frozen=True, eq=False)
class Segmentations:
    """Shares of the segmentations of one canonical token, for 1, 2, … splits.

    At index s - 1: all segmentations with s splits, such as "rev-olution"; by spec the share of
    each among the draws with s splits; and by spec the number of these draws.
    """

    token: str
    by_splits: tuple[tuple[str, ...], ...]
    shares: dict[str, tuple[np.ndarray, ...]]
    draws: dict[str, tuple[int, ...]]

    def table(self) -> list[dict[str, Any]]:
        """One plain dictionary for each segmentation and scheme."""
        return [
            {
                "token": self.token,
                "splits": splits,
                "segmentation": segmentation,
                "scheme": spec,
                "draws": self.draws[spec][splits - 1],
                "share": float(share),
            }
            for splits, segmentations in enumerate(self.by_splits, 1)
            for spec, shares in self.shares.items()
            for segmentation, share in zip(segmentations, shares[splits - 1], strict=True)
        ]


def segmentations(
    vocab: Vocabulary,
    text: Text,
    specs: list[str],
    *,
    seed: int,
    token: int = 0,
    splits: int = 4,
    draws: int = DRAWS,
) -> Segmentations:
    """Draw tokenizations of a text and count how its ``token``-th canonical token was split.

    A draw counts where it has boundaries at both ends of the token and 1 to ``splits`` inside. An
    unbiased scheme gives the same share to all segmentations with the same number of splits.
    Source: the paper's appendix "Different tokenisers and their effect".
    """
    place = place_of(vocab, text, token)
    token_id = int(place.canonical[token])
    lattice = Lattice(vocab, [token_id])
    levels = [  # at index s - 1 all segmentations with s splits
        [tuple(row.tolist()) for row in lattice.enumerate(segments=s + 1)]
        for s in range(1, splits + 1)
    ]
    if not any(levels):
        name = _joined_tokens(vocab, (token_id,))
        raise RobustokError(f"token {token} of the text, '{name}', has no other segmentation")
    shares, n_counted = {}, {}
    for spec in specs:
        scheme = sampler(spec, vocab)
        n_drawn: Counter[Cut] = Counter()
        for _, drawn in draw_chunks(scheme, place.canonical, draws, seed):
            n_drawn.update(_cuts(vocab, drawn, place.begin, place.end, splits))
        totals = [sum(n_drawn[cut] for cut in level) for level in levels]
        shares[scheme.spec] = tuple(
            np.array([n_drawn[cut] / total if total else 0.0 for cut in level])
            for level, total in zip(levels, totals, strict=True)
        )
        n_counted[scheme.spec] = tuple(totals)
    names = tuple(tuple(_joined_tokens(vocab, cut) for cut in level) for level in levels)
    return Segmentations(_joined_tokens(vocab, (token_id,)), names, shares, n_counted)


def _cuts(vocab: Vocabulary, rows: Ragged, begin: int, end: int, splits: int) -> list[Cut]:
    """The ids between two boundaries, of each row that has both and 1 to ``splits`` between."""
    lengths = vocab.token_lengths
    inside = boundaries_inside(vocab, rows, begin, end)
    cuts = []
    for i in np.flatnonzero((inside > 0) & (inside <= splits)).tolist():
        row = rows[i]
        ends = np.cumsum(lengths[row])
        first_token, last_token = np.searchsorted(ends, [begin, end - 1], "right")
        if ends[last_token] == end and (ends[first_token] - lengths[row[first_token]]) == begin:
            cuts.append(tuple(row[first_token : last_token + 1].tolist()))
    return cuts


def _joined_tokens(vocab: Vocabulary, ids: Cut) -> str:
    return "-".join(visible(vocab.tokens[i]) for i in ids)
