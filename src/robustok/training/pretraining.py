"""Pre-train a language model on text, with new draws of its tokenization in every epoch."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from torch.utils.data import IterableDataset
from transformers import PreTrainedModel

from robustok.errors import RobustokError
from robustok.models.load import check_fit, max_length_of
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject
from robustok.samplers import Sampler, Schedule
from robustok.samplers.base import check_vocabulary_of
from robustok.tokenizer.vocabulary import Vocabulary
from robustok.training.prompts import (
    end_token,
    order_of,
    scheme_at,
    stack_rows,
    stage_size,
)
from robustok.training.recipe import Recipe, Training
from robustok.training.run import train

_CHUNK = 1_000
_GROUP_IDS = 1 << 16


def pretrain(
    model: PreTrainedModel,
    vocab: Vocabulary,
    texts: Iterable[str] | Ragged,
    *,
    sampler: Sampler | Schedule,
    seed: int,
    out: str | Path,
    end: str | int | None = None,
    progress: Progress = no_progress,
    **recipe: object,
) -> Training:
    """Train a causal language model on documents packed into full blocks.

    >>> uniform = rt.sampler("uniform", vocab)
    >>> done = pretrain(model, vocab, texts, seed=0, out="runs/base", sampler=uniform, steps=2,
    ...                 batch_size=2, learning_rate=1e-3)
    >>> done.steps, done.tokens
    (2, 1024)

    Args:
        texts: documents, or their canonical ids as a Ragged (which may be a memory-mapped file).
        end: the special token, or its id, after each document; by default the one of the model's
            configuration, or else of the vocabulary.
        **recipe: fields of :class:`Recipe`; ``steps``, ``batch_size`` and ``learning_rate`` are
            required.

    ``model``, ``vocab``, ``sampler``, ``seed``, ``out`` and ``progress`` are as in
    :func:`finetune`, with a document for a question.

    Raises RobustokError for empty texts, where no end-of-text token is known, and as
    :func:`finetune` does.
    Source: the paper's table "Pre-training setup for Tiny-LLM".
    """
    plan = Recipe.of(recipe)
    check_fit(model, vocab)
    check_vocabulary_of(sampler, vocab)
    block_size = max_length_of(model)
    if block_size is None:
        raise RobustokError("the model's configuration has no max_position_embeddings: set it")
    end_id = end_token(model, vocab, end)
    documents = _encode(vocab, texts)
    stream = PackedStream(
        documents,
        sampler,
        seed=seed,
        block_size=block_size,
        end=end_id,
        total=plan.last_row,
    )
    texts_digest = hashlib.sha256(documents.values.data)
    texts_digest.update(documents.offsets.data)
    settings = {
        "sampler": sampler.spec,
        "texts": texts_digest.hexdigest()[:16],
        "vocabulary": vocab.fingerprint,
        "end": end_id,
    }
    return train(
        model,
        stream,
        stack_rows,
        plan,
        seed=seed,
        out=out,
        settings=settings,
        progress=progress,
        row_length=block_size,
    )


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
        self.block_size, self.end, self.total = block_size, end, total
        scheme_at(sampler, 0, total)  # checks the total

    def __iter__(self) -> Iterator[JsonObject]:
        for block in self._blocks():
            yield {"input_ids": block}

    def _blocks(self) -> Iterator[np.ndarray]:
        pending: list[np.ndarray] = []
        size = n_blocks = 0
        for epoch in itertools.count():
            for keys in self._groups(epoch):
                sampler = scheme_at(self.sampler, n_blocks, self.total)
                rows = Ragged.from_rows([self.documents[i] for i in keys])
                samples = sampler.sample_batch(rows, seed=self.seed, keys=keys, epoch=epoch)
                pending.append(np.insert(samples.values, samples.offsets[1:], self.end))
                size += len(pending[-1])
                if size < self.block_size:
                    continue
                joined = np.concatenate(pending)
                n_full = size // self.block_size * self.block_size
                n_blocks += n_full // self.block_size
                yield from joined[:n_full].astype(np.int64).reshape(-1, self.block_size)
                pending, size = [joined[n_full:]], size - n_full

    def _groups(self, epoch: int) -> Iterator[np.ndarray]:
        """The numbers of documents in groups large enough for one call of the sampler."""
        order = order_of(len(self.documents), self.seed, epoch)
        ends = np.cumsum(self.documents.lengths[order])
        blocks = stage_size(self.sampler, self.total, -(-_GROUP_IDS // self.block_size))
        group_ids = min(blocks * self.block_size, _GROUP_IDS)
        cuts = np.searchsorted(ends, np.arange(group_ids, ends[-1], group_ids), side="left") + 1
        return (keys for keys in np.split(order, np.unique(cuts)) if len(keys))


def _encode(vocab: Vocabulary, texts: Iterable[str] | Ragged) -> Ragged:
    if isinstance(texts, Ragged):
        return texts
    rows, unread = [], iter(texts)
    while chunk := list(itertools.islice(unread, _CHUNK)):
        rows.extend(vocab.encode_batch(chunk))
    return Ragged.from_rows(rows)
