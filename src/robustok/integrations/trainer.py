"""Make an existing transformers Trainer or TRL SFTTrainer train stochastically: one line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from transformers import TrainerCallback

from robustok.errors import RobustokError, nearest
from robustok.integrations.chat import user_turns
from robustok.ragged import Ragged
from robustok.samplers import Sampler, sampler
from robustok.training.prompts import Epoch
from robustok.vocabulary import Vocabulary

WHERE = ("unlabelled", "user", "all")

Row = dict[str, Any]


def robustify(
    trainer: Any,
    scheme: str | Sampler,
    *,
    seed: int,
    where: str = "unlabelled",
    tokenizer: Any = None,
    max_length: int | None = None,
) -> None:
    """Draw the tokenization of what a trainer trains on anew in every epoch.

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
    says what is perturbed: ``unlabelled`` ids (label -100: prompts), what the
    ``user`` said in a chat template, or ``all`` ids, labels moving with them.
    Special tokens always stay. ``tokenizer`` is the trainer's by default,
    ``max_length`` its ``args.max_length``: a row that a draw makes longer than
    that stays canonical in that epoch.

    The draw of a row depends only on ``seed``, the epoch and the row's ids:
    not on workers, batches, processes, or a restart.

    Raises RobustokError for an unknown scheme or ``where``, a tokenizer that
    cannot be read, packed rows, and rows of which nothing may be perturbed.
    """
    tokenizer = tokenizer or trainer.processing_class
    if tokenizer is None:
        raise RobustokError("the trainer has no tokenizer: give robustify one as tokenizer=...")
    vocab = Vocabulary.load(tokenizer)
    if where not in WHERE:
        raise RobustokError(f"unknown where '{where}': {nearest(where, WHERE)}")
    epoch = Epoch()
    perturb = Perturb(
        sampler(scheme, vocab),
        seed=seed,
        epoch=epoch,
        where=where,
        turns=user_turns(tokenizer, vocab) if where == "user" else None,
        max_length=max_length or getattr(trainer.args, "max_length", None),
    )
    make = trainer.get_train_dataloader

    def get_train_dataloader() -> Any:
        plain = trainer.data_collator
        trainer.data_collator = StochasticCollator(perturb, plain)
        try:
            return make()
        finally:
            trainer.data_collator = plain

    trainer.get_train_dataloader = get_train_dataloader
    trainer.add_callback(MoveEpoch(epoch))


class MoveEpoch(TrainerCallback):
    """Tells an :class:`Epoch`, which worker processes share, when the trainer starts the next."""

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.epoch.set(int(state.epoch or 0))


class StochasticCollator:
    """Perturb rows, then collate them as before."""

    def __init__(self, perturb: Perturb, collate: Callable[[list[Row]], Any]) -> None:
        self.perturb, self.collate = perturb, collate

    def __call__(self, rows: Sequence[Row]) -> Any:
        return self.collate(self.perturb(rows))


class Perturb:
    """New tokenizations for rows of canonical ids; whatever is as long as the ids moves along.

    >>> perturb = Perturb(rt.sampler("uniform-k(k=2)", vocab), seed=0)
    >>> row = {"input_ids": vocab.encode("hello world").tolist(), "labels": [-100, 275]}
    >>> perturb([row])
    [{'input_ids': [272, 79, 275], 'labels': [-100, -100, 275]}]

    An id of a new row takes the mask, and whether it has a label, of the old id
    in which its bytes begin.
    """

    def __init__(
        self,
        draw: Sampler,
        *,
        seed: int,
        epoch: Epoch | None = None,
        where: str = "unlabelled",
        turns: Callable[[np.ndarray], np.ndarray] | None = None,
        max_length: int | None = None,
    ) -> None:
        self.draw, self.seed, self.epoch = draw, seed, epoch or Epoch()
        self.where, self.turns, self.max_length = where, turns, max_length
        # A token without bytes is never drawn; where one is kept it must still take a place.
        self.lengths = np.maximum(np.diff(draw.vocab.token_offsets), 1)

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        ids = [np.asarray(row["input_ids"], dtype=np.int32) for row in rows]
        kept = [self._kept(row, row_ids) for row, row_ids in zip(rows, ids, strict=True)]
        batch = Ragged.from_rows(ids)
        keep = np.concatenate(kept) if kept else np.empty(0, np.bool_)
        if len(keep) and keep.all():
            raise RobustokError(
                f"nothing may be perturbed in {len(rows)} rows: every id has a label or is "
                f"outside of what where='{self.where}' allows; choose another where"
            )
        drawn = self.draw.sample_batch(
            batch,
            seed=self.seed,
            keys=np.array([_key(row) for row in ids], dtype=np.int64),
            epoch=self.epoch.get(),
            keep=keep,
        )
        return [
            row if self.max_length and len(new) > self.max_length else self._moved(row, old, new)
            for row, old, new in zip(rows, ids, drawn, strict=True)
        ]

    def _kept(self, row: Row, ids: np.ndarray) -> np.ndarray:
        if "seq_lengths" in row or "position_ids" in row:
            raise RobustokError(
                "packed rows cannot be perturbed: switch packing off (packing=False)"
            )
        kept = np.zeros(len(ids), np.bool_)
        if self.where != "all":
            if row.get("labels") is not None:
                kept |= np.asarray(row["labels"]) != -100
            for name in ("completion_mask", "assistant_masks"):
                if row.get(name) is not None:
                    kept |= np.asarray(row[name], dtype=np.bool_)
        if self.turns is not None:
            kept |= ~self.turns(ids)
        if row.get("attention_mask") is not None:
            kept |= np.asarray(row["attention_mask"]) == 0
        return kept

    def _moved(self, row: Row, old: np.ndarray, new: np.ndarray) -> Row:
        ends = np.cumsum(self.lengths[old])
        starts = np.cumsum(self.lengths[new]) - self.lengths[new]
        source = np.searchsorted(ends, starts, side="right")
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
