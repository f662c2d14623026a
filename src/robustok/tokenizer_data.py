"""A tokenizer as plain data, and the errors of tokenizer libraries as RobustokErrors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from robustok.errors import RobustokError


class Encoder(Protocol):
    """Texts in, canonical ids out: no special tokens added, none parsed from the text."""

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]: ...

    def normalize(self, text: str) -> str | None:
        """The text whose UTF-8 the ids decode to, or None where only encoding can tell."""
        ...


class IdSet(Set[int]):
    """A set of ids as a bool array: a byte an id, where a frozenset takes 130.

    >>> sorted(IdSet([3, 1]) - {1})
    [3]
    """

    def __init__(self, ids: Iterable[int]) -> None:
        held = np.fromiter(ids, np.int64)
        self._holds = np.zeros(int(held.max(initial=-1)) + 1, np.bool_)
        self._holds[held] = True

    def __contains__(self, i: object) -> bool:
        return isinstance(i, int) and 0 <= i < len(self._holds) and bool(self._holds[i])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._holds).tolist())

    def __len__(self) -> int:
        return int(self._holds.sum())


@dataclass(frozen=True)
class TokenizerData:
    """A tokenizer as plain data.

    ``tokens[i]`` is the bytes of id i (empty where there is no such id), ``ordinary`` the ids a
    text may be cut into, ``byte_fallback`` the ids that spell one raw byte beside the ordinary
    vocabulary, ``merges`` the BPE merge list as int32 pairs of ids, ``scores`` the Unigram scores,
    ``revision`` the commit of a tokenizer from the hub.
    """

    tokens: list[bytes]
    ordinary: Set[int]
    byte_fallback: Set[int]
    encoder: Encoder
    family: str
    merges: np.ndarray | None = None
    ignore_merges: bool = False
    scores: dict[int, float] | None = None
    source: Any = field(default=None, repr=False)
    revision: str | None = None


@contextlib.contextmanager
def library_errors(meaning: str) -> Iterator[None]:
    """Turn an error of a tokenizer library into a RobustokError that begins with ``meaning``.

    A panic of a Rust library is a BaseException, which ``except Exception`` would miss.
    """
    try:
        yield
    except RobustokError:
        raise
    except BaseException as e:
        if not isinstance(e, Exception) and type(e).__name__ != "PanicException":
            raise
        lines = str(e).strip().splitlines() or [type(e).__name__]
        raise RobustokError(f"{meaning} ({lines[0][:200]})") from e


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable character of each byte, as character → byte.

    >>> byte_alphabet()["Ġ"]
    32
    """
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(hidden)}


def steps(part: dict | None, key: str) -> list[dict]:
    """A pipeline stage as a flat list: a Sequence is opened, None is empty."""
    if part is None:
        return []
    return [s for p in part[key] for s in steps(p, key)] if part["type"] == "Sequence" else [part]
