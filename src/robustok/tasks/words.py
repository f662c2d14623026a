"""Texts that questions and models are made from: word lists, and documents of text files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.errors import RobustokError
from robustok.runtime.packages import require

if TYPE_CHECKING:
    from robustok.corpus.sources import InputFile

_LARGEST = 1 << 30  # bytes of a document
_BATCH = 1 << 20


def frequent_words(n: int, *, language: str = "en") -> list[str]:
    """The n most frequent words of a language, most frequent first.

    >>> frequent_words(5)
    ['the', 'to', 'and', 'of', 'in']

    Args:
        n: number of words, at least 1.
        language: language code of the `wordfreq` package, by default ``"en"``.

    Raises RobustokError for a language that wordfreq does not have, and for more words than it has;
    ModuleNotFoundError where it is not installed (extra ``words``).
    """
    if n < 1:
        raise RobustokError(f"{n} words: give at least 1")
    require("wordfreq")
    import wordfreq

    if language not in wordfreq.available_languages("best"):
        known = ", ".join(sorted(wordfreq.available_languages("best")))
        raise RobustokError(f"no word list for language '{language}': choose from {known}")
    words = clean_words(wordfreq.top_n_list(language, 3 * n + 100))[:n]
    if len(words) < n:
        raise RobustokError(f"'{language}' has {len(words)} such words: give a smaller number")
    return words


def read_words(path: str | Path) -> list[str]:
    """Words of a text file, lower-cased, in its order and without repeats.

    >>> _ = Path("words.txt").write_text("Tree\\nstone\\ntree\\n4th\\n")
    >>> read_words("words.txt")
    ['tree', 'stone']

    Args:
        path: a UTF-8 text file, words separated by white space. Words of one letter, and words with
            other characters than letters, are left out.

    Raises RobustokError for a file that is missing, not UTF-8, or without such words.
    """
    path = Path(path)
    if not path.is_file():
        raise RobustokError(f"no file '{path}': give a text file with one word a line")
    try:
        words = clean_words(path.read_text(encoding="utf-8-sig").split())
    except UnicodeDecodeError:
        raise RobustokError(f"'{path}' is not UTF-8 text: save it as UTF-8") from None
    if not words:
        raise RobustokError(f"'{path}' holds no words of two or more letters: add some")
    return words


def clean_words(words: Iterable[str]) -> list[str]:
    """Lower-case words of two or more letters and nothing else, each once, in order.

    >>> clean_words(["Tree", "tree", "4th", "a"])
    ['tree']

    Args:
        words: words in any case.
    """
    lower = (w.lower() for w in words)
    return list(dict.fromkeys(w for w in lower if w.isalpha() and len(w) >= 2))


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


def _documents(source: InputFile) -> Iterator[str]:
    from robustok.corpus.read import read_chunk
    from robustok.corpus.sources import DamagedFile, batch_schema, cut_chunks

    try:
        for chunk in cut_chunks([source], source.size + 1):
            for batch in read_chunk(chunk, batch_schema(), _BATCH, max_row_bytes=_LARGEST):
                for reject in batch.rejects:
                    unit = "row" if source.format == "parquet" else "byte"
                    where = f" at {unit} {reject.position:,}" if reject.position >= 0 else ""
                    raise RobustokError(
                        f"{source.path}{where}: {reject.reason}; give rows with their text in the "
                        "field 'text', or a .txt file"
                    )
                for text in batch.table.column("text"):
                    try:
                        yield text.as_py().decode()
                    except UnicodeDecodeError as error:
                        raise RobustokError(f"{source.path} is not UTF-8 text: {error}") from None
    except DamagedFile as error:
        raise RobustokError(f"{source.path}: {error}") from error
