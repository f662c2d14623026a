"""One multiple-choice question, and the file that holds many. :mod:`.read` reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from robustok.errors import RobustokError
from robustok.runtime.files import write_rows as write_json_lines


@dataclass(frozen=True)
class Item:
    """A question, its options as they are scored after it, and which is right.

    >>> Item("demo-0", "Which word starts with 'b'? Options: up, baby. Answer:",
    ...      (" up", " baby"), 1, "starts").answer
    ' baby'

    Args:
        key: name of the item, unique in its list; the draws of its question depend on it.
        question: the question, as text. It ends where an option begins.
        choices: the options as text, two or more and none empty. An option carries its own leading
            space; the options are tokenized apart from the question, canonically.
        label: index of the right option in ``choices``, from 0.
        kind: the group that results report the item under; empty (default) for none.

    Raises RobustokError for fewer than two choices, an empty one, and a label out of range.
    """

    key: str
    question: str
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

    Args:
        key: name of the pair, unique in its list.
        question: the prompt, as text.
        answer: the text to learn after it, with its own leading space.
    """

    key: str
    question: str
    answer: str


def write_items(path: str | Path, items: Iterable[Item]) -> None:
    """Write items as JSON Lines; the file is complete or unchanged.

    >>> write_items("questions.jsonl", items)
    >>> items[1].question, items[1].answer
    ('hello world, is 1 odd? Answer:', ' yes')

    Args:
        path: the file to write; an existing one is replaced.
        items: the items, in the order of the lines. A line holds ``key``, ``question``,
            ``choices``, ``label`` and ``kind``.
    """
    write_json_lines(Path(path), map(_row, items))


def _row(item: Item) -> dict[str, object]:
    return {
        "key": item.key,
        "question": item.question,
        "choices": item.choices,
        "label": item.label,
        "kind": item.kind,
    }
