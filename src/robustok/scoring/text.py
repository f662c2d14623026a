"""Log-likelihood of long texts under a model, in chunks of at most max_length tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from robustok.ragged import Ragged

_LOSS_TOKENS = 1024  # positions whose logits are turned into losses at once


class TextLoss(NamedTuple):
    """The negative log-likelihood of a text in nats, and how many ids it was summed over."""

    nats: float
    tokens: int


def text_losses(
    model: Any,
    rows: Ragged,
    *,
    max_length: int,
    start: int,
    max_batch_tokens: int = 8192,
    progress: Callable[[int, int], None] | None = None,
) -> list[TextLoss]:
    """The loss of each row of ids, after ``start``, in chunks of at most ``max_length`` ids.

    >>> losses = text_losses(model, vocab.encode_batch(texts), max_length=64, start=0)
    >>> [loss.tokens for loss in losses]
    [2, 2]

    Each id is predicted once: a chunk begins with the last id of the one before. A forward pass
    reads at most ``max_batch_tokens`` ids with their padding, or one chunk. The model is put back
    into training where it was.
    """
    owners, chunks = _chunks(rows, max_length, start)
    nats, counts, done = [0.0] * len(rows), [0] * len(rows), 0
    training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad():
            for chosen in _batches([len(chunk) for chunk in chunks], max_batch_tokens):
                batch = [torch.tensor(chunks[i], dtype=torch.int64) for i in chosen]
                losses = _batch_losses(model, batch, device)
                for i, loss in zip(chosen, losses, strict=True):
                    nats[owners[i]] += loss
                    counts[owners[i]] += len(chunks[i]) - 1
                done += len(chosen)
                if progress is not None:
                    progress(done, len(chunks))
    finally:
        model.train(training)
    return [TextLoss(loss, tokens) for loss, tokens in zip(nats, counts, strict=True)]


def _chunks(rows: Ragged, max_length: int, start: int) -> tuple[list[int], list[list[int]]]:
    owners, chunks = [], []
    for owner, row in enumerate(rows):
        ids = [start, *row.tolist()]
        for begin in range(0, len(ids) - 1, max_length - 1):
            owners.append(owner)
            chunks.append(ids[begin : begin + max_length])
    return owners, chunks


def _batches(lengths: Sequence[int], max_batch_tokens: int) -> Iterator[list[int]]:
    """Indices of chunks of like length, so that little is padded, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    begin = 0
    while begin < len(order):
        size = max(1, max_batch_tokens // lengths[order[begin]])
        yield order[begin : begin + size]
        begin += size


def _batch_losses(model: Any, batch: Sequence[Any], device: Any) -> list[float]:
    ids = torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True).to(device)
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    targets = ids[:, 1:].flatten()
    # In blocks, because a row of float32 logits has as many entries as the vocabulary.
    losses = [
        torch.nn.functional.cross_entropy(block.float(), wanted, reduction="none")
        for block, wanted in zip(
            logits.split(_LOSS_TOKENS), targets.split(_LOSS_TOKENS), strict=True
        )
    ]
    lengths = torch.tensor([len(chunk) - 1 for chunk in batch], device=device)
    by_row = torch.cat(losses).double().view(len(batch), -1)
    real = torch.arange(by_row.shape[1], device=device)[None] < lengths[:, None]
    return by_row.masked_fill(~real, 0.0).sum(-1).tolist()
