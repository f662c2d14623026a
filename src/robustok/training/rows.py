"""Training rows, with new draws each time a row is read, and their batches.

A row is one question (`PromptDataset`), as many whole ones as fit (`PackedPrompts`), or a block of
documents (`PackedStream`). Each question of a packed row attends to itself only, and only answers
are in the loss. Positions restart at every question, by which transformers separates them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data import Sampler as Order

from robustok.checks import IGNORED, check_ids
from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.runtime.files import JsonObject
from robustok.samplers import Sampler, Schedule
from robustok.samplers.base import STAGES, at_stage, check_vocabulary_of
from robustok.tasks.item import Item, Pair
from robustok.tokenizer.chat import after_prefix
from robustok.tokenizer.vocabulary import Vocabulary, end_of_text
from robustok.training.recipe import Questions

_GROUP = 256  # questions that one call of the sampler draws
_GROUP_IDS = 1 << 16  # ids of documents that one call draws


def scheme_at(sampler: Sampler | Schedule, seen: int, total: int | None) -> Sampler:
    """The sampler after ``seen`` of ``total`` rows, which a schedule that moves needs."""
    if not isinstance(sampler, Schedule):
        return sampler
    if sampler.is_constant:
        return sampler.at(0.0)
    if total is None:
        raise RobustokError(
            f"{sampler.spec} is a schedule: give the total, over how many rows it moves"
        )
    return at_stage(sampler, seen, total)


def stage_size(sampler: Sampler | Schedule, total: int | None, max_rows: int) -> int:
    """How many rows one call of the sampler may draw, at most ``max_rows``, at one strength."""
    if not isinstance(sampler, Schedule) or sampler.is_constant:
        return max_rows
    return max(1, min(max_rows, (total or 0) // STAGES))


def end_of_answers(
    vocab: Vocabulary, items: Sequence[Item | Pair], end: str | int | None, model: Any = None
) -> int | None:
    """The id after each answer, by the setting ``end`` of a fine-tuning; None for none.

    Raises RobustokError where no end token is known.
    """
    if end == "none" or (end is None and not all(isinstance(item, Pair) for item in items)):
        return None
    return end_token(model, vocab, end)


def end_token(model: Any, vocab: Vocabulary, end: str | int | None) -> int:
    """The id that ends a text, which becomes the end of text of a model that has none."""
    config = getattr(model, "config", None)
    model_end = getattr(config, "eos_token_id", None)
    if end is None and isinstance(model_end, int) and model_end in vocab.special:
        return model_end
    end_id = end_of_text(vocab, end)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if config is not None and getattr(config, name, None) is None:
            setattr(config, name, end_id)
            if model.generation_config is not None:
                setattr(model.generation_config, name, end_id)
    return end_id


class AnswerCollator:
    """Pad on the left, so that all answers end at the right edge; int64 [rows, length].

    With ``short_labels``, the labels, and by ``logits_to_keep`` the model's output layer, cover
    only the last few positions, which hold every answer and the position before it. Without
    ``positions`` the model takes no ``position_ids`` and derives them from the mask.
    """

    def __init__(self, pad_id: int, *, short_labels: bool = True, positions: bool = True) -> None:
        self.pad_id, self.short_labels, self.positions = pad_id, short_labels, positions

    def __call__(self, rows: Sequence[JsonObject]) -> JsonObject:
        # A row without ids attends to one of padding: some kernels turn a masked row into NaN.
        sequences = Ragged.from_rows(
            [row["input_ids"] if len(row["input_ids"]) else [self.pad_id] for row in rows]
        )
        answers = np.array([[row["answer"]] for row in rows])
        ids = sequences.left_padded(self.pad_id)
        length = ids.shape[1]
        from_end = np.arange(length, 0, -1)
        mask = (from_end <= sequences.lengths[:, None]).astype(np.int64)
        labels = np.where(from_end <= answers, ids, IGNORED)
        batch: JsonObject = {
            "input_ids": torch.from_numpy(ids),
            "attention_mask": torch.from_numpy(mask),
        }
        if self.positions:
            batch["position_ids"] = torch.from_numpy(np.maximum(mask.cumsum(axis=1) - 1, 0))
        if self.short_labels:
            keep = int(answers.max()) + 1
            batch["logits_to_keep"] = min(keep, length)
            labels = np.ascontiguousarray(labels[:, -keep:])
        batch["labels"] = torch.from_numpy(labels)
        return batch


class PromptDataset(Dataset):
    """A map-style data set of (prompt, answer): the prompt perturbed, the answer canonical.

    A row is a dictionary with ``input_ids`` (int64 [n]: prefix, prompt, answer), ``answer``, the
    number of ids at its end that are the answer, ``overflowed``, whether its draw was too long, and
    its ``index``. An index is ``place * len(data) + row``, where the place is the number of rows of
    the training before it: every ``len(data)`` places begin a new epoch.

    A schedule moves over ``total`` rows, with one strength for all of a step of ``batch_size``.
    ``settings`` are fields of :class:`~robustok.training.recipe.Questions`.

    Raises RobustokError without items, for a schedule without ``total``, and at once for an answer
    that does not fit, or with ``"canonical"`` a canonical row that does not.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        items: Sequence[Item | Pair],
        sampler: Sampler | Schedule,
        *,
        seed: int,
        max_length: int | None = None,
        total: int | None = None,
        batch_size: int = 1,
        **settings: object,
    ) -> None:
        questions = Questions.of(settings)
        if not items:
            raise RobustokError("there are no questions to train on: give at least one")
        check_vocabulary_of(sampler, vocab)
        self.fixed_draws, self.overflow = questions.fixed_draws, questions.overflow
        self.sampler, self.seed = sampler, seed
        prefix, texts = check_ids(questions.prefix, vocab.size), [item.question for item in items]
        if vocab.ordinary[prefix[-1:]].any():  # the questions continue its text
            parts = [after_prefix(vocab, prefix, text) for text in texts]
            self.prefixes = [before for before, _ in parts]
            self.prompts = Ragged.from_rows([ids for _, ids in parts])
        else:
            self.prefixes, self.prompts = [prefix] * len(items), vocab.encode_batch(texts)
        self.answers = vocab.encode_continuations([item.answer for item in items])
        self._check_texts(items)
        end = end_of_answers(vocab, items, questions.end)
        if end is not None:
            offsets = self.answers.offsets
            values = np.insert(self.answers.values, offsets[1:], end)
            self.answers = Ragged(values, offsets + np.arange(len(offsets)))
        self.max_length = max_length or int(np.iinfo(np.int64).max)
        self.total, self.batch_size = total, batch_size
        scheme_at(sampler, 0, total)  # checks the total
        self._check(items)

    @property
    def row_length(self) -> int:
        """The tokens of the longest canonical question."""
        return int(self.prompts.lengths.max())

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> JsonObject:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[JsonObject]:
        """The rows of a batch; those of an epoch are drawn by one call of the sampler."""
        seen = min(indices) // len(self) // self.batch_size * self.batch_size
        rows = [
            row for keys, epoch in self._epochs(indices) for row in self.rows(keys, epoch, seen)
        ]
        return [row | {"index": index} for row, index in zip(rows, indices, strict=True)]

    def attacked(
        self, indices: Sequence[int], adversary: Callable[[list[int], int], Ragged]
    ) -> list[JsonObject]:
        """The rows of a batch with the tokenizations that an adversary gives."""
        return [
            row
            for keys, epoch in self._epochs(indices)
            for row in self._rows(keys, adversary(keys.tolist(), epoch))
        ]

    def _epochs(self, indices: Sequence[int]) -> Iterator[tuple[np.ndarray, int]]:
        """The numbers of the questions of some indices, by epoch."""
        places, keys = np.divmod(np.asarray(indices, dtype=np.int64), len(self))
        epochs = places // len(self)
        borders = np.flatnonzero(np.diff(epochs)) + 1
        for part, own in zip(np.split(keys, borders), np.split(epochs, borders), strict=True):
            yield part, int(own[0])

    def rows(self, keys: np.ndarray, epoch: int, seen: int) -> list[JsonObject]:
        """The rows of some questions, by their numbers, after ``seen`` rows of the training."""
        canonical = Ragged.from_rows([self.prompts[i] for i in keys])
        draw = epoch if self.fixed_draws is None else epoch % self.fixed_draws
        sampler = scheme_at(self.sampler, seen, self.total)
        return self._rows(
            keys, sampler.sample_batch(canonical, seed=self.seed, keys=keys, epoch=draw)
        )

    def _rows(self, keys: np.ndarray, prompts: Ragged) -> list[JsonObject]:
        return [
            self._row(self.prefixes[i], prompt, self.prompts[i], self.answers[i])
            for prompt, i in zip(prompts, keys, strict=True)
        ]

    def _row(
        self, prefix: np.ndarray, prompt: np.ndarray, canonical: np.ndarray, answer: np.ndarray
    ) -> JsonObject:
        room = self.max_length - len(answer) - len(prefix)
        is_too_long = len(prompt) > room
        if is_too_long:
            if self.overflow == "error":
                raise RobustokError(
                    f"a perturbed prompt has {len(prompt)} tokens and its answer {len(answer)}, "
                    f"more than max_length {self.max_length}: choose overflow drop, left or "
                    "canonical, or a larger max_length"
                )
            if self.overflow == "drop":
                return {"input_ids": np.empty(0, np.int64), "answer": 0, "overflowed": True}
            prompt = canonical if self.overflow == "canonical" else prompt[len(prompt) - room :]
        return {
            "input_ids": np.concatenate([prefix, prompt, answer]).astype(np.int64),
            "answer": len(answer),
            "overflowed": is_too_long,
        }

    def _check(self, items: Sequence[Item | Pair]) -> None:
        spans = self.answers.lengths + (self.prompts.lengths if self.overflow == "canonical" else 1)
        spans = spans + np.array([*map(len, self.prefixes)])
        i = int(spans.argmax())
        if spans[i] > self.max_length:
            name = "canonical row" if self.overflow == "canonical" else "answer"
            raise RobustokError(
                f"the {name} of item '{items[i].key}' needs {spans[i]} tokens, more than "
                f"max_length {self.max_length}: leave it out or use a larger max_length"
            )

    def _check_texts(self, items: Sequence[Item | Pair]) -> None:
        for lengths, name in ((self.prompts.lengths, "prompt"), (self.answers.lengths, "answer")):
            if not lengths.all():
                key = items[int(lengths.argmin())].key
                raise RobustokError(f"the {name} of item '{key}' has no tokens: give it some text")


