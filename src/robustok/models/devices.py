"""Devices on this machine that can run a model."""

from __future__ import annotations


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
