"""The base class of all schemes: checks, texts and rows, threads, special tokens, keys of draws.

A scheme draws for one *text*: ordinary tokens without special ones between them. This module checks
the input, cuts rows into texts at special tokens and kept spans, spreads the texts over threads,
and puts the rows together again.

A scheme overrides ``draw`` (plain Python, one text at a time), or these hooks for a kernel:

- ``_draw(batch, first, last, out, ends)`` writes the ids of texts first..last of a
  ``kernels.batch.Batch``, all draws of a text one after another, to ``out`` (int32), and the end of
  each draw in ``out`` to ``ends`` (int64 of shape [(last - first) * draws]). It runs in several
  threads at once, each with its own texts and arrays.
- ``_max_ids(texts, tokens, size)`` is the most ids that one draw of so many texts can have, which
  have so many canonical tokens and bytes together. ``out`` has at least ``_max_ids`` times
  ``draws`` entries, and kernels write without bounds checks: a value that is too small corrupts
  memory. The default, one id a byte, is always enough.
- ``_reads_bytes`` says that ``_draw`` reads bytes: it gets those of a text in place of its ids.
- ``_skips_encoding`` says that strings need not be encoded: ``_draw`` gets the bytes of a text that
  ``_bytes_of(text)`` returns, and canonical ids only where that is None.
- ``_log_prob_text(ids)`` is the log-probability of the ids of one text (set ``exact``).

Attributes whose names start with ``_`` are caches: they are not pickled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import (
    MAX_COUNT,
    check_draw,
    check_ids,
    check_integer,
    check_keys,
    check_list,
    shown,
)
from robustok.errors import RobustokError
from robustok.kernels import batch as kernels
from robustok.kernels.numbers import stream
from robustok.ragged import Ragged
from robustok.runtime.processes import available_cores
from robustok.samplers.spec import (
    SCHEMES,
    Scheme,
    Spec,
    has_ramp,
    scheme_class,
    spec_string,
)
from robustok.tokenizer.vocabulary import Text, Vocabulary, check_vocabulary

_MOST_THREADS = 64  # more than these and than there are cores gain nothing
_SMALL = 1 << 16  # bytes of text; a smaller batch is not worth a second thread
_MANY_IDS = 1 << 19  # ids of a batch that are checked in threads
_MOST_IDS = 2**48  # more than any machine holds, and far from the end of int64
_MOST_DRAWS = 2**28  # draws of one call, which cost time even of an empty text
_FEW = 64  # ids of one call whose bytes Python joins faster than kernels
_ONE_DRAW = np.int64(1)
_FIRST_PART = np.zeros(1, np.int64)


class Plan(NamedTuple):
    """What all rows of a call share: what their draws depend on, and the number of threads."""

    seed: np.uint64
    epoch: np.int64
    draws: int
    threads: int


class Sampler(Scheme):
    """A probability distribution over the tokenizations of a text.

    >>> s = rt.sampler("uniform-k(alpha=1)", vocab)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' world']
    >>> s.sample_batch(["hello world", "the"], seed=0, draws=3).offsets
    array([ 0,  3,  6,  9, 10, 11, 12])

    Args:
        vocab: the vocabulary whose texts are tokenized.
        **params: the scheme's parameters by name; the others keep their defaults.

    Draws are counter-based: a draw depends on its row, the seed, the epoch, the key and the number
    of the draw, and on nothing else. Raises RobustokError for an unknown parameter, a value out of
    range, and a tokenizer that does not fit the scheme.
    """

    _skips_encoding: bool = False
    _reads_bytes: bool = False

    def __init__(self, vocab: Vocabulary, **params: Any) -> None:
        self.vocab = check_vocabulary(vocab)
        self.params = self.checked(params)
        if has_ramp(list(self.params.values())):
            raise RobustokError(
                f"{self.spec} is a schedule, for training: schedule(spec, vocab).at(progress) "
                "gives the scheme of a moment"
            )
        if self.needs and not self.needs.is_met(vocab):
            raise RobustokError(
                f"{self.name} needs {self.needs.what}: this one is {vocab.data.family}; use "
                "another scheme, such as uniform"
            )
        for name, kind in self.parameters.items():
            setattr(self, name, self.params.get(name, kind.default))
        stream.prepare()  # processes that are forked from now on share the memory of numba

    @classmethod
    def _check_complete(cls) -> None:
        super()._check_complete()
        if cls.draw is Sampler.draw and cls._draw is Sampler._draw:
            raise RobustokError(f"{cls.name} needs a method draw(self, ids, random)")

    @property
    def spec(self) -> str:
        """The normalized spec string; ``sampler(s.spec, vocab)`` makes an equal sampler."""
        return spec_string(type(self), self.params)

    def sample(
        self,
        text: Text | Sequence[int] | np.ndarray,
        *,
        seed: int,
        key: int = 0,
        epoch: int = 0,
        keep: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw one tokenization: ids, int32 [tokens].

        Args:
            text: a string, bytes, or canonical ids.
            seed: any integer; its lowest 64 bits count.
            key: name of the text, an int64. Equal texts with different keys have different draws.
            epoch: an int64; each value gives other draws.
            keep: ids that stay as they are, bool [ids of the text]; by default none.

        The result is one row of :meth:`sample_batch`, which raises the same errors.
        """
        if keep is not None:
            rows: list[Any] = [text]
            return self.sample_batch(rows, seed=seed, keys=[key], epoch=epoch, keep=keep)[0]
        draw = check_draw(seed, epoch, key)
        try:
            return self._sample_row(text, *draw)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: the text is too long for one call: draw from its parts"
            ) from e

    def _sample_row(self, text: Any, seed: np.uint64, epoch: np.int64, key: int) -> np.ndarray:
        """One draw of one row: as :meth:`_sample_rows`, without threads and arrays of rows."""
        vocab = self.vocab
        if isinstance(text, (str, bytes)):
            text_bytes = self._bytes_of(text) if self._skips_encoding else None
            if text_bytes is not None:
                values = np.frombuffer(bytearray(text_bytes), np.uint8)
                return self._draw_one(values, len(text_bytes), seed, epoch, key)
            ids = vocab.encode(text)
        elif isinstance(text, (list, tuple)) and text and isinstance(text[0], (str, bytes)):
            raise RobustokError("sample takes one text: use sample_batch for a list of texts")
        else:
            ids = np.array(check_ids(text))  # contiguous and writable, as the kernels need it
        text_bytes = vocab.plain_bytes(ids.tolist()) if len(ids) < _FEW else None
        if text_bytes is not None:  # all ids are checked, and none is special
            values = np.frombuffer(bytearray(text_bytes), np.uint8) if self._reads_bytes else ids
            return self._draw_one(values, len(text_bytes), seed, epoch, key)
        offsets, byte_offsets = np.array([0, len(ids)]), np.empty(2, np.int64)
        surveyed: Any = kernels.survey(
            ids, offsets, vocab.readable, vocab.token_offsets, byte_offsets
        )
        bad, any_fixed = surveyed
        if bad >= 0:
            check_ids(ids, vocab.size)
        if any_fixed:
            plan = Plan(seed, epoch, 1, 1)
            return _draw_rows(self, Ragged(ids, offsets), None, np.array([key]), plan).values
        return self._draw_one(ids, int(byte_offsets[1]), seed, epoch, key)

    def _draw_one(
        self, values: np.ndarray, size: int, seed: np.uint64, epoch: np.int64, key: int
    ) -> np.ndarray:
        """One draw of one text of ``size`` bytes, as ids or as its bytes."""
        offsets, keys = np.array([0, len(values)]), np.array([key])
        batch = kernels.Batch(values, offsets, keys, _FIRST_PART, seed, epoch, _ONE_DRAW)
        if self._reads_bytes:
            batch = self._input_of(batch)
        out, ends = np.empty(size, np.int32), np.zeros(1, np.int64)  # at most one id a byte
        self._draw(batch, 0, 1, out, ends)
        total = int(ends[0])
        return out[:total].copy() if 2 * total < size else out[:total]

    def sample_batch(
        self,
        texts: Iterable[Text] | Iterable[Sequence[int]] | Ragged,
        *,
        seed: int,
        draws: int = 1,
        keys: Sequence[int] | np.ndarray | None = None,
        epoch: int = 0,
        threads: int | None = None,
        keep: np.ndarray | None = None,
    ) -> Ragged:
        """Draw ``draws`` tokenizations of each row; draw j of row i is row i·draws + j.

        Args:
            texts: strings, bytes, or canonical ids (a Ragged or a list of sequences).
            seed: any integer; its lowest 64 bits count.
            draws: tokenizations of each row, from 1 to 2**31 - 1.
            keys: names of the rows, int64 [rows], by default their positions. With its own key a
                row keeps its draws in any order and batch.
            epoch: an int64; each value gives other draws.
            threads: number of threads, at least 1, by default one for each core. It changes the
                time only.
            keep: ids that stay as they are, bool [ids of all rows, one row after another]; by
                default none.

        Raises RobustokError for anything else, for ids outside the vocabulary, and where the draws
        need more memory than there is, or number more than 2**28.
        """
        draws = check_integer("draws", draws, 1, MAX_COUNT)
        rows = texts if isinstance(texts, Ragged) else check_list("texts", texts)
        keys_ = check_keys(keys, len(rows))
        seed_, epoch_, _ = check_draw(seed, epoch, 0)
        plan = Plan(seed_, epoch_, draws, _threads(threads))
        try:
            return self._sample_rows(rows, keep, keys_, plan)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: {draws} draws of {len(rows)} rows are too many for one "
                "call: draw less at a time"
            ) from e

    def _sample_rows(self, rows: Any, keep: Any, keys: np.ndarray, plan: Plan) -> Ragged:
        """Draw from a Ragged, or from a list of strings or of id sequences."""
        if rows and isinstance(rows[0], (str, bytes)):
            if self._skips_encoding and keep is None:
                all_bytes = [raw for raw in map(self._bytes_of, rows) if raw is not None]
                if len(all_bytes) == len(rows):
                    return _draw_bytes(self, all_bytes, keys, plan)
            rows = self.vocab.encode_batch(rows)
        ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
        return _draw_rows(self, ragged, _check_keep(keep, ragged), keys, plan)

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log-probability that this scheme draws exactly ``ids`` for the text they spell.

        Args:
            ids: ids of the vocabulary, integers [n].

        Minus infinity for ids that it never draws. Special ids stay where they are: the ids between
        them are texts of their own, and their log-probabilities add up. Raises RobustokError for
        ids outside the vocabulary, for a scheme without an exact probability, and where the
        tokenizer's normalizer changes the text.
        """
        checked = check_ids(ids, self.vocab.size)
        texts = texts_of(self.vocab, checked)
        return float(sum(self._log_prob_text(text) for text in texts or [checked[:0]]))

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The same for the ids of one text; 0 for an empty one."""
        exact = ", ".join(name for name, scheme in SCHEMES.items() if scheme.exact)
        raise RobustokError(
            f"{self.name} has no exact log_prob: its draws reach one result in very many ways "
            f"(exact: {exact})"
        )

    def draw(self, ids: np.ndarray, random: np.random.Generator) -> Any:
        """Draw one tokenization of one text: its ids, as a list or an integer array.

        Args:
            ids: canonical ids of the text, int32 [tokens], read-only, at least one.
            random: a generator of this draw alone, seeded by seed, epoch, key, draw number and the
                text's place in its row.

        The base class checks that the returned ids spell the text of ``ids``.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method draw(self, ids, random)")

    def _input_of(self, batch: kernels.Batch) -> kernels.Batch:
        """What ``_draw`` reads of a batch: its ids, or their bytes."""
        if not self._reads_bytes or batch.values.dtype == np.uint8:
            return batch
        return kernels.spelled(batch, self.vocab.token_bytes, self.vocab.token_offsets)

    def _bytes_of(self, text: Text) -> bytes | None:
        """The bytes that `_draw` takes instead of the ids of ``text``; None: it needs the ids."""
        return self.vocab.text_bytes(text)

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        """Upper bound of the ids in a draw of texts with this many tokens and bytes.

        Memory safety depends on it: kernels write this many ids without bounds checks.
        """
        return size  # no token of a text is shorter than a byte

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        """Draw texts first..last of a kernels.batch.Batch: ids to ``out``, ends to ``ends``.

        By default each draw is a call of ``draw``. Its generator is Philox with the stream's first
        state as its key, so a draw depends on seed, epoch, key, draw number and part of the row
        alone.
        """
        rows = []
        for t in range(first, last):
            ids = batch.values[batch.offsets[t] : batch.offsets[t + 1]].copy()
            ids.flags.writeable = False
            for d in range(int(batch.draws)):
                row = ids
                if len(ids):
                    key = stream(
                        batch.seed, batch.epoch, batch.keys[t], np.int64(d), batch.parts[t]
                    )
                    random = np.random.Generator(np.random.Philox(key=int(key)))
                    row = _checked_draw(self, ids, self.draw(ids, random))
                rows.append(row)
        write_rows(rows, out, ends)

    def _draw_batch(self, batch: kernels.Batch) -> tuple[np.ndarray, np.ndarray]:
        """Draw all texts of a batch of ids: ids, and the offsets of the draws, for other schemes.

        int32 [ids or more], int64 [texts * draws + 1].
        """
        draws = int(batch.draws)
        size = int(self.vocab.token_lengths[batch.values].sum())
        out = np.empty(size * draws, np.int32)  # no token is shorter than a byte
        offsets = np.zeros(len(batch.keys) * draws + 1, np.int64)
        self._draw(self._input_of(batch), 0, len(batch.keys), out, offsets[1:])
        return out, offsets

    def __repr__(self) -> str:
        return f"<{self.spec}>"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}


def sampler(spec: str | Spec | Sampler, vocab: Vocabulary) -> Sampler:
    """The sampler of a spec.

    >>> sampler("uniform-k(alpha=.50)", vocab).spec
    'uniform-k(alpha=0.5)'

    Args:
        spec: a string or a :class:`robustok.Spec`; a sampler is returned as it is.
        vocab: the vocabulary whose texts are tokenized.

    Raises RobustokError for an unknown scheme or parameter, naming the nearest, for a tokenizer
    that does not fit the scheme, and for a sampler of another vocabulary.
    """
    check_vocabulary(vocab)
    if isinstance(spec, Sampler):
        check_vocabulary_of(spec, vocab)
        return spec
    parsed = Spec.parse(spec)
    return scheme_class(parsed.name)(vocab, **parsed.params)


def check_vocabulary_of(scheme: Sampler | Schedule, vocab: Vocabulary) -> None:
    """Raise RobustokError for a sampler or a schedule of another vocabulary."""
    if scheme.vocab is not vocab and scheme.vocab.fingerprint != vocab.fingerprint:
        raise RobustokError(
            f"{scheme.spec} is a sampler of another vocabulary ({scheme.vocab}): make it for "
            f"{vocab}"
        )


@dataclass(frozen=True)
class Schedule:
    """A scheme whose strength moves while a model trains, or one that stays as it is.

    >>> moving = rt.schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.0).spec, moving.at(1.0).spec
    ('stochastok(alpha=0.1)', 'stochastok(alpha=1)')

    Args:
        spec: the normalized spec string of the whole schedule.
        vocab: the vocabulary whose texts are tokenized.
    """

    spec: str
    vocab: Vocabulary

    @cached_property
    def is_constant(self) -> bool:
        """Whether the scheme is the same at all times."""
        return not self._parsed.is_schedule

    @cached_property
    def _parsed(self) -> Spec:
        return Spec.parse(self.spec)

    @cached_property
    def _fixed(self) -> Sampler | None:
        return sampler(self._parsed, self.vocab) if self.is_constant else None

    def at(self, progress: float) -> Sampler:
        """The sampler at ``progress``, from 0 (first step) to 1 (last)."""
        return self._fixed or sampler(self._parsed.at(progress), self.vocab)


def schedule(spec: str | Spec, vocab: Vocabulary) -> Schedule:
    """Read a scheme or a schedule, and check that both its ends are schemes of the vocabulary.

    >>> moving = schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.5).spec
    'stochastok(alpha=0.55)'

    Args:
        spec: a spec string or a :class:`robustok.Spec`, with or without ramps such as ``0.1->1``.
        vocab: the vocabulary whose texts are tokenized.

    Raises RobustokError as :func:`robustok.sampler` does.
    """
    parsed = Spec.parse(spec)
    for progress in (0.0, 1.0):
        sampler(parsed.at(progress), vocab)
    return Schedule(str(parsed), vocab)


def texts_of(vocab: Vocabulary, ids: np.ndarray) -> list[np.ndarray]:
    """The texts of a row: the runs of ids between special ones, int32 each, none empty."""
    runs = np.split(ids, np.flatnonzero(np.diff(vocab.readable[ids])) + 1)
    return [run for run in runs if len(run) and vocab.readable[run[0]]]


def _draw_bytes(sampler: Sampler, texts: Sequence[bytes], keys: np.ndarray, plan: Plan) -> Ragged:
    """Draw every text given as bytes, for schemes that skip the encoding."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    flat = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    parts = np.zeros(len(texts), np.int64)
    return _draw_texts(sampler, flat, offsets, offsets, keys, parts, plan)


