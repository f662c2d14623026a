"""Checkpoints with checksums, and the conversion of write errors into one line."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from robustok.errors import RobustokError
from robustok.files import digests_of, find_damage, read_json_or_none, write_json

CHECKSUMS = "checksums.json"

_log = logging.getLogger(__name__)


def seal(checkpoint: Path) -> None:
    """Write the SHA-256 of every file of a checkpoint. A checkpoint is whole once this is there."""
    write_json(checkpoint / CHECKSUMS, digests_of(checkpoint))


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files all have their checksums; later ones are removed.

    A checkpoint that was finished and then damaged is reported in one line of the log.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        digests = read_json_or_none(path / CHECKSUMS)
        if digests:
            damage = find_damage(path, digests)
            if damage is None:
                return path
            _log.warning("%s is damaged (%s): training goes on from an earlier one", path, damage)
        elif (path / CHECKSUMS).exists():
            _log.warning("%s is damaged (%s): training goes on from an earlier one",
                         path, CHECKSUMS)  # fmt: skip
        shutil.rmtree(path, ignore_errors=True)
    return None


@contextmanager
def write_errors_in_one_line(folder: Path) -> Iterator[None]:
    """Turn the errors of failed writes into a RobustokError; only writing belongs in the block.

    Python, safetensors and torch each have their own errors for a full disk.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RuntimeError) and not _is_torchs(error):
            raise
        raise RobustokError(
            f"could not write under '{folder}' ({str(error).splitlines()[0]}): "
            "free space and start again: the run continues from its last checkpoint"
        ) from error


def _is_torchs(error: RuntimeError) -> bool:
    """Whether torch's serialization raised the error."""
    names = ("PytorchStreamWriter", "iostream error", "inline_container")
    return any(name in str(error) for name in names)


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1
