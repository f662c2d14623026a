"""Schemes whose kernels keep tables of blocks, with one store of tables for each thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Rows
from robustok.kernels.store import NOT_DRAWN, clear, copy_records, new_store
from robustok.samplers.base import Sampler, cores_read_once

_LARGER = 4  # times the size of the store before


class StoredSampler(Sampler):
    """A sampler whose kernel keeps tables of blocks in a store.

    Stores outlive a call, since blocks come back in the next batch. Each is used by one thread at a
    time; which one a row meets changes the time and not the draw.
    """

    # The messages for the codes NO_PATH and NOT_DRAWN of `kernels.store`.
    _no_path: ClassVar[str] = (
        "the vocabulary has no tokenization of the text: it lacks a token for one of its bytes; "
        "use a tokenizer with all 256 bytes, or take such characters out"
    )
    _too_rare: ClassVar[str] = ""

    @cached_property
    def _stores(self) -> list[Any]:
        """The idle stores."""
        return []

    def _kernel(self) -> tuple[Callable[..., int], Any, tuple[Any, ...]]:
        """The draw kernel, what it reads of the vocabulary, and its settings.

        It is called as ``kernel(tables, store, batch, *settings, t, last, rows)``, draws the texts
        from ``t`` on into ``rows`` (`kernels.batch.Rows`), and returns ``last``, or the first text
        that the store had no space for, or another code of `kernels.store`.
        """
        raise NotImplementedError

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        """Draw texts first..last by the kernel; a text without space is drawn again with space."""
        kernel, tables, settings = self._kernel()
        try:
            store = self._stores.pop()
        except IndexError:
            store = new_store()
        scale = 1
        text, total = first, 0  # the first text that is not drawn, and the ids of those before it
        rows = Rows(out, ends)
        while True:
            used = store.used.copy()
            reached = kernel(tables, store, batch, *settings, text, last, rows)
            if reached < 0:
                self._stores.append(store)
                reason = self._too_rare if reached == NOT_DRAWN else self._no_path
                raise RobustokError(f"{self.name}: {reason}")
            drawn = (reached - text) * int(batch.draws)
            if total:
                rows.ends[:drawn] += total
            if reached == last:
                break
            if drawn:
                total = int(rows.ends[drawn - 1])
                rows = Rows(out[total:], rows.ends[drawn:])
            if reached == text and _needs_larger(store, used):
                scale *= _LARGER
                larger = new_store(scale)
                copy_records(store, larger)
                store = larger
            else:
                clear(store)
            text = reached
        # Keep at most one idle store for each core: more threads gain nothing, and a store may hold
        # 36 MB. A larger store serves only the rare text that fills one alone.
        if scale == 1:
            self._stores.append(store)
            if len(self._stores) > 1:
                del self._stores[cores_read_once() :]


def _needs_larger(store: Any, used: np.ndarray) -> bool:
    """Whether one text alone fills the store, or half of it, which had ``used`` before the text."""
    words, records = (store.used - used)[:2].tolist()
    # Records may fill half of the slots.
    return bool(used[0] == 0 or 2 * words > len(store.words) or 4 * records > len(store.slots))
