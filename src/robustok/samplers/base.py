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

from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.vocabulary import Text, Vocabulary

_SMALL = 1 << 16  # tokens; a smaller batch is not worth a second thread
_MASK = (1 << 64) - 1


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
        self.vocab = vocab

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that differ from their defaults, and the strength."""
        return {}

    @property
    def spec(self) -> str:
        """The normalized spec string; ``sampler(s.spec, vocab)`` makes an equal sampler."""
        inside = ", ".join(f"{k}={_show(v)}" for k, v in self.parameters.items())
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
        rows = [text] if isinstance(text, (str, bytes)) else Ragged.from_rows([text])
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
        ``threads`` changes the time only. Raises RobustokError for ids outside the vocabulary.
        """
        if draws < 1:
            raise RobustokError(f"draws={draws}: ask for at least 1")
        rows = texts if isinstance(texts, Ragged) else list(texts)
        count = len(rows)
        seed_, epoch_ = _integer("seed", seed) & _MASK, _integer("epoch", epoch)
        if keys is None:
            keys_ = np.arange(count, dtype=np.int64)
        else:
            keys_ = np.asarray(keys, dtype=np.int64)
            if keys_.shape != (count,):
                raise RobustokError(f"{len(keys_)} keys for {count} rows: give one key a row")
        from robustok.kernels.announce import announce_compilation
        from robustok.samplers import run

        announce_compilation()

        plan = run.Plan(np.uint64(seed_), np.int64(epoch_), draws, _threads(threads))
        if rows and not isinstance(rows, Ragged) and isinstance(rows[0], (str, bytes)):
            if keep is None and (drawn := self._draw_strings(rows, keys_, plan)) is not None:
                return drawn
            rows = self.vocab.encode_batch(rows)  # type: ignore[arg-type]
        ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)  # type: ignore
        if keep is not None and np.shape(keep) != ragged.values.shape:
            raise RobustokError("keep marks ids: one bool for each id of the batch")
        return run.draw_rows(self, ragged, keep, keys_, plan)

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log-probability that this scheme draws exactly ``ids`` for their text."""
        raise RobustokError(
            f"{self.name} has no exact log_prob: its draws reach one result in very many ways "
            "(exact: canonical, uniform, uniform-k, stochastok-uniform, grampa, unigram, "
            "maxmatch-dropout and mixtures of these)"
        )

    def _draw_strings(self, rows: Any, keys: np.ndarray, plan: Any) -> Ragged | None:
        """Draw straight from strings where a scheme needs no canonical ids; None: it does."""
        return None

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


def strength(name: str, value: float, scheme: str) -> float:
    """A strength as float: finite and not negative, or a RobustokError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RobustokError(f"{scheme}: {name} must be a number, not {value!r}") from None
    if not 0 <= number < float("inf"):
        raise RobustokError(f"{scheme}: {name} must be 0 or more and finite, not {value}")
    return number


def _show(value: Any) -> str:
    return (
        f'"{value}"' if isinstance(value, str) else f"{value:g}" if value == value else str(value)
    )


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise RobustokError(f"{name} must be an integer, not {value!r}: every draw needs a seed")
    return int(value)


def _threads(threads: int | None) -> int:
    if threads is None:
        return os.cpu_count() or 1
    if threads < 1:
        raise RobustokError(f"threads={threads}: ask for at least 1")
    return threads


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
