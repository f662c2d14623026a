"""Model cards: one model in one line of JSON, and the page of one card or of several.

A card is made of the rows of a study whose `page` is `card`. It holds every answer, so that each
interval can be derived again from the line alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from robustok.attack.settings import is_attack, is_suite
from robustok.errors import RobustokError
from robustok.report.figures import SPLITS_AXIS, Panel, draw_bars
from robustok.report.frame import Row, bounds, percent
from robustok.report.names import last_parts
from robustok.report.page import Section, Table, write_page
from robustok.report.style import colors, grouped, save_all
from robustok.report.tables import NOT_RUN, Headline, perplexity_text, pivot
from robustok.runtime.files import json_text, read_rows, write_whole

FORMAT = 1  # of a card's line
CARD = "card.jsonl"  # in the folder of a run
_FIELDS = (
    "eval_scheme",
    "accuracy",
    "low",
    "high",
    "n",
    "draws",
    "chance",
    "consistency",
    "start_accuracy",
    "splits",
    "overflowed",
)
_PERPLEXITY = ("eval_scheme", "perplexity", "bits_per_byte", "low", "high", "texts", "splits")
_DRIFT = ("completions", "drifted", "low", "high", "drifted_ids", "changed")
_TITLES = {"langgame": "LangGame", "cute": "CUTE"}
_WORST = "worst"  # the group of the suite in the figure
_WORST_IN_FIGURE = "the worst attack is that of several searches that the model answers worst"
_WORST_IN_TABLE = (
    "The worst is over all searches of the suite, on fewer questions, beside their canonical "
    "accuracy."
)
_SUBTITLE = (
    "How the answers change when the tokenization of a question changes and its text does not."
)
_AT_CHANCE = (
    "on no task clearly above the accuracy of a guess, so that there is no accuracy to lose. Read "
    "consistency and perplexity instead."
)


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
    """The card of a study on one model.

    ``rows`` are those of results.jsonl. The folder of the run has the answers to each question in
    `items`.
    """
    first = rows[0]
    model = first["configuration"]["inputs"]["model"]
    name, _, commit = model["model"]["identity"].partition("@")
    measured = [row for row in rows if "accuracy" in row]
    labels: dict[str, dict[str, int]] = {}
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for row in measured:
        given = answers.setdefault(row["task"], {}).setdefault(row["eval_scheme"], {})
        for item in read_rows(folder / "items" / f"{row['cell']}.jsonl"):
            if "predictions" in item:
                given[item["key"]] = item["predictions"]
                labels.setdefault(row["task"], {})[item["key"]] = item["label"]
            else:  # the suite has a row for each search: whether no search changed the answer
                given[item["key"]] = given.get(item["key"], True) and not item["success"]
    drifts = [_fields(row, _DRIFT) for row in rows if "drifted" in row]
    return Card(
        card=FORMAT,
        model=first["model"]["name"],
        revision=commit or name,
        parameters=first["model"]["parameters"],
        precision=next((row["precision"] for row in rows if "precision" in row), ""),
        start_token=model.get("start_token"),
        tokenizer=first.get("tokenizer", ""),
        robustok=first["versions"]["robustok"],
        versions={n: v for n, v in first["versions"].items() if n != "robustok"},
        seed=first["seed"],
        results=[{"task": row["task"]} | _fields(row, _FIELDS) for row in measured],
        perplexity=[_fields(row, _PERPLEXITY) for row in rows if "perplexity" in row],
        drift=drifts[0] if drifts else {},
        labels=labels,
        answers=answers,
    )


def _fields(row: Row, names: Sequence[str]) -> Row:
    return {name: row[name] for name in names if name in row}


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

    The folder gets report.html, report.md, figures/card.png and .svg, and the cards.
    """
    named = _by_name(cards)
    names, is_one = list(named), len(cards) == 1
    lines = "".join(json_text(card) + "\n" for card in cards)
    write_whole(out / CARD, lines)
    at_chance = [name for name, card in named.items() if _is_at_chance(card)]
    return write_page(
        out,
        title=names[0] if is_one else f"{len(cards)} models beside each other",
        kind="model card",
        subtitle=[_SUBTITLE],
        note=f"{', '.join(at_chance)}: {_AT_CHANCE}" if at_chance else "",
        where="Every answer is in card.jsonl",
        sections=_sections(named, out / "figures"),
        headlines=_headlines(cards[0], colors(names)[0]) if is_one else [],
    )


