"""Streams documents from text files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.errors import RobustokError

if TYPE_CHECKING:
    from robustok.corpus.sources import Source

_LARGEST = 1 << 30  # bytes of a document
_BATCH = 1 << 20


def read_texts(
    paths: str | Path | Iterable[str | Path], *, sample_by: str = "line"
) -> Iterator[str]:
    """Stream the documents of text files, in the order given.

    >>> from pathlib import Path
    >>> _ = Path("corpus.jsonl").write_text('{"text": "hello"}\\n{"text": "world"}\\n')
    >>> list(read_texts("corpus.jsonl"))
    ['hello', 'world']

    Args:
        paths: a file, a folder or a pattern, or several of them. Parquet, JSON Lines and text, the
            latter two also compressed. In the first two the text is in the field ``text``.
        sample_by: what a document of a .txt file is: ``"line"`` (default; empty lines are skipped)
            or ``"document"``, the whole file.

    The files are read as :func:`~robustok.corpus.run_corpus` reads them. Raises RobustokError for a
    file that is missing or of another kind, and for a row without text.
    """
    from robustok.corpus.sources import find_sources

    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        for source in find_sources(path, sample_by):
            yield from _documents(source)


def _documents(source: Source) -> Iterator[str]:
    from robustok.corpus.read import read_chunk
    from robustok.corpus.rows import Column
    from robustok.corpus.sources import cut_chunks

    column = Column("text", "text")
    for chunk in cut_chunks([source], source.size + 1):
        for batch in read_chunk(chunk, column, _BATCH, max_row_bytes=_LARGEST):
            for reject in batch.rejects:
                unit = "row" if source.format == "parquet" else "byte"
                where = f" at {unit} {reject.position:,}" if reject.position >= 0 else ""
                raise RobustokError(f"{source.path}{where}: {reject.reason}")
            for text in batch.table.column("text"):
                try:
                    yield text.as_py().decode()
                except UnicodeDecodeError as error:
                    raise RobustokError(f"{source.path} is not UTF-8 text: {error}") from None
