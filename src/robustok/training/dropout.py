"""Dropout during a training, for architectures whose configuration has none too.

GPT-2 has dropout of its own: after the embeddings, in attention, and after every attention and
feed-forward layer. Llama, Qwen 3 and Gemma 3 have it in attention only, so that the other places
are filled by hooks. The model is as before after the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ATTENTION = "attention_dropout"  # attribute of the attention of models without nn.Dropout
_LAYERS = ("self_attn", "mlp")  # of a decoder layer, whose outputs are added to the residual


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
