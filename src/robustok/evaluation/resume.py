"""Finished rows on disk as JSON Lines, from which an interrupted run continues."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.adversarial.search import Attack, Step
from robustok.files import (
    append_whole,
    disk_full_in_one_line,
    json_digest,
    locked_file,
    write_whole,
)

if TYPE_CHECKING:
    from robustok.tasks.item import Item


CHECK = "check"  # the field that holds a row's checksum

_log = logging.getLogger(__name__)


class RowFile:
    """Finished rows under one configuration, by their key, in a file that one run may add to.

    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.add_row({"key": "a", "accuracy": 0.5})
    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.rows["a"]
    {'key': 'a', 'accuracy': 0.5}

    The first line is the configuration; a file of another one is refused, and so is one with rows
    of other questions that have the names of these ``items``. Every line ends with a checksum of
    itself. A damaged row, also a last one that a crash cut short, is removed, so that it is done
    again. A new row reaches the file whole or not at all.

    Raises RobustokError where another run holds the file.
    """

    holds = "results"

    def __init__(
        self, path: str | Path, config: dict[str, Any], items: Sequence[Item] = ()
    ) -> None:
        self.path = Path(path)
        self.rows: dict[str, dict[str, Any]] = {}
        self._question_digests = {item.key: items_digest([item]) for item in items}
        self._config = json.loads(json.dumps(config))
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(locked_file(self.path))
            self._read()
            self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def add_row(self, row: dict[str, Any]) -> None:
        """Write one finished row; it has a "key"."""
        if digest := self._question_digests.get(row["key"]):
            row = row | {"question_digest": digest}
        self._append(row)
        self.rows[row["key"]] = row

    def _read(self) -> None:
        """Read the rows of earlier runs and remove damaged ones from the file."""
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content.split(b"\n")
        if not content or (len(lines) == 1 and content.startswith(b'{"config"')):
            self.path.write_bytes(b"")
            self._append({"config": self._config})
            return
        checked = self._check_config(lines[0])
        whole = [lines[0]]
        for line in lines[1:-1]:
            row = _parse(line, checked)
            if row is None or "key" not in row:
                continue
            whole.append(line)
            self.rows[row["key"]] = row
        if len(whole) < len(lines) - 1:
            number = len(lines) - 1 - len(whole)
            _log.warning("%s: %d damaged rows are removed and done again", self.path, number)
        self._check_questions()
        if lines[-1] or len(whole) < len(lines) - 1:
            write_whole(self.path, b"".join(line + b"\n" for line in whole))

    def _check_config(self, line: bytes) -> bool:
        """Refuse a file of another configuration; returns whether its rows have checksums."""
        first = _parse(line, checked=False)
        if first is None or "config" not in first:
            raise RobustokError(f"'{self.path}' is no resume file: give another name")
        if first["config"] != self._config:
            known = first["config"] if isinstance(first["config"], dict) else {}
            changed = sorted(k for k in self._config if known.get(k) != self._config[k])
            raise RobustokError(
                f"'{self.path}' holds {self.holds} with other "
                f"{', '.join(changed) or 'settings'}: delete it, or name another resume file"
            )
        return CHECK.encode() in line

    def _check_questions(self) -> None:
        for key, digest in self._question_digests.items():
            if self.rows.get(key, {}).get("question_digest", digest) != digest:
                raise RobustokError(
                    f"'{self.path}' holds {self.holds} for another question named '{key}': "
                    "delete it, or name another resume file"
                )

    def _append(self, row: dict[str, Any]) -> None:
        line = json.dumps(row | {CHECK: json_digest(row)}, ensure_ascii=False) + "\n"
        with disk_full_in_one_line(self.path):
            append_whole(self.path, line.encode())


def _parse(line: bytes, checked: bool) -> dict[str, Any] | None:
    """A row without its checksum, or None where the row is damaged or lacks one it must have."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    check = row.pop(CHECK, None)
    if check is None:
        return None if checked else row
    return row if check == json_digest(row) else None


class ResumeFile(RowFile):
    """Attacks already done under the same configuration."""

    holds = "attacks"

    @property
    def done(self) -> dict[str, Attack]:
        """The finished attacks by the key of their item."""
        return {key: _from_row(row) for key, row in self.rows.items()}

    def add(self, attack: Attack) -> None:
        """Write one finished attack, with the seed of the configuration."""
        self.add_row(attack.as_row() | {"seed": self._config["seed"]})


def items_digest(items: Sequence[Item]) -> str:
    """A short hash of questions, their options and which are right."""
    # Names and form are permanent: files of earlier releases hold digests of this text.
    texts = (
        f"Item(key={i.key!r}, query={i.question!r}, choices={i.choices!r}, "
        f"label={i.label!r}, kind={i.kind!r})"
        for i in items
    )
    text = f"[{', '.join(texts)}]".encode("utf8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _from_row(row: dict[str, Any]) -> Attack:
    values = {name: row[name] for name in row if name not in ("question_digest", "seed")}
    for name in ("ids", "start"):
        values[name] = np.array(row[name], np.int32)
    for name in ("log_probs", "log_probs_start"):
        values[name] = tuple(row[name])
    values["steps"] = tuple(
        Step(np.array(step["ids"], np.int32), tuple(step["log_probs"]))
        for step in row.get("steps", ())  # rows of earlier releases have none
    )
    return Attack(**values)
