"""Finished rows on disk as JSON Lines, from which an interrupted run continues."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from robustok.errors import RobustokError
from robustok.runtime.files import (
    append_whole,
    disk_full_in_one_line,
    json_digest,
    json_text,
    locked,
    write_whole,
)

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
    of other questions, items or prompts, that have the names of these. Every line ends with a
    checksum of itself. A damaged row, also a last one that a crash cut short, is removed, so that
    it is done again. A new row reaches the file whole or not at all. Without a path, the rows are
    in memory only.

    Raises RobustokError where another run holds the file.
    """

    def __init__(
        self,
        path: str | Path | None,
        config: dict[str, Any],
        questions: Sequence[Any] = (),
        *,
        holds: str = "results",
    ) -> None:
        self.path, self.holds = None if path is None else Path(path), holds
        self.rows: dict[str, dict[str, Any]] = {}
        self._config = config
        hashed = () if path is None else questions
        self._question_digests = {one.key: question_digest(one) for one in hashed}
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        if self.path is not None:
            with ExitStack() as stack:
                stack.enter_context(locked(self.path, "file"))
                self._read(self.path)
                self._lock = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.close()

    def add_row(self, row: dict[str, Any]) -> None:
        """Write one finished row; it has a "key"."""
        if digest := self._question_digests.get(row["key"]):
            row = row | {"question_digest": digest}
        if self.path is not None:
            _append(self.path, row)
        self.rows[row["key"]] = row

    def _read(self, path: Path) -> None:
        """Read the rows of earlier runs and remove damaged ones from the file."""
        content = path.read_bytes() if path.exists() else b""
        lines = content.split(b"\n")
        if not content or (len(lines) == 1 and content.startswith(b'{"config"')):
            path.write_bytes(b"")
            _append(path, {"config": self._config})
            return
        self._check_config(lines[0])
        parsed = [(line, _parse(line)) for line in lines[1:-1]]
        whole = [(line, row) for line, row in parsed if row is not None and "key" in row]
        self.rows = {row["key"]: row for _, row in whole}
        damaged = len(parsed) - len(whole)
        if damaged:
            _log.warning("%s: %d damaged rows are removed and done again", path, damaged)
        self._check_questions()
        if lines[-1] or damaged:
            kept = [lines[0], *(line for line, _ in whole)]
            write_whole(path, b"".join(line + b"\n" for line in kept))

    def _check_config(self, line: bytes) -> None:
        """Refuse a file of another configuration."""
        first = _parse(line)
        if first is None or "config" not in first:
            raise RobustokError(f"'{self.path}' is no resume file: give another name")
        known, wanted = first["config"], json.loads(json.dumps(self._config))
        if known != wanted:
            known = known if isinstance(known, dict) else {}
            changed = sorted(k for k in wanted if known.get(k) != wanted[k])
            raise RobustokError(
                f"'{self.path}' holds {self.holds} with other "
                f"{', '.join(changed) or 'settings'}: delete it, or name another file"
            )

    def _check_questions(self) -> None:
        for key, digest in self._question_digests.items():
            if self.rows.get(key, {}).get("question_digest", digest) != digest:
                raise RobustokError(
                    f"'{self.path}' holds {self.holds} for another question named '{key}': "
                    "delete it, or name another file"
                )


def _append(path: Path, row: dict[str, Any]) -> None:
    line = json_text(row | {CHECK: json_digest(row)}) + "\n"
    with disk_full_in_one_line(path):
        append_whole(path, line.encode())


def _parse(line: bytes) -> dict[str, Any] | None:
    """A row without its checksum, or None where the row is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    check = row.pop(CHECK, None)
    return row if check == json_digest(row) else None


def question_digest(question: Any) -> str:
    """A short hash of an item or a prompt: everything that its fields say."""
    fields = question._asdict() if hasattr(question, "_asdict") else asdict(question)
    return json_digest(fields)
