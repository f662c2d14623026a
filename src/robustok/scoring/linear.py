"""Float32 matrix products of linear layers through oneDNN, where PyTorch's own are slow.

PyTorch multiplies float32 matrices by MKL, which uses AVX2 on processors of AMD. oneDNN, which
PyTorch contains for other types, uses AVX-512 there: about twice as fast, in the same precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]

_LEAST = 10_000_000  # multiplications from which oneDNN pays for preparing a new shape (0.6 ms)


def fast_linear(model: Any) -> AbstractContextManager:
    """A context in which the linear layers of ``model`` compute by the faster library.

    It holds for this thread only, and only without gradients.
    """
    suitable = model.device.type == "cpu" and model.dtype == torch.float32
    return _FastLinear() if suitable and _onednn_is_faster() else nullcontext()


class _FastLinear(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping | None = None
    ) -> Any:
        if func is functional.linear and not kwargs and _large(*args[:2]):
            return _onednn(*args)
        if func is torch.addmm and not kwargs and _large(args[1], args[2].t()):  # Conv1D of GPT-2
            return _onednn(args[1], args[2].t(), args[0])
        return func(*args, **(kwargs or {}))


def block_product(states: torch.Tensor, weight: torch.Tensor) -> Product:
    """The product for many equal blocks of ``weight``, as large together as ``weight``."""
    suitable = states.device.type == "cpu" and _large(states, weight) and _onednn_is_faster()
    return _onednn if suitable else functional.linear


def _large(states: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        states.dtype == weight.dtype == torch.float32
        and weight.dim() == 2
        and states.numel() * len(weight) >= _LEAST
        and not torch.is_grad_enabled()
    )


def _onednn(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")


@lru_cache(maxsize=1)
def _onednn_is_faster() -> bool:
    """Whether the processor is one of AMD with AVX-512, and this PyTorch has the operation."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    if "AMD" not in str(capabilities.get("cpu_name")):
        return False
    states, weight = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3)
    try:
        return torch.equal(_onednn(states, weight), states @ weight.T)
    except (RuntimeError, AttributeError, TypeError):
        return False