class PackedPrompts(IterableDataset):
    """An endless stream of rows of ``prompts.max_length`` ids, filled with whole questions.

    A row is a dictionary of int64 arrays [max_length]: ``input_ids``; ``labels``, -100 outside the
    answers; ``position_ids``, which restart at each question and at the padding; and the number of
    its questions whose draw was too long, ``overflowed``. A question that does not fit begins the
    next row. Each epoch goes through all questions in a new order.
    """

    def __init__(self, prompts: PromptDataset, *, pad_id: int = 0) -> None:
        self.prompts, self.pad_id = prompts, pad_id
        self.seed, self.row_length = prompts.seed, prompts.max_length

    def __iter__(self) -> Iterator[JsonObject]:
        return (packed_row(rows, self.row_length, self.pad_id) for rows in self._rows())

    def _rows(self) -> Iterator[list[JsonObject]]:
        questions: list[JsonObject] = []
        group = stage_size(self.prompts.sampler, self.prompts.total, _GROUP)
        size = n_rows = 0
        for epoch in itertools.count():
            order = order_of(len(self.prompts), self.seed, epoch)
            for begin in range(0, len(order), group):
                keys = order[begin : begin + group]
                for question in self.prompts.rows(keys, epoch, n_rows):
                    length = len(question["input_ids"])
                    if size + length > self.row_length:
                        yield questions
                        questions, size, n_rows = [], 0, n_rows + 1
                    questions.append(question)  # has no ids if its draw was too long
                    size += length
            if not (size or n_rows):
                raise RobustokError(
                    f"no question fits into a row of {self.row_length} tokens: choose "
                    "overflow left or canonical, or a larger pack"
                )


