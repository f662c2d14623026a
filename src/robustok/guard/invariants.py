"""Check a tokenizer: its ids, draws, probabilities and verdicts against its own library.

The texts, a few hundred, have characters of every class and script and tokens of the tokenizer.
The library that the tokenizer belongs to gives the expected results. A check of examples, not a
proof: `fuzz/` makes tokenizers and enumerates.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from robustok.errors import RobustokError
from robustok.guard import Guard
from robustok.lattice import Lattice
from robustok.samplers import Sampler, sampler
from robustok.tokenizer.comparison import KINDS, WRITTEN
from robustok.tokenizer.sources import open_tokenizer
from robustok.tokenizer.vocabulary import Vocabulary

SCHEMES = (
    "canonical",
    "characters",
    "uniform",
    "uniform-k(k=4)",
    "stochastok(alpha=0.5)",
    "stochastok-uniform(alpha=0.5)",
    "grampa",
    "unigram",
    "bpe-dropout(p=0.2)",
    "maxmatch-dropout(p=0.2)",
)
# Schemes under which the canonical tokenization has a positive probability by definition.
POSITIVE = ("canonical", "uniform", "grampa", "unigram")
_LONGEST = 400  # characters of a text
_SUMMED = 50  # tokenizations of a text whose probabilities are summed
_SHORT_TEXTS = ("a", "ab", "the", " a", "é", "a b", "  ", "\n", "根", "1", "it's")


@dataclass
class Check:
    """One invariant: how many comparisons were made, and the first of those that failed."""

    name: str
    compared: int = 0
    failed: int = 0
    example: str = ""

    def expect(self, holds: bool, example: str) -> None:
        """Count a comparison; ``example`` describes one that fails."""
        self.compared += 1
        if not holds:
            self.failed += 1
            self.example = self.example or example


@dataclass
class Invariants:
    """The results of :func:`check_invariants`."""

    texts: int
    refused: Counter[str] = field(default_factory=Counter)  # texts by the reason of the refusal
    checks: tuple[Check, ...] = ()

    @property
    def hold(self) -> bool:
        """Whether no comparison failed."""
        return not any(check.failed for check in self.checks)


class _Library(NamedTuple):
    """Encoder and decoder of the tokenizer's library; special tokens in a text are plain text."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str | bytes]

    @classmethod
    def of(cls, source: object) -> _Library:
        tokenizer = open_tokenizer(source).library()
        library_name = type(tokenizer).__module__.split(".")[0]
        if library_name == "tiktoken":
            return cls(tokenizer.encode_ordinary, tokenizer.decode_bytes)
        if library_name != "tokenizers":
            return cls(tokenizer.encode, tokenizer.decode)
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        if type(tokenizer.model).__name__ == "BPE":
            tokenizer.model.dropout = None
        return cls(
            lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
            partial(tokenizer.decode, skip_special_tokens=False),
        )

    def decodes_alike(self, first: np.ndarray, second: np.ndarray) -> bool:
        return self.decode(first.tolist()) == self.decode(second.tolist())


def check_invariants(source: object, vocab: Vocabulary | None = None) -> Invariants:
    """Compare ``vocab``, that of ``source``, with the tokenizer's own library on its texts."""
    vocab = vocab or Vocabulary.load(source)
    library = _Library.of(source)
    texts = list(_texts(vocab))
    result = Invariants(len(texts))
    encoding, draws, probabilities, guard = result.checks = tuple(
        Check(name) for name in ("encoding", "draws", "probabilities", "guard")
    )
    rows: dict[str, np.ndarray] = {}
    for text in texts:
        try:
            rows[text] = vocab.encode(text)
        except RobustokError as e:
            result.refused[str(e)] += 1
            continue
        expected, row = library.encode(text), rows[text].tolist()
        if vocab.special.isdisjoint(expected):
            encoding.expect(row == expected, f"encode({text!r}) is not {expected}")
        else:  # a model such as Unigram, which itself finds special tokens in plain text
            is_text = vocab.special.isdisjoint(row)
            encoding.expect(is_text, f"encode({text!r}) has a special token")
    _check_batches(vocab, rows, encoding)
    listed = _check_counts(vocab, rows, probabilities)
    samplers = [scheme for spec in SCHEMES if (scheme := _sampler(spec, vocab))]
    for scheme in samplers:
        _check_draws(vocab, library, scheme, rows, draws)
        if scheme.exact:
            _check_probabilities(scheme, rows, listed, probabilities)
    _check_guard(vocab, library, rows, guard)
    return result


def _texts(vocab: Vocabulary) -> Iterator[str]:
    """Texts of every kind of character, and of the tokenizer's own tokens."""
    yield from _SHORT_TEXTS
    yield from (text for text in WRITTEN if len(text) <= _LONGEST)
    rng = random.Random(0)
    for size in (2, 3, 5, 9, 17):
        for _ in range(24):
            yield "".join(rng.choices(KINDS, k=size))
    ids = np.flatnonzero(vocab.ordinary).tolist()
    for size in (1, 2, 4, 8):
        for _ in range(16):
            token_ids = rng.choices(ids, k=size) if ids else []
            yield b"".join(vocab.tokens[i] for i in token_ids).decode(errors="ignore")
    added = [token.content for token in vocab.data.plain_added.values()]
    for content in rng.sample(added, min(len(added), 12)):
        yield from (content, f"a{content}b", f"a {content} b", f"{content}{content} the")


