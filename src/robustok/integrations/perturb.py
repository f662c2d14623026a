"""New tokenizations for rows of canonical ids, in PyTorch without transformers.

Padding is taken off and put back. Rows that hold several sequences are split into them before a
draw, and joined again after it. Known forms: ``seq_lengths`` (TRL's `bfd` and `bfd_split`),
``position_ids`` that restart at 0 (padding-free rows), and an ``attention_mask`` that numbers the
sequences. Other packed rows are refused: a drawn token could cross a boundary, and the boundaries
would be wrong afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import get_worker_info

from robustok.checks import check_epoch, check_integer, check_seed, shown
from robustok.errors import RobustokError, check_choice
from robustok.guard import TEXT_CHANGES, Guard
from robustok.integrations.stochastic.switch import row_key
from robustok.ragged import Ragged
from robustok.runtime.processes import State
from robustok.samplers import Sampler, Spec, UniformK, measure, sampler
from robustok.samplers.uniform import ONLY_CANONICAL
from robustok.tokenizer.vocabulary import Vocabulary

Row = dict[str, Any]

# Boundaries of packed sequences that are not understood.
_UNKNOWN = (
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "cu_seqlens",
    "seq_idx",
    "sequence_ids",
    "segment_ids",
)
_log = logging.getLogger(__name__)
WHERE = ("unlabeled", "user", "all")
_REPORTED_ROWS = 64
_PROCESSES = 1025  # rows of the shared counts: the main process and 1024 workers
_CHECKED_ROWS = 32  # the first rows of each process, which must be canonical
_EDGE = 4  # ids beside a border that may not be canonical: texts are cut or encoded apart there
_FEWEST_IDS = 16  # that are judged
_MOST_DEVIATING = 0.05  # share of the ids, as where texts were encoded in parts
Mask = Callable[[np.ndarray], np.ndarray]


def with_ids(row: Row, tokenizer: Any, column: str, max_length: int | None) -> Row:
    """A row with ``input_ids``: those of its text, cut to ``max_length``, where it has none.

    >>> from transformers import PreTrainedTokenizerFast
    >>> fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    >>> with_ids({"text": "hello world"}, fast, "text", 8)
    {'input_ids': [276, 275], 'labels': [276, 275]}

    A row that has ids loses its text, of which collators could make no tensor. Raises RobustokError
    for a row that has neither.
    """
    if row.get("input_ids") is not None:
        return {name: value for name, value in row.items() if name != column}
    if not isinstance(row.get(column), str):
        raise RobustokError(
            f"rows with {', '.join(sorted(row)) or 'no columns'} cannot be perturbed: give "
            f"rows with input_ids, or with text in a column '{column}'"
        )
    canonical = getattr(tokenizer, "wrapped_tokenizer", tokenizer)
    options = {} if max_length is None else {"truncation": True, "max_length": max_length}
    ids = canonical(row[column], **options)["input_ids"]
    return {"input_ids": ids, "labels": list(ids)}


def with_lists(row: Row) -> Row:
    """The row with lists in place of tensors and tuples, which data sets may give.

    >>> with_lists({"input_ids": (5, 6), "labels": 1})
    {'input_ids': [5, 6], 'labels': 1}
    """
    return {name: _as_list(value) for name, value in row.items()}


def padded(rows: Sequence[Row], pad_id: int, side: str = "right") -> list[Row]:
    """Rows of one length: ids padded on a ``side``, masked, and without labels there.

    Rows with ``position_ids`` get no mask: with one, models attend across packed sequences. Their
    padding has position 0.

    >>> rows = [{"input_ids": [5, 6], "labels": [-100, 6]}, {"input_ids": [7], "labels": [7]}]
    >>> padded(rows, pad_id=0)[1]
    {'input_ids': [7, 0], 'labels': [7, -100], 'attention_mask': [1, 0]}
    """
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": pad_id, "labels": -100}
    results = []

    def filled(name: str, value: list[Any]) -> list[Any]:
        pads = [fill.get(name, 0)] * (longest - len(value))
        return [*value, *pads] if side == "right" else [*pads, *value]

    for row in rows:
        if "position_ids" not in row:
            row = {**row, "attention_mask": row.get("attention_mask", [1] * len(row["input_ids"]))}
        results.append(_per_id(row, filled))
    return results


def split_row(row: Row) -> tuple[list[Row], int, int]:
    """The sequences of a row, a row each, and at which ids they begin and end: padding is outside.

    >>> split_row({"input_ids": [5, 6, 7, 0], "attention_mask": [1, 1, 2, 0]})[1:]
    (0, 3)
    >>> split_row({"input_ids": [5, 6, 7], "seq_lengths": [2, 1]})[0]
    [{'input_ids': [5, 6]}, {'input_ids': [7]}]

    Raises RobustokError for boundaries that are not understood or do not fit the ids.
    """
    unknown = [name for name in _UNKNOWN if row.get(name) is not None]
    if unknown:
        raise RobustokError(
            f"rows packed with {unknown[0]} cannot be perturbed: keep their boundaries as "
            "seq_lengths or position_ids, or switch packing off (packing=False)"
        )
    begin, end = 0, len(row["input_ids"])
    mask: Any = row.get("attention_mask")
    if is_per_id(mask, end) and np.any(mask):
        real = np.flatnonzero(mask)
        begin, end = int(real[0]), int(real[-1]) + 1
    row = _per_id(row, lambda _, value: value[begin:end])
    size = end - begin
    lengths = _lengths(row, size)
    if lengths is None:
        return [row], begin, end
    if sum(lengths) != size or (size and min(lengths) < 1):
        raise RobustokError(
            f"the sequences of a packed row have {sum(lengths)} ids, the row has {size}: pack it "
            "again, or switch packing off (packing=False)"
        )
    plain = {name: row[name] for name in row if name not in ("seq_lengths", "position_ids")}
    parts = [
        _per_id(plain, lambda _, value, b=stop - length, e=stop: value[b:e])
        for stop, length in zip(np.cumsum(lengths).tolist(), lengths, strict=True)
    ]
    return parts, begin, end


def join_row(row: Row, parts: Sequence[Row], begin: int, end: int) -> Row:
    """``row`` with new sequences, with boundaries in its form, and padding up to its length.

    >>> row = {"input_ids": [5, 6, 7, 0], "position_ids": [0, 1, 0, 0]}
    >>> join_row(row, [{"input_ids": [5, 8]}, {"input_ids": [7]}], 0, 3)
    {'input_ids': [5, 8, 7, 0], 'position_ids': [0, 1, 0, 0]}

    ``begin``, ``end``: as from :func:`split_row`. A row without padding is not filled.
    """
    size = len(row["input_ids"])
    lengths = [len(part["input_ids"]) for part in parts]
    missing = max(size - sum(lengths), 0) if end - begin < size else 0
    left = min(begin, missing) if end < size else missing
    joined: Row = {}
    for name, value in row.items():
        if name == "seq_lengths":
            joined[name] = lengths
        elif is_per_id(value, size):
            if name == "position_ids":
                values = [position for length in lengths for position in range(length)]
            else:
                values = [one for part in parts for one in part[name]]
            before, after = [*value[:1]] * left, [*value[-1:]] * (missing - left)
            joined[name] = [*before, *values, *after]
        else:
            joined[name] = value
    return joined


def repacked(rows: Sequence[Row], block_size: int) -> list[Row]:
    """Rows joined and cut into blocks, as TRL's `wrapped` packing does: the last may be shorter.

    >>> repacked([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5, 6]}], 4)
    [{'input_ids': [1, 2, 3, 4]}, {'input_ids': [5, 6]}]
    """
    names = [name for name, value in rows[0].items() if is_per_id(value, len(rows[0]["input_ids"]))]
    joined = {name: [one for row in rows for one in row[name]] for name in names}
    size = len(joined["input_ids"])
    return [
        {name: values[start : start + block_size] for name, values in joined.items()}
        for start in range(0, size, block_size)
    ]


def is_per_id(value: object, size: int) -> bool:
    """Whether a field of a row holds one value for each id."""
    return isinstance(value, (list, np.ndarray)) and len(value) == size


def _per_id(row: Row, change: Callable[[str, Any], Any]) -> Row:
    """The row with ``change(name, value)`` for each field that holds one value for each id."""
    size = len(row["input_ids"])
    return {name: change(name, v) if is_per_id(v, size) else v for name, v in row.items()}


def _as_list(value: object) -> Any:
    if isinstance(value, torch.Tensor) and value.ndim == 1:
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _lengths(row: Row, size: int) -> list[int] | None:
    if row.get("seq_lengths") is not None:
        return [int(length) for length in row["seq_lengths"]]
    if row.get("position_ids") is not None:
        positions = np.asarray(row["position_ids"])
        lengths = _runs(np.flatnonzero(positions == 0)[1:], size)
        if positions.tolist() != [position for length in lengths for position in range(length)]:
            raise RobustokError(
                "the position_ids of a packed row do not count from 0 in each sequence: their "
                "boundaries cannot be found; switch packing off (packing=False)"
            )
        return lengths
    mask = np.asarray(row.get("attention_mask") if row.get("attention_mask") is not None else [])
    if mask.ndim == 1 and len(mask) == size and size and mask.max() > 1:
        return _runs(np.flatnonzero(np.diff(mask)) + 1, size)
    return None


def _runs(starts: np.ndarray, size: int) -> list[int]:
    return np.diff([0, *starts.tolist(), size]).tolist() if size else []


class EpochCounts(NamedTuple):
    """What was perturbed: rows, rows changed, rows that stayed canonical for their length, and of
    the tokens that may change how many there were, how many were replaced, and the splits.
    """

    rows: int
    changed: int
    too_long: int
    tokens: int
    replaced: int
    splits: int

    def metrics(self) -> dict[str, float]:
        """What a trainer logs.

        >>> EpochCounts(4, 3, 1, 100, 20, 30).metrics()["perturb/splits_per_token"]
        0.3
        """
        tokens = max(self.tokens, 1)
        return {
            "perturb/changed_rows": self.changed,
            "perturb/overflow": self.too_long,
            "perturb/replaced": self.replaced / tokens,
            "perturb/splits_per_token": self.splits / tokens,
        }


class Perturb:
    """New tokenizations for rows of canonical ids; whatever is as long as the ids moves along.

    >>> perturb = Perturb("uniform-k(k=2)", seed=0, tokenizer=tokenizer)
    >>> row = {"input_ids": vocab.encode("hello world").tolist(), "labels": [-100, 275]}
    >>> perturb([row])
    [{'input_ids': [272, 79, 275], 'labels': [-100, -100, 275]}]

    An id of a new row takes the mask, and whether it has a label, of the old id
    in which its bytes begin. A new row is cut to ``max_length``, or to the old
    row's length where that is more, at its "end" or "start" (``cut``). A shorter
    row stays canonical where the cut would take ids that are not perturbed (an
    answer, a role name, a special token), one of that length where it would take
    the whole answer. With ``cut=None`` a row whose draw does not fit stays canonical.
    The sequences of a packed row are drawn one by one and packed again, with new
    boundaries. Padding at the ends of a row is not drawn; a longer draw takes its
    place, and a shorter one gets more of it.

    The scheme is a spec, with the ``tokenizer`` that encoded the rows, or a sampler. The ids of the
    first rows must be canonical, or RobustokError names the tokenizer that likely encoded them,
    ``encoded_by``.

    ``counts`` is int64 [_PROCESSES, 6]: the fields of :class:`EpochCounts`, by the
    process that collated the rows, 0 for the main one. ``state`` has the epoch of the draws, which
    worker processes share.
    """

    def __init__(
        self,
        scheme: str | Spec | Sampler,
        *,
        seed: int,
        tokenizer: Any = None,
        where: str = "unlabeled",
        turns: Mask | None = None,
        headers: Mask | None = None,
        max_length: int | None = None,
        cut: str | None = "end",
        encoded_by: str = "the model's",
    ) -> None:
        if tokenizer is not None:
            scheme = sampler(scheme, Vocabulary.load(tokenizer))
        if not isinstance(scheme, Sampler):
            raise RobustokError(
                f"the scheme {shown(scheme)} needs the tokenizer that encoded the rows: give it as "
                "tokenizer=..., or give a sampler"
            )
        self.draw, self.seed, self.state = scheme, check_seed(seed), State()
        self.where, self.turns, self.headers = check_choice("where", where, WHERE), turns, headers
        self.cut = cut if cut is None else check_choice("cut", cut, ("end", "start"))
        if max_length is not None:
            max_length = check_integer("max_length", max_length, 1)
        self.max_length = max_length
        self.encoded_by = encoded_by
        self._rows_to_check, self._judged = _CHECKED_ROWS, np.zeros(2, np.int64)
        self.counts = torch.zeros((_PROCESSES, 6), dtype=torch.int64).share_memory_()
        # A token without bytes is never drawn; where one is kept it must still take a place.
        self.lengths = np.maximum(self.draw.vocab.token_lengths, 1)

    def __call__(self, rows: Sequence[Row], numbers: Sequence[int] | None = None) -> list[Row]:
        """The rows drawn anew; equal rows with different ``numbers`` have different draws."""
        check_rows(rows)
        rows = [with_lists(row) for row in rows]
        split = [split_row(row) for row in rows]
        numbers = numbers or [0] * len(rows)
        owners = [number for number, (parts, *_) in zip(numbers, split, strict=True) for _ in parts]
        samples = iter(self._drawn([part for parts, *_ in split for part in parts], owners))
        return [
            join_row(row, [next(samples) for _ in parts], *places)
            for row, (parts, *places) in zip(rows, split, strict=True)
        ]

    @property
    def total(self) -> EpochCounts:
        """The counts of this process and of its workers."""
        return EpochCounts(*self.counts.sum(dim=0).tolist())

    def summed(self, device: torch.device | str = "cpu") -> EpochCounts:
        """The counts of all processes of a distributed training, each of which calls this.

        Args:
            device: of the tensor that they exchange.
        """
        counts = self.counts.sum(dim=0).to(device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts)
        return EpochCounts(*counts.tolist())

    def log_epoch(
        self, write: Callable[[str], object] = _log.info, counts: EpochCounts | None = None
    ) -> None:
        """Write what was perturbed since :attr:`counts` were zero; log a warning if not every row.

        Args:
            write: gets the line where every row was perturbed.
            counts: by default those of this process.
        """
        counts = counts or self.total
        if not counts.rows:
            return
        share, splits = (n / max(counts.tokens, 1) for n in (counts.replaced, counts.splits))
        line = (
            f"{counts.changed} of {counts.rows} rows perturbed in epoch {self.state.epoch + 1} by "
            f"{self.draw.spec}: {share:.1%} of {counts.tokens} tokens, {splits:.3f} splits a token"
        )
        if counts.too_long:
            line += (
                f"; {counts.too_long} stayed canonical, since their draws do not fit in "
                f"max_length={self.max_length}: raise it or use a weaker scheme"
            )
        undrawn = counts.rows - counts.changed - counts.too_long
        if undrawn and isinstance(self.draw, UniformK):
            line += f"; {undrawn} stayed canonical, since they have {ONLY_CANONICAL}"
        (write if counts.changed == counts.rows else _log.warning)(line)

    def _drawn(self, rows: Sequence[Row], numbers: Sequence[int]) -> list[Row]:
        ids = [np.asarray(row["input_ids"], dtype=np.int32) for row in rows]
        if self._rows_to_check > 0:
            self._check_canonical(rows, ids)
        stays = [self._stays(row, row_ids) for row, row_ids in zip(rows, ids, strict=True)]
        keep = np.concatenate([np.empty(0, np.bool_), *(kept for _, kept in stays)])
        if len(keep) and keep.all():
            raise RobustokError(
                f"nothing may be perturbed in {len(rows)} rows: every id has a label or is outside "
                f"of what where='{self.where}' allows; choose where='all', or label the answers "
                "alone (in TRL, assistant_only_loss=True; in transformers, with a collator that "
                "keeps labels, not DataCollatorForLanguageModeling)"
            )
        keys = [row_key(row, 0, number) for row, number in zip(ids, numbers, strict=True)]
        batch = Ragged.from_rows(ids)
        samples = self.draw.sample_batch(
            batch, seed=self.seed, keys=keys, epoch=self.state.epoch, keep=keep
        )
        moved = [
            self._moved(row, old, new, *which)
            for row, old, new, which in zip(rows, ids, samples, stays, strict=True)
        ]
        self._count(batch, samples, keep, np.array([new is None for new in moved], np.bool_))
        return [row if new is None else new for row, new in zip(rows, moved, strict=True)]

    def _check_canonical(self, rows: Sequence[Row], ids: Sequence[np.ndarray]) -> None:
        """Raise RobustokError where the first rows are not the canonical ids of their text.

        A tokenizer decodes another one's ids to a text of its own, which has other canonical ids.
        The ends of a row and of its answers, and rows whose beginning no text of its own has, are
        not judged.
        """
        ids = ids[: self._rows_to_check]
        self._rows_to_check -= len(ids)
        verdicts = Guard(self.draw.vocab, allow_special=True, max_length=None).check_batch(ids)
        inside = [_is_inside(_answers(row, len(row["input_ids"]))) for row in rows[: len(ids)]]
        judged = np.concatenate([np.empty(0, np.bool_), *inside])
        judged &= ~np.repeat(verdicts.has(TEXT_CHANGES), np.diff(verdicts.offsets))
        self._judged += (judged.sum(), verdicts.deviates[judged].sum())
        total, deviating = self._judged.tolist()
        size, largest = self.draw.vocab.size, max((row.max(initial=0) for row in ids), default=0)
        if largest >= size:
            problem = f"the tokenizer of the scheme has {size} ids, and rows have id {largest}"
        elif total >= _FEWEST_IDS and deviating > _MOST_DEVIATING * total:
            problem = (
                f"{deviating} of {total} ids in the first rows are not those that the tokenizer of "
                "the scheme gives for their text"
            )
        else:
            return
        raise RobustokError(
            f"{problem}: another tokenizer encoded them, likely {self.encoded_by}; give that one, "
            "and rows that are not drawn yet"
        )

    def _stays(self, row: Row, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ids that ``where`` leaves to the model, and all that stay; bool [ids] each.

        The headers of a chat template and padding also stay.
        """
        mask = row.get("attention_mask")
        real = np.ones(len(ids), np.bool_) if mask is None else np.asarray(mask) != 0
        answers = np.zeros(len(ids), np.bool_)
        if self.where != "all":
            answers |= _answers(row, len(ids))
            if self.turns is not None:
                answers |= ~self.turns(ids)
            answers &= real
        kept = answers | ~real
        return answers, kept if self.headers is None else kept | self.headers(ids)

    def _count(self, old: Ragged, new: Ragged, kept: np.ndarray, too_long: np.ndarray) -> None:
        """Add rows to the counts of this process.

        ``kept``: bool [ids], those that stay. ``too_long``: bool [rows], those that stay canonical.
        """
        vocab, worker = self.draw.vocab, get_worker_info()
        free = ~kept & vocab.ordinary[old.values]
        strength = measure(vocab, old, new)
        # Tokens of the old row that the new one does not have: as many as the rows do not share.
        replaced = strength.canonical - strength.tokens + strength.distance
        changed = ~too_long & (replaced > 0)
        process = 1 + worker.id % (_PROCESSES - 1) if worker else 0
        rows = [len(old), changed.sum(), too_long.sum()]
        ids = [free.sum(), replaced[changed].sum(), strength.splits[changed].sum()]
        self.counts[process] += torch.tensor([*rows, *ids])

    def _moved(
        self, row: Row, old: np.ndarray, new: np.ndarray, answers: np.ndarray, kept: np.ndarray
    ) -> Row | None:
        """The row with its new ids, cut to what fits; None where it stays canonical instead."""
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
                stays = (kept | ~self.draw.vocab.ordinary[old])[lost].any()
            if stays:
                return None
        moved: Row = {}
        for name, value in row.items():
            if name == "input_ids":
                moved[name] = new.tolist()
            elif not is_per_id(value, len(old)):
                moved[name] = value
            elif name == "labels":
                labelled = np.asarray(value)[source] != -100
                moved[name] = np.where(labelled, new, -100).tolist()
            else:
                moved[name] = np.asarray(value)[source].tolist()
        return moved


