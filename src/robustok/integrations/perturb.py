"""New tokenizations for rows of canonical ids, in PyTorch without transformers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import get_worker_info

from robustok.errors import RobustokError, nearest
from robustok.integrations.packing import is_per_id, join_packed, split_packed
from robustok.integrations.padding import padded, with_padding, without_padding
from robustok.integrations.stochastic.draws import row_key
from robustok.integrations.stochastic.state import State
from robustok.ragged import Ragged
from robustok.samplers import Sampler

WHERE = ("unlabeled", "user", "all")
_FORMER_WHERE = {"unlabelled": "unlabeled"}  # British spelling, deprecated

Row = dict[str, Any]
Mask = Callable[[np.ndarray], np.ndarray]


class Counts(NamedTuple):
    """What was perturbed: rows, rows changed, rows that stayed canonical for their length, and of
    the tokens that may change how many there were, how many were replaced, and the splits.
    """

    rows: int
    changed: int
    too_long: int
    tokens: int
    replaced: int
    splits: int


class Perturb:
    """New tokenizations for rows of canonical ids; whatever is as long as the ids moves along.

    >>> perturb = Perturb(rt.sampler("uniform-k(k=2)", vocab), seed=0)
    >>> row = {"input_ids": vocab.encode("hello world").tolist(), "labels": [-100, 275]}
    >>> perturb([row])
    [{'input_ids': [272, 79, 275], 'labels': [-100, -100, 275]}]

    An id of a new row takes the mask, and whether it has a label, of the old id
    in which its bytes begin. A new row is cut to ``max_length``, or to the old
    row's length where that is more. A row that fits stays canonical where the
    cut would take ids that are not perturbed, such as an answer. The sequences
    of a packed row are drawn one by one and packed again, with new boundaries.
    Padding at the ends of a row is not drawn; a longer draw takes its place.

    ``counts`` is int64 [workers + 1, 6]: the fields of :class:`Counts`, by the
    worker that collated the rows. ``state`` holds the epoch of the draws.
    """

    def __init__(
        self,
        draw: Sampler,
        *,
        seed: int,
        state: State | None = None,
        where: str = "unlabeled",
        turns: Mask | None = None,
        headers: Mask | None = None,
        max_length: int | None = None,
        keep_end: bool = False,
        workers: int = 0,
    ) -> None:
        self.draw, self.seed, self.state = draw, seed, state or State()
        self.where, self.turns, self.headers = checked_where(where), turns, headers
        self.max_length, self.keep_end = max_length, keep_end
        self.counts = torch.zeros((workers + 1, 6), dtype=torch.int64).share_memory_()
        # A token without bytes is never drawn; where one is kept it must still take a place.
        self.lengths = np.maximum(np.diff(draw.vocab.token_offsets), 1)

    def __call__(self, rows: Sequence[Row], numbers: Sequence[int] | None = None) -> list[Row]:
        """The rows drawn anew; equal rows with different ``numbers`` have different draws."""
        bare = [without_padding(row) for row in rows]
        split = [split_packed(row) for row, _ in bare]
        given = numbers or [0] * len(rows)
        owners = [number for number, parts in zip(given, split, strict=True) for _ in parts]
        drawn = iter(self._drawn([part for parts in split for part in parts], owners))
        joined = [
            join_packed(row, [next(drawn) for _ in parts])
            for (row, _), parts in zip(bare, split, strict=True)
        ]
        return [
            with_padding(new, row, left)
            for new, row, (_, left) in zip(joined, rows, bare, strict=True)
        ]

    def _drawn(self, rows: Sequence[Row], numbers: Sequence[int]) -> list[Row]:
        ids = [np.asarray(row["input_ids"], dtype=np.int32) for row in rows]
        answers = [self._answers(row, row_ids) for row, row_ids in zip(rows, ids, strict=True)]
        kept = [
            self._kept(row, row_ids, answer)
            for row, row_ids, answer in zip(rows, ids, answers, strict=True)
        ]
        keep = np.concatenate(kept) if kept else np.empty(0, np.bool_)
        if len(keep) and keep.all():
            raise RobustokError(
                f"nothing may be perturbed in {len(rows)} rows: every id has a label or is outside "
                f"of what where='{self.where}' allows; choose where='all', or label the answers "
                "alone (in TRL, assistant_only_loss=True)"
            )
        keys = [row_key(row, 0, number) for row, number in zip(ids, numbers, strict=True)]
        drawn = self.draw.sample_batch(
            Ragged.from_rows(ids),
            seed=self.seed,
            keys=np.array(keys, dtype=np.int64),
            epoch=self.state.epoch,
            keep=keep,
        )
        results, worker = [], get_worker_info()
        counts = self.counts[worker.id + 1 if worker else 0]
        for row, old, new, answer, stay in zip(rows, ids, drawn, answers, kept, strict=True):
            moved = self._moved(row, old, new, answer)
            counts += torch.tensor(self._counted(old, new, stay, too_long=moved is None))
            results.append(row if moved is None else moved)
        return results

    def _answers(self, row: Row, ids: np.ndarray) -> np.ndarray:
        """The ids that ``where`` leaves to the model: bool [ids]."""
        answers = np.zeros(len(ids), np.bool_)
        if self.where == "all":
            return answers
        if row.get("labels") is not None:
            answers |= np.asarray(row["labels"]) != -100
        for name in ("completion_mask", "assistant_masks"):
            if row.get(name) is not None:
                answers |= np.asarray(row[name], dtype=np.bool_)
        if self.turns is not None:
            answers |= ~self.turns(ids)
        if row.get("attention_mask") is not None:
            answers &= np.asarray(row["attention_mask"]) != 0
        return answers

    def _kept(self, row: Row, ids: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """The ids that stay: answers, the headers of a chat template, and padding."""
        kept = answers.copy()
        if self.headers is not None:
            kept |= self.headers(ids)
        if row.get("attention_mask") is not None:
            kept |= np.asarray(row["attention_mask"]) == 0
        return kept

    def _counted(
        self, old: np.ndarray, new: np.ndarray, kept: np.ndarray, *, too_long: bool
    ) -> list[int]:
        """One row as :class:`Counts`."""
        free = int((~kept & self.draw.vocab.readable[old]).sum())
        if too_long or np.array_equal(old, new):
            return [1, 0, too_long, free, 0, 0]
        old_ends, new_ends = np.cumsum(self.lengths[old]), np.cumsum(self.lengths[new])
        _, at_old, at_new = np.intersect1d(old_ends, new_ends, True, True)
        same = (old[at_old] == new[at_new]) & (
            self.lengths[old][at_old] == self.lengths[new][at_new]
        )
        splits = len(new_ends) - len(at_new)
        return [1, 1, 0, free, len(old) - int(same.sum()), splits]

    def _moved(self, row: Row, old: np.ndarray, new: np.ndarray, answers: np.ndarray) -> Row | None:
        """The row with its new ids, cut to what fits; None where the cut would take an answer."""
        ends = np.cumsum(self.lengths[old])
        starts = np.cumsum(self.lengths[new]) - self.lengths[new]
        source = np.searchsorted(ends, starts, side="right")
        limit = max(self.max_length, len(old)) if self.max_length else len(new)
        chosen = slice(max(0, len(new) - limit), None) if self.keep_end else slice(limit)
        lost = answers[np.delete(source, chosen)].any()
        # A row as long as allowed was mostly cut there already, within its answer too.
        if lost and (len(old) < limit or not answers[source[chosen]].any()):
            return None
        new, source = new[chosen], source[chosen]
        moved: Row = {}
        for name, value in row.items():
            if name == "input_ids":
                moved[name] = new.tolist()
            elif name == "labels" and value is not None:
                labelled = np.asarray(value)[source] != -100
                moved[name] = np.where(labelled, new, -100).tolist()
            elif is_per_id(value, len(old)):
                moved[name] = np.asarray(value)[source].tolist()
            else:
                moved[name] = value
        return moved


class TorchCollator:
    """A ``collate_fn`` for a plain ``DataLoader``: rows drawn anew and padded to tensors.

    >>> collate = TorchCollator(Perturb(rt.sampler("uniform-k(k=2)", vocab), seed=0), pad_id=0)
    >>> rows = [{"input_ids": vocab.encode(text), "labels": [-100, 275]} for text in texts[:1]]
    >>> collate(rows)
    {'input_ids': tensor([[272,  79, 275]]), 'labels': tensor([[-100, -100,  275]]), 'attention_mask': tensor([[1, 1, 1]])}

    Args:
        perturb: draws the rows.
        pad_id: id that fills rows up on the right; masked, and without labels.

    Tensors are int64 [rows, length]. Call :meth:`set_epoch` before each epoch; worker processes
    that are forked or spawned follow it.
    """  # noqa: E501

    def __init__(self, perturb: Perturb, *, pad_id: int) -> None:
        self.perturb, self.pad_id = perturb, pad_id

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next draws.

        Args:
            epoch: number of the epoch or step; each value gives other draws.
        """
        self.perturb.state.epoch = epoch

    def __call__(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        full = padded(self.perturb(rows), self.pad_id)
        return {name: torch.tensor([row[name] for row in full]) for name in full[0]}


def checked_where(where: str) -> str:
    """``where`` in its present spelling; raises RobustokError for an unknown one."""
    if where in _FORMER_WHERE:
        new = _FORMER_WHERE[where]
        warnings.warn(
            f"where='{where}' is deprecated: write '{new}'", DeprecationWarning, stacklevel=3
        )
        return new
    if where not in WHERE:
        raise RobustokError(f"unknown where '{where}': {nearest(where, WHERE)}")
    return where
