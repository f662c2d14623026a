"""The file training.json: which run a folder belongs to, and its result once it is finished."""

from __future__ import annotations

import logging
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.files import digests_of, find_damage, json_digest, read_json_or_none, write_json
from robustok.training.result import Perplexity, Training

RECORD = "training.json"
CHECKPOINTS = "checkpoints"
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "config.json", "adapter_config.json")

_log = logging.getLogger(__name__)


def claim(out: Path, identity: dict[str, Any]) -> None:
    """Write which run the folder belongs to, and remove checkpoints of an unknown run."""
    if not (out / RECORD).is_file():
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        write_json(out / RECORD, {"identity": identity})


def finish(out: Path, identity: dict[str, Any], training: Training) -> None:
    """Write the result and the checksums of the weights."""
    record = {
        "identity": identity,
        "training": asdict(training),
        "files": digests_of(out, *WEIGHTS),
    }
    write_json(out / RECORD, record | {"digest": json_digest(record)})


def read_result(out: Path, identity: dict[str, Any]) -> Training | None:
    """The result of a finished run whose files are as it left them, or None.

    Raises RobustokError where the folder belongs to another run. A damaged record or damaged
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
    if "training" not in saved:
        return None
    row = saved["training"]
    row["losses"] = tuple((step, loss) for step, loss in row["losses"])
    row["perplexities"] = tuple(Perplexity(*measured) for measured in row["perplexities"])
    return Training(**row)


def _damage(out: Path, saved: Any) -> str | None:
    """What is wrong with a record or the files it lists, in a few words."""
    if not isinstance(saved, dict) or not isinstance(saved.get("identity"), dict):
        return RECORD
    if set(saved) <= {"identity", "training"}:  # unfinished, or of a release without checksums
        return None
    content = {name: value for name, value in saved.items() if name != "digest"}
    if saved.get("digest") != json_digest(content):
        return RECORD
    return find_damage(out, saved["files"])


def _check_identity(saved: dict[str, Any], identity: dict[str, Any], out: Path) -> None:
    if not identity["model"]:  # this process holds no weights to identify the model by
        identity = {**identity, "model": saved.get("model")}
    names = sorted({*saved, *identity}, key=lambda name: (name == "model", name))
    changed = [name for name in names if saved.get(name) != identity.get(name)]
    if not changed:
        return
    name = changed[0]
    if name == "model":  # last: another seed makes another LoRA adapter too
        raise RobustokError(
            f"'{out}' holds a training run of other initial weights (another model, or an adapter"
            " made with another seed): use another folder"
        )
    raise RobustokError(
        f"'{out}' holds a training run with {name} = {saved.get(name)}, not {identity.get(name)}: "
        "use another folder"
    )