def _by_name(cards: Sequence[Card]) -> dict[str, Card]:
    """Each model by as many of its name's last parts as tell all apart, or by all and a number."""
    full = [card["model"] for card in cards]
    names = last_parts(full)
    if len(set(names)) < len(names):
        names = [
            f"{n} #{full[:i].count(n) + 1}" if full.count(n) > 1 else n for i, n in enumerate(full)
        ]
    return dict(zip(names, cards, strict=True))


def task_title(task: str) -> str:
    return _TITLES.get(task, task)


def _is_at_chance(card: Card) -> bool:
    """Whether no task's canonical accuracy is clearly above that of a guess."""
    canonical = [row for row in card["results"] if row["eval_scheme"] == "canonical"]
    return bool(canonical) and all(row["low"] <= row["chance"] for row in canonical)


def _headlines(card: Card, color: str) -> list[Headline]:
    """The accuracy of each task on canonical and on the most perturbed questions, in a sentence."""
    headlines = []
    for task, rows in grouped(card["results"], "task").items():
        canonical = next((row for row in rows if row["eval_scheme"] == "canonical"), None)
        worst = next((row for row in rows if is_suite(row["eval_scheme"])), None)
        schemes = [row for row in rows if not is_attack(row["eval_scheme"])]
        drawn = [row for row in schemes if row not in (canonical, worst)]
        if canonical is None or not drawn:
            continue
        last, facts = drawn[-1], []
        text = f"{task_title(task)}: accuracy on canonical questions, and at {last['splits']:.2f} "
        text += f"splits per canonical token; chance is {percent(canonical['chance'])}%."
        if "consistency" in last:
            changes = f"{percent(1 - last['consistency'])}% of the questions change their answer"
            facts.append(f"{changes} between {last['draws']} draws")
        if worst is not None:
            shares = f"{percent(worst['accuracy'])}% of {percent(worst['start_accuracy'])}%"
            facts.append(f"the worst attack leaves {shares} ({worst['n']} questions)")
        text += f" {', and '.join(facts)}." if facts else ""
        number = f"{percent(canonical['accuracy'])} → {percent(last['accuracy'])}%"
        headlines.append(Headline(number, text, color))
    return headlines


def _sections(cards: Mapping[str, Card], folder: Path) -> list[Section]:
    """Accuracy and consistency by task, perplexity, and drift, of the models by their names."""
    is_attacked = any(is_suite(row["eval_scheme"]) for row in _results(cards))
    save_all(draw_bars(_panels(cards)), folder / "card")
    sections = [
        Section(
            "card",
            "Accuracy by the strength of the perturbation",
            "With 95% intervals over the questions. At 0 splits the questions have their canonical "
            "tokenization" + ("; " + _WORST_IN_FIGURE if is_attacked else "") + ".",
            figure=folder / "card",
        ),
        Section(
            "accuracy",
            "Accuracy",
            "In percent, with 95% intervals over the questions. Consistency is the share of "
            "questions with the same answer, right or wrong, in all draws."
            + (f" {_WORST_IN_TABLE}" if is_attacked else ""),
            [_accuracies(cards)],
        ),
        Section(
            "perplexity",
            "Perplexity",
            "Of the questions, or of the text given. Perplexity is per token of the drawn "
            "sequence; bits per byte are comparable between strengths and vocabularies.",
            [_perplexities(cards)],
        ),
        Section(
            "drift",
            "Drift",
            "Completions that the model sampled at temperature 1 after canonical questions, and "
            "how many have other ids than the encoder gives for their text.",
            [_drifts(cards)],
        ),
        Section(
            "identity",
            "What was measured",
            " · ".join(f"{n} {v}" for n, v in next(iter(cards.values()))["versions"].items()),
            [_identities(cards)],
            prose=True,
        ),
    ]
    return [section for section in sections if section.figure or section.tables[0].lines]