def _draw_rows(
    sampler: Sampler, rows: Ragged, keep: np.ndarray | None, keys: np.ndarray, plan: Plan
) -> Ragged:
    """Draw every row. Special and kept ids stay in place; the ids between two are one text."""
    vocab = sampler.vocab
    any_fixed, byte_offsets = _survey(vocab, rows, plan.threads)
    if keep is None and not any_fixed:
        parts = np.zeros(len(rows), np.int64)
        return _draw_texts(sampler, rows.values, rows.offsets, byte_offsets, keys, parts, plan)
    fixed = ~vocab.readable[rows.values]
    if keep is not None:
        fixed |= np.asarray(keep, np.bool_)
    texts = kernels.split_at_fixed(rows.offsets, fixed)
    values, offsets = kernels.gather(rows.values, texts)
    byte_offsets = np.empty(len(offsets), np.int64)
    kernels.survey(values, offsets, vocab.readable, vocab.token_offsets, byte_offsets)
    parts = texts[:, 1].copy()
    drawn = _draw_texts(sampler, values, offsets, byte_offsets, keys[texts[:, 0]], parts, plan)
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
    jobs = _spread(len(rows), rows.offsets, threads if many else 1)
    surveys = _in_threads(jobs, work)
    if any(bad >= 0 for bad, _ in surveys):
        check_ids(rows.values, vocab.size)
    for first, last in jobs:
        byte_offsets[first + 1 : last + 1] += byte_offsets[first]
    return any(any_fixed for _, any_fixed in surveys), byte_offsets


