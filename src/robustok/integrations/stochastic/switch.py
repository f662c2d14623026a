"""What all stochastic tokenizers share: the mode, the epoch, and draws in which some ids stay.

Each run of the other ids is a text of its own. Its draw depends on the seed, the epoch, the ids of
the run and its number in the sequence, and on nothing else. So a conversation keeps the draws of
its earlier turns when it grows. The epoch and the mode are in memory that worker processes share.

At the end are tiktoken encodings and SentencePiece processors that draw.
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Sequence
from inspect import signature
from typing import Any, Self

import numpy as np

from robustok.checks import check_epoch, check_integer, check_seed, shown
from robustok.errors import RobustokError
from robustok.kernels import batch as kernels
from robustok.ragged import Ragged
from robustok.runtime.processes import State
from robustok.samplers import Sampler, Spec, sampler
from robustok.tokenizer.vocabulary import Vocabulary

Scheme = str | Spec | Sampler
_INT32 = np.dtype("<i4")
_MANY_IDS = 10_000  # of which a scheme that has any effect changes one
_log = logging.getLogger(__name__)


class Switch:
    """Training and evaluation mode, the epoch, and several draws of a text.

    >>> drawing = rt.stochastic(tokenizer, "uniform", seed=0)
    >>> drawing.training, drawing.epoch
    (True, 0)
    >>> len(drawing.sample_encode("hello", 3))
    3

    ``draws`` are the scheme, seed, epoch and mode; ``wrapped_tokenizer`` is the canonical original.
    """

    draws: SeededScheme
    wrapped_tokenizer: Any

    def train(self, mode: bool = True) -> Self:
        """Turn draws on, or off by ``mode=False``. Returns the tokenizer itself.

        Args:
            mode: whether draws are on.

        Raises RobustokError for anything but True and False, such as the files that the `train` of
        `tokenizers` takes.
        """
        if not isinstance(mode, bool):
            raise RobustokError(
                f"train takes True or False, not {shown(mode)}: it turns draws on or off"
            )
        self.draws.state.training = mode
        return self

    def eval(self) -> Self:
        """Turn draws off: every call returns what the wrapped tokenizer returns."""
        return self.train(False)

    @property
    def training(self) -> bool:
        """Whether draws are on."""
        return self.draws.state.training

    @property
    def epoch(self) -> int:
        """The epoch or step of the next draws."""
        return self.draws.state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch or step of the next draws, here and in worker processes that run.

        Args:
            epoch: an int64; each value gives other draws.
        """
        self.draws.state.epoch = check_epoch(epoch)

    def sample_encode(self, text: str, n: int = 1) -> list[list[int]]:
        """Draw ``n`` tokenizations of a text in the current epoch, without special tokens.

        They do not depend on the mode. The first is that of a call of the tokenizer.

        Args:
            text: a string; special tokens spelled out in it are text.
            n: number of draws, at least 1.
        """
        n = check_integer("n", n, 1)
        ids = self.draws.vocab.encode(text)
        return [self.draws.draw([ids], number=i)[0].tolist() for i in range(n)]

    def _refuse(self, name: str, instead: str) -> None:
        """Raise RobustokError for a method that would silently return canonical ids."""
        if self.training:
            raise RobustokError(
                f"{name} cannot draw tokenizations: use {instead}, or tokenizer.eval() first"
            )


