"""Slow twins of the lattice kernels: every path of a lattice, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.tokenizer.vocabulary import Vocabulary

Path = tuple[int, ...]


def lattice(vocab: Vocabulary, text: bytes, reference: Sequence[int] | None = None) -> Any:
    """`kernels.lattice.Edges` of a text, by slicing it at every pair of positions."""
    from robustok.kernels.lattice import Edges

    ids = {vocab.tokens[i]: int(i) for i in np.flatnonzero(vocab.ordinary)}
    spans, begin = set(), 0
    for i in reference or []:
        spans.add((begin, begin + len(vocab.tokens[i])))
        begin += len(vocab.tokens[i])
    first, token, step = [0], [], []
    for i in range(len(text)):
        for j in range(i + 1, len(text) + 1):
            if text[i:j] in ids:
                token.append(ids[text[i:j]])
                step.append((j - i) * 2 + ((i, j) not in spans))
        first.append(len(token))
    return Edges(np.array(first), np.array(token, np.int32), np.array(step, np.int32))


def paths(edges: Any) -> list[tuple[Path, int]]:
    """The (ids, cost) of every path, shorter tokens first."""
    n = len(edges.first) - 1

    def onward(i: int) -> list[tuple[Path, int]]:
        if i == n:
            return [((), 0)]
        return [
            ((int(edges.token[e]), *ids), int(edges.step[e] & 1) + cost)
            for e in range(edges.first[i], edges.first[i + 1])
            for ids, cost in onward(i + int(edges.step[e] >> 1))
        ]

    return onward(0)


def cost_counts(edges: Any) -> list[int]:
    """[d]: the number of paths of cost d, without listing them."""
    n = len(edges.first) - 1
    counts = [Counter[int]() for _ in range(n)] + [Counter({0: 1})]
    for i in reversed(range(n)):
        for e in range(edges.first[i], edges.first[i + 1]):
            for d, number in counts[i + int(edges.step[e] >> 1)].items():
                counts[i][d + int(edges.step[e] & 1)] += number
    return [counts[0][d] for d in range(max(counts[0], default=-1) + 1)]
