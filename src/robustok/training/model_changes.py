"""Temporary changes of a model while it is trained: dropout, attention, and input of the head.

Dropout is for architectures whose configuration has none too. GPT-2 has dropout of its own: after
the embeddings, in attention, and after every attention and feed-forward layer. Llama, Qwen 3 and
Gemma 3 have it in attention only, so that the other places are filled by hooks. The model is as
before after the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTENTION = "attention_dropout"  # attribute of the attention of models without nn.Dropout
_LAYERS = ("self_attn", "mlp")  # of a decoder layer, whose outputs are added to the residual
_SHORT = 256  # tokens; memory of eager attention grows with their square


@contextmanager
def dropout_of(model: PreTrainedModel, share: float | None) -> Iterator[None]:
    """Train with this dropout within the block; None leaves the model as it is.

    >>> from robustok.models import small_model
    >>> model = small_model(300, "quick", seed=0)
    >>> with dropout_of(model, 0.1):
    ...     model.model.layers[0].self_attn.attention_dropout
    0.1
    >>> model.model.layers[0].self_attn.attention_dropout
    0.0

    Args:
        model: a causal language model of transformers.
        share: probability that a value is set to zero.
    """
    if share is None:
        yield
        return
    hooks: list[Any] = []
    modules = dict(model.named_modules())
    own = [
        module
        for name, module in modules.items()
        if isinstance(module, nn.Dropout) and "lora_" not in name  # an adapter has its own
    ]
    before: list[tuple[Any, str, float]] = [(module, "p", module.p) for module in own]
    for name, module in modules.items():
        if isinstance(getattr(module, _ATTENTION, None), (int, float)):
            before.append((module, _ATTENTION, getattr(module, _ATTENTION)))
        if not own and name.rpartition(".")[2] in _LAYERS:
            hooks.append(module.register_forward_hook(_dropping(share)))
    if not own:
        hooks.append(model.get_input_embeddings().register_forward_hook(_dropping(share)))
    for module, name, _ in before:
        setattr(module, name, share)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        for hook in hooks:
            hook.remove()


def _dropping(share: float) -> Any:
    """A hook that drops values of a module's output, of a tuple its first."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (nn.functional.dropout(output[0], share, module.training), *output[1:])
        return nn.functional.dropout(output, share, module.training)

    return hook


@contextmanager
def fast_steps(model: PreTrainedModel, precision: str, row_length: int | None) -> Iterator[str]:
    """Train by the fastest attention and output layer; yields the name of the attention.

    >>> from robustok.models import small_model
    >>> with fast_steps(small_model(300, "quick", seed=0), "float32", 128) as attention:
    ...     attention
    'sdpa'

    Args:
        model: a causal language model of transformers, or one with LoRA.
        precision: ``"float32"`` or ``"bfloat16"``.
        row_length: tokens of a long row; None where it is unknown.

    The backward pass of PyTorch's attention (`scaled_dot_product_attention`) takes four times as
    long as the plain formula in bfloat16 on a processor. A frozen output layer is copied for every
    row where its input is a slice of the hidden states that is not contiguous.
    """
    base: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore
    before = str(base.config._attn_implementation)
    on_processor = not torch.accelerator.is_available()
    short = row_length is not None and row_length <= _SHORT
    eager = on_processor and precision == "bfloat16" and short and before == "sdpa"
    head = base.get_output_embeddings()
    hook = head.register_forward_pre_hook(_contiguous) if head is not None else None
    try:
        if eager:
            base.set_attn_implementation("eager")
        yield "eager" if eager else before
    finally:
        if eager:
            base.set_attn_implementation(before)
        if hook is not None:
            hook.remove()


def _contiguous(_module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].contiguous(), *inputs[1:])
