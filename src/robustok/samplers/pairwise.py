"""Exact numbers of a token's segmentations that repeated two-way splits reach.

The support of `stochastok-uniform(support=pairwise)`, by enumeration; its draws are those of
`kernels.stochastok_uniform`.
"""

from __future__ import annotations

from collections import Counter

from robustok.errors import RobustokError
from robustok.vocabulary import Vocabulary

_MOST_BYTES = 20  # of a token whose segmentations are enumerated


def pairwise_segmentations(vocab: Vocabulary, token: int) -> list[int]:
    """[s]: the segmentations of a token into s segments that two-way splits reach; exact.

    Segmentations are enumerated as sets of cut positions (bits of an integer). Raises
    RobustokError for a token of more than 20 bytes.
    """
    from robustok.kernels.pairwise import spans

    n = len(vocab.tokens[token])
    if n > _MOST_BYTES:
        raise RobustokError(
            f"support='pairwise' has too many segmentations to list for a token of {n} bytes"
        )
    begin = vocab.token_offsets[token]
    is_token = spans(vocab.trie, vocab.token_bytes, begin, begin + n)
    cut_sets: dict[tuple[int, int], set[int]] = {}  # by span, for spans that are tokens
    for span in range(1, n + 1):
        for i in range(n - span + 1):
            j = i + span
            if not is_token[i, j]:
                continue
            cut_sets[i, j] = {0}
            for cut in range(i + 1, j):
                for left in cut_sets.get((i, cut), ()):
                    cut_sets[i, j] |= {left | r | 1 << cut for r in cut_sets.get((cut, j), ())}
    counts = Counter(cuts.bit_count() + 1 for cuts in cut_sets.get((0, n), {0}))
    return [counts.get(s, 0) for s in range(n + 1)]