class Wrapper(Switch):
    """The methods of the wrapped object, but for those that encode and are not defined here.

    Args:
        tokenizer: the wrapped object.
        scheme: a spec, or a sampler.
        seed: any integer.
        state: the epoch and the mode; by default epoch 0, draws on.
    """

    _encoding_names: tuple[str, ...] = ()  # parts of the names of methods that encode

    def __init__(
        self, tokenizer: Any, scheme: Scheme, seed: int, state: State | None = None
    ) -> None:
        self.wrapped_tokenizer = tokenizer
        self.draws = SeededScheme(tokenizer, scheme, seed, state)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "wrapped_tokenizer" not in vars(self):
            raise AttributeError(name)
        value = getattr(self.wrapped_tokenizer, name)
        if any(part in name.lower() for part in self._encoding_names):
            self._refuse(name, "encode")
        return value

    def _drawn_rows(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Canonical ids, drawn in training mode; special ids stay."""
        if not self.training:
            return [list(row) for row in rows]
        return [row.tolist() for row in self.draws.draw([np.asarray(r, np.int32) for r in rows])]

    def __reduce__(self) -> tuple[Any, ...]:
        draws = self.draws
        return type(self), (self.wrapped_tokenizer, draws.scheme, draws.seed, draws.state)

    def __repr__(self) -> str:
        mode = "on" if self.training else "off"
        kind = type(self.wrapped_tokenizer).__name__
        return f"<stochastic {kind}, {self.draws.sampler.spec}, draws {mode}>"


class SeededScheme:
    """A scheme with its seed, epoch and mode, on the vocabulary of a tokenizer."""

    def __init__(
        self, tokenizer: Any, scheme: Scheme, seed: int, state: State | None = None
    ) -> None:
        check_seed(seed)
        self.tokenizer, self.scheme, self.seed = tokenizer, scheme, seed
        self.state = state or State()
        self._sampler: Sampler | None = None
        self._unchanged = 0  # ids that were drawn before the first change

    @property
    def sampler(self) -> Sampler:
        if self._sampler is None:
            check_deterministic(self.tokenizer)
            self._sampler = sampler(self.scheme, Vocabulary.load(self.tokenizer))
        return self._sampler

    @property
    def vocab(self) -> Vocabulary:
        return self.sampler.vocab

    def forget(self) -> None:
        """Read the vocabulary again at the next draw: the tokenizer has changed."""
        if isinstance(self.scheme, Sampler):
            self.scheme = self.scheme.spec
        self._sampler = None

    def draw(
        self, rows: Sequence[np.ndarray], fixed: Sequence[np.ndarray] | None = None, number: int = 0
    ) -> list[np.ndarray]:
        """New tokenizations of canonical ids, int32 [ids] each.

        ``fixed`` marks ids that stay, bool [ids] a row; special ids always do. ``number`` is that
        of the draw: the same ids have another draw for each. Raises RobustokError where the scheme
        has changed none of many ids.
        """
        samples = self._draw(rows, fixed, number)
        if self._unchanged >= 0 and fixed is None:
            self._check_effect(rows, samples)
        return samples

    def _check_effect(self, rows: Sequence[np.ndarray], samples: Sequence[np.ndarray]) -> None:
        """Warn where a scheme leaves a first text as it is, and raise where it leaves all texts.

        Until something changes. A scheme that is canonical by its name or its strength is meant.
        """
        now = self.sampler
        strength = now.params.get(type(now).strength) if type(now).strength else None
        is_changed = any(not np.array_equal(a, b) for a, b in zip(rows, samples, strict=True))
        if is_changed or now.name == "canonical" or strength == 0:
            self._unchanged = -1
            return
        size = sum(map(len, rows))
        if self._unchanged == 0 and size > 1:
            _log.warning(
                "%s left the first text as it is: some schemes do this to short texts and at low "
                "strengths; a stronger one changes more",
                now.spec,
            )
        self._unchanged += size
        if self._unchanged >= _MANY_IDS:
            raise RobustokError(
                f"{now.spec} changed none of the first {self._unchanged} tokens: use a stronger "
                "scheme, or eval() for canonical ids"
            )

    def _draw(
        self, rows: Sequence[np.ndarray], fixed: Sequence[np.ndarray] | None, number: int
    ) -> list[np.ndarray]:
        vocab, epoch = self.vocab, self.state.epoch
        if len(rows) == 1 and fixed is None and vocab.ordinary[rows[0]].all():
            key = row_key(rows[0], 0, number)  # a fifth of the time of a batch of one row
            return [self.sampler.sample(rows[0], seed=self.seed, key=key, epoch=epoch)]
        batch = Ragged.from_rows(rows)
        stays = ~vocab.ordinary[batch.values]
        if fixed is not None:
            stays |= np.concatenate(fixed)
        runs = kernels.split_at_fixed(batch.offsets, stays)
        texts = Ragged(*kernels.gather(batch.values, runs))
        keys = [row_key(ids, i, number) for ids, i in zip(texts, runs[:, 1].tolist(), strict=True)]
        samples = self.sampler.sample_batch(texts, seed=self.seed, keys=keys, epoch=epoch)
        values, offsets = kernels.reassemble(
            batch.values, batch.offsets, stays, runs, 1, samples.values, samples.offsets
        )
        return list(Ragged(values, offsets))


def check_deterministic(tokenizer: Any) -> None:
    """Raise RobustokError for a tokenizer that has draws of its own on, as BPE-dropout.

    Its canonical ids would be another random tokenization at each call.
    """
    backend = getattr(tokenizer, "wrapped_tokenizer", tokenizer)
    backend = getattr(backend, "backend_tokenizer", backend)
    model = getattr(backend, "model", None)
    for name in ("dropout", "alpha"):  # of BPE and of Unigram
        if value := getattr(model, name, None):
            where = "backend_tokenizer.model" if backend is not tokenizer else "model"
            raise RobustokError(
                f"the tokenizer draws by itself ({name}={value:g}), so its ids are not canonical: "
                f"set tokenizer.{where}.{name} = None before it encodes anything"
            )


def row_key(ids: np.ndarray, place: int = 0, number: int = 0) -> int:
    """An int64 that names a run by its ids, its place in the sequence and the draw's number."""
    salt = struct.pack("<qq", place, number)
    little_endian = np.ascontiguousarray(ids, _INT32)
    digest = hashlib.blake2b(little_endian.data, digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "little", signed=True)


class StochasticEncoding(Wrapper):
    """A tiktoken ``Encoding`` whose ``encode`` methods draw."""

    _encoding_names = ("encode_with_unstable",)

    def encode(self, text: str, **kwargs: object) -> list[int]:
        """As `tiktoken.Encoding.encode`."""
        return self._drawn_rows([self.wrapped_tokenizer.encode(text, **kwargs)])[0]

    def encode_ordinary(self, text: str) -> list[int]:
        """As `tiktoken.Encoding.encode_ordinary`."""
        return self._drawn_rows([self.wrapped_tokenizer.encode_ordinary(text)])[0]

    def encode_to_numpy(self, text: str, **kwargs: object) -> np.ndarray:
        """As `tiktoken.Encoding.encode_to_numpy`: uint32 [tokens]."""
        return np.asarray(self.encode(text, **kwargs), np.uint32)

    def encode_batch(self, text: list[str], **kwargs: object) -> list[list[int]]:
        """As `tiktoken.Encoding.encode_batch`."""
        return self._drawn_rows(self.wrapped_tokenizer.encode_batch(text, **kwargs))

    def encode_ordinary_batch(self, text: list[str], **kwargs: object) -> list[list[int]]:
        """As `tiktoken.Encoding.encode_ordinary_batch`."""
        return self._drawn_rows(self.wrapped_tokenizer.encode_ordinary_batch(text, **kwargs))


_SHAPE = ("out_type", "return_type", "reverse")  # `return_type` is `out_type`'s new name


class StochasticProcessor(Wrapper):
    """A ``SentencePieceProcessor`` whose ``encode`` methods draw by the scheme."""

    _encoding_names = ("encode", "tokenize")

    def encode(self, input: str | Sequence[str], *args: Any, **kwargs: object) -> list[Any]:
        """As `sentencepiece.SentencePieceProcessor.encode`, to ids or token strings.

        ``out_type`` is int (ids) or str (token strings). In training mode SentencePiece's own
        sampling and ``reverse`` are refused; sampling is off in a processor that was made with it.
        """
        inner = self.wrapped_tokenizer
        options = dict(signature(inner.encode).bind(input, *args, **kwargs).arguments)
        del options["input"]
        if not self.training:
            return inner.encode(input, **{"enable_sampling": False, **options})
        is_sampling, options["enable_sampling"] = options.get("enable_sampling"), False
        plain = {name: value for name, value in options.items() if name not in _SHAPE}
        plain["reverse"] = False
        # No public attribute tells what a processor was made to return: a text shows it.
        text = inner.decode([*range(inner.vocab_size())[-9:]])
        example = inner.encode(text, **options)
        kind = type(example[0]) if isinstance(example, list) else None
        is_plain = kind in (int, str) and example == inner.encode(text, out_type=kind, **plain)
        if not is_plain or is_sampling:
            raise RobustokError(
                "a stochastic SentencePiece processor encodes to ids or strings (out_type=int or "
                "str), not in reverse, and draws by its scheme: leave enable_sampling out, or call "
                "eval() first"
            )
        texts = [input] if isinstance(input, str) else list(input)
        canonical = inner.encode(texts, out_type=int, **plain)
        rows = self._drawn_rows(canonical)
        if kind is str:
            strings = inner.encode(texts, out_type=str, **plain)
            triples = zip(rows, canonical, strings, strict=True)
            rows = [self._strings(row, ids, own) for row, ids, own in triples]
        return rows[0] if isinstance(input, str) else rows

    def _strings(self, row: list[int], canonical: list[int], strings: list[str]) -> list[str]:
        """A row as strings; unknown tokens, written as in the text, stay in their order."""
        inner = self.wrapped_tokenizer
        unknown = inner.unk_id()
        left = (own for i, own in zip(canonical, strings, strict=True) if i == unknown)
        return [next(left, "") if i == unknown else inner.id_to_piece(i) for i in row]

    def encode_as_ids(self, input: str | Sequence[str], **kwargs: object) -> list[Any]:
        """Ids, as :meth:`encode`."""
        return self.encode(input, out_type=int, **kwargs)

    def encode_as_pieces(self, input: str | Sequence[str], **kwargs: object) -> list[Any]:
        """Token strings, as :meth:`encode`."""
        return self.encode(input, out_type=str, **kwargs)

    Encode = tokenize = Tokenize = encode
    EncodeAsIds, EncodeAsPieces = encode_as_ids, encode_as_pieces

    def __len__(self) -> int:
        return len(self.wrapped_tokenizer)

    def __getitem__(self, piece: str) -> int:
        return self.wrapped_tokenizer[piece]
