"""Draws of a batch: splits rows into texts, draws them in threads, and reassembles the rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robustok.checks import check_ids
from robustok.kernels import batch as kernels
from robustok.ragged import Ragged
from robustok.vocabulary import Vocabulary

if TYPE_CHECKING:
    from robustok.samplers.base import Sampler


_SMALL = 1 << 16  # bytes of text; a smaller batch is not worth a second thread
_MANY_IDS = 1 << 19  # ids of a batch that are checked in threads
_MOST_IDS = 2**48  # more than any machine holds, and far from the end of int64
_MOST_DRAWS = 2**28  # draws of one call, which cost time even of an empty text
_FEW = 64  # ids of one call whose bytes Python joins faster than kernels
_ONE_DRAW = np.int64(1)
_FIRST_PART = np.zeros(1, np.int64)


class Plan(NamedTuple):
    """Everything but its row that a draw depends on, and the number of threads."""

    seed: np.uint64
    epoch: np.int64
    draws: int
    threads: int


class Row(NamedTuple):
    """What one draw depends on beside the ids of its row."""

    key: int
    seed: np.uint64
    epoch: np.int64


def draw_row(sampler: Sampler, ids: np.ndarray, row: Row) -> np.ndarray:
    """One draw of one row: :func:`draw_rows` without what only many rows need.

    ``ids``: int32, contiguous and writable, for which the kernels are compiled.
    """
    vocab = sampler.vocab
    text = vocab.plain_bytes(ids.tolist()) if len(ids) < _FEW else None
    if text is not None:
        if sampler._only_bytes:
            return draw_text(sampler, np.frombuffer(bytearray(text), np.uint8), row)
        return _draw_alone(sampler, ids, len(text), row)
    offsets, byte_offsets = np.array([0, len(ids)]), np.empty(2, np.int64)
    surveyed: Any = kernels.survey(ids, offsets, vocab.readable, vocab.token_offsets, byte_offsets)
    bad, any_fixed = surveyed
    if bad >= 0:
        check_ids(ids, vocab.size)
    if any_fixed:
        plan = Plan(row.seed, row.epoch, 1, 1)
        return draw_rows(sampler, Ragged(ids, offsets), None, np.array([row.key]), plan).values
    return _draw_alone(sampler, ids, int(byte_offsets[1]), row)


def draw_text(sampler: Sampler, text: np.ndarray, row: Row) -> np.ndarray:
    """One draw of one text given as bytes (uint8)."""
    return _draw_alone(sampler, text, len(text), row)


def _draw_alone(sampler: Sampler, values: np.ndarray, size: int, row: Row) -> np.ndarray:
    """One draw of a text of ``size`` bytes on this thread."""
    offsets, keys = np.array([0, len(values)]), np.array([row.key])
    whole = sampler._prepare(
        kernels.Batch(values, offsets, keys, _FIRST_PART, row.seed, row.epoch, _ONE_DRAW)
    )
    room = sampler._room(1, len(values), size)
    if room >= _MOST_IDS:
        raise MemoryError
    out, ends = np.empty(room, np.int32), np.zeros(1, np.int64)
    sampler._draw(whole, 0, 1, out, ends)
    total = int(ends[0])
    return out[:total].copy() if 2 * total < room else out[:total]


def draw_bytes(sampler: Sampler, texts: Sequence[bytes], keys: np.ndarray, plan: Plan) -> Ragged:
    """Draw every text given as bytes, for schemes that need no canonical ids."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    flat = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    parts = np.zeros(len(texts), np.int64)
    return draw_texts(sampler, flat, offsets, offsets, keys, parts, plan)


def draw_rows(
    sampler: Sampler, rows: Ragged, keep: np.ndarray | None, keys: np.ndarray, plan: Plan
) -> Ragged:
    """Draw every row. Special and kept ids stay in place; the ids between two are one text."""
    vocab = sampler.vocab
    any_fixed, byte_offsets = _survey(vocab, rows, plan.threads)
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


