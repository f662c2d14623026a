"""A data set of questions as a folder: JSON Lines and a data set card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from robustok.runtime.files import part_of
from robustok.tasks.item import Item, write_items
from robustok.tasks.langgame_items import SPLITS
from robustok.version import __version__

_CARD = """---
language: [{language}]
task_categories: [multiple-choice]
configs:
- config_name: default
  data_files:
  - {{split: train, path: train.jsonl}}
  - {{split: test, path: test.jsonl}}
---

# {title}

{about}

Made by robustok {version}, from {words} words ({source}), with seed {seed}. The same words, numbers
and seed give the same questions; no question is in both splits, whatever the seeds.

| field | type | |
|---|---|---|
| `key` | string | a name, unique within the split |
| `question` | string | the question, up to where an answer begins |
| `choices` | list of strings | the answers as they are scored, each with its own leading space |
| `label` | integer | the number of the right one, from 0 |
| `kind` | string | which of the kinds of questions it is |

| kind | train | test |
|---|--:|--:|
{counts}

What somebody gets right in `test` who reads the answers only, in percent: {baselines}.
Chance is {chance:.1f}.
"""


def write_dataset(
    folder: str | Path,
    splits: Mapping[str, Sequence[Item]],
    *,
    title: str,
    about: str,
    words: int,
    source: str,
    language: str,
    seed: int,
) -> Path:
    """Write train.jsonl, test.jsonl and README.md, which `datasets.load_dataset(folder)` reads.

    >>> write_dataset("odd", {"train": items[:6], "test": items[6:]}, title="Odd", about="Odd?",
    ...               words=8, source="this page", language="en", seed=0)
    PosixPath('odd')

    The card holds the schema, the counts and what trivial rules reach.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        write_items(folder / f"{split}.jsonl", splits[split])
    kinds = list(dict.fromkeys(item.kind for item in splits["train"]))
    by_kind = {split: Counter(item.kind for item in splits[split]) for split in SPLITS}
    rows = [f"| {kind} | {by_kind['train'][kind]} | {by_kind['test'][kind]} |" for kind in kinds]
    reached = baselines(splits["test"])
    test = splits["test"]
    card = _CARD.format(
        title=title, about=about, version=__version__, words=words, source=source, seed=seed,
        language=json.dumps(language), counts="\n".join(rows),
        baselines=", ".join(f"{name} {100 * share:.1f}" for name, share in reached.items()),
        chance=100 * sum(1 / len(item.choices) for item in test) / len(test),
    )  # fmt: skip
    with part_of(folder / "README.md") as part:
        part.write_text(card, encoding="utf-8")
    return folder


def baselines(items: Sequence[Item]) -> dict[str, float]:
    """The share that rules get right which look at the answers and not at the question."""
    rules = {
        "first": lambda choices: 0,
        "last": lambda choices: len(choices) - 1,
        "longest": lambda choices: max(range(len(choices)), key=lambda i: len(choices[i])),
        "shortest": lambda choices: min(range(len(choices)), key=lambda i: len(choices[i])),
        "most common letters": _commonest,
    }
    return {
        name: sum(rule(item.choices) == item.label for item in items) / len(items)
        for name, rule in rules.items()
    }


def _commonest(choices: Sequence[str]) -> int:
    """The answer whose letters the answers share most."""
    letters = Counter("".join(choices))
    return max(
        range(len(choices)),
        key=lambda i: sum(letters[c] for c in choices[i]) / len(choices[i]),
    )
