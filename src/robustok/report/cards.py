"""Model cards: one model in one line of JSON. The page is that of `robustok.report.write`.

A card is made of the rows of a study whose `page` is `card`. It holds every answer, so that each
interval can be derived again from the line alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from robustok.attack.settings import is_suite
from robustok.errors import RobustokError
from robustok.report.frame import Row
from robustok.report.names import last_parts
from robustok.runtime.files import read_rows

FORMAT = 1  # of a card's line
CARD = "card.jsonl"  # in the folder of a run
_FIELDS = ("eval_scheme", "accuracy", "low", "high", "n", "draws", "chance", "consistency",
           "start_accuracy", "splits", "overflowed")  # fmt: skip
_PERPLEXITY = ("eval_scheme", "perplexity", "bits_per_byte", "low", "high", "texts", "splits")
_DRIFT = ("completions", "drifted", "low", "high", "drifted_ids", "changed")
_TITLES = {"langgame": "LangGame", "cute": "CUTE"}


class Card(TypedDict):
    """One line of JSON on a model: what was measured, of what exactly, and every answer.

    >>> sorted(Card.__annotations__)[:3]
    ['answers', 'card', 'drift']
    """

    card: int  # the release of this format, 1
    model: str  # as it was given: a hub name, a folder, or the name of a packaged model
    revision: str  # the commit of the hub, or a hash of weights, configuration and tokenizer
    parameters: int
    precision: str  # of the weights while they were measured
    start_token: str | None  # before every text
    tokenizer: str  # SHA-256 of the vocabulary's tokens
    robustok: str  # release
    versions: dict[str, str]  # of the other packages
    seed: int
    results: list[dict[str, Any]]  # a task under an evaluation scheme or the suite each
    perplexity: list[dict[str, Any]]  # an evaluation scheme each
    drift: dict[str, Any]  # of completions that the model sampled; empty if not measured
    labels: dict[str, dict[str, int]]  # index of the right option, by task and question
    answers: dict[str, dict[str, dict[str, Any]]]  # by task, evaluation scheme and question


def card_of(rows: Sequence[Row], folder: Path) -> Card:
    """The card of the rows of a study on one model.

    Args:
        rows: rows of results.jsonl.
        folder: the folder of the run, which has the answers to each question in `items`.
    """
    first = rows[0]
    model = first["configuration"]["inputs"]["model"]
    name, _, commit = model["model"]["identity"].partition("@")
    labels: dict[str, dict[str, int]] = {}
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    results = []
    for row in rows:
        if "accuracy" not in row:
            continue
        results.append({"task": row["task"]} | {f: row[f] for f in _FIELDS if f in row})
        items = read_rows(folder / "items" / f"{row['cell']}.jsonl")
        given = answers.setdefault(row["task"], {}).setdefault(row["eval_scheme"], {})
        for item in items:
            if "predictions" in item:
                given[item["key"]] = item["predictions"]
                labels.setdefault(row["task"], {})[item["key"]] = item["label"]
            else:  # a suite has a row for each search: whether no search changed the answer
                given[item["key"]] = given.get(item["key"], True) and not item["success"]
    drift = next((row for row in rows if "drifted" in row), {})
    versions = {n: v for n, v in first["versions"].items() if n != "robustok"}
    return Card(
        card=FORMAT,
        model=first["model"]["name"],
        revision=commit or name,
        parameters=first["model"]["parameters"],
        precision=next((row["precision"] for row in rows if "precision" in row), ""),
        start_token=model.get("start_token"),
        tokenizer=first.get("tokenizer", ""),
        robustok=first["versions"]["robustok"],
        versions=versions,
        seed=first["seed"],
        results=results,
        perplexity=[{f: row[f] for f in _PERPLEXITY if f in row}
                    for row in rows if "perplexity" in row],
        drift={f: drift[f] for f in _DRIFT if f in drift},
        labels=labels,
        answers=answers,
    )  # fmt: skip


def cards_in(path: Path) -> list[Card]:
    """The cards of a run's folder or of a file with a card on each line; none if it is no card."""
    file = path / CARD if path.is_dir() else path
    if not file.is_file() or file.suffix != ".jsonl":
        return []
    with file.open(encoding="utf-8") as lines:
        try:
            first = json.loads(next(lines, "null"))
        except ValueError:
            return []
    if not isinstance(first, dict) or "card" not in first:
        return []
    cards = read_rows(file)
    if wrong := next((c for c in cards if c.get("card") != FORMAT), None):
        raise RobustokError(
            f"{file} has a card of format {wrong.get('card')}, this release reads {FORMAT}"
        )
    if any(not Card.__annotations__.keys() <= card.keys() for card in cards):
        raise RobustokError(f"{file} has a card with missing fields: copy the whole line")
    return cards


def by_name(cards: Sequence[Card]) -> dict[str, Card]:
    """Each model by as many of its name's last parts as tell all apart, or by all and a number."""
    full = [card["model"] for card in cards]
    short = last_parts(full)
    if len(set(short)) == len(short):
        return dict(zip(short, cards, strict=True))
    names = [f"{n} #{full[:i].count(n) + 1}" if full.count(n) > 1 else n
             for i, n in enumerate(full)]  # fmt: skip
    return dict(zip(names, cards, strict=True))


def task_title(task: str) -> str:
    return _TITLES.get(task, task)


def tasks_of(cards: Iterable[Card]) -> list[str]:
    """The tasks of all cards."""
    return list(dict.fromkeys(row["task"] for card in cards for row in card["results"]))


def by_strength(card: Card, task: str) -> tuple[Row | None, list[Row], Row | None]:
    """The results for a task: canonical, drawn from weak to strong, and of the suite."""
    rows = [row for row in card["results"] if row["task"] == task]
    canonical = next((row for row in rows if row["eval_scheme"] == "canonical"), None)
    worst = next((row for row in rows if is_suite(row["eval_scheme"])), None)
    return canonical, [row for row in rows if row not in (canonical, worst)], worst


def are_attacked(cards: Iterable[Card]) -> bool:
    """Whether a card has the accuracy under the worst attack of a suite."""
    return any(is_suite(row["eval_scheme"]) for card in cards for row in card["results"])


def is_at_chance(card: Card) -> bool:
    """Whether no task's canonical accuracy is clearly above that of a guess."""
    canonical = [row for row in card["results"] if row["eval_scheme"] == "canonical"]
    return bool(canonical) and all(row["low"] <= row["chance"] for row in canonical)


def study_cards(study: Mapping[str, Any], rows: Sequence[Row], folder: Path) -> list[Card]:
    """The card of a study's folder; none for a study with another page, or without results."""
    if study.get("page") != "card" or not any("accuracy" in row for row in rows):
        return []
    return [card_of(rows, folder)]
