"""Log-probabilities of given tokens: the output layer where it is read, in blocks of columns.

A block of columns is multiplied, and its log-sum-exp taken, while it is in the processor's cache;
all logits are never in memory. Only for models whose logits are those of a linear layer, on a CPU;
others give their logits.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn import functional

from robustok.errors import RobustokError
from robustok.scoring.tree import Ints

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BLOCK = 1 << 18  # logits of a block, 1 MB in float32
_COLUMNS = (1024, 4096)  # least and most columns of a block
_linear_heads: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class Outputs(NamedTuple):
    """Outputs of a model at some positions: [positions, size].

    ``values`` are hidden states before ``head``; float32 logits where it is None.
    """

    values: torch.Tensor
    head: torch.nn.Linear | None


def outputs_at(model: PreTrainedModel, flat: torch.Tensor, **inputs: object) -> Outputs:
    """Outputs of the positions ``flat`` (indices into [batch · length]) and of no other.

    The hidden states are picked before the output layer. Where the model does something to its
    logits afterwards (scaling, soft-capping), that is still done.
    """
    head = model.get_output_embeddings()
    if head is None:
        logits = model(**inputs).logits
        return Outputs(logits.reshape(-1, logits.shape[-1])[flat].float(), None)
    in_blocks = _in_blocks(model, head)
    picked: list[torch.Tensor] = []

    def pick(_module: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        hidden = args[0]
        picked.append(hidden.reshape(-1, hidden.shape[-1])[flat][None])
        return (picked[0][:, :0] if in_blocks else picked[0],)

    hook = head.register_forward_pre_hook(pick)
    try:
        logits = model(**inputs).logits
    finally:
        hook.remove()
    return Outputs(picked[0][0], head) if in_blocks else Outputs(logits[0].float(), None)


def log_probs_of(outputs: Outputs, rows: Ints, tokens: Ints) -> np.ndarray:
    """log p(token) at an output as float64, for each pair of int64 [pairs]."""
    values, head = outputs
    vocabulary = values.shape[-1] if head is None else head.weight.shape[0]
    if int(tokens.max(initial=0)) >= vocabulary:
        raise RobustokError(
            f"an option holds token {int(tokens.max())}, but the model scores only "
            f"{vocabulary}: use the model's own vocabulary"
        )
    if head is not None:
        return _by_blocks(values, head, rows, tokens)
    row = torch.as_tensor(rows, device=values.device)
    token = torch.as_tensor(tokens, device=values.device)
    chosen = values[row, token] - torch.logsumexp(values, dim=-1)[row]
    return chosen.double().cpu().numpy()


def _by_blocks(states: torch.Tensor, head: torch.nn.Linear, rows: Ints, tokens: Ints) -> np.ndarray:
    """The log-probabilities of :func:`log_probs_of`, without all logits in memory.

    Pairs are read in the order of their tokens, so that those of a block of columns are a slice.
    """
    by_token = np.argsort(tokens, kind="stable")
    row, token = torch.as_tensor(rows[by_token]), torch.as_tensor(tokens[by_token])
    blocks = _column_blocks(len(states), len(head.weight), tokens[by_token])
    logit_of_pair = torch.empty(len(tokens), dtype=torch.float32)
    sums = torch.empty(len(blocks), len(states), dtype=torch.float32)  # log-sum-exp of each block
    for (columns, pairs), block_sums in zip(blocks, sums, strict=True):
        bias = None if head.bias is None else head.bias[columns]
        logits = functional.linear(states, head.weight[columns], bias).float()
        if pairs.start < pairs.stop:
            logit_of_pair[pairs] = logits[row[pairs], token[pairs] - columns.start]
        _log_sum_exp_(logits, block_sums)
    log_probs = np.empty(len(tokens))
    log_probs[by_token] = (logit_of_pair - torch.logsumexp(sums, dim=0)[row]).numpy()
    return log_probs


def _column_blocks(n_states: int, vocabulary: int, ordered: Ints) -> list[tuple[slice, slice]]:
    """Blocks of columns whose logits fit the cache; with each, its part of ``ordered`` tokens."""
    width = int(np.clip(_BLOCK // max(1, n_states), *_COLUMNS)) & -64
    edges = [*range(0, vocabulary, width), vocabulary]
    bounds = np.searchsorted(ordered, edges).tolist()
    columns, pairs = (itertools.starmap(slice, itertools.pairwise(x)) for x in (edges, bounds))
    return list(zip(columns, pairs, strict=True))


def _log_sum_exp_(logits: torch.Tensor, out: torch.Tensor) -> None:
    """The log-sum-exp of each row of ``logits``, which it overwrites.

    PyTorch vectorizes 2 ** x itself and leaves e ** x to MKL, which is four times as slow on
    processors of AMD. A row of -inf gives -inf.
    """
    highest = logits.amax(dim=-1, keepdim=True).clamp_min_(torch.finfo(logits.dtype).min)
    torch.sum(logits.sub_(highest).mul_(1 / math.log(2)).exp2_(), dim=-1, out=out)
    out.log_().add_(highest[:, 0])


def _in_blocks(model: PreTrainedModel, head: object) -> bool:
    """Whether logits are those of ``head`` alone, and in more than one block; kept for a model."""
    if type(head) is not torch.nn.Linear or head.weight.device.type != "cpu":
        return False
    if len(head.weight) <= _COLUMNS[1]:
        return False
    known = _linear_heads.get(model)
    if known is None:
        known = _linear_heads[model] = _logits_are_of(model, head)
    return known


def _logits_are_of(model: PreTrainedModel, head: torch.nn.Linear) -> bool:
    """Whether the model returns what its head gives, tested with large values in its place."""
    given: list[torch.Tensor] = []

    def replace(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        values = torch.linspace(-100, 100, output.shape[-1], dtype=output.dtype)
        given.append(values.expand_as(output))
        return values.repeat(*output.shape[:-1], 1)

    hook = head.register_forward_hook(replace)
    try:
        logits = model(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False).logits
    finally:
        hook.remove()
    return len(given) == 1 and bool((logits == given[0]).all())