def _draw_texts(
    sampler: Sampler,
    values: np.ndarray,
    offsets: np.ndarray,
    byte_offsets: np.ndarray,
    keys: np.ndarray,
    parts: np.ndarray,
    plan: Plan,
) -> Ragged:
    """Draw every text, given as ids, or as bytes (uint8) for schemes that skip the encoding.

    ``offsets``: int64 [texts + 1], where each begins in ``values``. ``byte_offsets``: int64
    [texts + 1], the bytes before each.
    """
    batch = sampler._input_of(
        kernels.Batch(values, offsets, keys, parts, plan.seed, plan.epoch, np.int64(plan.draws))
    )
    jobs = _spread(len(offsets) - 1, byte_offsets, plan.threads)
    sizes = []
    for first, last in jobs:  # Python integers do not overflow
        tokens, size = (
            int(offsets[last] - offsets[first]),
            int(byte_offsets[last] - byte_offsets[first]),
        )
        sizes.append(plan.draws * sampler._max_ids(last - first, tokens, size))
    if (len(offsets) - 1) * plan.draws > _MOST_DRAWS or sum(sizes) >= _MOST_IDS:
        raise MemoryError
    starts = np.cumsum([0, *sizes])
    out = np.empty(starts[-1], np.int32)
    ends = np.zeros((len(offsets) - 1) * plan.draws + 1, np.int64)

    def work(job: int) -> None:
        first, last = jobs[job]
        job_ends = ends[first * plan.draws + 1 : last * plan.draws + 1]
        sampler._draw(batch, first, last, out[starts[job] : starts[job + 1]], job_ends)

    _in_threads([(job,) for job in range(len(jobs))], work)
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


