"""Attacks in a report: how many tokenizations they scored, and attacked texts as people read them.

What they show is in the results for each question, `items/CELL.jsonl`, not in the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from robustok.evaluation.intervals import curve_of
from robustok.report.figures import facts, panel_grid
from robustok.report.frame import Results, bounds, percent
from robustok.report.page import Section, Table, write_page
from robustok.report.source import read_answers
from robustok.report.style import (
    MUTED,
    Row,
    colors,
    figure_style,
    grouped,
    legend_above,
    note_below,
    one_line,
    percent_axis,
    save_all,
    short,
)
from robustok.runtime.display import counted
from robustok.runtime.files import JsonFields
from robustok.runtime.packages import versions

_SHOWN = 3  # texts of a model
MARGIN = (
    "The margin is the greatest score of a wrong option minus that of the right one: above 0 the "
    "answer is wrong. The right answer stands behind the arrow."
)


def attack_sections(results: Results, folders: Iterable[Path], figures: Path) -> list[Section]:
    """The curve of every attack, and some attacked questions of each model; none without items."""
    folders = [*folders]
    rows = [row for row in results.rows if row["eval_scheme"] in results.attacks]
    items_of = {id(row): _items(row["cells"], folders) for row in rows}
    rows = [row for row in rows if items_of[id(row)]]
    if not rows:
        return []
    several = len(results.names) > 1
    lines: list[Row] = []
    for row in rows:
        attack = one_line(short(row["eval_scheme"], results.attacks))
        panel, name = (attack, row["name"]) if several else ("", attack)
        lines.append({"panel": panel, "name": name, "attacks": items_of[id(row)]})
    curve = curve_section(lines, "accuracy", figures, facts(rows))
    tables = [
        table
        for name, own in grouped(rows, "name").items()
        for table in attacked_tables(items_of[id(own[0])][0], name if several else "")
    ]
    return [curve, *attacked_section(tables, MARGIN)]


def _items(cells: Sequence[str], folders: Sequence[Path]) -> list[list[Row]]:
    """The attacks of each cell of a row, a seed each, on the questions that all of them have."""
    seeds: list[dict[str, Row]] = []
    for cell in cells:
        paths = (folder / "items" / f"{cell}.jsonl" for folder in folders)
        path = next(filter(Path.is_file, paths), None)  # several folders may have it
        items = read_answers(path) if path else []
        seeds.append({item["key"]: item for item in items if "steps" in item})
    known = [own for own in seeds if own]
    keys = [key for key in known[0] if all(key in own for own in known)] if known else []
    return [[own[key] for key in keys] for own in known if keys]


@figure_style()
def curve_section(lines: Sequence[Row], name: str, folder: Path, note: str) -> Section:
    """The "accuracy" under attack, share of "success" or mean "score" by tokenizations scored.

    A line has its ``panel``, its ``name`` and the rows of its ``attacks``, by seed and text.
    """
    panels = grouped(lines, "panel")
    tints = colors(line["name"] for line in lines)
    figure, axes = panel_grid(len(panels))
    rows: list[Row] = []
    for place, (panel, own) in zip(axes, panels.items(), strict=False):
        for line in own:
            curve, color = _curve(name, line["attacks"]), tints[line["name"]]
            rows += [{"attack": panel, "name": line["name"], **point} for point in curve]
            scale = 1 if name == "score" else 100
            at = [point["n_scored"] for point in curve]
            shares, low, high = ([scale * p[one] for p in curve] for one in (name, "low", "high"))
            place.fill_between(at, low, high, step="post", color=color, alpha=0.15, linewidth=0)
            place.step(at, shares, where="post", color=color, label=line["name"])
        place.set_xscale("log")
        place.xaxis.set_major_formatter("{x:,.0f}")
        place.minorticks_off()
        place.set_title(panel)
        if name != "score":
            percent_axis(place)
        place.grid(True, axis="y")
        place.set_ylabel({"success": "broken"}.get(name, name) if place in axes[::2] else "")
    figure.supxlabel("tokenizations scored for a text", color=MUTED)
    if len(tints) > 1:
        legend_above(figure, *axes)
    note_below(figure, note)
    save_all(figure, folder / "curve", rows)
    what = {"accuracy": "Accuracy under attack", "success": "Broken prompts", "score": "Score"}
    return Section(
        "curve",
        f"{what[name]} by the tokenizations scored",
        "An attack that may score more tokenizations of a text finds more. At 1 is the "
        "tokenization where it starts." + " Bands are 95% intervals." * (name != "score"),
        figure=folder / "curve",
    )


def _curve(name: str, seeds: Sequence[Sequence[JsonFields]]) -> list[dict[str, float]]:
    attacks = [one for own in seeds for one in own]
    most = max(one["n_scored"] for one in attacks)
    if name != "score":
        return curve_of(name, [[one["reached_at"] for one in own] for own in seeds], most=most)
    scored = [
        {step["n_scored"]: step["score"] for step in one["steps"] if step["score"] is not None}
        for one in attacks
    ]
    first = max(min(own, default=1) for own in scored)  # where each has a score
    limits = {n for own in scored for n in own if n > first}
    return [
        {"n_scored": n, **dict.fromkeys(("score", "low", "high"), _mean_best(scored, n))}
        for n in sorted({first, most, *limits})
    ]


def _mean_best(scored: Sequence[Mapping[int, float]], limit: int) -> float:
    """The mean over the texts of the highest score among the first tokenizations."""
    best = [max(score for n, score in own.items() if n <= limit) for own in scored if own]
    return sum(best) / len(best)


def attacked_section(tables: Sequence[Table], caption: str) -> list[Section]:
    """The tables of attacked texts as a section; none without a table."""
    title = "Attacked texts, before and after"
    return [Section("attacked", title, caption, tables, texts=True)] * bool(tables)


def attacked_tables(
    attacks: Sequence[JsonFields],
    model: str = "",
    answers: Mapping[str, Sequence[str]] | None = None,
) -> list[Table]:
    """Some attacked texts: first those that broke, last those that were wrong before.

    ``answers`` are generated ones, the canonical and the attacked, by the key of the text.
    """
    known = [row for row in attacks if "tokens" in row]
    broken = [row for row in known if row["success"] and row["reached_at"] != 1]
    held = [row for row in known if not row["success"]]
    wrong = [row for row in known if row["success"] and row["reached_at"] == 1]  # before
    most = _SHOWN - bool(held)
    ordered = [*broken[:most], *held, *broken[most:], *wrong]
    return [_attacked(row, model, (answers or {}).get(row["key"])) for row in ordered[:_SHOWN]]


def _attacked(row: JsonFields, model: str, answers: Sequence[str] | None) -> Table:
    fields, start, end = row["fields"], row["steps"][0], row["steps"][-1]
    choices = fields.get("choices", ())
    if len(end["log_probs"]) != len(choices):  # another objective than the answer
        choices = ()
    if answers is None and choices:
        own = start["ids"] == row["canonical_ids"] and start["log_probs"]
        answers = [_answer(choices, own or []), _answer(choices, end["log_probs"])]
    head = ["tokenization", "tokens", "margin" if choices else "score"]
    lines = [
        ["canonical", "|".join(row["canonical_tokens"]), _score(row["canonical_score"])],
        ["attacked", "|".join(row["tokens"]), _score(row["score"])],
    ]
    if answers:
        head.append("answer")
        lines = [[*line, answer.strip()] for line, answer in zip(lines, answers, strict=True)]
    right = f" → {choices[fields['label']].strip()}" if choices else ""
    return Table(head, lines, ": ".join(filter(None, (model, row["text"].strip()))) + right)


def _answer(choices: Sequence[str], log_probs: Sequence[float]) -> str:
    best = max(range(len(log_probs)), key=log_probs.__getitem__, default=None)
    return "" if best is None else choices[best]


def _score(score: float | None) -> str:
    return "excluded" if score is None else f"{score:+.3g}".replace("-", "−")


def summary_table(summaries: Sequence[JsonFields]) -> Table:
    """A line for each attack on prompts: shares of broken and proved ones, and the mean scores."""
    judged = all("success" in row for row in summaries)
    head = ["attack", *["broken", "proved"] * judged, "score before", "after", "scored"]
    attacks = [row["eval_scheme"] for row in summaries]
    lines = []
    for row in summaries:
        line = [one_line(short(row["eval_scheme"], attacks))]
        if judged:
            line += [f"{percent(row['success'])} {bounds(row)}", percent(row["proved"])]
        scores = _score(row["canonical_score"]), _score(row["score"])
        lines.append([*line, *scores, f"{row['n_scored']:,}"])
    return Table(head, lines)


def write_red_team_page(
    out: Path,
    model: str,
    objective: str,
    parts: Mapping[str, Sequence[JsonFields]],
    summaries: Sequence[JsonFields],
    worst: Sequence[JsonFields],
    answers: Mapping[str, Sequence[str]],
) -> Path:
    """Write the report of attacks on prompts, by settings and the worst on each prompt."""
    judged = all("success" in row for row in summaries)
    lines = [
        {"panel": "", "name": one_line(short(name, parts)), "attacks": [rows]}
        for name, rows in parts.items()
    ]
    note = f"{model} · {counted(len(worst), 'prompt')} · objective {objective}"
    score = f"The score is that of the objective {objective}; attacks make it greater."
    about = f"{score} Broken is a prompt whose score passes the threshold." if judged else score
    sections = [
        Section("attacks", "Attacks", about, [summary_table(summaries)]),
        curve_section(lines, "success" if judged else "score", out / "figures", note),
        *attacked_section(attacked_tables(worst, answers=answers), score),
    ]
    last = summaries[-1]
    broke = f"{percent(last['success'])}% {bounds(last)} of {last['n']} broke, " if judged else ""
    went = f"from {_score(last['canonical_score'])} to {_score(last['score'])}"
    under = "the worst attack" if len(parts) > 1 else "attack"
    return write_page(
        out,
        sections,
        title=f"{model} under attacks through its tokenization",
        facts=[note],
        answers=[f"Under {under} {broke}the mean score went {went}."],
        configuration=json.dumps([*parts], indent=2),
        versions=versions(),
    )
