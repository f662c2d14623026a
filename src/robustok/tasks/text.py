"""Documents from text files, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from robustok.errors import RobustokError
from robustok.files import COMPRESSIONS, json_lines, read_text


def read_texts(paths: str | Path | Iterable[str | Path], *, field: str = "text") -> Iterator[str]:
    """Stream the documents of text files: whole .txt files, and ``field`` of each .jsonl line.

    >>> from pathlib import Path
    >>> _ = Path("corpus.jsonl").write_text('{"text": "hello"}\\n{"text": "world"}\\n')
    >>> list(read_texts("corpus.jsonl"))
    ['hello', 'world']

    A further .gz, .xz or .zst is unpacked while reading. Raises RobustokError for a
    file that is missing, of another kind or broken, naming the line.
    """
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        yield from _documents(Path(path), field)


def _documents(path: Path, field: str) -> Iterator[str]:
    if not path.is_file():
        raise RobustokError(f"no file '{path}': give a .txt or .jsonl file")
    kind = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    if kind == ".txt":
        yield read_text(path)
    elif kind == ".jsonl":
        for number, row in json_lines(path):
            if not isinstance(row, dict) or not isinstance(row.get(field), str):
                raise RobustokError(f"{path}:{number} has no text '{field}': name the right field")
            yield row[field]
    else:
        raise RobustokError(f"'{path}' is neither .txt nor .jsonl (nor .gz, .xz, .zst of them)")
