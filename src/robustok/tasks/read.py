"""Items and pairs from JSON Lines files or the hub: the one reader of every ``--items``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError, nearest
from robustok.runtime.files import json_lines
from robustok.tasks.benchmarks import HUB, WORDED, Row, Worded, plain
from robustok.tasks.item import Item, Pair


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
        source: path of a JSON Lines file, or the name of a benchmark on the hub (a key of ``HUB``),
            as ``copa`` or ``copa@REVISION``.
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
        return list(islice(_from_file(path), limit))
    if path.is_dir():
        raise RobustokError(f"'{source}' is a folder: give one .jsonl file of it")
    name, _, revision = str(source).partition("@")
    if name not in HUB:
        raise RobustokError(f"no file and no benchmark '{name}': {nearest(name, HUB)}")
    return list(islice(_from_hub(name, revision or HUB[name].revision, split), limit))


def read_pairs(path: str | Path) -> list[Pair]:
    """Read prompts and answers from JSON lines with ``prompt`` and ``answer``.

    >>> from pathlib import Path
    >>> _ = Path("pairs.jsonl").write_text('{"question": "Spell cat.", "answer": " c a t"}\\n')
    >>> read_pairs("pairs.jsonl")[0]
    Pair(key='pairs-1', question='Spell cat.', answer=' c a t')

    Args:
        path: a JSON Lines file. ``question`` is accepted for ``prompt``, ``completion`` for
            ``answer``. The answer follows the prompt directly, so it carries its own leading space.

    Raises RobustokError with the number of the line that is not a pair.
    """
    return [_pair(row, where, key) for row, where, key in _objects(Path(path))]


def read_questions(source: str | Path) -> list[Item] | list[Pair]:
    """Read what to fine-tune on: items where the first line has choices, else pairs.

    >>> from pathlib import Path
    >>> _ = Path("asked.jsonl").write_text('{"prompt": "Spell cat.", "completion": " c a t"}\\n')
    >>> read_questions("asked.jsonl")[0].answer
    ' c a t'

    Args:
        source: path of a JSON Lines file, or the name of a benchmark on the hub, as in
            :func:`read_items`.

    Raises RobustokError with the number of a line that is not of the same kind as the first.
    """
    path = Path(source)
    if not path.is_file() and path.suffix != ".jsonl":
        return read_items(source)
    first = next(_objects(path))[0]
    return read_items(path) if "choices" in first else read_pairs(path)


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
    files = {path.stem: path for path in sorted(Path(folder).glob("*.jsonl"))}
    if not files:
        raise RobustokError(f"'{folder}' holds no .jsonl file: give a folder of benchmarks")
    return files


def _objects(path: Path) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each object of a JSON Lines file, with its place and its key."""
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
    prompt = row.get("prompt", row.get("question"))
    answer = row.get("answer", row.get("completion"))
    for name, value in (("prompt", prompt), ("answer", answer)):
        if not isinstance(value, str) or not value:
            raise RobustokError(f"{where} has no text '{name}': give prompt and answer")
    return Pair(key, str(prompt), str(answer))


def _from_file(path: Path) -> Iterator[Item]:
    word = WORDED.get(path.stem, plain)
    for row, where, key in _objects(path):
        yield _item(row, _as_written if "key" in row else word, where, key)


def _from_hub(name: str, revision: str | None, split: str | None) -> Iterator[Item]:
    try:
        yield from _hub_items(name, revision, split)
    except ConnectionError as error:
        raise RobustokError(
            f"the hub cannot be reached for the questions of '{name}': connect, or give a file "
            f"{name}.jsonl (in a study its folder, as --benchmarks)"
        ) from error


def _hub_items(name: str, revision: str | None, split: str | None) -> Iterator[Item]:
    from datasets import get_dataset_config_names, load_dataset

    hub = HUB[name]
    one = isinstance(hub.config, str)
    configs = (hub.config,) if isinstance(hub.config, str) else hub.config
    for config in configs or get_dataset_config_names(hub.path, revision=revision):
        rows: Any = load_dataset(hub.path, config, split=split or hub.split, revision=revision)
        kind = str(config).removeprefix(f"{hub.path.rpartition('/')[2]}_")
        for number, row in enumerate(rows):
            key = "-".join([name, *([split] if split else []), str(config), str(number)])
            ours = hub.row(row) if one else {"kind": kind} | hub.row(row)
            yield _item(ours, WORDED.get(name, plain), key, key)


def _as_written(row: Row) -> Worded:
    kind = str(row.get("kind", row.get("task", "")))
    return Worded(row["question"], row["choices"], row["label"], kind)


def _item(row: Row, word: Callable[[Row], Worded], where: str, key: str) -> Item:
    for name in ("choices", "label"):
        if name not in row:
            raise RobustokError(f"{where} lacks '{name}': give question, choices and label")
    if not all(isinstance(row.get(name, ""), str) for name in ("question", "query")):
        raise RobustokError(f"{where}: the question must be a string")
    choices, label = row["choices"], row["label"]
    if not isinstance(choices, list) or not all(isinstance(c, str) for c in choices):
        raise RobustokError(f"{where}: the choices must be a list of strings")
    if not all(choices):
        raise RobustokError(f"{where} has an empty choice: give every choice a text")
    if not isinstance(label, int) or isinstance(label, bool):
        raise RobustokError(f"{where}: the label must be the number of the right choice, from 0")
    try:
        question, choices, label, kind = word(row)
    except KeyError as e:
        raise RobustokError(f"{where} lacks {e}, which its wording needs") from None
    except (TypeError, AttributeError) as e:
        raise RobustokError(f"{where} is not a question with choices: {e}") from None
    return Item(key, question, tuple(choices), label, kind)