def write_rows(rows: Sequence[np.ndarray], out: np.ndarray, ends: np.ndarray) -> None:
    """Write draws as ``_draw`` does: ids to ``out`` one row after another, ends to ``ends``."""
    if rows:
        ends[:] = np.cumsum([len(row) for row in rows])
        out[: ends[-1]] = np.concatenate(rows)


def _spread(total: int, weights: np.ndarray, threads: int) -> list[tuple[int, int]]:
    """Cut ``total`` texts into runs of about equal weight, one a thread.

    ``weights`` (int64 of shape [total + 1]) is the weight before each text.
    """
    if threads == 1 or total < 2 or weights[-1] < _SMALL:
        return [(0, total)]
    marks = np.searchsorted(weights, np.linspace(0, weights[-1], threads + 1)[1:-1])
    edges = sorted({0, *marks.tolist(), total})
    return list(itertools.pairwise(edges))


def _in_threads(jobs: list[Any], work: Any) -> list[Any]:
    """``work(*job)`` for each job, on as many threads as there are jobs.

    The caller's thread takes the first job. If it slept, the scheduler would keep its core for it
    for a while, and two of the other threads would share one.
    """
    if len(jobs) == 1:
        return [work(*jobs[0])]
    with ThreadPoolExecutor(len(jobs) - 1) as pool:
        others = [pool.submit(work, *job) for job in jobs[1:]]
        return [work(*jobs[0]), *(job.result() for job in others)]


def _checked_draw(scheme: Sampler, ids: np.ndarray, drawn: Any) -> np.ndarray:
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
            f"{scheme.name}: draw returned ids of another text: {shown(drawn_text)}, not "
            f"{shown(text)}"
        )
    return rows


def _check_keep(keep: Any, rows: Ragged) -> np.ndarray | None:
    if keep is None:
        return None
    try:
        marks = np.asarray(keep)
    except (TypeError, ValueError):
        marks = np.empty(0, np.object_)
    if marks.shape != rows.values.shape or (marks.dtype != np.bool_ and marks.size):
        raise RobustokError("keep marks ids: one bool for each id of the batch")
    return marks.astype(np.bool_)


@cache
def cores_read_once() -> int:
    """`processes.available_cores`, cached: a container's quota takes 0.3 ms to read."""
    return available_cores()


def _threads(threads: int | None) -> int:
    cores = cores_read_once()
    if threads is None:
        return cores
    return min(check_integer("threads", threads, 1), max(_MOST_THREADS, cores))
