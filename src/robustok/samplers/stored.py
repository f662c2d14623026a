"""The base class of schemes whose kernels keep tables of blocks from one text to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels import batch as kernels
from robustok.kernels.store import (
    DRAWN,
    NO_PATH,
    NO_ROOM,
    RARE,
    Store,
    clear,
    copy_records,
    new_store,
)
from robustok.runtime.environment import computed_once
from robustok.samplers import base
from robustok.samplers.base import Sampler

_LARGER = 4  # times the size of the store before

# A draw kernel, what it reads of the vocabulary, and its settings.
Kernel = tuple[Callable[..., tuple[int, int]], kernels.Tokens, tuple[Any, ...]]


class StoredSampler(Sampler):
    """A sampler whose kernel keeps tables of blocks in a store.

    Stores outlive a call, since blocks repeat in the next batch. One thread uses a store at a time.
    The store that a row meets changes the time and not the draw.
    """

    # Why a text cannot be drawn, by the code that the kernel returns.
    _failures: ClassVar[dict[int, str]] = {
        NO_PATH: "the vocabulary has no tokenization of the text: it lacks a token for one of its "
        "bytes; use a tokenizer with all 256 bytes, or take such characters out"
    }

    @computed_once
    def _stores(self) -> list[Store]:
        """The idle stores."""
        return []

    @property
    def _kernel(self) -> Kernel:
        """The draw kernel, the tables of the vocabulary that it reads, and its settings; made once.

        It is called as ``kernel(tables, store, batch, *settings, t, last, rows)``, draws the texts
        from ``t`` on into ``rows`` (`kernels.batch.Rows`), and returns the first text that it has
        not drawn and a code of `kernels.store`. After RARE it is called again from that text on
        with True as its last setting: the code for rare texts is compiled when one occurs.
        """
        raise NotImplementedError

    def _draw(
        self, batch: kernels.Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray
    ) -> None:
        """Draw texts first..last by the kernel; where it stops, make room and continue."""
        kernel, tables, settings = self._kernel
        if self._reads_bytes and batch.values.dtype != np.uint8:
            texts = kernels.texts_between(batch, first, last)
            batch = kernels.spelled(texts, self.vocab.token_bytes, self.vocab.token_offsets)
            first, last = 0, last - first
        try:
            store = self._stores.pop()
        except IndexError:
            store = new_store()
        draws, scale = int(batch.draws), 1
        text = first  # the first text that is not drawn
        while True:
            n_done = (text - first) * draws
            total = int(ends[n_done - 1]) if n_done else 0
            rows = kernels.Rows(out[total:], ends[n_done:])
            used = store.used.copy()
            reached, code = kernel(tables, store, batch, *settings, text, last, rows)
            if total:
                ends[n_done : (reached - first) * draws] += total
            if code == RARE:
                settings = (*settings[:-1], True)
            elif code != NO_ROOM:
                break
            elif reached == text and _is_small(store, used):
                scale *= _LARGER
                smaller, store = store, new_store(scale)
                copy_records(smaller, store)
            else:
                clear(store)
            text = reached
        # Keep at most one idle store a core: more threads gain nothing, and a store may hold 36 MB.
        # A larger store serves only the rare text that fills a store alone.
        if scale == 1:
            self._stores.append(store)
            if len(self._stores) > 1:
                del self._stores[base.cores_read_once() :]
        if code != DRAWN:
            raise RobustokError(f"{self.name}: {self._failures[code]}")


def _is_small(store: Store, used: np.ndarray) -> bool:
    """Whether one text alone fills half of the store, where ``used`` was filled before it."""
    words, records = (store.used - used)[:2].tolist()
    # Records may fill half of the slots.
    return bool(used[0] == 0 or 2 * words > len(store.words) or 4 * records > len(store.slots))
