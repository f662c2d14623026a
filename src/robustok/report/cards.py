"""Model cards: one model on one page and in one line of JSON, and several beside each other.

A card is made of the rows of a study whose `page` is `card`. It holds every answer, so that each
interval can be derived again from the line alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from robustok.attack.settings import is_suite
from robustok.errors import RobustokError
from robustok.report.figures import Panel, draw_bars, with_figure
from robustok.report.frame import Row, percent
from robustok.report.page import Section, Table, render
from robustok.report.style import colors
from robustok.runtime.files import read_rows, write_whole

FORMAT = 1  # of a card's line
CARD = "card.jsonl"  # in the folder of a run
_FIELDS = ("eval_scheme", "accuracy", "low", "high", "n", "draws", "chance", "consistency",
           "start_accuracy", "splits", "overflowed")  # fmt: skip
_PERPLEXITY = ("eval_scheme", "perplexity", "bits_per_byte", "low", "high", "texts", "splits")
_DRIFT = ("completions", "drifted", "low", "high", "drifted_ids", "changed")
_WORST = "worst"  # the group of the suite in a figure
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


def write_cards(cards: Sequence[Card], out: Path) -> Path:
    """Write the page of one card or of several beside each other, and return its report.html.

    Args:
        cards: the cards.
        out: output folder: report.html, report.md, figures/card.png and .svg, and the cards.
    """
    names = _names(cards)
    panels = _panels(cards, names)
    section = with_figure(Section("card", "Accuracy"), out / "figures", partial(draw_bars, panels))
    lines = "".join(json.dumps(card, ensure_ascii=False) + "\n" for card in cards)
    write_whole(out / CARD, lines)
    values = {
        "title": names[0] if len(cards) == 1 else f"{len(cards)} models beside each other",
        "tiles": _tiles(cards[0], colors(names)[0]) if len(cards) == 1 else [],
        "attacked": _are_attacked(cards),
        "figure": dict(zip(("wide", "narrow"), section.images, strict=True)),
        "tables": [(title, note, table) for title, note, table in _tables(cards, names)
                   if table.lines],
        "identities": _identities(cards, names),
        "versions": " · ".join(f"{n} {v}" for n, v in cards[0]["versions"].items()),
        "chance": [name for name, card in zip(names, cards, strict=True) if _is_at_chance(card)],
    }  # fmt: skip
    for suffix in ("html", "md"):
        write_whole(out / f"report.{suffix}", render(f"card.{suffix}", **values))
    return out / "report.html"


def _names(cards: Sequence[Card]) -> list[str]:
    """A name for each model: as many of its last parts as tell them apart, or all and a number."""
    parts = [Path(card["model"].partition("@")[0]).parts for card in cards]
    for count in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-count:]) for part in parts]
        if len(set(short)) == len(short):
            return short
    full = [card["model"] for card in cards]
    return [f"{n} #{full[:i].count(n) + 1}" if full.count(n) > 1 else n for i, n in enumerate(full)]


def _title(task: str) -> str:
    return _TITLES.get(task, task)


class _Task(NamedTuple):
    """The results of a card for one task: canonical, drawn from weak to strong, and the worst."""

    canonical: Row | None
    drawn: list[Row]
    worst: Row | None


def _task(card: Card, task: str) -> _Task:
    rows = [row for row in card["results"] if row["task"] == task]
    canonical = next((row for row in rows if row["eval_scheme"] == "canonical"), None)
    worst = next((row for row in rows if is_suite(row["eval_scheme"])), None)
    return _Task(canonical, [r for r in rows if r not in (canonical, worst)], worst)


def _tasks(cards: Sequence[Card]) -> list[str]:
    return list(dict.fromkeys(row["task"] for card in cards for row in card["results"]))


def _is_at_chance(card: Card) -> bool:
    """Whether no task's canonical accuracy is clearly above that of a guess."""
    canonical = [row for row in card["results"] if row["eval_scheme"] == "canonical"]
    return bool(canonical) and all(row["low"] <= row["chance"] for row in canonical)


def _tiles(card: Card, color: str) -> list[dict[str, str]]:
    """The accuracy of each task on canonical and on the most perturbed questions, in a sentence."""
    tiles = []
    for task in _tasks([card]):
        canonical, drawn, worst = _task(card, task)
        if canonical is None or not drawn:
            continue
        last = drawn[-1]
        text = f"{_title(task)}: accuracy on canonical questions, and at {last['splits']:.2f} "
        text += f"splits per canonical token; chance is {percent(canonical['chance'])}%. "
        if "consistency" in last:
            changes = percent(1 - last["consistency"])
            text += f"{changes}% of the questions change their answer between {last['draws']} draws"
        if worst is not None:
            text += f", and the worst attack leaves {percent(worst['accuracy'])}% of "
            text += f"{percent(worst['start_accuracy'])}% ({worst['n']} questions)"
        number = f"{percent(canonical['accuracy'])} → {percent(last['accuracy'])}%"
        tiles.append({"number": number, "text": text + ".", "color": color})
    return tiles


