"""One multiple-choice question, and lists of them as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.files import json_lines
from robustok.files import write_rows as write_json_lines


@dataclass(frozen=True)
class Item:
    """A question, its options as they are scored after it, and which is right.

    >>> Item("demo-0", "Which word starts with 'b'? Options: up, baby. Answer:",
    ...      (" up", " baby"), 1, "starts").answer
    ' baby'

    The query ends where an option begins, so an option carries its own leading
    space. Query and options are tokenized apart, the options canonically.
    """

    key: str
    query: str
    choices: tuple[str, ...]
    label: int
    kind: str = ""

    def __post_init__(self) -> None:
        if len(self.choices) < 2:
            raise RobustokError(f"item '{self.key}' has fewer than 2 choices: give at least 2")
        if not 0 <= self.label < len(self.choices):
            raise RobustokError(
                f"item '{self.key}' has label {self.label}: it must number one of its choices"
            )
        if not all(self.choices):
            raise RobustokError(f"item '{self.key}' has an empty choice: give every choice a text")

    @property
    def answer(self) -> str:
        """The right option, as it is scored."""
        return self.choices[self.label]


@dataclass(frozen=True)
class Pair:
    """A prompt and its answer, for training only: there is nothing to choose from.

    >>> Pair("p0", "Spell cat.", " c a t").answer
    ' c a t'
    """

    key: str
    query: str
    answer: str


def write_items(path: str | Path, items: Iterable[Item]) -> None:
    """Write items as JSON lines, whole or not at all.

    >>> write_items("questions.jsonl", items)
    >>> items[1].query, items[1].answer
    ('hello world, is 1 odd? Answer:', ' yes')

    A line holds ``key``, ``query``, ``choices``, ``label`` and ``kind``.
    """
    write_json_lines(Path(path), (asdict(item) for item in items))


def read_items(path: str | Path) -> list[Item]:
    """Read items from JSON lines; ``id`` serves for ``key``, further fields are ignored.

    >>> write_items("questions.jsonl", items)
    >>> read_items("questions.jsonl") == items
    True

    Raises RobustokError naming the line that is not an item.
    """
    return [_item(row, where, key) for row, where, key in read_rows(Path(path))]


def read_pairs(path: str | Path) -> list[Pair]:
    """Read prompts and answers from JSON lines with ``prompt`` and ``answer``.

    >>> from pathlib import Path
    >>> _ = Path("pairs.jsonl").write_text('{"query": "Spell cat.", "answer": " c a t"}\\n')
    >>> read_pairs("pairs.jsonl")[0]
    Pair(key='pairs-1', query='Spell cat.', answer=' c a t')

    ``query`` serves for ``prompt``, ``completion`` for ``answer``. The answer
    is put right behind the prompt, so it carries its own leading space.

    Raises RobustokError naming the line that is not a pair.
    """
    return [_pair(row, where, key) for row, where, key in read_rows(Path(path))]


def read_questions(path: str | Path) -> list[Item] | list[Pair]:
    """Read what to fine-tune on: items where the first line has choices, else pairs.

    >>> from pathlib import Path
    >>> _ = Path("asked.jsonl").write_text('{"prompt": "Spell cat.", "completion": " c a t"}\\n')
    >>> read_questions("asked.jsonl")[0].answer
    ' c a t'

    Raises RobustokError naming the line that is not what the first one is.
    """
    first = next(read_rows(Path(path)))[0]
    return read_items(path) if "choices" in first else read_pairs(path)


def read_rows(path: Path) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each object of a file of JSON lines, where it stands, and its key."""
    if not path.is_file():
        raise RobustokError(f"no file '{path}': give a JSONL file of questions")
    number = 0
    for number, row in json_lines(path):
        where = f"{path}:{number}"
        if not isinstance(row, dict):
            raise RobustokError(f"{where} is not a JSON object: write one object a line")
        yield row, where, str(row.get("key", row.get("id", f"{path.stem}-{number}")))
    if not number:
        raise RobustokError(f"'{path}' holds no questions: give one JSON object a line")


def _pair(row: dict[str, Any], where: str, key: str) -> Pair:
    query = row.get("prompt", row.get("query"))
    answer = row.get("answer", row.get("completion"))
    for name, value in (("prompt", query), ("answer", answer)):
        if not isinstance(value, str) or not value:
            raise RobustokError(f"{where} has no text '{name}': give prompt and answer")
    return Pair(key, str(query), str(answer))


def _item(row: dict[str, Any], where: str, key: str) -> Item:
    missing = [name for name in ("query", "choices", "label") if name not in row]
    if missing:
        raise RobustokError(f"{where} lacks '{missing[0]}': give query, choices and label")
    query, choices, label = row["query"], row["choices"], row["label"]
    if not isinstance(query, str):
        raise RobustokError(f"{where}: the query must be a string")
    if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
        raise RobustokError(f"{where}: the choices must be a list of strings")
    if not isinstance(label, int) or isinstance(label, bool):
        raise RobustokError(f"{where}: the label must be the number of the right choice, from 0")
    return Item(key, query, tuple(choices), label, str(row.get("kind", row.get("task", ""))))
