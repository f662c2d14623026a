"""What every scheme shares: rows in, rows out, and a result that depends on nothing else.

A scheme draws for one *text*: a stretch of ordinary tokens. This room cuts rows into texts at
special tokens and kept spans, spreads texts over threads, and puts rows together again.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np

from robustok.checks import (
    MAX_COUNT,
    check_epoch,
    check_ids,
    check_integer,
    check_keys,
    check_list,
    check_seed,
    check_texts,
)
from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.samplers.texts import texts_of
from robustok.vocabulary import Text, Vocabulary, check_vocabulary

_SMALL = 1 << 16  # tokens; a smaller batch is not worth a second thread
_MOST_THREADS = 64  # more than these and than there are cores gain nothing


class Sampler(ABC):
    """A probability distribution over the tokenizations of a text.

    >>> s = rt.sampler("uniform-k(alpha=1)", vocab)
    >>> [vocab.tokens[i] for i in s.sample("hello world", seed=0)]
    [b'hell', b'o', b' world']
    >>> s.sample_batch(["hello world", "the"], seed=0, draws=3).offsets
    array([ 0,  3,  6,  9, 10, 11, 12])

    Draws are counter-based: row, (seed, epoch, key, draw number) and nothing else decide.
    """

    name: ClassVar[str]
    example: ClassVar[str]  # a spec that works with every vocabulary the scheme can read
    inner: ClassVar[str] = ""  # the parameter that takes what a spec gives without a name

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocab = check_vocabulary(vocab)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that differ from their defaults, and the strength."""
        return {}

    @property
    def spec(self) -> str:
        """The normalized spec string; ``sampler(s.spec, vocab)`` makes an equal sampler."""
        inside = ", ".join(f"{k}={show(v)}" for k, v in self.parameters.items())
        return f"{self.name}({inside})" if inside else self.name

    def sample(
        self,
        text: Text | Sequence[int] | np.ndarray,
        *,
        seed: int,
        key: int = 0,
        epoch: int = 0,
        keep: np.ndarray | None = None,
    ) -> np.ndarray:
        """Draw one tokenization: ids, int32 of shape [tokens].

        ``text`` is a string, bytes, or its canonical ids. ``keep`` marks ids that stay as they
        are (bool, one per id). The same as one row of :meth:`sample_batch`.
        """
        key = check_integer("key", key, -(2**63), 2**63 - 1)
        rows: list[Any] = [text]
        return self.sample_batch(rows, seed=seed, keys=[key], epoch=epoch, keep=keep)[0]

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

        ``texts`` are strings, bytes, or canonical ids (a Ragged or a list of sequences). ``keys``
        names the rows (int64; default: their position), so that a row keeps its draws in any
        order or batch. ``keep`` is bool, aligned with the ids of all rows one after another.
        ``threads`` changes the time only. ``seed`` is any integer (its lowest 64 bits count), a key
        and ``epoch`` fit int64, ``draws`` is from 1 to 2**31 - 1. Raises RobustokError for anything
        else, for ids outside the vocabulary, and where the draws need more memory than there is.
        """
        draws = check_integer("draws", draws, 1, MAX_COUNT)
        rows = texts if isinstance(texts, Ragged) else check_list("texts", texts)
        keys_ = check_keys(keys, len(rows))
        seed_, epoch_ = check_seed(seed), check_epoch(epoch)
        from robustok.kernels.announce import announce_compilation
        from robustok.samplers import run

        announce_compilation()

        plan = run.Plan(np.uint64(seed_), np.int64(epoch_), draws, _threads(threads))
        try:
            if rows and isinstance(rows[0], (str, bytes)):
                texts_ = check_texts(rows)
                if keep is None and (drawn := self._draw_strings(texts_, keys_, plan)) is not None:
                    return drawn
                rows = self.vocab.encode_batch(texts_)
            ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
            return run.draw_rows(self, ragged, _check_keep(keep, ragged), keys_, plan)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: {draws} draws of {len(rows)} rows do not fit into memory: "
                "draw less at a time"
            ) from e

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log-probability that this scheme draws exactly ``ids`` for the text they spell.

        Minus infinity where it never does. Ids that are no text (special tokens) stay where they
        are: each stretch between them is a text of its own, and their log-probabilities add up.
        Raises RobustokError for ids outside the vocabulary, for a scheme without an exact
        probability, and where the tokenizer's normalizer changes the text.
        """
        given = check_ids(ids, self.vocab.size)
        texts = texts_of(self.vocab, given)
        return float(sum(self._log_prob_text(text) for text in texts or [given[:0]]))

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The same for the ids of one text; 0 for an empty one."""
        raise RobustokError(
            f"{self.name} has no exact log_prob: its draws reach one result in very many ways "
            "(exact: canonical, uniform, uniform-k, stochastok-uniform, grampa, unigram, "
            "maxmatch-dropout and mixtures of these)"
        )

    def _draw_strings(self, rows: Any, keys: np.ndarray, plan: Any) -> Ragged | None:
        """Draw straight from strings where a scheme needs no canonical ids; None: it does."""
        return None

    @property
    def inner_samplers(self) -> Sequence[Sampler]:
        """The samplers that this one draws by."""
        return ()

    def _prepare(self, batch: Any) -> Any:
        """The batch as the scheme's kernel wants it, made once for all threads."""
        return batch

    def _room(self, texts: int, tokens: int, size: int) -> int:
        """The most tokens that a draw of texts of so many tokens and bytes can have."""
        return size  # no token is shorter than a byte

    @abstractmethod
    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        """Draw texts first..last of a kernels.batch.Batch: ids to ``out``, ends to ``ends``."""

    def __repr__(self) -> str:
        return f"<{self.spec}>"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def show(value: Any) -> str:
    """A parameter as a spec has it: read back it is the same value."""
    if isinstance(value, str):
        return f'"{value}"'
    short = f"{value:g}"
    return short if float(short) == value else str(value)


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


def _threads(threads: int | None) -> int:
    cores = os.cpu_count() or 1
    if threads is None:
        return cores
    return min(check_integer("threads", threads, 1), max(_MOST_THREADS, cores))


def spread(total: int, weights: np.ndarray, threads: int) -> list[tuple[int, int]]:
    """Cut ``total`` texts into runs of about equal weight, one a thread."""
    if threads == 1 or total < 2 or weights[-1] < _SMALL:
        return [(0, total)]
    marks = np.searchsorted(weights, np.linspace(0, weights[-1], threads + 1)[1:-1])
    edges = sorted({0, *marks.tolist(), total})
    return list(itertools.pairwise(edges))


def in_threads(jobs: list[Any], work: Any) -> list[Any]:
    """``work(*job)`` for each job, on as many threads as there are jobs.

    The caller's thread takes the first: one that sleeps would still hold its core in the eyes of
    the system for a while, and two of the others would share one.
    """
    if len(jobs) == 1:
        return [work(*jobs[0])]
    with ThreadPoolExecutor(len(jobs) - 1) as pool:
        others = [pool.submit(work, *job) for job in jobs[1:]]
        return [work(*jobs[0]), *(job.result() for job in others)]