def _panels(cards: Sequence[Card], names: Sequence[str]) -> list[Panel]:
    """A panel for each task: a group for each strength and the suite, a bar for each model."""
    tints = dict(zip(names, colors(list(names)), strict=True))
    panels = []
    for task in _tasks(cards):
        parts = {name: _task(card, task) for name, card in zip(names, cards, strict=True)}
        drawn = [row for part in parts.values() for row in part.drawn]
        groups = {"canonical": "0\ncanonical"}
        for scheme in dict.fromkeys(row["eval_scheme"] for row in drawn):
            splits = [row["splits"] for row in drawn if row["eval_scheme"] == scheme]
            groups[scheme] = f"{sum(splits) / len(splits):.2f}\n{_strength(scheme)}"
        cells = {(name, row["eval_scheme"]): row for name, part in parts.items()
                 for row in (part.canonical, *part.drawn) if row}  # fmt: skip
        if attacked := {(name, _WORST): part.worst for name, part in parts.items() if part.worst}:
            cells |= attacked
            groups[_WORST] = "worst\nattack"
        axis = "measured splits per canonical token of the questions  →"
        series = {name: name for name in names}
        panels.append(Panel(_title(task), series, groups, cells, set(cells), tints, axis))
    return panels


def _are_attacked(cards: Sequence[Card]) -> bool:
    return any(is_suite(row["eval_scheme"]) for card in cards for row in card["results"])


def _strength(scheme: str) -> str:
    return f"α = {scheme.partition('alpha=')[2].rstrip(')')}" if "alpha=" in scheme else scheme


def _tables(cards: Sequence[Card], names: Sequence[str]) -> list[tuple[str, str, Table]]:
    """Accuracy and consistency by task, perplexity, and drift, each with its note."""
    worst = (
        " The worst is over all searches of the suite, on fewer questions, beside their canonical "
        "accuracy."
    )
    return [
        (
            "Accuracy",
            "In percent, with 95% intervals over the questions. Consistency is the share of "
            "questions with the same answer, right or wrong, in all draws."
            + (worst if _are_attacked(cards) else ""),
            _accuracies(cards, names),
        ),
        (
            "Perplexity",
            "Of the questions, or of the text given. Perplexity is per token of the drawn "
            "sequence; bits per byte are comparable between strengths and vocabularies.",
            _perplexities(cards, names),
        ),
        (
            "Drift",
            "Completions that the model sampled at temperature 1 after canonical questions, and "
            "how many have other ids than the encoder gives for their text.",
            _drifts(cards, names),
        ),
    ]


def _accuracies(cards: Sequence[Card], names: Sequence[str]) -> Table:
    schemes = list(dict.fromkeys(r["eval_scheme"] for card in cards for r in card["results"]))
    schemes.sort(key=is_suite)
    head = ["task", "model"] if len(cards) > 1 else ["task"]
    one = sum(map(is_suite, schemes)) == 1
    head += ["worst attack" if is_suite(scheme) and one else scheme for scheme in schemes]
    lines = []
    for task in _tasks(cards):
        for name, card in zip(names, cards, strict=True):
            by_scheme = {r["eval_scheme"]: r for r in card["results"] if r["task"] == task}
            cells = [_accuracy(by_scheme.get(scheme)) for scheme in schemes]
            lines.append([_title(task), *([name] if len(cards) > 1 else []), *cells])
    return Table([*head], lines)


def _accuracy(row: Row | None) -> str:
    if row is None:
        return "not run"
    text = f"{percent(row['accuracy'])} [{percent(row['low'])}, {percent(row['high'])}]"
    if "consistency" in row:
        text += f", consistency {percent(row['consistency'])}"
    if "start_accuracy" in row:
        text += f", canonical {percent(row['start_accuracy'])}"
    return f"{text}, n = {row['n']}"


def _perplexities(cards: Sequence[Card], names: Sequence[str]) -> Table:
    schemes = list(dict.fromkeys(r["eval_scheme"] for card in cards for r in card["perplexity"]))
    lines = []
    for name, card in zip(names, cards, strict=True):
        by_scheme = {row["eval_scheme"]: row for row in card["perplexity"]}
        texts = [
            f"{row['perplexity']:.1f}, {row['bits_per_byte']:.3f} bits/byte" if row else "not run"
            for row in map(by_scheme.get, schemes)
        ]
        lines.append([name, *texts])
    return Table(["model", *schemes], lines if schemes else [])


def _drifts(cards: Sequence[Card], names: Sequence[str]) -> Table:
    head = ["model", "completions", "not canonical", "ids not canonical", "changed by re-encoding"]
    lines = []
    for name, card in zip(names, cards, strict=True):
        if drift := card["drift"]:
            share = f"{percent(drift['drifted'])}% [{percent(drift['low'])}, "
            share += f"{percent(drift['high'])}]"
            ids = f"{100 * drift['drifted_ids']:.2f}%"
            changed = f"{percent(drift['changed'])}%"
            lines.append([name, str(drift["completions"]), share, ids, changed])
    return Table(head, lines)


def _identities(cards: Sequence[Card], names: Sequence[str]) -> Table:
    """What exactly was measured."""
    head = ["model", "revision or hash of the weights", "tokenizer", "parameters", "precision",
            "start token", "seed", "robustok"]  # fmt: skip
    lines = [
        [name, card["revision"], card["tokenizer"][:16], f"{card['parameters'] / 1e6:.1f}M",
         card["precision"], card["start_token"] or "none", str(card["seed"]), card["robustok"]]
        for name, card in zip(names, cards, strict=True)
    ]  # fmt: skip
    return Table(head, lines)


def study_cards(study: Mapping[str, Any], rows: Sequence[Row], folder: Path) -> list[Card]:
    """The card of a study's folder; none for a study with another page, or without results."""
    if study.get("page") != "card" or not any("accuracy" in row for row in rows):
        return []
    return [card_of(rows, folder)]