def packed_row(questions: Sequence[JsonObject], length: int, pad_id: int) -> JsonObject:
    """The row of :class:`PackedPrompts` of some questions, which have ``length`` ids at most."""
    rows = [question["input_ids"] for question in questions]
    answers = [question["answer"] for question in questions]
    rows.append(np.full(length - sum(map(len, rows)), pad_id))
    answers.append(0)
    labels = [
        np.where(np.arange(len(row), 0, -1) <= answer, row, IGNORED)
        for row, answer in zip(rows, answers, strict=True)
    ]
    return {
        "input_ids": np.concatenate(rows),
        "labels": np.concatenate(labels),
        "position_ids": np.concatenate([np.arange(len(row)) for row in rows]),
        "overflowed": sum(question["overflowed"] for question in questions),
    }


class PackedStream(IterableDataset):
    """An endless stream of blocks: documents drawn, shuffled, ended by ``end`` and concatenated.

    A block is a dictionary with ``input_ids``, int64 [block_size]. Each epoch goes through all
    documents in a new order. The order and the draws depend on the seed and the epoch only; a
    schedule moves over ``total`` blocks.

    Raises RobustokError for documents without ids, and for a schedule without ``total``.
    """

    def __init__(
        self,
        documents: Ragged,
        sampler: Sampler | Schedule,
        *,
        seed: int,
        block_size: int,
        end: int,
        total: int | None = None,
    ) -> None:
        if not len(documents.values):
            raise RobustokError("there is no text to train on: every document is empty")
        self.documents, self.sampler, self.seed = documents, sampler, seed
        self.row_length, self.end, self.total = block_size, end, total
        scheme_at(sampler, 0, total)  # checks the total

    def __iter__(self) -> Iterator[JsonObject]:
        pending: list[np.ndarray] = []
        size = n_blocks = 0
        for epoch in itertools.count():
            for keys in self._groups(epoch):
                sampler = scheme_at(self.sampler, n_blocks, self.total)
                rows = Ragged.from_rows([self.documents[i] for i in keys])
                samples = sampler.sample_batch(rows, seed=self.seed, keys=keys, epoch=epoch)
                pending.append(np.insert(samples.values, samples.offsets[1:], self.end))
                size += len(pending[-1])
                if size < self.row_length:
                    continue
                joined = np.concatenate(pending)
                n_full = size // self.row_length * self.row_length
                n_blocks += n_full // self.row_length
                blocks = joined[:n_full].astype(np.int64).reshape(-1, self.row_length)
                yield from ({"input_ids": block} for block in blocks)
                pending, size = [joined[n_full:]], size - n_full

    def _groups(self, epoch: int) -> Iterator[np.ndarray]:
        """The numbers of documents in groups large enough for one call of the sampler."""
        order = order_of(len(self.documents), self.seed, epoch)
        ends = np.cumsum(self.documents.lengths[order])
        blocks = stage_size(self.sampler, self.total, -(-_GROUP_IDS // self.row_length))
        group_ids = min(blocks * self.row_length, _GROUP_IDS)
        cuts = np.searchsorted(ends, np.arange(group_ids, ends[-1], group_ids), side="left") + 1
        return (keys for keys in np.split(order, np.unique(cuts)) if len(keys))


def stack_rows(rows: list[JsonObject]) -> JsonObject:
    """Rows of one length as int64 tensors [rows, length]; without labels, all ids are labels.

    Models separate packed questions by positions only without an attention mask and without a
    cache, which `run.trainer_arguments` switches off.
    """
    names = [name for name in rows[0] if name != "overflowed"]
    batch = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in names}
    return {"labels": batch["input_ids"], **batch}


class RowOrder(Order):
    """The indices of all rows of a training: a new order in each epoch.

    An index holds the row and its place in the training, so epochs, schedules and batches do not
    depend on the number of processes or on restarts. The Trainer sees one epoch, since it fills up
    the last batch of an epoch. The order is a random permutation by seed and epoch. Rows are not
    grouped by length: with uniform-k and batches of one length the study `quick` fell from 93.5% to
    64.5% on canonical questions.
    """

    def __init__(self, dataset: PromptDataset, count: int) -> None:
        self.dataset, self.count = dataset, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        n_rows = len(self.dataset)
        for begin in range(0, self.count, n_rows):
            order = order_of(n_rows, self.dataset.seed, begin // n_rows)[: self.count - begin]
            yield from (np.arange(begin, begin + len(order)) * n_rows + order).tolist()


def order_of(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order of the rows in an epoch, int64 [rows]."""
    generator = np.random.default_rng([abs(seed), int(seed < 0), epoch])
    return generator.permutation(rows)