def _results(cards: Mapping[str, Card]) -> list[Row]:
    """The results of all cards, with the names of the models."""
    return [row | {"model": name} for name, card in cards.items() for row in card["results"]]


def _accuracies(cards: Mapping[str, Card]) -> Table:
    rows = _results(cards)
    schemes = sorted(grouped(rows, "eval_scheme"), key=is_suite)
    several, one_suite = len(cards) > 1, sum(map(is_suite, schemes)) == 1
    head = ["task", "model"] if several else ["task"]
    head += ["worst attack" if is_suite(scheme) and one_suite else scheme for scheme in schemes]
    lines = []
    for task, own in grouped(rows, "task").items():
        measured = {(row["model"], row["eval_scheme"]): row for row in own}
        for name in cards:
            texts = [_accuracy_text(measured.get((name, scheme))) for scheme in schemes]
            lines.append([task_title(task), *([name] if several else []), *texts])
    return Table(head, lines)


def _accuracy_text(row: Row | None) -> str:
    if row is None:
        return NOT_RUN
    text = f"{percent(row['accuracy'])} {bounds(row)}"
    if "consistency" in row:
        text += f", consistency {percent(row['consistency'])}"
    if "start_accuracy" in row:
        text += f", canonical {percent(row['start_accuracy'])}"
    return f"{text}, n = {row['n']}"


def _perplexities(cards: Mapping[str, Card]) -> Table:
    rows = [
        {"model": name, "eval_scheme": row["eval_scheme"], "text": perplexity_text(row)}
        for name, card in cards.items()
        for row in card["perplexity"]
    ]
    return pivot(pd.DataFrame(rows), "model", "eval_scheme", "model") if rows else Table([], [])


def _drifts(cards: Mapping[str, Card]) -> Table:
    lines = [
        {
            "model": name,
            "completions": str(drift["completions"]),
            "not canonical": f"{percent(drift['drifted'])}% {bounds(drift)}",
            "ids not canonical": f"{100 * drift['drifted_ids']:.2f}%",
            "changed by re-encoding": f"{percent(drift['changed'])}%",
        }
        for name, card in cards.items()
        if (drift := card["drift"])
    ]
    return Table.of(lines)


def _identities(cards: Mapping[str, Card]) -> Table:
    """What exactly was measured."""
    lines = [
        {
            "model": name,
            "revision or hash of the weights": card["revision"],
            "tokenizer": card["tokenizer"][:16],
            "parameters": f"{card['parameters'] / 1e6:.1f}M",
            "precision": card["precision"],
            "start token": card["start_token"] or "none",
            "seed": str(card["seed"]),
            "robustok": card["robustok"],
        }
        for name, card in cards.items()
    ]
    return Table.of(lines)


def _panels(cards: Mapping[str, Card]) -> list[Panel]:
    """A panel for each task: a group for each strength and the suite, a bar for each model."""
    tints = dict(zip(cards, colors([*cards]), strict=True))
    series = {name: name for name in cards}
    panels = []
    for task, own in grouped(_results(cards), "task").items():
        by_scheme = grouped(own, "eval_scheme")
        groups = {"canonical": "0.00\nα 0"}
        for scheme, rows in by_scheme.items():
            if scheme != "canonical" and not is_suite(scheme):
                alpha = scheme.partition("alpha=")[2].rstrip(")")
                splits = sum(row["splits"] for row in rows) / len(rows)
                groups[scheme] = f"{splits:.2f}\n{f'α {alpha}' if alpha else scheme}"
        if any(map(is_suite, by_scheme)):
            groups[_WORST] = "worst\nattack"
        cells: dict[tuple[str, str], Row | None] = {}
        for row in own:
            scheme = row["eval_scheme"]
            cells[row["model"], _WORST if is_suite(scheme) else scheme] = row
        panels.append(Panel(task_title(task), series, groups, cells, tints, SPLITS_AXIS))
    return panels
