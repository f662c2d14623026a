"""Both trainings: fine-tuning on questions, and pre-training on text.

Tokenizations are drawn anew at every step.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from transformers import PreTrainedModel

from robustok.checks import IGNORED
from robustok.errors import RobustokError
from robustok.models.load import check_fit, config_token, max_length_of
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject
from robustok.samplers import Sampler, Schedule
from robustok.samplers.base import check_vocabulary_of
from robustok.tasks.item import Item, Pair
from robustok.tokenizer.vocabulary import Vocabulary
from robustok.training.recipe import Finetuning, Questions, Recipe, Training
from robustok.training.rows import (
    AnswerCollator,
    PackedPrompts,
    PackedStream,
    PromptDataset,
    end_of_answers,
    end_token,
    packed_row,
    stack_rows,
)
from robustok.training.run import train

_CHUNK = 1_000
_ROWS: list[JsonObject] = [  # a long one and a short one, by which the loss of a model is checked
    {"input_ids": np.array(ids), "answer": 2, "overflowed": False}
    for ids in ([1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2], [3, 1, 2])
]


def finetune(
    model: PreTrainedModel,
    vocab: Vocabulary,
    items: Sequence[Item | Pair],
    *,
    sampler: Sampler | Schedule,
    seed: int,
    out: str | Path,
    adversary: Any = None,
    progress: Progress = no_progress,
    **settings: Any,
) -> Training:
    """Train a causal language model to answer questions whose tokenization ``sampler`` draws.

    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform-k(alpha=2)", vocab),
    ...                 steps=3, batch_size=4, learning_rate=2e-3, seed=0, out="runs/a")
    >>> done.steps, done.tokens > 0
    (3, True)

    Args:
        model: a causal language model of transformers; it is trained in place.
        vocab: the model's vocabulary.
        items: the questions and their answers, as :func:`~robustok.tasks.read_questions` reads
            them.
        sampler: draws the tokenization of each question, anew in every epoch. A canonical sampler
            trains canonically, and a schedule (``rt.schedule("stochastok(alpha=0.1->1)", vocab)``)
            moves from the first step to the last.
        seed: any integer. It decides the order of the rows, and with the epoch and the item's
            number the draw.
        out: the output folder for checkpoints, the trained model (safetensors) and its card. It is
            new, empty, or that of this training, and not in the folder of the model. A run that was
            stopped continues from its last checkpoint.
        adversary: gives the tokenizations of every n-th batch in place of the sampler, such as
            :class:`robustok.attack.Adversary`; by default none.
        progress: called with (steps done, all steps).
        **settings: fields of :class:`Finetuning`; ``steps``, ``batch_size`` and ``learning_rate``
            are required.

    The answer is tokenized canonically and alone in the loss. An end token follows the answers of
    prompts without choices (``end``).

    Raises RobustokError for a vocabulary larger than the model's embedding, an architecture whose
    loss in a batch is not that of each row alone, a loss that is not a number, a folder of another
    run or in use by one, and a full disk.
    Source: the paper's tables on supervised fine-tuning.
    """
    prefix = tuple(int(i) for i in settings.pop("prefix", ()))
    plan = Finetuning.of({**settings, "prefix": prefix})
    check_fit(model, vocab)
    if adversary is not None and plan.pack is not None:
        raise RobustokError("an adversary attacks batches of single questions: leave pack out")
    max_length = _row_length(model, plan.pack)
    # Padding is masked, so any id is valid if the model names none.
    pad_id = config_token(model, "pad_token_id", "eos_token_id") or 0
    collator = AnswerCollator(
        pad_id=pad_id,
        short_labels=accepts(model, "logits_to_keep"),
        positions=accepts(model, "position_ids"),
    )
    if plan.pack is None:
        _check_loss(model, collator(_ROWS), _ROWS)
    elif not accepts(model, "position_ids") or not _reads_alone(
        model, stack_rows([packed_row(_ROWS, 16, pad_id)]), _ROWS
    ):
        raise RobustokError(
            "the model does not keep packed questions apart by their position_ids: leave pack out"
        )
    end = end_of_answers(vocab, items, plan.end, model)
    plan = plan.replaced(end="none" if end is None else end)
    dataset = PromptDataset(
        vocab,
        items,
        sampler,
        seed=seed,
        max_length=max_length,
        total=plan.last_row,
        batch_size=plan.batch_size,
        **{field.name: getattr(plan, field.name) for field in fields(Questions)},
    )
    identity = {
        "sampler": sampler.spec,
        "items": _digest(items),
        "vocabulary": vocab.fingerprint,
        "adversary": adversary and adversary.spec,
    }
    common: Any = {"out": out, "settings": identity, "progress": progress}
    if plan.pack is not None:
        return train(model, PackedPrompts(dataset, pad_id=pad_id), stack_rows, plan, **common)
    return train(model, dataset, collator, plan, adversary=adversary, **common)


def _row_length(model: PreTrainedModel, pack: int | None) -> int | None:
    """The greatest number of tokens of a row; None for no limit."""
    max_length = max_length_of(model)
    if pack is None:
        return max_length
    if pack > (max_length or pack):
        raise RobustokError(f"pack is {pack}: give the tokens of a row, from 2 to {max_length}")
    return pack


def _check_loss(model: PreTrainedModel, batch: JsonObject, rows: Sequence[JsonObject]) -> None:
    if not _reads_alone(model, batch, rows):
        raise RobustokError(
            f"the loss of a {type(model).__name__} in a batch is not that of each next id of a row "
            "alone, so it would learn something else: train another architecture"
        )


def _reads_alone(model: PreTrainedModel, batch: JsonObject, rows: Sequence[JsonObject]) -> bool:
    """Whether the loss of a batch of these rows is that of the answers after each row alone.

    Some architectures predict an id from itself, read padding, number positions otherwise, or let
    packed rows attend to each other. What changes with the labels is compared, since a loss may
    have other terms.
    """
    options = {"use_cache": False} if accepts(model, "use_cache") else {}
    was_training, device = model.training, model.device
    moved: Any = send_to_device(batch, device)
    labels, tried = moved["labels"], range(6)  # of the answers, each id in turn
    answered = labels != IGNORED
    logits, largest = [], 0.0
    with torch.no_grad():
        model.eval()
        given, *losses = [
            float(model(**moved | {"labels": other}, **options).loss)
            for other in (labels, *(labels.masked_fill(answered, i) for i in tried))
        ]
        for row in rows:
            ids = torch.from_numpy(row["input_ids"]).to(device)
            alone = model(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).logits[0]
            before, answer = alone[-row["answer"] - 1 : -1].float(), ids[-row["answer"] :, None]
            logits.append(before.gather(1, answer) - before[:, : len(tried)])
            largest = max(largest, float(alone.abs().max()))
        model.train(was_training)
    changes = torch.cat(logits).mean(0).cpu() - torch.tensor(losses) + given
    noise = 5e-3 if model.dtype == torch.float32 else 2e-2  # of rounding, also to TF32
    # A loss that is not a number is no reason here: it stops the first step.
    return not bool((changes.abs() > noise * largest).any())


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
    ids = _ROWS[0]["input_ids"]
    _check_loss(
        model, stack_rows([{"input_ids": ids}]), [{"input_ids": ids, "answer": len(ids) - 1}]
    )
    documents = _encode(vocab, texts)
    stream = PackedStream(
        documents, sampler, seed=seed, block_size=block_size, end=end_id, total=plan.last_row
    )
    texts_digest = hashlib.sha256(documents.values.data)
    texts_digest.update(documents.offsets.data)
    settings = {
        "sampler": sampler.spec,
        "texts": texts_digest.hexdigest()[:16],
        "vocabulary": vocab.fingerprint,
        "end": end_id,
    }
    return train(model, stream, stack_rows, plan, out=out, settings=settings, progress=progress)


def _encode(vocab: Vocabulary, texts: Iterable[str] | Ragged) -> Ragged:
    if isinstance(texts, Ragged):
        return texts
    rows, unread = [], iter(texts)
    while chunk := list(itertools.islice(unread, _CHUNK)):
        rows.extend(vocab.encode_batch(chunk))
    return Ragged.from_rows(rows)


def accepts(model: PreTrainedModel, argument: str) -> bool:
    """Whether a model's forward takes an argument of that name."""
    base = getattr(model, "get_base_model", lambda: model)()
    return argument in inspect.signature(base.forward).parameters


def _digest(items: Sequence[Item | Pair]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr((item.question, item.answer)).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]
