"""Spectral norms of a causal language model's weight matrices, by power iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from robustok.errors import RobustokError

_BLOCK = 16  # vectors iterated together: a cluster of large singular values slows one alone down
_MOST = 5000  # iterations
_TALL = 4
_FINEST = 1e-5  # of float32 products


@dataclass(frozen=True)
class LayerNorms:
    """‖·‖₂ of one layer's matrices; of query, key and value one per attention head.

    A head that shares its keys and values has those of its group. ``feed_forward`` is the product
    of the norms of the block's matrices: two, or three where it is gated.
    """

    query: tuple[float, ...]
    key: tuple[float, ...]
    value: tuple[float, ...]
    output: float
    feed_forward: float


class Weights(NamedTuple):
    """One layer's matrices, each [outputs, inputs]; those of heads [heads, outputs, inputs]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    feed_forward: list[torch.Tensor]


def spectral_norm(matrix: torch.Tensor, *, tolerance: float = 1e-3) -> torch.Tensor:
    """The largest singular value of a matrix, or of each of a stack of them.

    >>> round(float(spectral_norm(torch.diag(torch.tensor([3.0, 1.0, 2.0])))), 3)
    3.0

    ``matrix`` is [..., m, n], the result float64 [...]. Power iteration on AᵀA with a block of
    16 vectors from a fixed start, until the residual of the leading pair says that a singular
    value lies within ``tolerance``, relatively, of what is returned. The value is approached from
    below. The products are float32, on the matrix's device.

    Raises RobustokError for a tolerance under 1e-5 and for numbers that are not finite.
    """
    if not _FINEST <= tolerance < 1:
        raise RobustokError(f"tolerance {tolerance} is not between {_FINEST:g} and 1")
    a = matrix.detach().float()
    if not bool(torch.isfinite(a).all()):
        raise RobustokError("a weight matrix holds numbers that are not finite: is it trained?")
    if a.shape[-2] < a.shape[-1]:
        a = a.mT
    start = torch.Generator().manual_seed(0)
    columns = min(_BLOCK, a.shape[-1])
    x = torch.randn(*a.shape[:-2], a.shape[-1], columns, generator=start).to(a.device)
    # AᵀA of a tall matrix, such as an embedding, is small: cheaper than to read A at every step.
    gram = a.mT @ a if a.shape[-2] >= _TALL * a.shape[-1] else None
    for _ in range(_MOST):
        x = torch.linalg.qr(x).Q
        z = a.mT @ (a @ x) if gram is None else gram @ x
        inner = x.mT @ z
        squares, turns = torch.linalg.eigh((inner + inner.mT) / 2)
        top, turn = squares[..., -1], turns[..., -1:]
        residual = torch.linalg.vector_norm(z @ turn - top[..., None, None] * (x @ turn), dim=-2)
        # Within 2·tolerance of the square is within tolerance of the value itself.
        if bool((residual[..., 0] <= 2 * tolerance * top).all()):
            return top.clamp(min=0).double().sqrt()
        x = z
    raise RobustokError(f"no spectral norm to {tolerance:g} in {_MOST} steps: ask for less")


def layer_norms(
    model: Any, *, tolerance: float = 1e-3, progress: Callable[[int, int], None] | None = None
) -> tuple[LayerNorms, ...]:
    """The norms of every layer of a Llama-like model or a GPT-2, in order.

    >>> len(layer_norms(model))
    3

    Raises RobustokError for a layer whose matrices are not found.
    """
    blocks = _blocks(model)
    norms = []
    for done, block in enumerate(blocks):
        weights = layer_weights(model, block)
        heads = [tuple(spectral_norm(stack, tolerance=tolerance).tolist()) for stack in weights[:3]]
        output = float(spectral_norm(weights.output, tolerance=tolerance))
        feed_forward = 1.0
        for matrix in weights.feed_forward:
            feed_forward *= float(spectral_norm(matrix, tolerance=tolerance))
        shared = len(heads[0]) // len(heads[1])
        key, value = (tuple(n for n in group for _ in range(shared)) for group in heads[1:])
        norms.append(LayerNorms(heads[0], key, value, output, feed_forward))
        if progress is not None:
            progress(done + 1, len(blocks))
    return tuple(norms)


def layer_weights(model: Any, block: Any) -> Weights:
    """The matrices of one layer, by the names that transformers gives them."""
    config = model.config.get_text_config()
    attention: Any = getattr(block, "self_attn", getattr(block, "attn", None))
    mlp: Any = getattr(block, "mlp", None)
    if hasattr(attention, "q_proj") and hasattr(attention, "o_proj"):
        query, key, value = (getattr(attention, f"{n}_proj").weight for n in "qkv")
        output = attention.o_proj.weight
    elif hasattr(attention, "c_attn"):
        query, key, value = attention.c_attn.weight.T.chunk(3)
        output = attention.c_proj.weight.T
    else:
        raise _unknown(model)
    if hasattr(mlp, "gate_proj"):
        feed_forward = [mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight]
    elif hasattr(mlp, "c_fc"):
        feed_forward = [mlp.c_fc.weight.T, mlp.c_proj.weight.T]
    else:
        raise _unknown(model)
    width = len(query) // int(config.num_attention_heads)
    query, key, value = (stack.unflatten(0, (-1, width)) for stack in (query, key, value))
    return Weights(query, key, value, output, feed_forward)


def _blocks(model: Any) -> Any:
    body = model.base_model
    blocks = getattr(body, "layers", getattr(body, "h", None))
    if blocks is None or not len(blocks):
        raise _unknown(model)
    return blocks


def _unknown(model: Any) -> RobustokError:
    return RobustokError(
        f"a {type(model).__name__} keeps its weights under other names: the bound is read from "
        "Llama-like models (q_proj … down_proj) and GPT-2"
    )
