"""The record of a training in its folder: result, checkpoints with checksums, training.json."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from robustok.errors import RobustokError
from robustok.runtime.files import (
    JsonObject,
    digests_of,
    find_damage,
    json_digest,
    read_json_or_none,
    write_json,
)

CHECKSUMS = "checksums.json"
RECORD = "training.json"
CHECKPOINTS = "checkpoints"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "config.json", "adapter_config.json")
WEIGHTS = (*_WEIGHTS, *(f"steps/*/{name}" for name in _WEIGHTS))  # and of models kept on the way
_TORCH = ("PytorchStreamWriter", "iostream error", "inline_container")  # in errors of its writer

_log = logging.getLogger(__name__)


class Perplexity(NamedTuple):
    """How well held-out text was predicted at a step, when drawn by a scheme.

    >>> Perplexity(500, "uniform", 61.2, 1.31).bits_per_byte
    1.31

    ``perplexity`` is per id of the drawn sequences, so longer tokenizations
    lower it; ``bits_per_byte`` counts the same text for every scheme.
    """

    step: int
    scheme: str
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Training:
    """What a training run did.

    >>> from robustok.training import finetune
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=4, learning_rate=1e-3, seed=0, out="runs/b")
    >>> done.output_dir, done.steps, done.overflowed
    ('runs/b', 2, 0)

    Args:
        output_dir: the output folder.
        steps: number of optimizer steps.
        losses: (step, mean loss of the steps since the last entry), in nats, every 10 steps and
            at the last one.
        tokens: ids trained on. Padding is not counted, but that at the end of packed rows is.
        seconds: wall-clock time of the steps. Time before a restart counts as far as the last
            checkpoint.
        waiting: share of ``seconds`` spent on waiting for batches, from 0 to 1.
        overflowed: number of rows that were longer than the longest input.
        precision: ``"float32"`` or ``"bfloat16"``, which it computed in.
        perplexities: what pre-training measured on held-out text.
    """

    output_dir: str
    steps: int
    losses: tuple[tuple[int, float], ...]
    tokens: int
    seconds: float
    waiting: float
    overflowed: int
    precision: str
    perplexities: tuple[Perplexity, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def seal(checkpoint: Path) -> None:
    """Write the SHA-256 of every file of a checkpoint. A checkpoint is whole once this is there."""
    write_json(checkpoint / CHECKSUMS, digests_of(checkpoint))


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files all have their checksums; later ones are removed.

    A checkpoint that was finished and then damaged is reported in one line of the log.
    """
    for path in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        if (path / CHECKSUMS).exists():  # else its save was not finished
            damage = find_damage(path, read_json_or_none(path / CHECKSUMS) or None)
            if damage is None:
                return path
            _log.warning("%s is damaged (%s): training goes on from an earlier one", path, damage)
        shutil.rmtree(path, ignore_errors=True)
    return None


@contextmanager
def write_errors_in_one_line(folder: Path) -> Iterator[None]:
    """Turn the errors of failed writes into a RobustokError; only writing belongs in the block.

    Python, safetensors and torch each have their own errors for a full disk.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        if isinstance(error, RuntimeError) and not any(name in str(error) for name in _TORCH):
            raise
        raise RobustokError(
            f"could not write under '{folder}' ({str(error).splitlines()[0]}): "
            "free space and start again: the run continues from its last checkpoint"
        ) from error


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def claim(out: Path, identity: JsonObject) -> None:
    """Write which run the folder belongs to, and remove checkpoints of an unknown run.

    A run of fewer steps, which :func:`read_result` has let pass, becomes one of more.
    """
    saved = recorded_identity(out)
    if not saved:
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        write_json(out / RECORD, {"identity": identity})
    elif saved["steps"] < identity["steps"]:
        _log.info(
            "the run of %d steps in %s becomes one of %d: its steps so far had the schedule of "
            "the shorter run",
            saved["steps"],
            out,
            identity["steps"],
        )
        write_json(out / RECORD, {"identity": {**saved, "steps": identity["steps"]}})


def recorded_identity(out: Path) -> JsonObject:
    """The settings of the run that a folder holds; none without a record that can be read."""
    saved = read_json_or_none(out / RECORD)
    identity = saved.get("identity") if isinstance(saved, dict) else None
    return identity if isinstance(identity, dict) else {}


def finish(out: Path, identity: JsonObject, training: Training, base_model: str) -> None:
    """Write the result, the hub name of the model that was trained, and checksums of the weights.

    ``base_model`` is empty for a model from random weights or of a folder.
    """
    record = {
        "identity": identity,
        "base_model": base_model,
        "training": asdict(training),
        "files": digests_of(out, *WEIGHTS),
    }
    write_json(out / RECORD, record | {"digest": json_digest(record)})


def read_result(out: Path, identity: JsonObject) -> Training | None:
    """The result of a finished run whose files are as it left them, or None.

    None also where the folder has a checkpoint of the same run with fewer steps. Raises
    RobustokError where the folder belongs to another run. A damaged record or damaged
    weights are reported in one line of the log, and the record is removed: the run starts again.
    """
    if not (out / RECORD).exists():
        return None
    saved = read_json_or_none(out / RECORD)
    damage = _damage(out, saved)
    if damage:
        _log.warning("the training in %s is damaged (%s): it is done again", out, damage)
        (out / RECORD).unlink(missing_ok=True)
        return None
    _check_identity(saved["identity"], identity, out)
    if "training" not in saved or saved["identity"]["steps"] < identity["steps"]:
        return None
    row = saved["training"]
    row["losses"] = tuple((step, loss) for step, loss in row["losses"])
    row["perplexities"] = tuple(Perplexity(*measured) for measured in row["perplexities"])
    return Training(**row)


def _damage(out: Path, saved: object) -> str | None:
    """What is wrong with a record or the files it lists, in a few words."""
    if not isinstance(saved, dict) or not isinstance(saved.get("identity"), dict):
        return RECORD
    if set(saved) == {"identity"}:  # unfinished
        return None
    content = {name: value for name, value in saved.items() if name != "digest"}
    if saved.get("digest") != json_digest(content):
        return RECORD
    return find_damage(out, saved["files"])


def _check_identity(saved: JsonObject, identity: JsonObject, out: Path) -> None:
    if not identity["model"]:  # this process holds no weights to identify the model by
        identity = {**identity, "model": saved.get("model")}
    names = sorted({*saved, *identity}, key=lambda name: (name == "model", name))
    changed = [name for name in names if saved.get(name) != identity.get(name)]
    if not changed:
        return
    name, end = changed[0], "use another folder"
    if changed == ["steps"] and saved["steps"] < identity["steps"]:
        if any((out / CHECKPOINTS).glob(f"checkpoint-*/{CHECKSUMS}")):
            return
        end = f"it has no checkpoint to continue from, so {end}"
    if name == "model":  # last: another seed makes another LoRA adapter too
        raise RobustokError(
            f"'{out}' holds a training run of other initial weights (another model, or an adapter"
            " made with another seed): use another folder"
        )
    raise RobustokError(
        f"'{out}' holds a training run with {name} = {saved.get(name)}, not {identity.get(name)}: "
        f"{end}"
    )
