"""Records of finished work: objects of JSON and files with checksums, whose damage is noticed.

A run that was stopped continues after the last record.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.runtime.display import Progress
from robustok.runtime.files import (
    JsonObject,
    disk_full_in_one_line,
    locked,
    read_json_or_none,
    write_json,
)

_log = logging.getLogger(__name__)


def write_record(path: Path, record: JsonObject) -> None:
    """Write an object as JSON, atomically, with a digest of it as its last field."""
    write_json(path, record | {"digest": json_digest(record)})


def read_record(path: Path) -> JsonObject | None:
    """The object of a file of :func:`write_record`, or None where it is missing or damaged."""
    record = read_json_or_none(path)
    if not isinstance(record, dict):
        return None
    digest = record.pop("digest", None)
    return record if digest == json_digest(record) else None


def read_finished(path: Path, what: str, folder: Path | None = None) -> JsonObject | None:
    """The record of finished work whose files are as it left them, or None.

    Its ``files`` are the SHA-256 of each by its path in ``folder``, by default the record's. A
    damaged record, or one of damaged files, is reported in one line of the log and removed, so that
    the work, ``what`` in this line, is done again.
    """
    if not path.exists():
        return None
    record = read_record(path)
    if record is None:
        damage = f"{path.name} has changed"
    else:
        damage = find_damage(folder or path.parent, record.get("files"))
    if damage is None:
        return record
    _log.warning("%s in %s is damaged (%s) and is done again", what, path.parent, damage)
    path.unlink()
    return None


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests_of(folder: Path, *patterns: str, skip: Container[str] = ()) -> dict[str, str]:
    """The SHA-256 of a folder's files by their path in it; hidden files are left out.

    ``patterns`` are globs; without any, all files are taken, in subfolders too. ``skip`` are names.
    """
    paths = {path for pattern in patterns or ("**/*",) for path in folder.glob(pattern)}
    names = {path.relative_to(folder): path for path in paths if path.is_file()}
    return {
        name.as_posix(): sha256_of(path)
        for name, path in sorted(names.items())
        if path.name not in skip and not any(part.startswith(".") for part in name.parts)
    }


def find_damage(folder: Path, digests: object) -> str | None:
    """The first file that is missing or has not the given SHA-256, or None."""
    if not isinstance(digests, dict):
        return "no checksums"
    for name, digest in digests.items():
        try:
            if sha256_of(folder / name) != digest:
                return f"{name} has changed"
        except OSError:
            return f"{name} is missing"
    return None


def check_unused(folder: Path, others: Iterable[Path]) -> None:
    """Raise RobustokError where a folder holds ``others``, paths of something else in it."""
    for path in others:
        name = path.relative_to(folder)
        raise RobustokError(f"{folder} holds other files ({name}): give a new or empty folder")


def claim(folder: Path, name: str, settings: JsonObject) -> None:
    """Write the settings of a run into a new or empty folder, or check that they are this run's.

    ``name`` is the path of their file in the folder. Only for the holder of the folder's lock.
    Raises RobustokError where the folder holds other files, or a run with other settings.
    """
    path = folder / name
    if not path.exists():
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        check_unused(folder, (path for path in files if not path.name.startswith(".")))
        write_record(path, settings)
        return
    before = read_record(path)
    if before is None:
        raise RobustokError(f"{path} is damaged: remove {folder}, or give another folder")
    check_same(folder, before, settings)


def check_same(folder: Path, before: JsonObject, settings: JsonObject) -> None:
    """Raise RobustokError where the settings in a folder, as JSON has them, are others."""
    wanted = json.loads(json.dumps(settings))
    changed = [key for key in (wanted | before) if before.get(key) != wanted.get(key)]
    if changed:
        raise RobustokError(
            f"{folder} holds results with other {', '.join(changed)}: delete it, or give another "
            "folder"
        )


def json_digest(value: object) -> str:
    """A short hash of a JSON value, the same after it was written and read."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def in_groups(
    folder: Path | None,
    config: JsonObject,
    questions: Sequence[Any],
    run: Callable[[Sequence[Any], Progress], JsonObject],
    progress: Progress,
    *,
    size: int,
) -> list[JsonObject]:
    """What ``run`` gives, as JSON, for each group of ``size`` questions; ``folder`` keeps them.

    A run that was stopped repeats one group only. Groups do not depend on where it stopped: how a
    score rounds depends on the whole batch. A damaged file is done again. Without a folder, nothing
    is kept.

    Raises RobustokError where another run holds the folder, or where it has results under another
    ``config``, and for a full disk.
    """
    results = []
    with ExitStack() as stack:
        if folder is not None:
            stack.enter_context(locked(folder))
            stack.enter_context(disk_full_in_one_line(folder))
        for begin in range(0, len(questions), size):
            group = questions[begin : begin + size]
            path = folder and folder / f"{begin:06}.json"
            result = path and _finished(path, config)
            if result is None:
                result = run(
                    group, lambda done, _, begin=begin: progress(begin + done, len(questions))
                )
                if path is not None:
                    write_record(path, {"config": config, "result": result})
            results.append(result)
            progress(begin + len(group), len(questions))
    return results


def _finished(path: Path, config: JsonObject) -> JsonObject | None:
    """The result of a group in a file of this configuration; None for a new or a damaged file."""
    record = read_record(path)
    if record is None:
        if path.exists():
            _log.warning("%s is damaged and done again", path)
        return None
    check_same(path.parent, record["config"], config)
    return record["result"]
