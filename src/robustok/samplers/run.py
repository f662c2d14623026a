"""How a batch is drawn: rows to texts, texts over threads, and rows again."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from robustok.kernels import batch as kernels
from robustok.ragged import Ragged
from robustok.samplers.base import in_threads, spread

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler


class Plan(NamedTuple):
    """What a draw depends on beside its row, and how many threads may work."""

    seed: np.uint64
    epoch: np.int64
    draws: int
    threads: int


def draw_rows(
    sampler: Sampler, rows: Ragged, fixed: np.ndarray, keys: np.ndarray, plan: Plan
) -> Ragged:
    """Draw every row; fixed ids stay where they are, and each stretch between is a text."""
    if not fixed.any():
        parts = np.zeros(len(rows), np.int64)
        return draw_texts(sampler, rows.values, rows.offsets, keys, parts, plan)
    texts = kernels.split_at_fixed(rows.offsets, fixed)
    values, offsets = kernels.gather(rows.values, texts)
    drawn = draw_texts(sampler, values, offsets, keys[texts[:, 0]], texts[:, 1].copy(), plan)
    return Ragged(
        *kernels.reassemble(
            rows.values, rows.offsets, fixed, texts, plan.draws, drawn.values, drawn.offsets
        )
    )


def draw_texts(
    sampler: Sampler,
    values: np.ndarray,
    offsets: np.ndarray,
    keys: np.ndarray,
    parts: np.ndarray,
    plan: Plan,
) -> Ragged:
    """Draw every text, which are ids, or bytes (uint8) for schemes that need no canonical ids."""
    whole = kernels.Batch(values, offsets, keys, parts, plan.seed, plan.epoch, np.int64(plan.draws))
    bytes_to = offsets if values.dtype == np.uint8 else _bytes_before(sampler, values)[offsets]

    def work(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        # No token is shorter than a byte, so a text of n bytes has at most n tokens.
        room = int(bytes_to[last] - bytes_to[first]) * plan.draws
        out = np.empty(room, np.int32)
        ends = np.empty((last - first) * plan.draws, np.int64)
        sampler._draw(whole, first, last, out, ends)
        return out[: ends[-1] if len(ends) else 0], ends

    jobs = spread(len(offsets) - 1, bytes_to, plan.threads)
    pieces = in_threads(jobs, work)
    if len(pieces) == 1:
        out, ends = pieces[0]
        return Ragged(out.copy(), np.concatenate([[0], ends]))
    starts = np.cumsum([0] + [len(out) for out, _ in pieces])
    ends = [e + s for (_, e), s in zip(pieces, starts[:-1], strict=True)]
    return Ragged(np.concatenate([o for o, _ in pieces]), np.concatenate([[0], *ends]))


def _bytes_before(sampler: Sampler, values: np.ndarray) -> np.ndarray:
    lengths = np.diff(sampler.vocab.token_offsets)
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths[values], out=before[1:])
    return before
