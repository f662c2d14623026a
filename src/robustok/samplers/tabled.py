"""Schemes that draw words from cached tables, with one store of tables for each thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from robustok.errors import RobustokError
from robustok.kernels.tables import NO_PATH, clear, copy_records, new_store
from robustok.samplers.base import Sampler, cores_read_once
from robustok.vocabulary import Vocabulary

_NO_PATH = (
    "the vocabulary has no tokenization of the text: it lacks a token for one of its bytes; use a "
    "tokenizer with all 256 bytes, or take such characters out"
)


class TabledSampler(Sampler):
    """A sampler whose kernel keeps per-word tables.

    Stores outlive a call, since words come back in the next batch. Each is used by one thread at
    a time; which one a row meets changes the time and not the draw.
    """

    _too_rare: ClassVar[str] = ""  # the message where the kernel returns NOT_DRAWN

    def __init__(self, vocab: Vocabulary, **params: Any) -> None:
        super().__init__(vocab, **params)
        self._stores: list[Any] = []

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._stores = []

    def _with_store(
        self, kernel: Callable[[Any, int, Any], int], first: int, last: int, draws: int, rows: Any
    ) -> None:
        """Call ``kernel(store, first, rows)`` until it drew the texts first..last.

        The kernel draws the texts from ``first`` on into ``rows`` (`kernels.batch.Rows`) and
        returns ``last``, or the first text that the store had no space for. Then the store is
        cleared, or copied to a larger one where the text alone fills it or half of it, and the
        kernel goes on with that text. Raises RobustokError where the kernel returns another
        code of `kernels.tables`.
        """
        try:
            store = self._stores.pop()
        except IndexError:
            store = new_store()
        scale, begin, end = 1, first, 0
        while True:
            used = store.used.copy()
            rest = rows
            if begin > first:
                rest = rows._replace(ids=rows.ids[end:], ends=rows.ends[(begin - first) * draws :])
            reached = kernel(store, begin, rest)
            if reached < 0:
                self._stores.append(store)
                raise RobustokError(_NO_PATH if reached == NO_PATH else self._too_rare)
            if end:
                rest.ends[: (reached - begin) * draws] += end
            if reached == last:
                break
            if reached > begin:
                end = int(rest.ends[(reached - begin) * draws - 1])
            words, records = (store.used - used)[:2].tolist()  # of the text at ``begin``
            # Records may fill half of the slots.
            most = 2 * words > len(store.words) or 4 * records > len(store.slots)
            if reached == begin and (used[0] == 0 or most):
                scale *= 4
                larger = new_store(scale)
                copy_records(store, larger)
                store = larger
            else:
                clear(store)
            begin = reached
        # Keep at most one idle store for each core: more threads gain nothing, and a store may hold
        # 36 MB. A larger store serves only the rare text that fills one alone.
        if scale == 1:
            self._stores.append(store)
            if len(self._stores) > 1:
                del self._stores[cores_read_once() :]
