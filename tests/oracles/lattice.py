"""Slow twins of the lattice, straight from the definitions."""

from collections import Counter
from collections.abc import Iterable
from functools import cache

from robustok.tokenizer.vocabulary import Vocabulary

Path = tuple[int, ...]


def tokenizations(vocab: Vocabulary, text: bytes) -> list[Path]:
    """Every id sequence of ordinary tokens whose bytes concatenate to the text."""
    ids = ids_by_token(vocab)

    @cache
    def rest(at: int) -> list[Path]:
        if at == len(text):
            return [()]
        return [
            (ids[text[at:end]], *path)
            for end in range(at + 1, len(text) + 1)
            if text[at:end] in ids
            for path in rest(end)
        ]

    return rest(0)


def ids_by_token(vocab: Vocabulary) -> dict[bytes, int]:
    """The id of every ordinary token, made once a vocabulary."""
    return vocab.derived(
        "oracle ids", lambda: {vocab.tokens[i]: int(i) for i in vocab.ordinary.nonzero()[0]}
    )


def spans(vocab: Vocabulary, path: Iterable[int]) -> set[tuple[int, int, int]]:
    """(begin, end, id) of every token."""
    positions, at = set(), 0
    for i in path:
        positions.add((at, at + len(vocab.tokens[i]), i))
        at += len(vocab.tokens[i])
    return positions


def distance(vocab: Vocabulary, v: Path, u: Path) -> int:
    """How many tokens of u do not stand, same id and same span, in v."""
    return len(spans(vocab, u) - spans(vocab, v))


def splits(vocab: Vocabulary, v: Iterable[int], u: Iterable[int]) -> int:
    """How many tokens of u end where no token of v ends."""
    ends = {end for _, end, _ in spans(vocab, v)}
    return sum(end not in ends for _, end, _ in spans(vocab, u))


def counts(vocab: Vocabulary, text: bytes, reference: Path) -> tuple[Counter[int], Counter[int]]:
    """The number of tokenizations by distance from the reference, and by segments."""
    paths = tokenizations(vocab, text)
    by_distance = Counter(distance(vocab, reference, u) for u in paths)
    return by_distance, Counter(map(len, paths))
