"""Calls of the public API with random arguments, and what must hold after each.

A call either raises a RobustokError of one line or returns a result whose invariants hold:
a draw decodes to the text of the canonical ids, a log-probability is at most zero, a repaired
sequence is canonical where the tokenizer can spell its text. Anything else is a finding.
"""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import numpy as np

import robustok as rt
from fuzz import values
from fuzz.made_tokenizers import random_tokenizer
from fuzz.random_tokenizers import Refused, Subject
from robustok.guard import TEXT_CHANGES
from robustok.tokenizer.vocabulary import Vocabulary

MADE = 24  # tokenizers at random, of which some are refused


@cache
def vocabularies() -> list[Vocabulary]:
    """The demo's tokenizer, and some that are made at random."""
    loaded = [Vocabulary.load("demo")]
    for number in range(MADE):
        with contextlib.suppress(Refused):
            loaded.append(Subject(random_tokenizer(random.Random(number))).vocab)
    return loaded


@lru_cache(maxsize=200)  # a sampler keeps what it analyzed
def _sampler(vocab: int, spec: str) -> Any:
    return rt.sampler(spec, vocabularies()[vocab])


def _draw_is_exact(vocab: Vocabulary, source: Any, ids: np.ndarray) -> None:
    assert ids.dtype == np.int32 and ids.ndim == 1
    canonical = vocab.encode(source) if isinstance(source, (str, bytes)) else np.asarray(source)
    assert vocab.decode_bytes(ids) == vocab.decode_bytes(canonical), "draw changes the text"


