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
    from robustok.samplers import SCHEMES, sampler
    from robustok.tokenizer_files import TokenizerData
    from robustok.vocabulary import Vocabulary

    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"abc"]
    everything = frozenset(range(len(tokens)))
    merges, scores = [(97, 98), (256, 99)], dict.fromkeys(everything, 0.0)
    data = TokenizerData(tokens, everything, frozenset(), _Bytes(), "bytes", merges, scores=scores)
    vocab = Vocabulary(data)
    for scheme in SCHEMES.values():
        sampler(scheme.example, vocab).sample_batch([[257, 0]], seed=0)
    vocab.lattice("abc").neighbours([257])


class _Bytes:
    """The encoder of the toy vocabulary."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        return [list(text.encode("utf8")) for text in texts]

    def normalize(self, text: str) -> str | None:
        return text
