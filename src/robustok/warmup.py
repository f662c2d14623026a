"""Compile the kernels now, not at the first draw."""

from __future__ import annotations

from collections.abc import Sequence


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
