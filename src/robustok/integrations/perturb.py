"""New tokenizations for rows of canonical ids, in PyTorch without transformers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from robustok.checks import IGNORED, check_epoch, check_integer, check_seed, shown
from robustok.errors import RobustokError, check_choice
from robustok.guard import TEXT_CHANGES, Guard
from robustok.integrations.rows import (
    Columns,
    Row,
    join_row,
    padded,
    read_rows,
    split_row,
)
from robustok.integrations.stochastic.switch import row_key
from robustok.ragged import Ragged
from robustok.runtime.packages import require
from robustok.runtime.processes import State
from robustok.samplers import Sampler, Schedule, Spec, UniformK, measure, schedule
from robustok.samplers.base import at_stage
from robustok.samplers.uniform import ONLY_CANONICAL
from robustok.tokenizer.chat import ChatTurns
from robustok.tokenizer.vocabulary import Vocabulary

require("torch")

import torch  # noqa: E402
from torch.utils.data import get_worker_info  # noqa: E402

_log = logging.getLogger(__name__)
WHERE = ("unlabeled", "user", "all")
_PROCESSES = 1025  # rows of the shared counts: the main process and 1024 workers
_CHECKED_ROWS = (32, 1024)  # first rows of each process that must be canonical: least and most
_ENOUGH_IDS = 256  # that are judged: fewer rows are checked
_EDGE = 4  # ids beside a border that may not be canonical: texts are cut or encoded apart there
_FEWEST_IDS = 16  # that are judged
_MOST_DEVIATING = 0.05  # share of the ids, as where texts were encoded in parts
_REMEMBERED = 64  # first rows of an epoch, of which it is noticed that they come again


class EpochCounts(NamedTuple):
    """Rows, rows changed, rows that stayed canonical for their length; tokens that may change, how
    many were replaced, and the splits.
    """

    rows: int
    changed: int
    too_long: int
    tokens: int
    replaced: int
    splits: int

    def metrics(self) -> dict[str, float]:
        """What a trainer logs."""
        tokens = max(self.tokens, 1)
        return {
            "perturb/changed_rows": self.changed,
            "perturb/overflow": self.too_long,
            "perturb/replaced": self.replaced / tokens,
            "perturb/splits_per_token": self.splits / tokens,
        }


class Perturb:
    """New tokenizations for rows of canonical ids; labels and masks of the ids move along.

    >>> perturb = Perturb("uniform-k(k=2)", seed=0, tokenizer=tokenizer)
    >>> row = {"input_ids": vocab.encode("hello world").tolist(), "labels": [-100, 275]}
    >>> perturb([row])
    [{'input_ids': [272, 79, 275], 'labels': [-100, -100, 275]}]

    Args:
        scheme: a spec or a schedule of the vocabulary of ``tokenizer``, or a sampler.
        seed: any integer.
        tokenizer: the one that encoded the rows; a sampler needs it for a chat template only.
        where: what is perturbed, as of `robustify`: by default the ids without a label, of rows
            that have labels.
        max_length: longest row, at least 1; by default there is no limit.
        cut: the end that a row is cut at, "end" or "start"; with None, a row whose draw does not
            fit stays canonical.

    A column of the row's length that holds the id or -100 at each place is labels, whatever its
    name. An id of a new row takes the masks, and whether it has a label, of the old id in which its
    bytes begin. A new row is cut to ``max_length``, or to the old row's length where that is more.
    A shorter row stays canonical where the cut would take ids that are not perturbed (an answer, a
    role name, a special token), one of that length where it would take the whole answer. The
    sequences of a packed row are drawn one by one and packed again, with new boundaries. Padding at
    the ends of a row is not drawn: a longer draw takes its place, a shorter one gets more of it.

    ``counts``, int64 [_PROCESSES, 6], has the fields of :class:`EpochCounts` by the process that
    collated the rows, ``batches``, int64 [3], what :meth:`set_batches` sets, and ``state`` the
    epoch. Worker processes share them.

    Raises RobustokError for rows and columns that cannot be read (:func:`rows.read_rows`), rows
    without labels where ``where`` is not given, rows of which nothing may be perturbed, and where
    the first rows are not canonical.
    """

    def __init__(
        self,
        scheme: str | Spec | Sampler,
        *,
        seed: int,
        tokenizer: Any = None,
        where: str | None = None,
        max_length: int | None = None,
        cut: str | None = "end",
    ) -> None:
        self.where = where if where is None else check_choice("where", where, WHERE)
        self.scheme: Sampler | Schedule
        if isinstance(scheme, Sampler):
            self.scheme = scheme
        elif tokenizer is None:
            raise RobustokError(
                f"the scheme {shown(scheme)} needs the tokenizer that encoded the rows: give it as "
                "tokenizer=..., or give a sampler"
            )
        else:
            moving = schedule(scheme, Vocabulary.load(tokenizer))
            self.scheme = moving.at(0.0) if moving.is_constant else moving
        self.vocab, self.seed, self.state = self.scheme.vocab, check_seed(seed), State()
        self._turns: ChatTurns | None = None
        if where == "user" or getattr(tokenizer, "chat_template", None) is not None:
            try:
                self._turns = ChatTurns(tokenizer, self.vocab)
            except RobustokError as error:
                if where == "user":
                    raise RobustokError(f"{error}, or choose where='unlabeled'") from error
                _log.warning(
                    "%s; in rows that the chat template wrote, its own words, such as role names, "
                    "are drawn as well",
                    error,
                )
        self.cut = cut if cut is None else check_choice("cut", cut, ("end", "start"))
        if max_length is not None:
            max_length = check_integer("max_length", max_length, 1)
        self.max_length = max_length
        self._n_checked, self._judged = 0, np.zeros(2, np.int64)
        self._whole: set[str] = set()
        self.counts = torch.zeros((_PROCESSES, 6), dtype=torch.int64).share_memory_()
        self.batches = torch.zeros(3, dtype=torch.int64).share_memory_()
        self._n_batches, self._counted_epoch = 0, 0
        # A token without bytes is never drawn; where one is kept it must still take a place.
        self.lengths = np.maximum(self.vocab.token_lengths, 1)

    def __call__(self, rows: Sequence[Row], numbers: Sequence[int] | None = None) -> list[Row]:
        """The rows drawn anew; equal rows with different ``numbers`` have different draws."""
        return [columns.row for columns in self.drawn(rows, numbers)]

    def drawn(self, rows: Sequence[Row], numbers: Sequence[int] | None = None) -> list[Columns]:
        whole, split = self._read(rows)
        numbers = numbers or [0] * len(rows)
        owners = [number for number, (parts, *_) in zip(numbers, split, strict=True) for _ in parts]
        samples = iter(self._drawn([part for parts, *_ in split for part in parts], owners))
        return [
            join_row(row, [next(samples) for _ in parts], *places)
            for row, (parts, *places) in zip(whole, split, strict=True)
        ]

    def check(self, rows: Sequence[Row]) -> None:
        """Raise the error that a call would raise for these rows, without a draw."""
        parts = [part for parts, *_ in self._read(rows)[1] for part in parts]
        self._check_canonical(parts)
        self._kept(parts)

    def _read(self, rows: Sequence[Row]) -> tuple[list[Columns], list[Any]]:
        """The rows, and the sequences of each with the place of its ids."""
        columns = read_rows(rows, self._whole)
        if self.where is None and not all(row.is_labelled for row in columns):
            raise RobustokError(
                "rows without labels do not say what is an answer, which stays canonical: choose "
                "where='all' (every id is drawn) or 'user' (the user's turns of a chat), or label "
                "the answers, with -100 at the other ids"
            )
        return columns, [split_row(row) for row in columns]

    def set_batches(self, steps: int, last_step: int, per_step: int) -> None:
        """Set how many ``steps`` were before the next batch, of which a schedule moves to the last.

        ``per_step``: batches of a step, which have one strength.
        """
        self.batches[:] = torch.tensor([steps, max(last_step - 1, 1), per_step])
        self._n_batches = 0

    @property
    def total(self) -> EpochCounts:
        """The counts of this process and of its workers."""
        return EpochCounts(*self.counts.sum(dim=0).tolist())

    def summed(self, device: torch.device | str = "cpu") -> EpochCounts:
        """The counts of all processes of a distributed training, each of which calls this."""
        counts = self.counts.sum(dim=0).to(device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts)
        return EpochCounts(*counts.tolist())

    def log_epoch(
        self, write: Callable[[str], object] = _log.info, counts: EpochCounts | None = None
    ) -> None:
        """Write what was perturbed since :attr:`counts` were zero; log a warning if not every row.

        ``counts`` are by default those of this process.
        """
        counts = counts or self.total
        if not counts.rows:
            return
        share, splits = (n / max(counts.tokens, 1) for n in (counts.replaced, counts.splits))
        line = (
            f"{counts.changed} of {counts.rows} rows perturbed in epoch {self.state.epoch + 1} by "
            f"{self.scheme.spec}: {share:.1%} of {counts.tokens} tokens, {splits:.3f} splits a "
            "token"
        )
        if counts.too_long:
            line += (
                f"; {counts.too_long} stayed canonical, since their draws do not fit in "
                f"max_length={self.max_length}: raise it or use a weaker scheme"
            )
        undrawn = counts.rows - counts.changed - counts.too_long
        if undrawn and isinstance(self.scheme, UniformK):
            line += f"; {undrawn} stayed canonical, since they have {ONLY_CANONICAL}"
        (write if counts.changed == counts.rows else _log.warning)(line)

    def _sampler(self) -> Sampler:
        """The scheme of the next batch.

        Worker n of a loader collates every batch whose number in the epoch has the remainder n.
        """
        if isinstance(self.scheme, Sampler):
            return self.scheme
        if self._counted_epoch != self.state.epoch:
            self._n_batches, self._counted_epoch = 0, self.state.epoch
        worker = get_worker_info()
        n_workers, number = (worker.num_workers, worker.id) if worker else (1, 0)
        steps, last, per_step = self.batches.tolist()
        if not last:
            raise RobustokError(
                f"{self.scheme.spec} is a schedule, which moves with the steps of a trainer: give "
                "the trainer to robustify, or choose a scheme of one strength"
            )
        step = steps + (self._n_batches * n_workers + number) // per_step
        self._n_batches += 1
        return at_stage(self.scheme, step, last)

    def _drawn(self, rows: Sequence[Columns], numbers: Sequence[int]) -> Iterator[Columns]:
        if self._n_checked < _CHECKED_ROWS[int(self._judged[0] < _ENOUGH_IDS)]:
            self._check_canonical(rows[: _CHECKED_ROWS[0]])
            self._n_checked += len(rows)
        answers, kept = self._kept(rows)
        batch = Ragged.from_rows([row.ids for row in rows])
        keys = [row_key(ids, 0, number) for ids, number in zip(batch, numbers, strict=True)]
        samples = self._sampler().sample_batch(
            batch, seed=self.seed, keys=keys, epoch=self.state.epoch, keep=np.concatenate(kept)
        )
        moved = [self._moved(*one) for one in zip(rows, samples, answers, kept, strict=True)]
        self._count(batch, samples, np.concatenate(kept), np.array([new is None for new in moved]))
        return (row if new is None else new for row, new in zip(rows, moved, strict=True))

    def _check_canonical(self, rows: Sequence[Columns]) -> None:
        """Raise RobustokError where rows are not the canonical ids of their text.

        A tokenizer decodes another one's ids to a text of its own, which has other canonical ids.
        The ends of a row and of its answers, and rows whose beginning no text of its own has, are
        not judged.
        """
        if not rows:
            return
        ids = Ragged.from_rows([row.ids for row in rows])
        verdicts = Guard(self.vocab, allow_special=True, max_length=None).check_batch(ids)
        judged = np.concatenate([_is_inside(row.answers()) for row in rows])
        judged &= ~np.repeat(verdicts.has(TEXT_CHANGES), np.diff(verdicts.offsets))
        self._judged += (judged.sum(), verdicts.deviates[judged].sum())
        total, deviating = self._judged.tolist()
        largest = ids.values.max(initial=0)
        if largest >= self.vocab.size:
            problem = (
                f"the tokenizer of the scheme has {self.vocab.size} ids, and rows have id {largest}"
            )
        elif total >= _FEWEST_IDS and deviating > max(1, _MOST_DEVIATING * total):
            problem = (
                f"{deviating} of {total} ids in the first rows are not those that the tokenizer of "
                "the scheme gives for their text"
            )
        else:
            return
        raise RobustokError(
            f"{problem}: another tokenizer encoded them; give that one, and rows that are not "
            "drawn yet"
        )

    def _kept(self, rows: Sequence[Columns]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The ids that ``where`` leaves to the model, and all that stay; bool [ids] of each row.

        The headers of a chat template and padding also stay. Raises RobustokError where all ids do.
        """
        answers, kept = [], [np.empty(0, np.bool_)] * (not rows)
        for row in rows:
            mask = row.per_id.get("attention_mask", np.ones(len(row.ids)))
            left = row.answers() if self.where != "all" else np.zeros(len(row.ids), np.bool_)
            if self._turns is not None and self.where == "user":
                left |= ~self._turns.user(row.ids)
            answers.append(left & (mask != 0))
            kept.append(answers[-1] | (mask == 0))
            if self._turns is not None:
                kept[-1] |= self._turns.headers(row.ids)
        if sum(map(len, kept)) and all(stays.all() for stays in kept):
            raise RobustokError(
                f"nothing may be perturbed in {len(rows)} rows: every id has a label or is outside "
                f"of what where='{self.where or 'unlabeled'}' allows; choose where='all', or label "
                "the answers alone (in TRL, assistant_only_loss=True; in transformers, with a "
                "collator that keeps labels, not DataCollatorForLanguageModeling)"
            )
        return answers, kept

    def _count(self, old: Ragged, new: Ragged, kept: np.ndarray, too_long: np.ndarray) -> None:
        """Add rows to the counts of this process.

        ``kept``: bool [ids], those that stay. ``too_long``: bool [rows], those that stay canonical.
        """
        worker = get_worker_info()
        free = ~kept & self.vocab.ordinary[old.values]
        strength = measure(self.vocab, old, new)
        # Tokens of the old row that the new one does not have: as many as the rows do not share.
        replaced = strength.canonical - strength.tokens + strength.distance
        changed = ~too_long & (replaced > 0)
        process = 1 + worker.id % (_PROCESSES - 1) if worker else 0
        rows = [len(old), changed.sum(), too_long.sum()]
        ids = [free.sum(), replaced[changed].sum(), strength.splits[changed].sum()]
        self.counts[process] += torch.tensor([*rows, *ids])

    def _moved(
        self, row: Columns, new: np.ndarray, answers: np.ndarray, kept: np.ndarray
    ) -> Columns | None:
        """The row with its new ids, cut to what fits; None where it stays canonical instead."""
        old = row.ids
        ends = np.cumsum(self.lengths[old])
        starts = np.cumsum(self.lengths[new]) - self.lengths[new]
        source = np.searchsorted(ends, starts, side="right")
        limit = len(new) if self.max_length is None else max(self.max_length, len(old))
        if len(new) > limit:
            if self.cut is None:
                return None
            chosen = slice(limit) if self.cut == "end" else slice(len(new) - limit, None)
            lost, new, source = np.delete(source, chosen), new[chosen], source[chosen]
            # A row as long as allowed was mostly cut there already, within its answer too.
            if len(old) == limit:
                stays = answers.any() and not answers[source].any()
            else:
                stays = (kept | ~self.vocab.ordinary[old])[lost].any()
            if stays:
                return None
        moved = row.at(source)
        for name in row.labels:
            moved.per_id[name] = np.where(moved.per_id[name] != IGNORED, new, IGNORED)
        moved.per_id["input_ids"] = new
        return moved


