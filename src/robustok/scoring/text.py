"""Log-likelihood of long texts under a model, in chunks of at most max_length tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from robustok.ragged import Ragged


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
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> list[TextLoss]:
    """The loss of each row of ids, after ``start``, in chunks of at most ``max_length`` ids.

    >>> losses = text_losses(model, vocab.encode_batch(texts), max_length=64, start=0)
    >>> [loss.tokens for loss in losses]
    [2, 2]

    Each id is predicted once: a chunk begins with the last id of the one before. The model is put
    back into training where it was.
    """
    import torch

    owners, chunks = _chunks(rows, max_length, start)
    # Chunks of like length together, so that little is padded.
    order = sorted(range(len(chunks)), key=lambda i: -len(chunks[i]))
    nats, counts = [0.0] * len(rows), [0] * len(rows)
    training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad():
            for begin in range(0, len(order), batch_size):
                chosen = order[begin : begin + batch_size]
                batch = [torch.tensor(chunks[i], dtype=torch.int64) for i in chosen]
                losses = _batch_losses(model, batch, device)
                for i, loss in zip(chosen, losses, strict=True):
                    nats[owners[i]] += loss
                    counts[owners[i]] += len(chunks[i]) - 1
                if progress is not None:
                    progress(min(begin + batch_size, len(order)), len(order))
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


def _batch_losses(model: Any, batch: Sequence[Any], device: Any) -> list[float]:
    import torch

    ids = torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True).to(device)
    logits = model(input_ids=ids).logits[:, :-1].float()
    log_probs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].double()
    lengths = torch.tensor([len(chunk) - 1 for chunk in batch], device=device)
    real = torch.arange(log_probs.shape[1], device=device)[None] < lengths[:, None]
    return (-(log_probs * real).sum(-1)).tolist()