def _sampler(spec: str, vocab: Vocabulary) -> Sampler | None:
    """The sampler of a scheme, None where it does not fit the vocabulary."""
    try:
        return sampler(spec, vocab)
    except RobustokError:
        return None


def _check_batches(vocab: Vocabulary, rows: dict[str, np.ndarray], check: Check) -> None:
    """``encode_batch`` in both orders, before and after the fast encoder is loaded."""
    for state in ("before", "after"):
        if state == "after":
            vocab.gigatoken.load()
        for step in (1, -1):
            texts = [*rows][::step]
            for text, ids in zip(texts, vocab.encode_batch(texts), strict=True):
                equal = np.array_equal(ids, rows[text])
                check.expect(equal, f"encode_batch, {state} the fast encoder: {text!r}")


def _check_draws(
    vocab: Vocabulary, library: _Library, scheme: Sampler, rows: dict[str, np.ndarray], check: Check
) -> None:
    """Draws from a text and from its ids are equal and decode to the text of the ids."""
    for text, ids in rows.items():
        try:
            draw, from_ids = scheme.sample(text, seed=0), scheme.sample(ids, seed=0)
        except RobustokError as e:
            check.expect(False, f"{scheme.spec}, {text!r}: {e}")
            continue
        label = f"{scheme.spec}, {text!r}"
        check.expect(np.array_equal(draw, from_ids), f"{label}: from the text and from its ids")
        is_same = vocab.decode_bytes(draw) == vocab.decode_bytes(ids)
        check.expect(is_same, f"{label}: {draw.tolist()} has other bytes")
        is_same = library.decodes_alike(draw, ids)
        check.expect(is_same, f"{label}: the library decodes {draw.tolist()} otherwise")


def _check_counts(
    vocab: Vocabulary, rows: dict[str, np.ndarray], check: Check
) -> dict[str, list[np.ndarray]]:
    """``count`` is the length of ``enumerate``; returns the tokenizations of texts with few."""
    listed: dict[str, list[np.ndarray]] = {}
    for text, ids in rows.items():
        lattice = Lattice(vocab, ids)
        count = lattice.count()
        if count <= _SUMMED:
            listed[text] = list(lattice.enumerate())
            check.expect(count == len(listed[text]), f"{text!r}: {len(listed[text])}, not {count}")
    return listed


def _check_probabilities(
    scheme: Sampler, rows: dict[str, np.ndarray], listed: dict[str, list[np.ndarray]], check: Check
) -> None:
    """Log-probabilities of draws are finite, and probabilities sum to 1."""
    for text, ids in rows.items():
        label = f"{scheme.spec}, {text!r}"
        log_prob = _log_prob(scheme, scheme.sample(ids, seed=0))
        check.expect(-math.inf < log_prob < 1e-9, f"{label}: a draw has log_prob {log_prob}")
        if scheme.spec.partition("(")[0] in POSITIVE:
            log_prob = _log_prob(scheme, ids)
            check.expect(log_prob > -math.inf, f"{label}: the canonical ids have {log_prob}")
    for text, tokenizations in listed.items():
        total = math.fsum(math.exp(_log_prob(scheme, row)) for row in tokenizations)
        check.expect(abs(total - 1) <= 1e-9, f"{scheme.spec}, {text!r}: sum {total}")


def _log_prob(scheme: Sampler, ids: np.ndarray) -> float:
    """The log-probability, NaN where the sampler refuses the ids."""
    try:
        return scheme.log_prob(ids)
    except RobustokError:
        return math.nan


def _check_guard(
    vocab: Vocabulary, library: _Library, rows: dict[str, np.ndarray], check: Check
) -> None:
    """The library's ids are canonical; repaired draws are admitted and decode to the same text."""
    guard, uniform = Guard(vocab), sampler("uniform", vocab)
    for text, ids in rows.items():
        check.expect(guard.check(ids).canonical, f"check({ids.tolist()}) of {text!r}")
        draw = uniform.sample(ids, seed=1)
        repaired = guard.repair(draw)
        label = f"repair({draw.tolist()}) of {text!r}"
        is_same = library.decodes_alike(repaired, ids)
        check.expect(is_same, f"{label}: {repaired.tolist()} decodes otherwise")
        check.expect(np.array_equal(guard.repair(repaired), repaired), f"{label}: twice")
        try:
            admitted = guard.admit(repaired)
        except RobustokError as e:
            check.expect(False, f"{label}: not admitted ({e})")
        else:
            check.expect(np.array_equal(admitted, repaired), f"{label}: admitted otherwise")
