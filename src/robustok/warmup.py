"""Compile the kernels now, not at the first draw."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_announced = False


def announce_compilation() -> None:
    """Say so on stderr, once a process, if the kernels have never been compiled on this machine."""
    global _announced
    if _announced:
        return
    _announced = True
    from pathlib import Path

    from robustok.kernels import trie

    cache = getattr(trie.build_trie, "_cache", None) or getattr(trie._fill, "_cache", None)
    folder = Path(getattr(cache, "cache_path", "")) if cache is not None else None
    if folder is not None and not any(folder.glob("trie.*.nbi")):
        sys.stderr.write(
            "robustok: compiling its kernels, which happens once and takes up to a minute\n"
        )
        sys.stderr.flush()


def warmup() -> None:
    """Compile every kernel, or load it from the cache of an earlier process.

    >>> warmup()

    The first draw ever takes up to a minute for it; after that a new process loads each kernel in
    hundredths of a second. Worth calling in an image's build or before timing anything.
    """
    from robustok.guard import Guard
    from robustok.ragged import Ragged
    from robustok.samplers import SCHEMES, sampler
    from robustok.strength import measure
    from robustok.tokenizer_files import TokenizerData
    from robustok.vocabulary import Vocabulary

    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"abc", b"<end>"]
    ordinary = frozenset(range(258))
    merges, scores = [(97, 98), (256, 99)], dict.fromkeys(ordinary, 0.0)
    data = TokenizerData(tokens, ordinary, frozenset(), _Bytes(), "bytes", merges, scores=scores)
    vocab = Vocabulary(data)
    rows = Ragged.from_rows([[257, 0], [257, 258, 257]])  # the second with a special token
    others = ["stochastok(ways=3)", 'stochastok-uniform(support="pairwise")']
    for spec in [*(scheme.example for scheme in SCHEMES.values()), *others]:
        scheme = sampler(spec, vocab)
        scheme.sample_batch(rows, seed=0)
        if spec.startswith(("uniform", "grampa", "unigram", "maxmatch", "stochastok-uniform")):
            scheme.log_prob([257])
    measure(vocab, rows, rows)
    lattice = vocab.lattice("abc")
    lattice.neighbours([257])
    lattice.count(distance=2)
    Guard(vocab).check_batch(rows)


class _Bytes:
    """The encoder of the toy vocabulary."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        return [list(text.encode("utf8")) for text in texts]

    def normalize(self, text: str) -> str | None:
        return text
