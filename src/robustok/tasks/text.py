"""Documents from text files, one after another."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from robustok.errors import RobustokError

_OPENERS = {".gz": gzip.open, ".xz": lzma.open}


def read_texts(paths: str | Path | Iterable[str | Path], *, field: str = "text") -> Iterator[str]:
    """Stream the documents of text files: whole .txt files, and ``field`` of each .jsonl line.

    >>> from pathlib import Path
    >>> _ = Path("corpus.jsonl").write_text('{"text": "hello"}\\n{"text": "world"}\\n')
    >>> list(read_texts("corpus.jsonl"))
    ['hello', 'world']

    A further .gz or .xz is unpacked while reading. Raises RobustokError for a
    file that is missing, of another kind or broken, naming the line.
    """
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        yield from _documents(Path(path), field)


def _documents(path: Path, field: str) -> Iterator[str]:
    if not path.is_file():
        raise RobustokError(f"no file '{path}': give a .txt or .jsonl file")
    kind = path.with_suffix("").suffix if path.suffix in _OPENERS else path.suffix
    if kind not in (".txt", ".jsonl"):
        raise RobustokError(f"'{path}' is neither .txt nor .jsonl (nor .gz or .xz of them)")
    try:
        with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8", newline="\n") as f:
            if kind == ".txt":
                yield f.read()
            else:
                yield from _lines(f, path, field)
    except (UnicodeDecodeError, gzip.BadGzipFile, lzma.LZMAError, EOFError) as e:
        raise RobustokError(f"'{path}' cannot be read as UTF-8 text: {e}") from e


def _lines(f: IO[str], path: Path, field: str) -> Iterator[str]:
    for number, line in enumerate(f, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            raise RobustokError(f"{path}:{number} is not JSON ({e.msg})") from None
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            raise RobustokError(f"{path}:{number} has no text '{field}': name the right field")
        yield row[field]
