"""The base class of all schemes: checks, texts and rows, threads, special tokens, keys of draws.

A scheme draws for one *text*: a run of ordinary tokens. This module checks the input, cuts rows
into texts at fixed ids (special, placed and kept ones), spreads the texts over threads, and joins
the rows again.

A scheme overrides ``draw`` (plain Python, one text at a time), or ``_draw`` for a kernel, with
``_max_ids``; ``_reads_bytes`` where the kernel reads the bytes of a text in place of its ids; and
``_log_prob_text`` (set ``exact``), with ``_reads_canonical = False`` where that does not need the
canonical ids. Attributes whose names start with ``_`` are caches: they are not pickled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from robustok.checks import (
    MAX_COUNT,
    check_draw,
    check_ids,
    check_integer,
    check_keys,
    check_list,
    check_text,
    shown,
)
from robustok.errors import RobustokError
from robustok.kernels import batch as kernels
from robustok.kernels.numbers import stream
from robustok.ragged import Ragged
from robustok.runtime.environment import available_cores, computed_once
from robustok.samplers.spec import SCHEMES, Scheme, Spec, has_ramp, spec_string
from robustok.tokenizer.data import Text
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

_MOST_THREADS = 64  # more than these and than there are cores gain nothing
_SMALL_BYTES = 1 << 16  # bytes of text; a smaller batch is not worth a second thread
_MANY_IDS = 1 << 19  # ids of a batch that are checked in threads
_MOST_IDS = 2**48  # more than any machine holds, and far from the end of int64
_MOST_DRAWS = 2**28  # draws of one call, which cost time even of an empty text
_FEW_IDS = 64  # ids of one call whose bytes Python joins faster than kernels
_ONE_DRAW = np.int64(1)
_FIRST_PART = np.zeros(1, np.int64)


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

    _reads_bytes: bool = False
    _reads_canonical: bool = True

    def __init__(self, vocab: Vocabulary, **params: object) -> None:
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
        for name, parameter in self.parameters.items():
            setattr(self, name, self.params.get(name, parameter.default))
        stream.prepare()  # processes that are forked from now on share the memory of numba

    @classmethod
    def _check_complete(cls) -> None:
        super()._check_complete()
        if cls.draw is Sampler.draw and cls._draw is Sampler._draw:
            raise RobustokError(f"{cls.name} needs a method draw(self, ids, random)")
        draw_class, kernel_class = (
            next(base for base in cls.__mro__ if method in vars(base))
            for method in ("draw", "_draw")
        )
        has_kernel = kernel_class is not Sampler and draw_class is not kernel_class
        if has_kernel and issubclass(draw_class, kernel_class):
            raise RobustokError(
                f"{cls.name}: {kernel_class.__name__} does not call draw, so this one would have "
                "no effect: derive from robustok.Sampler"
            )

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
        seed_, epoch_, key = check_draw(seed, epoch, key)
        try:
            values, size = self._values_of(text)
            offsets, keys = np.array([0, len(values)]), np.array([key])
            batch = kernels.Batch(values, offsets, keys, _FIRST_PART, seed_, epoch_, _ONE_DRAW)
            if size is None:
                return _draw_rows(self, batch, None, 1).values
            out, ends = np.empty(size, np.int32), np.zeros(1, np.int64)
            self._draw(batch, 0, 1, out, ends)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: the text is too long for one call: draw from its parts"
            ) from e
        total = int(ends[0])
        return out[:total].copy() if 2 * total < size else out[:total]

    def _values_of(self, text: object) -> tuple[np.ndarray, int | None]:
        """The ids or bytes of one row that ``_draw`` reads, and the number of bytes of its text.

        The number is None where some id is fixed or outside the vocabulary.
        """
        vocab = self.vocab
        if isinstance(text, (str, bytes)):
            if self._reads_bytes and vocab.spells_ordinary and isinstance(text, str) and text:
                check_text(text)
                raw = bytearray(text, "utf8")
                return np.frombuffer(raw, np.uint8), len(raw)
            ids = vocab.encode(text)
        elif isinstance(text, (list, tuple)) and text and isinstance(text[0], (str, bytes)):
            raise RobustokError("sample takes one text: use sample_batch for a list of texts")
        else:
            ids = np.array(check_ids(text))  # contiguous and writable, as the kernels need it
        text_bytes = vocab.plain_bytes(ids.tolist()) if len(ids) < _FEW_IDS else None
        if text_bytes is not None:
            values = np.frombuffer(bytearray(text_bytes), np.uint8) if self._reads_bytes else ids
            return values, len(text_bytes)
        offsets, byte_offsets = np.array([0, len(ids)]), np.empty(2, np.int64)
        surveyed: Any = kernels.survey(
            ids, offsets, vocab.ordinary, vocab.token_offsets, byte_offsets
        )
        first_bad, any_fixed = surveyed
        return ids, None if first_bad >= 0 or any_fixed else int(byte_offsets[1])

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
        rows: Any = texts if isinstance(texts, Ragged) else check_list("texts", texts)
        keys_ = check_keys(keys, len(rows))
        seed_, epoch_, _ = check_draw(seed, epoch, 0)
        threads = _threads(threads)
        parts = np.zeros(len(keys_), np.int64)
        try:
            if rows and isinstance(rows[0], (str, bytes)):
                if self._reads_bytes and keep is None:
                    rows, spelled = self.vocab.encode_spelled(rows)
                    if spelled is not None:
                        batch = kernels.Batch(
                            *spelled, keys_, parts, seed_, epoch_, np.int64(draws)
                        )
                        return draw_texts(self, batch, spelled[1], threads)
                else:
                    rows = self.vocab.encode_batch(rows)
            ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
            batch = kernels.Batch(
                ragged.values, ragged.offsets, keys_, parts, seed_, epoch_, np.int64(draws)
            )
            return _draw_rows(self, batch, _check_keep(keep, ragged), threads)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: {draws} draws of {len(keys_)} rows are too many for one "
                "call: draw less at a time"
            ) from e

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log-probability that this scheme draws exactly ``ids`` for the text they spell.

        Args:
            ids: ids of the vocabulary, integers [n].

        Minus infinity for ids that it never draws. Special ids, added tokens and unknown ones stay
        where they are: the ids between them are drawn on their own, and their log-probabilities
        add up. Raises RobustokError for ids outside the vocabulary, for a scheme without an exact
        probability, and, of a scheme that draws from the canonical ids, where the tokenizer's
        normalizer changes the text.
        """
        vocab = self.vocab
        checked = check_ids(ids, vocab.size)
        texts = texts_of(vocab, checked)
        fixed = checked[~vocab.ordinary[checked]]
        # Only the tokenizer knows where a second id of the same bytes is canonical.
        needs_canonical = self._reads_canonical or vocab.has_seconds or vocab.is_second[fixed].any()
        if not needs_canonical:
            return float(sum(self._log_prob_text(text, text) for text in texts))
        canonical = vocab.canonicalize(checked)
        canonical_texts = texts_of(vocab, canonical)
        is_equal = fixed.tolist() == canonical[~vocab.ordinary[canonical]].tolist()
        if not is_equal or len(texts) != len(canonical_texts):
            return -np.inf
        pairs = list(zip(texts, canonical_texts, strict=True)) or [(checked[:0], checked[:0])]
        if any(vocab.decode_bytes(drawn) != vocab.decode_bytes(source) for drawn, source in pairs):
            return -np.inf
        return float(sum(self._log_prob_text(drawn, source) for drawn, source in pairs))

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """The log-probability of the ids of one text; 0 for an empty text.

        ``canonical``: the canonical ids, int32 [m]; any ids where ``_reads_canonical`` is False.
        """
        exact = ", ".join(name for name, scheme in SCHEMES.items() if scheme.exact)
        raise RobustokError(f"{self.name} has no exact log_prob (exact: {exact})")

    def draw(self, ids: np.ndarray, random: np.random.Generator) -> Any:
        """Draw one tokenization of one text: its ids, as a list or an integer array.

        Args:
            ids: canonical ids of the text, int32 [tokens], read-only, at least one.
            random: a generator of this draw alone, seeded by seed, epoch, key, draw number and the
                text's place in its row.

        The base class checks that the returned ids spell the text of ``ids``.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method draw(self, ids, random)")

    def _max_ids(self, texts: int, tokens: int, size: int) -> int:
        """Upper bound of the ids in a draw of texts with this many canonical tokens and bytes.

        ``out`` has so many entries for each draw, and kernels write without bounds checks: a bound
        that is too small corrupts memory.
        """
        return size  # no token of a text is shorter than a byte

    def _draw(
        self, batch: kernels.Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray
    ) -> None:
        """Draw texts first..last, all draws of a text one after another; called in several threads.

        The ids go to ``out`` (int32), the end of each draw in ``out`` to ``ends`` (int64 [(last -
        first) * draws]). By default each draw is a call of ``draw``, whose generator is Philox with
        the stream's first state as its key.
        """
        rows = []
        for t in range(first, last):
            ids = batch.values[batch.offsets[t] : batch.offsets[t + 1]].copy()
            ids.flags.writeable = False
            for d in range(int(batch.draws)):
                row = ids
                if len(ids):
                    philox_key = stream(
                        batch.seed, batch.epoch, batch.keys[t], np.int64(d), batch.parts[t]
                    )
                    random = np.random.Generator(np.random.Philox(key=int(philox_key)))
                    row = _checked_draw(self, ids, self.draw(ids, random))
                rows.append(row)
        write_rows(rows, out, ends)

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
    check_order(spec, vocab)
    if isinstance(spec, Sampler):
        check_vocabulary_of(spec, vocab)
        return spec
    parsed = Spec.parse(spec)
    return SCHEMES[parsed.name](vocab, **parsed.params)


def check_order(spec: object, vocab: object) -> None:
    """Raise RobustokError unless the second argument is the vocabulary."""
    if isinstance(spec, Vocabulary):
        raise RobustokError(
            "the arguments are exchanged: the scheme comes first, as in sampler('uniform', vocab)"
        )
    check_vocabulary(vocab)


def check_vocabulary_of(scheme: Sampler | Schedule, vocab: Vocabulary) -> None:
    """Raise RobustokError for what is no sampler or schedule, and for one of another vocabulary."""
    if not isinstance(scheme, Sampler | Schedule):
        raise RobustokError(
            f"{shown(scheme)} is no sampler: make one with rt.sampler(spec, vocab), or a schedule"
        )
    if scheme.vocab is not vocab and scheme.vocab.fingerprint != vocab.fingerprint:
        raise RobustokError(
            f"{scheme.spec} is a sampler of another vocabulary ({scheme.vocab}): make it for "
            f"{vocab}"
        )


@dataclass(frozen=True)
class Schedule:
    """A scheme whose strength changes while a model trains, or a constant one.

    >>> moving = rt.schedule("stochastok(alpha=0.1->1)", vocab)
    >>> moving.at(0.0).spec, moving.at(1.0).spec
    ('stochastok(alpha=0.1)', 'stochastok(alpha=1)')

    Args:
        spec: the normalized spec string of the whole schedule.
        vocab: the vocabulary whose texts are tokenized.
    """

    spec: str
    vocab: Vocabulary

    @property
    def is_constant(self) -> bool:
        """Whether the scheme is the same at all times."""
        return self._fixed is not None

    @computed_once
    def _fixed(self) -> Sampler | None:
        spec = Spec.parse(self.spec)
        return None if spec.is_schedule else sampler(spec, self.vocab)

    def at(self, progress: float) -> Sampler:
        """The sampler at ``progress``, from 0 (first step) to 1 (last)."""
        return self._fixed or sampler(Spec.parse(self.spec).at(progress), self.vocab)


STAGES = 1000  # moments of a schedule, to limit the number of samplers


def at_stage(moving: Schedule, done: int, total: int) -> Sampler:
    """The sampler of a schedule after ``done`` of ``total`` steps or rows."""
    return moving.at(min(STAGES, done * STAGES // max(total, 1)) / STAGES)


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
    check_order(spec, vocab)
    parsed = Spec.parse(spec)
    for progress in (0.0, 1.0):
        sampler(parsed.at(progress), vocab)
    return Schedule(str(parsed), vocab)


def texts_of(vocab: Vocabulary, ids: np.ndarray) -> list[np.ndarray]:
    """The texts of a row: the runs of ids between fixed ones, int32 each, none empty."""
    runs = np.split(ids, np.flatnonzero(np.diff(vocab.ordinary[ids])) + 1)
    return [run for run in runs if vocab.ordinary[run[:1]].any()]


def _draw_rows(
    sampler: Sampler, batch: kernels.Batch, keep: np.ndarray | None, threads: int
) -> Ragged:
    """Draw every row. Fixed ids stay in place; each run of ids between them is one text.

    ``batch``: rows of ids that may be fixed, or outside the vocabulary.
    """
    vocab = sampler.vocab
    any_fixed, byte_offsets = _survey(vocab, batch.values, batch.offsets, threads)
    if keep is None and not any_fixed:
        return draw_texts(sampler, batch, byte_offsets, threads)
    is_fixed = ~vocab.ordinary[batch.values]
    if keep is not None:
        is_fixed |= keep
    texts = kernels.split_at_fixed(batch.offsets, is_fixed)
    values, offsets = kernels.gather(batch.values, texts)
    _, byte_offsets = _survey(vocab, values, offsets, threads)
    keys, parts = batch.keys[texts[:, 0]], texts[:, 1].copy()
    text_batch = batch._replace(values=values, offsets=offsets, keys=keys, parts=parts)
    samples = draw_texts(sampler, text_batch, byte_offsets, threads)
    return Ragged(
        *kernels.reassemble(
            batch.values,
            batch.offsets,
            is_fixed,
            texts,
            int(batch.draws),
            samples.values,
            samples.offsets,
        )
    )


def _survey(
    vocab: Vocabulary, values: np.ndarray, offsets: np.ndarray, threads: int
) -> tuple[bool, np.ndarray]:
    """Whether some id is fixed, and the bytes before each row; checks all ids.

    `kernels.survey` in threads: one alone takes a fifth of the time of `stochastok(alpha=0.1)`.
    """
    byte_offsets = np.zeros(len(offsets), np.int64)

    def work(first: int, last: int) -> tuple[int, bool]:
        sizes = np.empty(last - first + 1, np.int64)
        surveyed: Any = kernels.survey(
            values, offsets[first : last + 1], vocab.ordinary, vocab.token_offsets, sizes
        )
        byte_offsets[first + 1 : last + 1] = sizes[1:]
        return surveyed

    jobs = _spread(len(offsets) - 1, offsets, threads if len(values) >= _MANY_IDS else 1)
    surveys = _in_threads(jobs, work)
    if any(bad >= 0 for bad, _ in surveys):
        check_ids(values, vocab.size)
    for first, last in jobs:
        byte_offsets[first + 1 : last + 1] += byte_offsets[first]
    return any(any_fixed for _, any_fixed in surveys), byte_offsets


def draw_texts(
    sampler: Sampler, batch: kernels.Batch, byte_offsets: np.ndarray, threads: int
) -> Ragged:
    """Draw every text of a batch; ``byte_offsets``: int64 [texts + 1], the bytes before each."""
    texts, draws = len(batch.keys), int(batch.draws)
    jobs = _spread(texts, byte_offsets, threads)
    starts = [0]  # of each thread in ``out``; Python integers do not overflow
    for first, last in jobs:
        tokens, size = (int(x[last] - x[first]) for x in (batch.offsets, byte_offsets))
        starts.append(starts[-1] + draws * sampler._max_ids(last - first, tokens, size))
    if texts * draws > _MOST_DRAWS or starts[-1] >= _MOST_IDS:
        raise MemoryError
    out, ends = np.empty(starts[-1], np.int32), np.zeros(texts * draws + 1, np.int64)
    ends_of = [ends[first * draws + 1 : last * draws + 1] for first, last in jobs]

    def work(job: int) -> None:
        ids = out[starts[job] : starts[job + 1]]
        sampler._draw(batch, *jobs[job], ids, ends_of[job])

    _in_threads([(job,) for job in range(len(jobs))], work)
    total = 0
    for start, job_ends in zip(starts, ends_of, strict=False):
        # Move the ids of each thread next to those of the previous one.
        count = int(job_ends[-1]) if len(job_ends) else 0
        if start != total:
            # Through memoryview: numpy would first copy the overlap. Moving within touched pages is
            # cheaper than filling a new array.
            out.data[total : total + count] = out.data[start : start + count]
        job_ends += total
        total += count
    if 2 * total < len(out):  # a view would keep the whole array alive
        out.resize(total, refcheck=False)
    return Ragged(out[:total], ends)


def write_rows(rows: Sequence[np.ndarray], out: np.ndarray, ends: np.ndarray) -> None:
    """Write draws as ``_draw`` does: ids to ``out`` one row after another, ends to ``ends``."""
    if rows:
        ends[:] = np.cumsum([len(row) for row in rows])
        out[: ends[-1]] = np.concatenate(rows)


def _spread(total: int, weights: np.ndarray, threads: int) -> list[tuple[int, int]]:
    """Cut ``total`` texts into runs of about equal weight, one a thread.

    ``weights`` (int64 of shape [total + 1]) is the weight before each text.
    """
    if threads == 1 or total < 2 or weights[-1] < _SMALL_BYTES:
        return [(0, total)]
    cuts = np.searchsorted(weights, np.linspace(0, weights[-1], threads + 1)[1:-1])
    edges = sorted({0, *cuts.tolist(), total})
    return list(itertools.pairwise(edges))


def _in_threads(jobs: list[Any], work: Any) -> list[Any]:
    """``work(*job)`` for each job, on as many threads as there are jobs.

    The caller's thread takes the first job. If it slept, the scheduler would reserve its core for a
    while, and two other threads would share a core.
    """
    if len(jobs) == 1:
        return [work(*jobs[0])]
    with ThreadPoolExecutor(len(jobs) - 1) as pool:
        futures = [pool.submit(work, *job) for job in jobs[1:]]
        return [work(*jobs[0]), *(job.result() for job in futures)]


def _checked_draw(scheme: Sampler, ids: np.ndarray, draw: object) -> np.ndarray:
    """The ids of a draw; raises RobustokError where they do not spell the text of ``ids``."""
    vocab = scheme.vocab
    try:
        drawn_ids = check_ids(draw, vocab.size)
    except RobustokError as e:
        raise RobustokError(f"{scheme.name}: draw returned no ids of the tokenizer: {e}") from e
    if not vocab.ordinary[drawn_ids].all():
        raise RobustokError(
            f"{scheme.name}: draw returned an id that is not ordinary, such as a special token"
        )
    text, drawn_text = vocab.decode_bytes(ids), vocab.decode_bytes(drawn_ids)
    if text != drawn_text:
        raise RobustokError(
            f"{scheme.name}: draw returned ids of another text: {shown(drawn_text)}, not "
            f"{shown(text)}"
        )
    return drawn_ids


def _check_keep(keep: object, rows: Ragged) -> np.ndarray | None:
    if keep is None:
        return None
    try:
        is_kept = np.asarray(keep)
    except (TypeError, ValueError):
        is_kept = np.empty(0, np.object_)
    if is_kept.shape != rows.values.shape or (is_kept.dtype != np.bool_ and is_kept.size):
        raise RobustokError("keep marks ids: one bool for each id of the batch")
    return is_kept.astype(np.bool_)


@cache
def cores_read_once() -> int:
    """`available_cores`, cached: a container's quota takes 0.3 ms to read."""
    return available_cores()


def _threads(threads: int | None) -> int:
    cores = cores_read_once()
    if threads is None:
        return cores
    return min(check_integer("threads", threads, 1), max(_MOST_THREADS, cores))
