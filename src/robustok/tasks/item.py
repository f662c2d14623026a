"""Questions and their files: JSON Lines, and data sets of the hub.

:func:`read_items` is the one reader of every ``--items``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from robustok.checks import shown
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonFields, JsonObject, write_rows
from robustok.runtime.inputs import COMPRESSIONS, json_lines
from robustok.tasks.benchmarks import HUB, WORDED, Hub, Row, Worded, as_written, plain


@dataclass(frozen=True)
class Item:
    """A question, its options, and which option is right.

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

    Raises RobustokError for choices that are no tuple or list, fewer than two, an empty one, a key,
    question, choice or kind that is no text, and a label that is no integer or out of range.
    """

    key: str
    question: str
    choices: tuple[str, ...]
    label: int
    kind: str = ""

    def __post_init__(self) -> None:
        choices = self.choices
        if not isinstance(choices, (tuple, list)):
            raise RobustokError(f"item '{self.key}' has choices {shown(choices)}: give a list")
        _check_texts("item", self.key, question=self.question, kind=self.kind)
        if not all(isinstance(choice, str) for choice in choices):
            raise RobustokError(f"item '{self.key}' has a choice that is no text")
        if len(choices) < 2:
            raise RobustokError(f"item '{self.key}' has fewer than 2 choices: give at least 2")
        is_integer = isinstance(self.label, (int, np.integer)) and not isinstance(self.label, bool)
        if not is_integer or not 0 <= self.label < len(choices):
            raise RobustokError(
                f"item '{self.key}' has label {self.label!r}: give the index of the right choice, "
                f"an integer from 0 to {len(choices) - 1}"
            )
        if not all(choices):
            raise RobustokError(f"item '{self.key}' has an empty choice: give every choice a text")
        object.__setattr__(self, "label", int(self.label))
        object.__setattr__(self, "choices", tuple(choices))

    @property
    def answer(self) -> str:
        """The right option."""
        return self.choices[self.label]

    @property
    def drawn_texts(self) -> dict[str, str]:
        """The texts that a scheme draws, by key: the question, or each sentence if it has none.

        >>> Item("a", "", ("it is", "it are"), 0).drawn_texts
        {'a/0': 'it is', 'a/1': 'it are'}
        """
        if self.question:
            return {self.key: self.question}
        return {f"{self.key}/{i}": choice for i, choice in enumerate(self.choices)}


@dataclass(frozen=True)
class Pair:
    """A prompt and its answer, for training only: there is nothing to choose from.

    >>> Pair("p0", "Spell cat.", " c a t").answer
    ' c a t'

    Args:
        key: name of the pair, unique in its list.
        question: the prompt, as text.
        answer: the text to learn after it, with its own leading space.

    Raises RobustokError for a key, question or answer that is no text.
    """

    key: str
    question: str
    answer: str

    def __post_init__(self) -> None:
        _check_texts("pair", self.key, question=self.question, answer=self.answer)


def _check_texts(what: str, key: Any, **fields: Any) -> None:
    """Raise RobustokError where the key or another field of an item or a pair is no text."""
    for name, value in {"key": key, **fields}.items():
        if not isinstance(value, str):
            raise RobustokError(f"{what} {shown(key)} has a {name} that is no text: {shown(value)}")


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
    write_rows(Path(path), map(asdict, items))


def read_items(
    source: str | Path, *, limit: int | None = None, split: str | None = None
) -> list[Item]:
    """Read multiple-choice items: a JSON Lines file, or the name of a benchmark on the hub.

    >>> from pathlib import Path
    >>> row = '{"query": "My body cast a shadow.", "question": "cause", '
    >>> row += '"choices": ["The sun was rising.", "The grass was cut."], "label": 0}'
    >>> _ = Path("copa.jsonl").write_text(row)
    >>> read_items("copa.jsonl")[0].question
    'My body cast a shadow. cause?'
    >>> from robustok.tasks import write_items
    >>> write_items("questions.jsonl", items)
    >>> read_items("questions.jsonl") == items
    True

    Args:
        source: path of a JSON Lines file, the name of a benchmark on the hub (a key of ``HUB``), as
            ``copa`` or ``copa@REVISION``, or a folder of that name with a copy of its repository.
        limit: number of items to keep, from the first; by default all.
        split: another split of the hub's data set than the one that is evaluated on, such as
            ``train``.

    A line with ``key`` is what :func:`write_items` wrote, and stays as it is. Any other line is
    worded by the benchmark that the file is named after (docs/evaluation.md), or else as a
    question and its answers, each answer after a space. It holds ``question``, ``choices`` and
    ``label``, and may have ``id``; an empty ``question`` means whole sentences to choose from, as
    in BLiMP. Files of the paper's benchmarks have the question as ``query``, beside what the
    benchmark needs (``question``, cause or effect, in copa).

    Raises RobustokError for an unknown name and for an invalid line, with its number.
    """
    path = Path(source)
    if path.suffix == ".jsonl" or path.is_file():
        if split is not None:
            raise RobustokError(f"'{source}' is a file, which has no split '{split}': leave it out")
        return list(islice(_from_file(path), limit))
    if path.is_dir():
        if path.name not in HUB:
            raise RobustokError(
                f"'{source}' is a folder: give one .jsonl file of it, or a copy of a benchmark's "
                f"repository with the benchmark's name, such as {path / 'toksuite'}"
            )
        return list(islice(_from_hub(path.name, None, split, copy=path), limit))
    name, _, revision = str(source).partition("@")
    if name not in HUB:
        raise RobustokError(f"no file and no benchmark '{name}': {nearest(name, HUB)}")
    return list(islice(_from_hub(name, revision or HUB[name].revision, split), limit))


def read_questions(source: str | Path) -> list[Item] | list[Pair]:
    """Read what to fine-tune on: items where the first line has choices, else pairs.

    >>> from pathlib import Path
    >>> _ = Path("pairs.jsonl").write_text('{"prompt": "Spell cat.", "answer": " c a t"}\\n')
    >>> read_questions("pairs.jsonl")[0]
    Pair(key='pairs-1', question='Spell cat.', answer=' c a t')

    Args:
        source: path of a JSON Lines file, or the name of a benchmark on the hub, as in
            :func:`read_items`. A pair has ``prompt`` (or ``question``) and ``answer`` (or
            ``completion``), which follows directly and so carries its own leading space.

    Raises RobustokError with the number of a line that is not of the same kind as the first.
    """
    path = Path(source)
    if not path.is_file() and path.suffix != ".jsonl":
        return read_items(source)
    if "choices" in next(_objects(path))[0]:
        return read_items(path)
    return [_pair(row, where, key) for row, where, key in _objects(path)]


def benchmark_of(path: Path) -> str:
    """The benchmark that a file of questions is named after, such as ``copa.jsonl.gz``."""
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSIONS else path.stem


def benchmark_files(folder: str | Path) -> dict[str, Path]:
    """The JSON Lines files of a folder, by benchmark (the file name without its suffix).

    >>> from pathlib import Path
    >>> Path("benchmarks").mkdir(exist_ok=True)
    >>> _ = Path("benchmarks/copa.jsonl").write_text("")
    >>> list(benchmark_files("benchmarks"))
    ['copa']

    Args:
        folder: the folder; its subfolders are not searched.

    Raises RobustokError if it holds no .jsonl file.
    """
    paths = sorted(Path(folder).glob("[!._]*.jsonl"))
    files = {path.stem: path for path in paths}
    if not files:
        if Path(folder, "config.json").is_file():
            raise RobustokError(
                f"'{folder}' is the folder of a model: give a file or a folder of questions"
            )
        raise RobustokError(f"'{folder}' holds no .jsonl file: give a folder of benchmarks")
    return files


def _objects(path: Path) -> Iterator[tuple[JsonObject, str, str]]:
    """Each object of a JSON Lines file, with its place and its key."""
    if not path.is_file():
        raise RobustokError(f"no file '{path}': give a JSONL file of questions")
    number, first = 0, {}
    for number, row in json_lines(path):
        where = f"{path}:{number}"
        if not isinstance(row, dict):
            raise RobustokError(f"{where} is not a JSON object: write one object a line")
        key = key_of(row, f"{benchmark_of(path)}-{number}")
        if first.setdefault(key, number) != number:
            raise RobustokError(
                f"{where} has the id '{key}' of line {first[key]}: give each its own"
            )
        yield row, where, key
    if not number:
        raise RobustokError(f"'{path}' holds no questions: give one JSON object a line")


def key_of(row: JsonFields, default: str) -> str:
    """The key of a row, ``key`` or else ``id``; ``default`` for a row without one."""
    return str(next((row[name] for name in ("key", "id") if row.get(name) is not None), default))


def _pair(row: JsonObject, where: str, key: str) -> Pair:
    if "choices" in row:
        raise RobustokError(f"{where} has choices, and the first line none: give them all or none")
    prompt = row.get("prompt", row.get("question"))
    answer = row.get("answer", row.get("completion"))
    for name, value in (("prompt", prompt), ("answer", answer)):
        if not isinstance(value, str) or not value:
            advice = "give prompt and answer, or question, choices and label"
            raise RobustokError(f"{where} has no text '{name}': {advice}")
    return Pair(key, str(prompt), str(answer))


def _from_file(path: Path) -> Iterator[Item]:
    name = benchmark_of(path)
    word = WORDED.get(name, plain)
    for row, where, key in _objects(path):
        item = _item(row, as_written if "key" in row else word, where, key)
        # Published benchmarks have a few such questions, which stay in their counts.
        is_own = "key" not in row and name not in HUB and name not in WORDED
        if is_own and item.choices.count(item.answer) > 1:
            raise RobustokError(
                f"{where}: the right choice {item.answer.strip()!r} is there twice, so "
                "no answer tells them apart: give different choices"
            )
        yield item


def _from_hub(
    name: str, revision: str | None, split: str | None, copy: Path | None = None
) -> Iterator[Item]:
    """The items of a benchmark, from the hub or from a copy of its repository.

    Each of several configurations is a kind. The card of a copy names its configurations, such as
    the subsets of TokSuite in another language.
    """
    from datasets import get_dataset_config_names, load_dataset

    hub = HUB[name]
    is_single, path = isinstance(hub.config, str), str(copy or hub.path)
    configs = (hub.config,) if isinstance(hub.config, str) else hub.config
    try:
        if configs is None or (copy and not is_single):
            configs = tuple(get_dataset_config_names(path, revision=revision))
        prefix = _prefix_of(configs, f"{hub.path.rpartition('/')[2]}_", copy)
        for config in configs:
            rows: Any = load_dataset(path, config, split=split or hub.split, revision=revision)
            kind = config.removeprefix(prefix)
            for number, row in enumerate(rows):
                key = "-".join([name, *([split] if split else []), str(config), str(number)])
                fields = _fields_of(hub, row, key)
                fields = fields if is_single else {"kind": kind} | fields
                yield _item(fields, WORDED.get(name, plain), key, key)
    except ConnectionError as error:
        raise RobustokError(
            f"the hub cannot be reached for the questions of '{name}': connect, or give a file "
            f"{name}.jsonl (in a study its folder, as benchmarks)"
        ) from error


def _fields_of(hub: Hub, row: Row, key: str) -> JsonObject:
    """The fields of a row of the hub, by our names."""
    try:
        return hub.row(row)
    except ValueError:  # an empty text in place of the label
        raise RobustokError(
            f"{key} has no answer: choose a split whose answers are published, as {hub.split}"
        ) from None


def _prefix_of(configs: Sequence[str], name: str, copy: Path | None) -> str:
    """What the names of all configurations begin with, and those of their kinds do not.

    toksuite_english_lowercase is the kind lowercase.
    """
    if copy is None or all(config.startswith(name) for config in configs):
        return name
    columns = zip(*(config.split("_") for config in configs), strict=False)
    shared = takewhile(lambda words: len(configs) > 1 and len(set(words)) == 1, columns)
    return "".join(f"{words[0]}_" for words in shared)


def _item(row: Row, word: Callable[[Row], Worded], where: str, key: str) -> Item:
    """The item of a row: the row is checked, then worded."""
    if not all(isinstance(row.get(name, ""), str) for name in ("question", "query")):
        raise RobustokError(f"{where}: the question must be a string")
    try:
        Item(key, "", row["choices"], row["label"])
        if word is plain and len({row[name] for name in ("question", "query") if name in row}) > 1:
            raise RobustokError(
                "question and query differ, so the text to ask is not known: take one of them out, "
                "or name the file after its benchmark"
            )
        question, choices, kind = word(row)
        if word is plain and question.endswith(" "):
            raise RobustokError("the question ends with a space: an answer follows after its own")
        return Item(key, question, tuple(choices), row["label"], kind)
    except KeyError as e:
        advice = "the benchmark that the file is named after has it, so add it or rename the file"
        if e.args[0] in ("question", "choices", "label"):
            advice = "give question, choices and label"
        raise RobustokError(f"{where} lacks {e}: {advice}") from None
    except RobustokError as e:
        raise RobustokError(f"{where}: {e}") from None