def _survey(vocab: Vocabulary, rows: Ragged, threads: int) -> tuple[bool, np.ndarray]:
    """Whether some id is special, and the bytes before each row; checks all ids.

    `kernels.survey` in threads: one alone takes a fifth of the time of `stochastok(alpha=0.1)`.
    """
    byte_offsets = np.zeros(len(rows) + 1, np.int64)

    def work(first: int, last: int) -> tuple[int, bool]:
        sizes = np.empty(last - first + 1, np.int64)
        offsets = rows.offsets[first : last + 1]
        surveyed: Any = kernels.survey(
            rows.values, offsets, vocab.readable, vocab.token_offsets, sizes
        )
        byte_offsets[first + 1 : last + 1] = sizes[1:]
        return surveyed

    many = len(rows.values) >= _MANY_IDS
    jobs = spread(len(rows), rows.offsets, threads if many else 1)
    surveys = in_threads(jobs, work)
    if any(bad >= 0 for bad, _ in surveys):
        check_ids(rows.values, vocab.size)
    for first, last in jobs:
        byte_offsets[first + 1 : last + 1] += byte_offsets[first]
    return any(any_fixed for _, any_fixed in surveys), byte_offsets


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

    jobs = spread(len(offsets) - 1, byte_offsets, plan.threads)
    rooms = [
        sampler._room(last - first, *(int(x[last] - x[first]) for x in (offsets, byte_offsets)))
        for first, last in jobs
    ]
    sizes = [room * plan.draws for room in rooms]  # Python integers do not overflow
    if (len(offsets) - 1) * plan.draws > _MOST_DRAWS or sum(sizes) >= _MOST_IDS:
        raise MemoryError
    starts = np.cumsum([0, *sizes])
    out = np.empty(starts[-1], np.int32)
    ends = np.zeros((len(offsets) - 1) * plan.draws + 1, np.int64)

    def work(job: int) -> None:
        first, last = jobs[job]
        job_ends = ends[first * plan.draws + 1 : last * plan.draws + 1]
        sampler._draw(whole, first, last, out[starts[job] : starts[job + 1]], job_ends)

    in_threads([(job,) for job in range(len(jobs))], work)
    total = _close_gaps(out, ends, jobs, starts, plan.draws)
    if 2 * total < len(out):  # a view would keep all of it alive
        out.resize(total, refcheck=False)
    return Ragged(out[:total], ends)


def _close_gaps(
    out: np.ndarray, ends: np.ndarray, jobs: list[tuple[int, int]], starts: np.ndarray, draws: int
) -> int:
    """Move the ids of each thread next to those of the previous one; returns their number.

    Pages that are touched already are cheap to move in; a new array for all would not be.
    """
    total = 0
    for (first, last), start in zip(jobs, starts, strict=False):
        job_ends = ends[first * draws + 1 : last * draws + 1]
        size = int(job_ends[-1]) if len(job_ends) else 0
        if start != total:
            # As memory: an array would copy what overlaps to a new place first.
            out.data[total : total + size] = out.data[start : start + size]
        job_ends += total
        total += size
    return total


def room_for(vocab: Vocabulary, values: np.ndarray) -> int:
    """The most tokens that ids can become: no token is shorter than a byte."""
    return int((vocab.token_offsets[values + 1] - vocab.token_offsets[values]).sum())


def spread(total: int, weights: np.ndarray, threads: int) -> list[tuple[int, int]]:
    """Cut ``total`` texts into runs of about equal weight, one a thread.

    ``weights`` (int64 of shape [total + 1]) is the weight before each text.
    """
    if threads == 1 or total < 2 or weights[-1] < _SMALL:
        return [(0, total)]
    marks = np.searchsorted(weights, np.linspace(0, weights[-1], threads + 1)[1:-1])
    edges = sorted({0, *marks.tolist(), total})
    return list(itertools.pairwise(edges))


def in_threads(jobs: list[Any], work: Any) -> list[Any]:
    """``work(*job)`` for each job, on as many threads as there are jobs.

    The caller's thread takes the first job. If it slept, the scheduler would keep its core for it
    for a while, and two of the other threads would share one.
    """
    if len(jobs) == 1:
        return [work(*jobs[0])]
    with ThreadPoolExecutor(len(jobs) - 1) as pool:
        others = [pool.submit(work, *job) for job in jobs[1:]]
        return [work(*jobs[0]), *(job.result() for job in others)]
