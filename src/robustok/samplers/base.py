"""The base class of all schemes: batches of rows, checks, special tokens, and keys of draws.

A scheme draws for one *text*: ordinary tokens without special ones between them. This class checks
the input; :mod:`robustok.samplers.run` cuts rows into texts at special tokens and kept spans,
spreads texts over threads, and puts rows together again.

A scheme overrides ``draw`` (plain Python, one text at a time), or these hooks for a kernel:

- ``_draw(batch, first, last, out, ends)`` writes the ids of texts first..last of a
  ``kernels.batch.Batch``, all draws of a text one after another, to ``out`` (int32), and the end of
  each draw in ``out`` to ``ends`` (int64 of shape [(last - first) * draws]). It runs in several
  threads at once, each with its own texts and arrays.
- ``_room(texts, tokens, size)`` is the most ids that one draw of so many texts can have, which have
  so many canonical tokens and bytes together. ``out`` has ``_room`` times ``draws`` entries, and
  kernels write without bounds checks: a value that is too small corrupts memory. The default, one
  id a byte, is always enough.
- ``_prepare(batch)`` converts the batch once, before the threads start.
- ``_from_bytes`` says that ``_prepare`` and ``_draw`` also take texts as bytes, without their ids,
  and ``_bytes_of(text)`` gives those of a text, or None where its ids are needed.
- ``_log_prob_text(ids)`` is the log-probability of the ids of one text (set ``exact``).

Attributes whose names start with ``_`` are caches: they are not pickled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from robustok.checks import (
    MAX_COUNT,
    check_epoch,
    check_ids,
    check_integer,
    check_key,
    check_keys,
    check_list,
    check_seed,
    check_text,
    check_texts,
)
from robustok.errors import RobustokError, nearest
from robustok.kernels.compiler.first_use import first_use
from robustok.ragged import Ragged
from robustok.samplers import run
from robustok.samplers.needs import Need
from robustok.samplers.parameters import REQUIRED, Inner, Parameter, Parts
from robustok.samplers.spec import has_ramp, spec_string
from robustok.samplers.texts import texts_of
from robustok.vocabulary import Text, Vocabulary, check_vocabulary

if TYPE_CHECKING:
    from robustok.lattice import Lattice

_MOST_THREADS = 64  # more than these and than there are cores gain nothing


class Sampler:
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

    name: ClassVar[str]
    example: ClassVar[str]  # a spec that works with every vocabulary that fits the scheme
    variants: ClassVar[tuple[str, ...]] = ()  # specs of further kernels: compiled early, tested
    parameters: ClassVar[Mapping[str, Parameter]] = {}  # in the order of the spec string
    strength: ClassVar[str] = ""  # the parameter that sets how far draws are from canonical
    given: ClassVar[
        Mapping[str, str]
    ] = {}  # measure: the scheme that is this one at an exact value
    nominal_splits: ClassVar[str | float | None] = None  # per canonical token: a number or the
    # parameter that holds it; the axis of the paper's figures
    exact: ClassVar[bool] = False  # whether log_prob is exact (of a mixture: where its parts are)
    deterministic: ClassVar[bool] = False  # whether the support is one tokenization
    repeats: ClassVar[bool] = False  # whether a draw may take many draws of an inner scheme
    needs: ClassVar[Need | None] = None  # from the tokenizer
    color: ClassVar[str] = ""  # in figures, as "#e69f00"; empty: one is chosen
    inner: ClassVar[str] = ""  # the parameter that takes schemes without a name; set by the base
    _from_bytes: bool = False  # whether strings need no canonical ids
    _only_bytes: ClassVar[bool] = False  # whether ids given for a text matter by their bytes alone

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        kinds = cls.parameters.items()
        cls.inner = next((n for n, kind in kinds if isinstance(kind, (Inner, Parts))), "")

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

    @classmethod
    def checked(cls, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters checked and normalized: the strength, and what differs from its default.

        >>> rt.StochasTok.checked({"ways": 2})
        {'alpha': 0.1}

        Args:
            params: values by parameter name; parameters without a value take their defaults.

        Raises RobustokError for an unknown name, a value out of range and a missing parameter.
        """
        for name in params:
            if name not in cls.parameters:
                known = nearest(name, cls.parameters) if cls.parameters else ""
                hint = known or f"{cls.name} takes none"
                raise RobustokError(f"{cls.name} has no parameter '{name}': {hint}")
        result = {}
        for name, kind in cls.parameters.items():
            value = params.get(name, kind.default)
            if value is REQUIRED:
                raise RobustokError(f"{cls.name} needs {name}, as {cls.example}")
            if value is None and kind.default is None:
                continue
            value = kind.check(cls.name, name, value)
            if name == cls.strength or value != kind.default:
                result[name] = value
        cls._check_together(result)
        return result

    @classmethod
    def _check_together(cls, params: Mapping[str, Any]) -> None:
        """Raise RobustokError for checked parameters that contradict each other."""

    @classmethod
    def with_strength(cls, params: Mapping[str, Any], value: float) -> dict[str, Any]:
        """The same parameters with another strength.

        Args:
            params: values by parameter name; they may lack required ones.
            value: value of the scheme's strength parameter.
        """
        return {**params, cls.strength: value}

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
        key = check_key(key)
        if keep is not None:
            rows: list[Any] = [text]
            return self.sample_batch(rows, seed=seed, keys=[key], epoch=epoch, keep=keep)[0]
        row = run.Row(key, np.uint64(check_seed(seed)), np.int64(check_epoch(epoch)))
        try:
            with first_use(self.name):
                if not isinstance(text, (str, bytes)):
                    return run.draw_row(self, np.array(check_ids(text)), row)
                return self._sample_text(check_text(text), row)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: the text is too long for one call: draw from its parts"
            ) from e

    def _sample_text(self, text: Text, row: Any) -> np.ndarray:
        spelled = self._bytes_of(text) if self._from_bytes else None
        if spelled is None:
            return run.draw_row(self, self.vocab.encode(text), row)
        return run.draw_text(self, np.frombuffer(bytearray(spelled), np.uint8), row)

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
        seed_, epoch_ = check_seed(seed), check_epoch(epoch)
        plan = run.Plan(np.uint64(seed_), np.int64(epoch_), draws, _threads(threads))
        try:
            with first_use(self.name):
                return self._sample_rows(rows, keep, keys_, plan)
        except MemoryError as e:
            raise RobustokError(
                f"{self.name}: {draws} draws of {len(rows)} rows are too many for one "
                "call: draw less at a time"
            ) from e

    def _sample_rows(self, rows: Any, keep: Any, keys: np.ndarray, plan: Any) -> Ragged:
        """Draw from a Ragged, or from a list of strings or of id sequences."""
        if rows and isinstance(rows[0], (str, bytes)):
            texts = check_texts(rows)
            if self._from_bytes and keep is None:
                spelled = [s for s in map(self._bytes_of, texts) if s is not None]
                if len(spelled) == len(texts):
                    return run.draw_bytes(self, spelled, keys, plan)
            rows = self.vocab.encode_batch(texts)
        ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
        return run.draw_rows(self, ragged, _check_keep(keep, ragged), keys, plan)

    def log_prob(self, ids: Sequence[int] | np.ndarray) -> float:
        """The log-probability that this scheme draws exactly ``ids`` for the text they spell.

        Args:
            ids: ids of the vocabulary, integers [n].

        Minus infinity for ids that it never draws. Special ids stay where they are: the ids between
        them are texts of their own, and their log-probabilities add up. Raises RobustokError for
        ids outside the vocabulary, for a scheme without an exact probability, and where the
        tokenizer's normalizer changes the text.
        """
        given = check_ids(ids, self.vocab.size)
        texts = texts_of(self.vocab, given)
        return float(sum(self._log_prob_text(text) for text in texts or [given[:0]]))

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """The same for the ids of one text; 0 for an empty one."""
        from robustok.samplers.registry import SCHEMES

        exact = ", ".join(name for name, scheme in SCHEMES.items() if scheme.exact)
        raise RobustokError(
            f"{self.name} has no exact log_prob: its draws reach one result in very many ways "
            f"(exact: {exact})"
        )

    def segmentation_weights(
        self, lattice: Lattice, segmentations: list[tuple[int, ...]]
    ) -> dict[tuple[int, ...], float] | None:
        """Weights in proportion to the probability of each segmentation of one canonical token.

        Args:
            lattice: the lattice of the token, which stands in a long text.
            segmentations: ids of each segmentation. Only those with as many splits are compared.

        None where the weights are not known: then draws estimate them.
        """
        return None

    def split_distributions(self, canonical: np.ndarray, token: int) -> dict[str, np.ndarray]:
        """Theoretical distributions of the splits inside the ``token``-th canonical token, by name.

        Args:
            canonical: canonical ids of a text, int32 of shape [tokens].
            token: position of the token in them.

        Each is float64 of shape [most + 1]: the probability of 0, 1, ... splits.
        """
        return {}

    def draw(self, ids: np.ndarray, random: np.random.Generator) -> Any:
        """Draw one tokenization of one text: its ids, as a list or an integer array.

        Args:
            ids: canonical ids of the text, int32 [tokens], read-only, at least one.
            random: a generator of this draw alone, seeded by seed, epoch, key, draw number and the
                text's place in its row.

        The base class checks that the returned ids spell the text of ``ids``.
        """
        raise NotImplementedError(f"{type(self).__name__} needs a method draw(self, ids, random)")

    def _prepare(self, batch: Any) -> Any:
        """The batch as the kernel takes it, made once for all threads."""
        return batch

    def _bytes_of(self, text: Text) -> bytes | None:
        """The bytes that `_draw` takes instead of the ids of ``text``; None: it needs the ids."""
        return self.vocab.text_bytes(text)

    def _room(self, texts: int, tokens: int, size: int) -> int:
        """Upper bound of the ids in a draw of texts with this many tokens and bytes.

        Memory safety depends on it: kernels write this many ids without bounds checks.
        """
        return size  # no token of a text is shorter than a byte

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        """Draw texts first..last of a kernels.batch.Batch: ids to ``out``, ends to ``ends``."""
        from robustok.samplers.python_draws import draw_in_python

        draw_in_python(self, batch, first, last, out, ends)

    def __repr__(self) -> str:
        return f"<{self.spec}>"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


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
    from robustok.processes import available_cores

    return available_cores()


def _threads(threads: int | None) -> int:
    cores = cores_read_once()
    if threads is None:
        return cores
    return min(check_integer("threads", threads, 1), max(_MOST_THREADS, cores))