def _answers(row: Row, size: int) -> np.ndarray:
    """Which ids have a label or are marked as an answer, bool [size]."""
    answers = np.zeros(size, np.bool_)
    if is_per_id(row.get("labels"), size):
        answers |= np.asarray(row["labels"]) != -100
    for name in ("completion_mask", "assistant_masks"):
        if row.get(name) is not None:
            answers |= np.asarray(row[name], dtype=np.bool_)
    return answers


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
    :meth:`set_epoch` before each epoch; worker processes that are forked or spawned follow it. A
    log line then says how much the epoch before perturbed, as a warning where a row was not. The
    first 64 rows of a process are warned of at once where draws do not fit in ``max_length``.
    """  # noqa: E501

    def __init__(self, scheme: str | Spec | Sampler, *, pad_id: int, **settings: Any) -> None:
        self.perturb, self.pad_id = Perturb(scheme, **settings), pad_id
        self._unreported_rows = _REPORTED_ROWS

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next draws.

        Args:
            epoch: number of the epoch or step; each value gives other draws.
        """
        self.perturb.log_epoch()
        self.perturb.counts.zero_()
        self.perturb.state.epoch = check_epoch(epoch)

    def __call__(self, rows: Sequence[Row]) -> dict[str, torch.Tensor]:
        full = padded(self.perturb(rows), self.pad_id)
        if self._unreported_rows > 0:
            self._unreported_rows -= len(rows)
            if self._unreported_rows <= 0 and self.perturb.total.too_long:
                self.perturb.log_epoch()
        return {name: _tensor(name, [row.get(name) for row in full]) for name in full[0]}


