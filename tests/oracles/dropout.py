"""Exact laws of BPE-dropout for short pre-tokens, each rule from its source and by every coin."""

from collections import defaultdict
from functools import cache
from itertools import pairwise

from tests.oracles.lattice import Path

Merges = dict[tuple[int, int], tuple[int, int]]  # pair → (rank, id it makes)
Distribution = dict[Path, float]
Entry = tuple[int, int, int]  # of the queue: rank, position, id it makes
Symbols = tuple[tuple[int, int, int], ...]  # id, next, previous; id -1: merged away


def provilkov(merges: Merges, symbols: Path, p: float) -> Distribution:
    """Algorithm 1: drop each candidate independently, apply the best that is left, else stop."""

    @cache
    def drawn_from(now: Path) -> Distribution:
        ranked = sorted(
            (merges[pair][0], i, merges[pair][1])
            for i, pair in enumerate(pairwise(now))
            if pair in merges
        )
        distribution: Distribution = defaultdict(float)
        distribution[now] += p ** len(ranked)
        for better, (_, i, result) in enumerate(ranked):
            for path, q in drawn_from((*now[:i], result, *now[i + 2 :])).items():
                distribution[path] += p**better * (1 - p) * q
        return dict(distribution)

    return drawn_from(symbols)


def sentencepiece(merges: Merges, symbols: Path, p: float) -> Distribution:
    """Each pair that comes up, best result first, gets one coin; a dropped one is gone for good."""
    rank_of_result: dict[int, int] = {}
    for rank, result in sorted(merges.values()):
        rank_of_result.setdefault(result, rank)

    @cache
    def drawn_from(
        now: tuple[tuple[int, int], ...], gone: frozenset[tuple[int, int]]
    ) -> Distribution:
        pairs = [
            (rank_of_result[merges[a[1], b[1]][1]], a[0], i, merges[a[1], b[1]][1])
            for i, (a, b) in enumerate(pairwise(now))
            if (a[1], b[1]) in merges and (a[0], b[0]) not in gone
        ]
        if not pairs:
            return {tuple(c for _, c in now): 1.0}
        _, start, i, result = min(pairs)
        distribution: Distribution = defaultdict(float)
        if p < 1:
            merged = (*now[:i], (start, result), *now[i + 2 :])
            # A pair that was dropped beside a symbol that has grown since is another pair now.
            alive = frozenset(g for g in gone if start not in g and now[i + 1][0] not in g)
            for path, q in drawn_from(merged, alive).items():
                distribution[path] += (1 - p) * q
        for path, q in drawn_from(now, gone | {(start, now[i + 1][0])}).items():
            distribution[path] += p * q
        return dict(distribution)

    return drawn_from(tuple(enumerate(symbols)), frozenset())


def hf(merges: Merges, symbols: Path, p: float) -> Distribution:
    """The queue of `tokenizers`: what is dropped returns with the next entry that is not."""

    @cache
    def drawn_from(
        now: Symbols, queue: tuple[Entry, ...], skipped: tuple[Entry, ...]
    ) -> Distribution:
        if not queue:
            return {tuple(c for c, _, _ in now if c >= 0): 1.0}
        top, rest = queue[0], queue[1:]
        distribution: Distribution = defaultdict(float)
        for path, q in drawn_from(now, rest, tuple(sorted((*skipped, top)))).items():
            distribution[path] += p * q
        if p < 1:
            for path, q in drawn_from(*applied(now, top, [*rest, *skipped]), ()).items():
                distribution[path] += (1 - p) * q
        return dict(distribution)

    def applied(now: Symbols, top: Entry, queue: list[Entry]) -> tuple[Symbols, tuple[Entry, ...]]:
        _, i, result = top
        symbol, after, before = now[i]
        if symbol < 0 or after < 0 or merges.get((symbol, now[after][0]), (0, -1))[1] != result:
            return now, tuple(sorted(queue))
        changed = list(now)
        beyond = now[after][1]
        changed[i], changed[after] = (result, beyond, before), (-1, -1, -1)
        if beyond >= 0:
            changed[beyond] = (now[beyond][0], now[beyond][1], i)
        for left, right in ((before, i), (i, beyond)):
            pair = (changed[left][0], changed[right][0])
            if left >= 0 and right >= 0 and pair in merges:
                queue.append((merges[pair][0], left, merges[pair][1]))
        return tuple(changed), tuple(sorted(queue))

    last = len(symbols) - 1
    start = tuple((c, i + 1 if i < last else -1, i - 1) for i, c in enumerate(symbols))
    pairs = list(pairwise(symbols))
    queue = [(merges[x][0], i, merges[x][1]) for i, x in enumerate(pairs) if x in merges]
    return drawn_from(start, tuple(sorted(queue)), ())
