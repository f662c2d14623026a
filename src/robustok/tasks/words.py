"""Texts that questions and models are made from: word lists, and documents of text files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from robustok.errors import RobustokError, check_choice
from robustok.runtime.inputs import (
    DAMAGE,
    MARK,
    TEXTS,
    TOO_LONG,
    InputFile,
    damage_of,
    find_inputs,
    json_lines,
    lines_of,
    open_input,
)
from robustok.runtime.packages import require

_LARGEST = 1 << 30  # bytes of a document
_BATCH = 1 << 20


def frequent_words(n: int) -> list[str]:
    """The n most frequent English words, most frequent first.

    >>> frequent_words(5)
    ['the', 'to', 'and', 'of', 'in']

    Args:
        n: number of words, at least 1.

    Raises RobustokError for more words than `wordfreq` has; ModuleNotFoundError where it is not
    installed (extra ``models``).
    """
    if n < 1:
        raise RobustokError(f"{n} words: give at least 1")
    require("wordfreq")
    import wordfreq

    words = _clean(wordfreq.top_n_list("en", 3 * n + 100))[:n]
    if len(words) < n:
        raise RobustokError(f"wordfreq has {len(words)} such words: give a smaller number")
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
        words = _clean(path.read_text(encoding="utf-8-sig").split())
    except UnicodeDecodeError:
        raise RobustokError(f"'{path}' is not UTF-8 text: save it as UTF-8") from None
    if not words:
        raise RobustokError(f"'{path}' holds no words of two or more letters: add some")
    return words


def _clean(words: Iterable[str]) -> list[str]:
    """Lower-case words of two or more letters and nothing else, each once, in order."""
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

    Raises RobustokError for a file that is missing or of another kind, and for a row without text.
    """
    check_choice("sample_by", sample_by, ("line", "document"))
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        for file in find_inputs(path, TEXTS).files:
            read = {"parquet": _of_parquet, "jsonl": _of_json}.get(file.format)
            yield from read(file) if read else _of_text(file, sample_by)


def _of_json(file: InputFile) -> Iterator[str]:
    for number, row in json_lines(file.path):
        text = row.get("text") if isinstance(row, dict) else None
        if not isinstance(text, str):
            raise RobustokError(
                f"{file.path}:{number} has no text in the field 'text': give rows that have one, "
                "or a .txt file"
            )
        yield text


def _of_parquet(file: InputFile) -> Iterator[str]:
    from robustok.corpus.documents import DamagedFile, cut_tasks, find_fields, read_task

    try:
        schema = find_fields([file], "text", ())
        for task in cut_tasks([file]):
            for table, rejects in read_task(task, schema, _BATCH):
                for reject in rejects:
                    raise RobustokError(f"{file.path}, row {reject.position}: {reject.reason}")
                yield from (_utf8(text.as_py(), file.path) for text in table.column(0))
    except DamagedFile as error:
        raise RobustokError(f"{file.path}: {error}") from error


def _of_text(file: InputFile, sample_by: str) -> Iterator[str]:
    try:
        with open_input(file.path) as stream:
            if sample_by == "document":
                content = stream.read(_LARGEST + 1)
                if len(content) > _LARGEST:
                    raise RobustokError(f"{file.path} has more than {_LARGEST >> 20} MiB: cut it")
                documents = [content.removeprefix(MARK)]
            else:
                documents = (line for _, line in lines_of(stream))
            for document in documents:
                if document is None:
                    raise RobustokError(f"{file.path} has a line {TOO_LONG}: split it")
                if document:
                    yield _utf8(document, file.path)
    except DAMAGE as error:
        raise RobustokError(f"{file.path} cannot be read to its end: {damage_of(error)}") from None


def _utf8(text: bytes, path: Path) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise RobustokError(f"{path} is not UTF-8 text: {error}") from None
