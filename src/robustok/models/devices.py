"""Devices on this machine that can run a model, and the precision that each computes fastest in.

The choice depends on the hardware and on the size of the model alone, so that a repeated run has
the same bits. Measured in products of 1,024 x 576 x 1,536, one thread: an Intel Xeon that shows
neither AMX nor AVX512_BF16 has 141 GFLOP/s in float32 and 31 in bfloat16; an AMD processor with
AVX512_BF16 has 80 to 97 in float32 and 310 to 450 in bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from robustok.errors import check_choice

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PRECISIONS = ("auto", "float32", "bfloat16")
# Parameters from which the products outweigh the conversions between the two types.
_LEAST = 50_000_000
_NATIVE = ("avx512_bf16", "amx_bf16")  # processor flags


def devices() -> list[str]:
    """The devices that torch sees, the processor first.

    >>> devices()[0]
    'cpu'
    """
    import torch

    names = ["cpu"]
    names += [f"cuda:{i} {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def default_device() -> str:
    """The device that models are evaluated on: ``"cuda"`` where torch sees one, else ``"cpu"``.

    MPS is not chosen: it has no float64, in which scores are summed.
    """
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_precision(precision: str, parameters: int, *, device: str = "cpu") -> str:
    """The precision to compute in: ``"float32"`` or ``"bfloat16"``.

    >>> resolve_precision("bfloat16", 10), resolve_precision("auto", 1_000_000)
    ('bfloat16', 'float32')

    Args:
        precision: one of ``PRECISIONS``. ``"auto"`` is bfloat16 where the device computes in it
            natively, and float32 elsewhere; on a processor, models of fewer than 50 million
            parameters stay in float32.
        parameters: number of parameters of the model.
        device: type of the device, as ``torch.device`` names it.

    Raises RobustokError for an unknown precision.
    """
    check_choice("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision
    if device == "cpu":
        native = parameters >= _LEAST and _native_bfloat16()
    else:
        import torch

        native = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if native else "float32"


def precision_of(model: PreTrainedModel) -> str:
    """The type of the weights of a model of transformers, by its name, such as ``"float32"``."""
    return str(model.dtype).removeprefix("torch.")


def _native_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16."""
    import torch

    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in _NATIVE)
