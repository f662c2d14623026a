"""Finished work on disk, one JSON line each, so that a long run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.errors import RobustokError
from robustok.evaluation.adversarial.search import Attack, Step

if TYPE_CHECKING:
    from robustok.tasks.item import Item


class RowFile:
    """Rows already done under the same configuration, by their key, and where to add the next.

    The first line is the configuration; a file of another one is refused, and so is one with rows
    of other questions that have the names of these ``items``. A last line cut short by a crash is
    dropped. A new line reaches the file whole.
    """

    holds = "results"

    def __init__(
        self, path: str | Path, config: dict[str, Any], items: Sequence[Item] = ()
    ) -> None:
        self.path = Path(path)
        self._asked = {item.key: items_digest([item]) for item in items}
        self.rows: dict[str, dict[str, Any]] = {}
        config = json.loads(json.dumps(config))
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"config": config})
            return
        lines = self.path.read_text(encoding="utf-8").split("\n")
        whole = lines[:-1]
        if lines[-1]:
            self.path.write_text("".join(line + "\n" for line in whole), encoding="utf-8")
        rows = [self._parse(line) for line in whole]
        if not rows:
            self._append({"config": config})
            return
        found = rows[0].get("config")
        if found != config:
            changed = sorted(k for k in config if (found or {}).get(k) != config[k])
            raise RobustokError(
                f"'{self.path}' holds {self.holds} with other "
                f"{', '.join(changed) or 'settings'}: delete it, or name another resume file"
            )
        self.rows = {row["key"]: row for row in rows[1:]}
        for key, digest in self._asked.items():
            if self.rows.get(key, {}).get("question_digest", digest) != digest:
                raise RobustokError(
                    f"'{self.path}' holds {self.holds} for another question named '{key}': "
                    "delete it, or name another resume file"
                )

    def add_row(self, row: dict[str, Any]) -> None:
        """Write one finished row; it has a "key"."""
        if digest := self._asked.get(row["key"]):
            row = row | {"question_digest": digest}
        self.rows[row["key"]] = row
        self._append(row)

    def _append(self, row: dict[str, Any]) -> None:
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line)
            os.fsync(handle)
        finally:
            os.close(handle)

    def _parse(self, line: str) -> dict[str, Any]:
        try:
            return json.loads(line)
        except json.JSONDecodeError:
            raise RobustokError(f"'{self.path}' is no resume file: give another name") from None


class ResumeFile(RowFile):
    """Attacks already done under the same configuration."""

    holds = "attacks"

    @property
    def done(self) -> dict[str, Attack]:
        """The finished attacks by the key of their item."""
        return {key: _from_row(row) for key, row in self.rows.items()}

    def add(self, attack: Attack) -> None:
        """Write one finished attack."""
        self.add_row(attack.as_row())


def items_digest(items: Sequence[Item]) -> str:
    """A short hash of questions, their options and which are right."""
    text = repr(list(items)).encode("utf8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _from_row(row: dict[str, Any]) -> Attack:
    values = {name: value for name, value in row.items() if name != "question_digest"}
    for name in ("ids", "start"):
        values[name] = np.array(row[name], np.int32)
    for name in ("log_probs", "log_probs_start"):
        values[name] = tuple(row[name])
    values["steps"] = tuple(
        Step(np.array(step["ids"], np.int32), tuple(step["log_probs"]))
        for step in row.get("steps", ())  # rows of earlier releases have none
    )
    return Attack(**values)