def _is_inside(answers: np.ndarray) -> np.ndarray:
    """Which ids are ``_EDGE`` away from the ends of a row and of its ``answers``, bool [ids]."""
    borders = np.ones(len(answers) + 1, np.bool_)
    borders[1:-1] = np.diff(answers)
    return np.convolve(borders, np.ones(2 * _EDGE))[_EDGE : _EDGE + len(answers)] == 0


class TorchCollator:
    """A ``collate_fn`` for a plain ``DataLoader``: rows drawn anew and padded to tensors.

    >>> collate = TorchCollator("uniform-k(k=2)", seed=0, tokenizer=tokenizer, pad_id=0)
    >>> rows = [{"input_ids": vocab.encode(text), "labels": [-100, 275]} for text in texts[:1]]
    >>> collate(rows)
    {'input_ids': tensor([[272,  79, 275]]), 'labels': tensor([[-100, -100,  275]]), 'attention_mask': tensor([[1, 1, 1]])}

    Args:
        scheme: a spec, or a sampler.
        pad_id: id that fills rows up on the right; masked, and without labels.
        settings: those of `Perturb`: ``seed``, any integer; ``tokenizer``, the one that encoded the
            rows, for a spec; ``where`` and ``max_length``, as of `robustify`.

    Tensors are int64 [rows, length]; other columns must hold numbers, as many in each row. Call
    :meth:`set_epoch` before each epoch: rows that come again without it have the same draws, of
    which a line warns. Worker processes that are forked or spawned follow it. A log line then says
    how much the epoch before perturbed, as a warning where a row was not.
    """  # noqa: E501

    def __init__(self, scheme: str | Spec | Sampler, *, pad_id: int, **settings: Any) -> None:
        self.perturb, self.pad_id = Perturb(scheme, **settings), pad_id
        # Keys of the epoch's first rows, and how often each came again; of all worker processes.
        self._first = torch.zeros((2, _REMEMBERED), dtype=torch.int64).share_memory_()

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch or step of the next draws: each gives other ones."""
        self.perturb.log_epoch()
        self.perturb.counts.zero_()
        self._first.zero_()
        self.perturb.state.epoch = check_epoch(epoch)

    def __call__(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        full = padded(self.perturb.drawn(rows), self.pad_id)
        self._warn_of_a_second_pass(rows)
        return {name: _tensor(name, [row.get(name) for row in full]) for name in full[0]}

    def _warn_of_a_second_pass(self, rows: Sequence[Row]) -> None:
        """Log one line an epoch where half of its first rows have come again."""
        keys, again = self._first.numpy()
        known = np.count_nonzero(keys)
        for row in rows:
            key = row_key(np.asarray(row["input_ids"]))
            same = keys == key
            again += same
            if known < _REMEMBERED and not same.any():
                keys[known], known = key, known + 1
        if np.count_nonzero(again > 0) >= max(2, known // 2):
            again[:] = -(1 << 62)
            _log.warning(
                "rows come again in epoch %d, with the same draws: call set_epoch(epoch) before "
                "each pass",
                self.perturb.state.epoch,
            )


def _tensor(name: str, values: list[Any]) -> torch.Tensor:
    try:
        return torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RobustokError(
            f"the column '{name}' of the rows makes no tensor ({error}): remove it, or give "
            "numbers, as many in each row"
        ) from error