def sample(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    source = values.text(rng) if rng.random() < 0.6 else values.ids(rng, vocab)
    scheme = _sampler(at, values.spec(rng))
    arguments: dict[str, Any] = {"seed": values.integer(rng)}
    if rng.random() < 0.3:
        arguments["key"] = values.integer(rng)
    if rng.random() < 0.2:
        arguments["epoch"] = values.integer(rng)
    if rng.random() < 0.1:
        arguments["keep"] = np.array([rng.random() < 0.5 for _ in range(rng.randrange(6))])
    _draw_is_exact(vocab, source, scheme.sample(source, **arguments))


def sample_batch(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    make = values.text if rng.random() < 0.5 else (lambda r: values.ids(r, vocab))
    rows: Any = [make(rng) for _ in range(rng.randrange(4))]
    if rng.random() < 0.1:
        rows = rng.choice(("hello", b"hello", None, 3, [rows], {"a": 1}))
    draws = rng.choice((1, 1, 2, 3)) if rng.random() < 0.9 else values.integer(rng)
    if isinstance(draws, int) and draws > 10**6 and not rows:
        return
    keys = None if rng.random() < 0.7 else [values.integer(rng) for _ in range(rng.randrange(4))]
    scheme = _sampler(at, values.spec(rng))
    drawn = scheme.sample_batch(rows, seed=values.integer(rng), draws=draws, keys=keys)
    assert len(drawn) == draws * len(rows)
    for i, row in enumerate(rows):
        for j in range(draws):
            _draw_is_exact(vocab, row, drawn[i * draws + j])


def log_prob(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    scheme = _sampler(at, values.spec(rng))
    value = scheme.log_prob(values.ids(rng, vocab))
    assert isinstance(value, float) and value <= 1e-9, value


def log_prob_of_a_draw(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    scheme = _sampler(at, values.spec(rng))
    drawn = scheme.sample(values.text(rng), seed=rng.randrange(100))
    value = scheme.log_prob(drawn)
    # Beside an unknown token the encoder saw other neighbors than log_prob does.
    assert np.isfinite(value) or not vocab.readable[drawn].all(), f"own draw has {value}"


def encode(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    ids = vocab.encode(values.text(rng), parse_special=rng.random() < 0.3)
    assert vocab.decode(ids) == vocab.decode_bytes(ids).decode("utf8", "replace")


def encode_batch(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    texts: Any = [values.text(rng) for _ in range(rng.randrange(4))]
    if rng.random() < 0.1:
        texts = rng.choice(("hello", b"hello", None, 3, [texts]))
    rows = vocab.encode_batch(texts)
    assert len(rows) == len(texts)


def decode(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    assert isinstance(vocab.decode_bytes(values.ids(rng, vocab)), bytes)


def lattice(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    if rng.random() < 0.5:
        lat, source = vocab.lattice(text := values.text(rng)), None
        canonical = vocab.encode(text)
    else:
        source = values.ids(rng, vocab)
        lat, canonical = rt.Lattice(vocab, source), np.asarray(source)
    call = rng.randrange(6)
    if call == 0:
        assert lat.count() >= 1
    elif call == 1:
        assert lat.count(**{rng.choice(("distance", "segments")): values.integer(rng)}) >= 0
    elif call == 2:
        for ids in islice(lat.enumerate(limit=20), 20):
            assert vocab.decode_bytes(ids) == vocab.decode_bytes(canonical)
    elif call == 3:
        arguments = {rng.choice(("distance", "segments")): values.integer(rng), "limit": 20}
        for ids in islice(lat.enumerate(**arguments), 20):
            assert vocab.decode_bytes(ids) == vocab.decode_bytes(canonical)
    elif call == 4:
        rows = lat.neighbors(  # type: ignore[attr-defined]
            values.ids(rng, vocab), values.integer(rng)
        )
        for ids in islice(rows, 20):
            assert vocab.decode_bytes(ids) == vocab.decode_bytes(canonical)
    else:
        assert lat.log_count() >= -1e-9


def distance(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    a = values.ids(rng, vocab)
    b = _sampler(at, "uniform").sample(a, seed=1) if rng.random() < 0.5 else values.ids(rng, vocab)
    assert 0 <= rt.distance(vocab, a, b) <= len(b)


def measure(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    rows: Any = [values.ids(rng, vocab) for _ in range(rng.randrange(4))]
    drawn: Any = [values.ids(rng, vocab) for _ in range(rng.randrange(4))]
    if rng.random() < 0.5:
        rows, drawn = rt.Ragged.from_rows(rows), rt.Ragged.from_rows(drawn)
    if rng.random() < 0.5:
        drawn = _sampler(at, "stochastok(alpha=1)").sample_batch(rows, seed=0)
    strength = rt.measure(vocab, rows, drawn)
    assert (strength.distance >= 0).all() and (strength.splits >= 0).all()


def guard(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    ids = values.ids(rng, vocab)
    judge = _guard(at, rng.random() < 0.3)
    verdict = judge.check(ids)
    repaired = verdict.repaired
    kinds = {finding.kind for finding in verdict.findings}
    if verdict.canonical:
        assert verdict.distance == 0
    if rng.random() < 0.3 and TEXT_CHANGES not in kinds:
        again = judge.check(repaired)
        assert again.canonical, f"repaired ids {repaired.tolist()} are not canonical"


@cache
def _guard(vocab: int, allow_special: bool) -> rt.Guard:
    return rt.Guard(vocabularies()[vocab], allow_special=allow_special)


def schedule(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    spec = values.spec(rng).replace("=1", "=0.1->1")
    moving = rt.schedule(spec, vocab)
    moving.at(values.number(rng)).sample(values.text(rng), seed=0)


def at_strength(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    target = {rng.choice(("splits", "distance", "length_ratio")): values.number(rng)}
    texts = [values.text(rng) for _ in range(2)]
    rt.at_strength(values.spec(rng), vocab, texts, seed=0, **target)


def ragged(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    rows = [values.ids(rng, vocab) for _ in range(rng.randrange(4))]
    batch = rt.Ragged.from_rows(rows)
    assert len(batch) == len(rows)
    if rng.random() < 0.3:
        rt.Ragged(np.array([1, 2, 3]), [values.integer(rng) for _ in range(3)])  # type: ignore


def pickled(rng: random.Random, vocab: Vocabulary, at: int) -> None:
    scheme = _sampler(at, values.spec(rng))
    text = values.text(rng)
    again = pickle.loads(pickle.dumps(scheme))
    assert np.array_equal(scheme.sample(text, seed=1), again.sample(text, seed=1))


# How often each is called: cheap ones more often.
CALLS: tuple[tuple[Callable[[random.Random, Vocabulary, int], None], int], ...] = (
    (sample, 30), (sample_batch, 15), (log_prob, 8), (log_prob_of_a_draw, 8), (encode, 15),
    (encode_batch, 8), (decode, 8), (lattice, 15), (distance, 15), (measure, 15), (guard, 20),
    (schedule, 3), (ragged, 8),
)  # fmt: skip
RARE: tuple[Callable[[random.Random, Vocabulary, int], None], ...] = (at_strength, pickled)


def call(seed: int, number: int) -> str:
    """Make call ``number`` of a run; returns the name of what was called, or raises."""
    rng = random.Random(f"{seed}/{number}")
    at = rng.randrange(len(vocabularies()))
    if rng.randrange(500) == 0:
        target = rng.choice(RARE)
    else:
        target = rng.choices([c for c, _ in CALLS], [w for _, w in CALLS])[0]
    try:
        target(rng, vocabularies()[at], at)
    except rt.RobustokError as e:
        assert "\n" not in str(e), f"an error of several lines: {e}"
        assert str(e), "an error without a message"
    return target.__name__
