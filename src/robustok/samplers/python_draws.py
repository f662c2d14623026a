"""Draws of a scheme that is a Python method: a generator for each draw, and a check of its ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.checks import check_ids
from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler


def draw_in_python(
    scheme: Sampler, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray
) -> None:
    """Call ``scheme.draw`` for each draw of texts first..last; see ``Sampler._draw``.

    The generator is Philox with the stream's first state as its key, so a draw depends on seed,
    epoch, key, draw number and part of the row alone.
    """
    from robustok.kernels.random import stream

    draws, position = int(batch.draws), 0
    for t in range(first, last):
        ids = batch.values[batch.offsets[t] : batch.offsets[t + 1]].copy()
        ids.flags.writeable = False
        for d in range(draws):
            drawn = ids[:0]
            if len(ids):
                key = stream(batch.seed, batch.epoch, batch.keys[t], np.int64(d), batch.parts[t])
                random = np.random.Generator(np.random.Philox(key=int(key)))
                drawn = _checked(scheme, ids, scheme.draw(ids, random))
            out[position : position + len(drawn)] = drawn
            position += len(drawn)
            ends[(t - first) * draws + d] = position


def _checked(scheme: Sampler, ids: np.ndarray, drawn: Any) -> np.ndarray:
    """The ids of a draw; raises RobustokError where they do not spell the text of ``ids``."""
    vocab = scheme.vocab
    try:
        rows = check_ids(drawn, vocab.size)
    except RobustokError as e:
        raise RobustokError(f"{scheme.name}: draw returned no ids of the tokenizer: {e}") from e
    if not vocab.readable[rows].all():
        raise RobustokError(f"{scheme.name}: draw returned a special token, which no text holds")
    text, drawn_text = vocab.decode_bytes(ids), vocab.decode_bytes(rows)
    if text != drawn_text:
        raise RobustokError(
            f"{scheme.name}: draw returned ids of another text: {_short(drawn_text)}, not "
            f"{_short(text)}"
        )
    return rows


def _short(text: bytes) -> str:
    return repr(text if len(text) <= 40 else text[:37] + b"...")
