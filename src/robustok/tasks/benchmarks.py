"""The benchmarks of the paper as items: from JSON lines on disk, or from the hub.

Each is worded as in the examples of the paper's appendix: the question as it stands, and the answer
behind it after a space. BLiMP and other pairs of sentences have no question; their sentences are
scored whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from robustok.errors import RobustokError, nearest
from robustok.tasks.item import Item, read_rows

Row = Mapping[str, Any]


class Worded(NamedTuple):
    """A row in the words of the paper."""

    query: str
    choices: list[str]
    label: int
    kind: str = ""


class Hub(NamedTuple):
    """Where a benchmark lies on the hub, and how its rows become ours.

    ``config`` is its one configuration, or None for all that it has, each then a kind.
    """

    path: str
    config: str | None
    split: str
    row: Callable[[Row], dict[str, Any]]


def read_benchmark(source: str | Path, *, limit: int | None = None) -> list[Item]:
    """Read a benchmark: a .jsonl file, or the name of one on the hub.

    >>> from pathlib import Path
    >>> row = '{"query": "My body cast a shadow.", "question": "cause", '
    >>> row += '"choices": ["The sun was rising.", "The grass was cut."], "label": 0}'
    >>> _ = Path("copa.jsonl").write_text(row)
    >>> read_benchmark("copa.jsonl")[0].query
    'My body cast a shadow. cause?'

    A line of a file holds ``query``, ``choices`` and ``label``, further ``id`` and what the
    benchmark of that name needs (``question`` for copa). A file with another name is worded as a
    question and its answers; one that already has its spaces (our own ``write_items``) stays as
    it is. ``limit`` keeps the first so many.

    Raises RobustokError for an unknown name and for a line that is wrong, by its number.
    """
    path = Path(source)
    if path.suffix == ".jsonl" or path.is_file():
        return list(islice(_from_file(path), limit))
    name = str(source)
    if name not in HUB:
        raise RobustokError(f"no file and no benchmark '{name}': {nearest(name, HUB)}")
    return list(islice(_from_hub(name), limit))


def benchmark_files(folder: str | Path) -> dict[str, Path]:
    """The benchmarks that lie in a folder, by name.

    >>> from pathlib import Path
    >>> Path("benchmarks").mkdir(exist_ok=True)
    >>> _ = Path("benchmarks/copa.jsonl").write_text("")
    >>> list(benchmark_files("benchmarks"))
    ['copa']

    Raises RobustokError where there is none.
    """
    found = {path.stem: path for path in sorted(Path(folder).glob("*.jsonl"))}
    if not found:
        raise RobustokError(f"'{folder}' holds no .jsonl file: give a folder of benchmarks")
    return found


def _from_file(path: Path) -> Iterator[Item]:
    word = WORDED.get(path.stem, _plain)
    for row, where, key in read_rows(path):
        yield _item(row, word, where, key)


def _from_hub(name: str) -> Iterator[Item]:
    from datasets import get_dataset_config_names, load_dataset

    hub = HUB[name]
    configs = [hub.config] if hub.config else get_dataset_config_names(hub.path)
    for config in configs:
        rows: Any = load_dataset(hub.path, config, split=hub.split)
        for number, row in enumerate(rows):
            key = f"{name}-{config}-{number}"
            ours = hub.row(row) if hub.config else {"kind": config} | hub.row(row)
            yield _item(ours, WORDED.get(name, _plain), key, key)


def _item(row: Row, word: Callable[[Row], Worded], where: str, key: str) -> Item:
    for name in ("choices", "label"):
        if name not in row:
            raise RobustokError(f"{where} lacks '{name}': give query, choices and label")
    try:
        query, choices, label, kind = word(row)
        return Item(key, query, tuple(choices), int(label), kind)
    except KeyError as e:
        raise RobustokError(f"{where} lacks {e}, which this benchmark needs") from None
    except (TypeError, ValueError, AttributeError) as e:
        raise RobustokError(f"{where} is not a question with choices: {e}") from None


def _after_space(choices: Iterable[str]) -> list[str]:
    return [choice if choice[:1].isspace() else " " + choice.strip() for choice in choices]


def _plain(row: Row) -> Worded:
    query, kind = row.get("query", ""), str(row.get("kind", row.get("task", "")))
    # Whole sentences start a text, so nothing stands before them.
    choices = _after_space(row["choices"]) if query else [c.strip() for c in row["choices"]]
    return Worded(query, choices, row["label"], kind)


def _copa(row: Row) -> Worded:
    return Worded(f"{row['query']} {row['question']}?", _after_space(row["choices"]), row["label"])


def _social_iqa(row: Row) -> Worded:
    query = (
        "Choose the most likely answer.\n"
        f"Context: {row['context']}\nQuestion: {row['question']}\n"
    )  # fmt: skip
    return Worded(query, _after_space(row["choices"]), row["label"])


def _winogrande(row: Row) -> Worded:
    before, _, after = row["query"].partition("_")
    return Worded(before.rstrip(), [f" {c}{after}" for c in row["choices"]], row["label"])


def _cute(row: Row) -> Worded:
    choices = [f'{choice}"' for choice in row["choices"]]
    return Worded(f'{row["query"]} Answer: "', choices, row["label"], str(row.get("task", "")))


def _blimp(row: Row) -> Worded:
    return Worded("", [c.strip() for c in row["choices"]], row["label"], str(row.get("UID", "")))


WORDED: dict[str, Callable[[Row], Worded]] = {
    "copa": _copa,
    "balanced_copa_mirrored": _copa,
    "social_iqa": _social_iqa,
    "winogrande": _winogrande,
    "cute": _cute,
    "blimp": _blimp,
}


def _hub_letters(row: Row) -> dict[str, Any]:
    """Choices under letters or numbers, as ARC and CommonsenseQA have them."""
    choices = row["choices"]
    label = list(choices["label"]).index(row["answerKey"])
    return {"query": row["question"], "choices": list(choices["text"]), "label": label}


def _hub_copa(row: Row) -> dict[str, Any]:
    choices = [row["choice1"], row["choice2"]]
    return {
        "query": row["premise"], "question": row["question"], "choices": choices,
        "label": row["label"],
    }  # fmt: skip


def _hub_hellaswag(row: Row) -> dict[str, Any]:
    query = f"{row['activity_label']}: {row['ctx']}"
    return {"query": query, "choices": list(row["endings"]), "label": int(row["label"])}


def _hub_piqa(row: Row) -> dict[str, Any]:
    return {"query": row["goal"], "choices": [row["sol1"], row["sol2"]], "label": row["label"]}


def _hub_social_iqa(row: Row) -> dict[str, Any]:
    choices = [row["answerA"], row["answerB"], row["answerC"]]
    return {
        "context": row["context"], "question": row["question"], "choices": choices,
        "label": int(row["label"]) - 1,
    }  # fmt: skip


def _hub_winogrande(row: Row) -> dict[str, Any]:
    choices = [row["option1"], row["option2"]]
    return {"query": row["sentence"], "choices": choices, "label": int(row["answer"]) - 1}


def _hub_blimp(row: Row) -> dict[str, Any]:
    # The right one is not always first, so that a model without preference is at chance.
    right = sum(row["sentence_good"].encode()) % 2
    pair = [row["sentence_good"], row["sentence_bad"]]
    return {"UID": row["UID"], "choices": pair[::-1] if right else pair, "label": right}


def _hub_toksuite(row: Row) -> dict[str, Any]:
    query = row["question"].strip()
    return {"query": query, "choices": list(row["choices"]), "label": int(row["answer"])}


HUB: dict[str, Hub] = {
    "arc_easy": Hub("allenai/ai2_arc", "ARC-Easy", "test", _hub_letters),
    "copa": Hub("aps/super_glue", "copa", "validation", _hub_copa),
    "commonsense_qa": Hub("tau/commonsense_qa", "default", "validation", _hub_letters),
    "hellaswag": Hub("Rowan/hellaswag", "default", "validation", _hub_hellaswag),
    "piqa": Hub("ybisk/piqa", "plain_text", "validation", _hub_piqa),
    "social_iqa": Hub("allenai/social_i_qa", "default", "validation", _hub_social_iqa),
    "winogrande": Hub("allenai/winogrande", "winogrande_xl", "validation", _hub_winogrande),
    "blimp": Hub("nyu-mll/blimp", None, "train", _hub_blimp),
    "toksuite": Hub("toksuite/toksuite_english", None, "test", _hub_toksuite),
}
