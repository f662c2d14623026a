"""Checkpoints of a training: their checksums, and the state of the optimizer as safetensors.

The Trainer writes the state of its optimizer and schedule in PyTorch's own format, a pickle that is
read as weights only. A finished training keeps its last checkpoint, from which a longer run
continues, with these states as safetensors instead.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from robustok.runtime.records import digests_of, read_finished, write_record

CHECKSUMS = "checksums.json"
_STATES = ("optimizer.pt", "scheduler.pt")
_SUFFIX = ".safetensors"


def seal(checkpoint: Path) -> None:
    """Write the SHA-256 of every file of a checkpoint. A checkpoint is whole once this is there."""
    write_record(checkpoint / CHECKSUMS, {"files": digests_of(checkpoint)})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files all have their checksums; later ones are removed.

    A checkpoint that was finished and then damaged is reported in one line of the log.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        if read_finished(path / CHECKSUMS, "the checkpoint") is not None:
            return path
        shutil.rmtree(path, ignore_errors=True)  # damaged, or its save was not finished
    return None


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def keep_as_safetensors(checkpoint: Path) -> None:
    """Replace the states of the optimizer and the schedule, and remove all other pickles.

    Those are the arguments of the Trainer and the states of random generators, which a longer run
    begins anew.
    """
    (checkpoint / CHECKSUMS).unlink(missing_ok=True)  # until all files are replaced
    for path in (checkpoint / name for name in _STATES):
        if not path.is_file():  # of a Trainer that shards them
            continue
        tensors: dict[str, torch.Tensor] = {}
        state = _to_json(torch.load(path, map_location="cpu", weights_only=True), tensors)
        save_file(tensors, f"{path}{_SUFFIX}", metadata={"state": json.dumps(state)})
    for pattern in ("*.pt", "*.pth", "*.bin"):
        for path in checkpoint.glob(pattern):
            path.unlink()
    seal(checkpoint)


def restore(checkpoint: Path) -> None:
    """Write the states that :func:`keep_as_safetensors` replaced, for the Trainer to read."""
    for path in (checkpoint / name for name in _STATES):
        replacement = Path(f"{path}{_SUFFIX}")
        if replacement.is_file():
            with safe_open(replacement, "pt") as file:
                state = json.loads(file.metadata()["state"])
                torch.save(_from_json(state, file.get_tensor), path)


def _to_json(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """A value as JSON; its tensors are added to ``tensors`` under a name."""
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[key, _to_json(item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_to_json(item, tensors) for item in value]}
    return value


def _from_json(value: Any, get_tensor: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((type_name, content),) = value.items()
    if type_name == "tensor":
        return get_tensor(content)
    if type_name == "dict":
        return {key: _from_json(item, get_tensor) for key, item in content}
    items = (_from_json(item, get_tensor) for item in content)
    return {"list": list, "tuple": tuple}[type_name](items)
