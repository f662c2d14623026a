"""Answers of the playground as plain values: drawn tokens, histograms, probabilities, attacks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.lattice import distance
from robustok.runtime.display import visible
from robustok.samplers import sampler

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler
    from robustok.tokenizer.vocabulary import Vocabulary

ROWS, SAMPLES = 6, 1_000  # draws that are shown, and draws that are counted
STEPS = 10  # of an attack
RARE = 5e-4  # a share below this is no bar
SECONDS = 2.0  # of drawing, at most; well above what any scheme of the page takes
MODEL_SECONDS = 60.0  # of an attack, at most
_CHUNK = 71  # draws between looks at the clock: ROWS + 14 * 71 = SAMPLES


def picture(vocab: Vocabulary, text: str, spec: str, *, seed: int) -> dict[str, Any]:
    """Draws of a scheme for a text, how many tokenizations it has, and how far they lie.

    ``bars`` holds (distance, share of all tokenizations, share of the draws), each where one of
    the two can be seen.
    """
    draw = sampler(spec, vocab)
    canonical, lattice = vocab.encode(text), vocab.lattice(text)
    total = lattice.count()
    rows, seconds = _draws(draw, text, seed)
    seen = Counter(distance(vocab, canonical, row) for row in rows)
    exact = lattice.counts(by="distance")
    shares = [
        (at, int(count) / total if count else 0.0, seen[at] / SAMPLES)
        for at, count in enumerate(exact)
    ]
    return {
        "scheme": draw.spec,
        "count": f"{total:,}" if total < 10**15 else f"{float(total):.3g}",
        "canonical": _token_texts(vocab, canonical),
        "rows": [_token_texts(vocab, rows[i]) for i in range(ROWS)],
        "length": round(sum(map(len, rows)) / SAMPLES / max(len(canonical), 1), 3),
        "bars": [bar for bar in shares if max(bar[1:]) >= RARE],
        "microseconds": round(1e6 * seconds / (SAMPLES - ROWS), 2),
    }


def _draws(draw: Sampler, text: str, seed: int) -> tuple[list[np.ndarray], float]:
    """SAMPLES draws of a text, and the seconds that all but the first ROWS took.

    Raises RobustokError where they would take longer than SECONDS.
    """
    rows = list(draw.sample_batch([text], seed=seed, draws=ROWS))  # may compile a kernel
    began = time.perf_counter()
    while len(rows) < SAMPLES:
        if time.perf_counter() - began > SECONDS:
            raise RobustokError(
                f"{SAMPLES} draws of this scheme take more than {SECONDS:g} seconds: shorten the "
                "text, or give another scheme"
            )
        rows += draw.sample_batch([text], seed=seed, draws=_CHUNK, epoch=len(rows))
    return rows, time.perf_counter() - began


def probabilities(
    model: Any, vocab: Vocabulary, text: str, options: Sequence[str], spec: str, *, seed: int
) -> dict[str, Any]:
    """How probable each option is after the text, canonical and drawn: shares that add up to 1."""
    from robustok.scoring import score

    draw = sampler(spec, vocab)
    rows = [vocab.encode(text), *draw.sample_batch([text], seed=seed, draws=ROWS)]
    log_probs = score(model, rows, [vocab.encode(option) for option in options]).log_probs
    return {"shares": _shares(log_probs), "rows": [_token_texts(vocab, row) for row in rows]}


def attack_steps(
    model: Any, vocab: Vocabulary, text: str, options: Sequence[str]
) -> list[dict[str, Any]]:
    """The greedy attack on the first option, step after step until it wins or is stuck.

    Raises RobustokError where it takes longer than MODEL_SECONDS.
    """
    from robustok.attack import attack

    with _time_limit(model):
        result = attack(
            model, vocab, text, list(options), 0, steps=STEPS, overflow="canonical", seed=0
        )
    steps: list[dict[str, Any]] = []
    for step in result.moves:
        shares = _shares(np.array([step.log_probs]))[0]
        won = bool(steps) and int(np.argmax(step.log_probs)) != 0
        steps.append({"tokens": _token_texts(vocab, step.ids), "shares": shares, "won": won})
        if won:
            break
    return steps


@contextmanager
def _time_limit(model: Any) -> Iterator[None]:
    """Refuse forward passes of ``model`` that start more than MODEL_SECONDS from now."""
    deadline = time.monotonic() + MODEL_SECONDS

    def check(*_: Any) -> None:
        if time.monotonic() > deadline:
            raise RobustokError(
                f"the attack takes more than {MODEL_SECONDS:g} seconds: shorten the text"
            )

    hook = model.register_forward_pre_hook(check)
    try:
        yield
    finally:
        hook.remove()


def _token_texts(vocab: Vocabulary, ids: Any) -> list[str]:
    return [visible(vocab.tokens[i]) for i in np.asarray(ids).tolist()]


def _shares(log_probs: np.ndarray) -> list[list[float]]:
    if np.isnan(log_probs).any():
        raise RobustokError("the model gives no numbers: its weights may be damaged")
    weights = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).round(6).tolist()
