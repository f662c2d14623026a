"""Schemes whose kernels keep tables of blocks, with one store of tables for each thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Rows
from robustok.kernels.store import NOT_DRAWN, clear, copy_records, new_store
from robustok.samplers.base import Sampler, cores_read_once
from robustok.tokenizer.vocabulary import Vocabulary

_LARGER = 4  # times the size of the store before


class StoredSampler(Sampler):
    """A sampler whose kernel keeps tables of blocks in a store.

    Stores outlive a call, since blocks come back in the next batch. Each is used by one thread at a
    time; which one a row meets changes the time and not the draw.
    """

    # What the kernel's codes mean: IMPOSSIBLE or NO_PATH, and NOT_DRAWN.
    _no_path: ClassVar[str] = (
        "the vocabulary has no tokenization of the text: it lacks a token for one of its bytes; "
        "use a tokenizer with all 256 bytes, or take such characters out"
    )
    _too_rare: ClassVar[str] = ""

    def __init__(self, vocab: Vocabulary, **params: Any) -> None:
        super().__init__(vocab, **params)
        self._stores: list[Any] = []

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._stores = []

    def _draw_stored(
        self, kernel: Callable[..., int], tables: Any, batch: Any, settings: tuple[Any, ...],
        first: int, last: int, out: np.ndarray, ends: np.ndarray,
    ) -> None:  # fmt: skip
        """Draw texts first..last by ``kernel(tables, store, batch, *settings, t, last, rows)``.

        The kernel draws the texts from ``t`` on into ``rows`` (`kernels.batch.Rows`) and returns
        ``last``, or the first text that the store had no space for; it is then called again for
        that text, with space. Raises RobustokError where it returns another code of
        `kernels.tables`.
        """
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
