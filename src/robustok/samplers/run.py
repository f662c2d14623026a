"""How a batch is drawn: rows to texts, texts over threads, and rows again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.kernels import batch as kernels
from robustok.ragged import Ragged
from robustok.samplers.base import in_threads, spread
from robustok.vocabulary import Vocabulary, check_ids

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler


class Plan(NamedTuple):
    """What a draw depends on beside its row, and how many threads may work."""

    seed: np.uint64
    epoch: np.int64
    draws: int
    threads: int


def draw_rows(
    sampler: Sampler, rows: Ragged, keep: np.ndarray | None, keys: np.ndarray, plan: Plan
) -> Ragged:
    """Draw every row; special and kept ids stay where they are, each stretch between is a text."""
    vocab = sampler.vocab
    byte_offsets = np.empty(len(rows.offsets), np.int64)
    found: Any = kernels.survey(
        rows.values, rows.offsets, vocab.readable, vocab.token_offsets, byte_offsets
    )
    bad, any_fixed = found
    if bad >= 0:
        check_ids(rows.values, vocab.size)
    if keep is None and not any_fixed:
        parts = np.zeros(len(rows), np.int64)
        return draw_texts(sampler, rows.values, rows.offsets, byte_offsets, keys, parts, plan)
    fixed = ~vocab.readable[rows.values]
    if keep is not None:
        fixed |= np.asarray(keep, np.bool_)
    texts = kernels.split_at_fixed(rows.offsets, fixed)
    values, offsets = kernels.gather(rows.values, texts)
    byte_offsets = np.empty(len(offsets), np.int64)
    kernels.survey(values, offsets, vocab.readable, vocab.token_offsets, byte_offsets)
    parts = texts[:, 1].copy()
    drawn = draw_texts(sampler, values, offsets, byte_offsets, keys[texts[:, 0]], parts, plan)
    return Ragged(
        *kernels.reassemble(
            rows.values, rows.offsets, fixed, texts, plan.draws, drawn.values, drawn.offsets
        )
    )


def draw_texts(
    sampler: Sampler,
    values: np.ndarray,
    offsets: np.ndarray,
    byte_offsets: np.ndarray,
    keys: np.ndarray,
    parts: np.ndarray,
    plan: Plan,
) -> Ragged:
    """Draw every text, which are ids, or bytes (uint8) for schemes that need no canonical ids."""
    whole = sampler._prepare(
        kernels.Batch(values, offsets, keys, parts, plan.seed, plan.epoch, np.int64(plan.draws))
    )

    def work(first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        tokens, size = (int(x[last] - x[first]) for x in (offsets, byte_offsets))
        room = sampler._room(last - first, tokens, size) * plan.draws
        out = np.empty(room, np.int32)
        ends = np.empty((last - first) * plan.draws + 1, np.int64)
        ends[0] = 0
        sampler._draw(whole, first, last, out, ends[1:])
        return out[: ends[-1]], ends

    pieces = in_threads(spread(len(offsets) - 1, byte_offsets, plan.threads), work)
    if len(pieces) == 1:
        out, ends = pieces[0]
        return Ragged(out if 2 * len(out) > len(out.base) else out.copy(), ends)
    starts = np.cumsum([0] + [len(out) for out, _ in pieces])
    ends = [e[1:] + s for (_, e), s in zip(pieces, starts[:-1], strict=True)]
    return Ragged(np.concatenate([o for o, _ in pieces]), np.concatenate([[0], *ends]))


def room_for(vocab: Vocabulary, values: np.ndarray) -> int:
    """The most tokens that ids can become: no token is shorter than a byte."""
    return int(np.diff(vocab.token_offsets)[values].sum())
