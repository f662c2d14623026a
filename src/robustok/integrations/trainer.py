"""Stochastic tokenization for an existing transformers Trainer or TRL SFTTrainer, in one line."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info
from transformers import DataCollatorWithPadding, TrainerCallback, default_data_collator

from robustok.errors import RobustokError, nearest
from robustok.integrations.chat import template_headers, user_turns
from robustok.ragged import Ragged
from robustok.samplers import Sampler, sampler
from robustok.training.prompts import Epoch
from robustok.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
WHERE = ("unlabeled", "user", "all")
_FORMER_WHERE = {"unlabelled": "unlabeled"}  # British spelling, deprecated

Row = dict[str, Any]


def robustify(
    trainer: Any,
    scheme: str | Sampler,
    *,
    seed: int,
    where: str = "unlabeled",
    tokenizer: Any = None,
    max_length: int | None = None,
) -> None:
    """Draw new tokenizations of a trainer's rows in every epoch.

    >>> from transformers import Trainer, TrainingArguments
    >>> args = TrainingArguments("runs/t", report_to=[], dataloader_pin_memory=False, use_cpu=True)
    >>> rows = [{"input_ids": vocab.encode(t).tolist(), "labels": [-100, 275]} for t in texts]
    >>> trainer = Trainer(model, args, train_dataset=rows)
    >>> robustify(trainer, "uniform-k(alpha=1)", seed=0, tokenizer=tokenizer)
    >>> next(iter(trainer.get_train_dataloader()))["input_ids"].shape[0]
    2

    It puts a :class:`StochasticCollator` before the trainer's own collator, for
    training batches only: evaluation stays canonical. The data set holds
    canonical ``input_ids``, as Trainer and SFTTrainer prepare them. ``where``
    says what is perturbed: ``unlabeled`` ids (label -100: prompts), what the
    ``user`` said in a chat template, or ``all`` ids, labels moving with them.
    Special tokens and the role names of a chat template always stay.
    ``tokenizer`` is the trainer's by default, ``max_length`` its
    ``args.max_length``, or else the model's longest input. A draw longer than that is
    cut, as the trainer cuts rows; where the cut would take part of the answer
    from a row that fits, the row stays canonical in that epoch. The share of
    rows perturbed is logged after each epoch, as a warning where it is not 1.

    The draw of a row depends only on ``seed``, the epoch and the row's ids:
    not on workers, batches, processes, or a restart.

    Raises RobustokError for an unknown scheme or ``where``, a tokenizer that
    cannot be read, packed rows, rows of which nothing may be perturbed, and a
    trainer that is robustified already.
    """
    where = _checked_where(where)
    tokenizer = tokenizer or trainer.processing_class
    if tokenizer is None:
        raise RobustokError("the trainer has no tokenizer: give robustify one as tokenizer=...")
    vocab = Vocabulary.load(tokenizer)
    _check_trainer(trainer)
    epoch = Epoch()
    longest = getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None)
    perturb = Perturb(
        sampler(scheme, vocab),
        seed=seed,
        epoch=epoch,
        where=where,
        turns=user_turns(tokenizer, vocab) if where == "user" else None,
        headers=template_headers(tokenizer, vocab),
        max_length=max_length or getattr(trainer.args, "max_length", None) or longest,
        keep_end=getattr(trainer.args, "truncation_mode", "") == "keep_end",
        workers=trainer.args.dataloader_num_workers,
    )
    pad_id = getattr(tokenizer, "pad_token_id", None) or 0
    make = trainer.get_train_dataloader

    def get_train_dataloader() -> Any:
        plain = trainer.data_collator
        trainer.data_collator = StochasticCollator(perturb, plain, pad_id=pad_id)
        try:
            return make()
        finally:
            trainer.data_collator = plain

    trainer.get_train_dataloader = get_train_dataloader
    trainer.add_callback(EpochCallback(epoch, perturb))


def _checked_where(where: str) -> str:
    if where in _FORMER_WHERE:
        new = _FORMER_WHERE[where]
        warnings.warn(
            f"where='{where}' is deprecated: write '{new}'", DeprecationWarning, stacklevel=3
        )
        return new
    if where not in WHERE:
        raise RobustokError(f"unknown where '{where}': {nearest(where, WHERE)}")
    return where


def _check_trainer(trainer: Any) -> None:
    if any(isinstance(c, EpochCallback) for c in trainer.callback_handler.callbacks):
        raise RobustokError("this trainer is robustified already: call robustify once")
    if getattr(trainer.args, "packing", False):
        raise RobustokError("packed rows cannot be perturbed: switch packing off (packing=False)")


class EpochCallback(TrainerCallback):
    """Sets the :class:`Epoch` that worker processes share, and logs the share perturbed in it."""

    def __init__(self, epoch: Epoch, perturb: Perturb) -> None:
        self.epoch, self.perturb = epoch, perturb

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.epoch.set(int(state.epoch or 0))
        self.perturb.counts.zero_()

    def on_epoch_end(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        rows, perturbed, too_long = self.perturb.counts.sum(dim=0).tolist()
        if not rows or not state.is_world_process_zero:
            return
        line = f"{perturbed} of {rows} rows perturbed in epoch {self.epoch.get() + 1}"
        if too_long:
            line += (
                f"; {too_long} stayed canonical, since their draws do not fit in "
                f"max_length={self.perturb.max_length}: raise it or use a weaker scheme"
            )
        _log.log(logging.INFO if perturbed == rows else logging.WARNING, line)


class StochasticCollator:
    """Perturb rows, then collate them as before.

    Rows are padded first for transformers' collators that do not pad, or not the labels.
    """

    def __init__(
        self, perturb: Perturb, collate: Callable[[list[Row]], Any], *, pad_id: int = 0
    ) -> None:
        self.perturb, self.collate, self.pad_id = perturb, collate, pad_id

    def __call__(self, rows: Sequence[Row]) -> Any:
        rows = self.perturb(rows)
        if self.collate is default_data_collator or isinstance(
            self.collate, DataCollatorWithPadding
        ):
            rows = padded(rows, self.pad_id)
        return self.collate(rows)


def padded(rows: Sequence[Row], pad_id: int) -> list[Row]:
    """Rows of one length: ids padded on the right, masked, and without labels there.

    >>> rows = [{"input_ids": [5, 6], "labels": [-100, 6]}, {"input_ids": [7], "labels": [7]}]
    >>> padded(rows, pad_id=0)[1]
    {'input_ids': [7, 0], 'labels': [7, -100], 'attention_mask': [1, 0]}
    """
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": pad_id, "labels": -100}
    results = []
    for row in rows:
        size = len(row["input_ids"])
        row = {**row, "attention_mask": row.get("attention_mask", [1] * size)}
        results.append({
            name: [*value, *[fill.get(name, 0)] * (longest - size)]
            if isinstance(value, (list, np.ndarray)) and len(value) == size
            else value
            for name, value in row.items()
        })  # fmt: skip
    return results


class Perturb:
    """New tokenizations for rows of canonical ids; whatever is as long as the ids moves along.

    >>> perturb = Perturb(rt.sampler("uniform-k(k=2)", vocab), seed=0)
    >>> row = {"input_ids": vocab.encode("hello world").tolist(), "labels": [-100, 275]}
    >>> perturb([row])
    [{'input_ids': [272, 79, 275], 'labels': [-100, -100, 275]}]

    An id of a new row takes the mask, and whether it has a label, of the old id
    in which its bytes begin. A new row is cut to ``max_length``, or to the old
    row's length where that is more. A row that fits stays canonical where the
    cut would take ids that are not perturbed, such as an answer.

    ``counts`` is int64 [workers + 1, 3]: rows, rows perturbed, and rows that
    stayed canonical for their length, by the worker that collated them.
    """

    def __init__(
        self,
        draw: Sampler,
        *,
        seed: int,
        epoch: Epoch | None = None,
        where: str = "unlabeled",
        turns: Callable[[np.ndarray], np.ndarray] | None = None,
        headers: Callable[[np.ndarray], np.ndarray] | None = None,
        max_length: int | None = None,
        keep_end: bool = False,
        workers: int = 0,
    ) -> None:
        self.draw, self.seed, self.epoch = draw, seed, epoch or Epoch()
        self.where, self.turns, self.headers = _checked_where(where), turns, headers
        self.max_length, self.keep_end = max_length, keep_end
        self.counts = torch.zeros((workers + 1, 3), dtype=torch.int64).share_memory_()
        # A token without bytes is never drawn; where one is kept it must still take a place.
        self.lengths = np.maximum(np.diff(draw.vocab.token_offsets), 1)

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        ids = [np.asarray(row["input_ids"], dtype=np.int32) for row in rows]
        answers = [self._answers(row, row_ids) for row, row_ids in zip(rows, ids, strict=True)]
        kept = [
            self._kept(row, row_ids, answer)
            for row, row_ids, answer in zip(rows, ids, answers, strict=True)
        ]
        batch = Ragged.from_rows(ids)
        keep = np.concatenate(kept) if kept else np.empty(0, np.bool_)
        if len(keep) and keep.all():
            raise RobustokError(
                f"nothing may be perturbed in {len(rows)} rows: every id has a label or is outside "
                f"of what where='{self.where}' allows; choose where='all', or label the answers "
                "alone (in TRL, assistant_only_loss=True)"
            )
        drawn = self.draw.sample_batch(
            batch,
            seed=self.seed,
            keys=np.array([_key(row) for row in ids], dtype=np.int64),
            epoch=self.epoch.get(),
            keep=keep,
        )
        results, worker = [], get_worker_info()
        counts = self.counts[worker.id + 1 if worker else 0]
        for row, old, new, answer in zip(rows, ids, drawn, answers, strict=True):
            moved = self._moved(row, old, new, answer)
            changed = moved is not None and not np.array_equal(old, new)
            counts += torch.tensor([1, changed, moved is None])
            results.append(row if moved is None else moved)
        return results

    def _answers(self, row: Row, ids: np.ndarray) -> np.ndarray:
        """The ids that ``where`` leaves to the model: bool [ids]."""
        if "seq_lengths" in row or "position_ids" in row:
            raise RobustokError(
                "packed rows cannot be perturbed: switch packing off (packing=False)"
            )
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
            elif isinstance(value, (list, np.ndarray)) and len(value) == len(old):
                moved[name] = np.asarray(value)[source].tolist()
            else:
                moved[name] = value
        return moved


def _key(ids: np.ndarray) -> int:
    """A row is named by its ids, so that its draw is the same in any order and process."""
    digest = hashlib.blake2b(ids.astype("<i4").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