def _tensor(name: str, values: list[Any]) -> torch.Tensor:
    try:
        return torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RobustokError(
            f"the column '{name}' of the rows makes no tensor ({error}): remove it, or give "
            "numbers, as many in each row"
        ) from error


def check_rows(rows: Sequence[object]) -> None:
    """Raise RobustokError unless rows are dictionaries of input_ids and as many labels and masks.

    >>> check_rows([{"input_ids": [1, 2], "labels": [-100, 2]}])

    A label is the id itself or -100. One label for the whole row, as of a classifier, stays.
    """
    for row in rows:
        is_row = isinstance(row, Mapping)
        if not is_row or isinstance(row.get("input_ids", ""), str):
            shown = f"columns {', '.join(row)}" if is_row else type(row).__name__
            raise RobustokError(
                f"rows are dictionaries with input_ids, a list of ids, not {shown}: encode the "
                "texts first"
            )
        size = len(row["input_ids"])
        for name in ("labels", "attention_mask"):
            values: Any = row.get(name)
            if np.ndim(values) and len(values) != size:
                raise RobustokError(
                    f"a row has {size} input_ids and {len(values)} {name}: give as many"
                )
        labels: Any = row.get("labels")
        if np.ndim(labels):
            ids, labels = np.asarray(row["input_ids"]), np.asarray(labels)
            wrong = np.flatnonzero((labels != ids) & (labels != -100))
            if len(wrong):
                raise RobustokError(
                    f"a row has label {labels[wrong[0]]} for id {ids[wrong[0]]}: a label is the id "
                    "itself, or -100 outside of the loss"
                )
