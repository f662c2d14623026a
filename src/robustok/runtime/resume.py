"""Finished rows on disk as JSON Lines, from which an interrupted run continues."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from robustok.errors import RobustokError
from robustok.runtime.display import Progress, part_of_progress
from robustok.runtime.files import (
    JsonObject,
    append_whole,
    disk_full_in_one_line,
    json_digest,
    json_text,
    locked,
    write_whole,
)

CHECK = "check"  # the field that holds a row's checksum
GROUP = 32  # questions or prompts that are searched or certified together

_log = logging.getLogger(__name__)


class RowFile:
    """Finished rows under one configuration, by their key, in a file that one run may add to.

    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.add_row({"key": "a", "accuracy": 0.5})
    >>> with RowFile("rows.jsonl", {"seed": 0}) as file:
    ...     file.rows["a"]
    {'key': 'a', 'accuracy': 0.5}

    The first line is the configuration; a file of another one is refused. Every line ends with a
    checksum of itself. A damaged row, also a last one that a crash cut short, is removed, so that
    it is done again. A new row reaches the file whole or not at all. Without a path, the rows are
    in memory only.

    Raises RobustokError where another run holds the file.
    """

    def __init__(self, path: str | Path | None, config: JsonObject) -> None:
        self.path = None if path is None else Path(path)
        self.rows: dict[str, JsonObject] = {}
        self._config = config
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

    def add_row(self, row: JsonObject) -> None:
        """Write one finished row; it has a "key"."""
        if self.path is not None:
            _append(self.path, row)
        self.rows[row["key"]] = row

    def in_groups(
        self,
        questions: Sequence[Any],
        run: Callable[[Sequence[Any], Progress], JsonObject],
        progress: Progress,
    ) -> list[JsonObject]:
        """What ``run`` gives, as JSON, for each group of questions; a row is a group.

        A run that was stopped repeats one group only. Groups do not depend on where it stopped: how
        a score rounds depends on the whole batch.
        """
        results = []
        for begin in range(0, len(questions), GROUP):
            key, group = str(begin), questions[begin : begin + GROUP]
            if key not in self.rows:
                self.add_row(
                    {"key": key, **run(group, part_of_progress(progress, begin, len(questions)))}
                )
            results.append(self.rows[key])
            progress(min(begin + GROUP, len(questions)), len(questions))
        return results

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
                f"'{self.path}' holds results with other "
                f"{', '.join(changed) or 'settings'}: delete it, or name another file"
            )


def _append(path: Path, row: JsonObject) -> None:
    line = json_text(row | {CHECK: json_digest(row)}) + "\n"
    with disk_full_in_one_line(path):
        append_whole(path, line.encode())


def _parse(line: bytes) -> JsonObject | None:
    """A row without its checksum, or None where the row is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    check = row.pop(CHECK, None)
    return row if check == json_digest(row) else None
