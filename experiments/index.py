"""The page docs/results/index.md: every claim with its tests and verdicts, and a figure of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from experiments.claims import RESULTS, Claim, Claims, Test
from experiments.verdicts import (
    CONFIRMED,
    CONTRADICTED,
    NO_LOSS,
    NOT_TESTED,
    ORDER,
    SMALLER,
    UNDECIDED,
    UNITS,
    Verdict,
    judge_all,
    measure_of,
)  # fmt: skip
from robustok.report.style import (
    MUTED,
    figure_style,
    legend_above,
    legend_key,
    new_figure,
    save_figure,
)  # fmt: skip
from robustok.runtime.files import read_json
from robustok.study import find_study, studies


def listed(claims: Claims) -> list[dict[str, Any]]:
    """Each test as the fields of a line: what was compared, the difference and the verdict."""
    verdicts = judge_all(claims)
    return [_listed(claim, test, verdicts[test]) for claim in claims.claims for test in claim.tests]


def _listed(claim: Claim, test: Test, own: Verdict) -> dict[str, Any]:
    names = ("mean", "low", "high", "p", "n", "seeds") if own.change else ()
    return {
        "topic": claim.topic, "results": [part.results for part in test.parts],
        "difference": difference_text(test), "measure": own.measure,
        **{name: getattr(own.change, name) for name in names}, "paper": test.paper,
        "verdict": own.verdict, "note": own.note, "left_out": test.left_out,
    }  # fmt: skip


def text_of(line: Mapping[str, Any]) -> str:
    """A line of :func:`listed` for a terminal."""
    unit = UNITS[line["measure"]]
    bounds = [unit.text(line[name]) for name in ("mean", "low", "high") if name in line]
    results = ", ".join(dict.fromkeys(line["results"]))
    parts = (results, line["difference"], " ".join(bounds), line["verdict"], line["note"])
    return "  ".join(part for part in parts if part)


def index(
    claims: Claims, verdicts: Mapping[Test, Verdict], figures: Path, results: Path = RESULTS
) -> str:
    """The page docs/results/index.md: its text, a table of each topic, and what was not run.

    Its figure is written into the folder ``figures``.
    """
    draw_differences(claims, verdicts, figures / "index-differences.png")
    about = {}
    for model in claims.models.values():
        about.setdefault(model["model"], model.get("about"))
    topics: dict[str, list[Claim]] = {}
    for claim in claims.claims:
        topics.setdefault(claim.topic, []).append(claim)
    counts = [
        _counts(f"[{topic}](#{_anchor(topic)})", own, verdicts) for topic, own in topics.items()
    ]
    text = claims.page.format(
        headlines=_headlines(claims, verdicts),
        counts=table(_COUNT_HEAD, [*counts, _counts("all", claims.claims, verdicts)]),
        models=table(("model", "what it is"), [*about.items()]),
    )
    parts = [text.strip()]
    for topic, own in topics.items():
        lines = [line for claim in own for line in _lines(claim, claims, verdicts)]
        parts += [f"## {topic}", table(_HEAD, lines)]
    parts += ["## What could not be tested here", _left_out(claims)]
    parts += ["## Studies without rows", claims.not_run_text.strip(), _not_run(results)]
    parts += ["## Families", claims.families_text.strip(), _families(claims)]
    return "\n\n".join(parts) + "\n"


_HEADLINE_HEAD = ("claim", "model, questions × seeds", "difference [95%]", "paper", "verdict")
_HEAD = ("claim", "difference", "model, questions × seeds", "[95%]", "paper", "verdict")
_COUNT_HEAD = ("topic", "claims", *ORDER)


def _anchor(topic: str) -> str:
    return re.sub(r"[^\w -]", "", topic).lower().replace(" ", "-")


def _headlines(claims: Claims, verdicts: Mapping[Test, Verdict]) -> str:
    """The table of the claims that decide what one would do; it says why one is undecided."""
    of_name = {test.headline: test for test in claims.tests}
    lines = []
    for name, text in claims.headlines.items():
        test = of_name[name]
        _, model, interval, paper, verdict = _cells(test, claims, verdicts[test])
        if verdicts[test].verdict != UNDECIDED:
            verdict = verdict.partition(":")[0]
        lines.append((text, model, interval, paper, verdict))
    return table(_HEADLINE_HEAD, lines)


def _families(claims: Claims) -> str:
    """The families by when they were fixed and why; those fixed afterwards are counted alone."""
    sizes = Counter(test.family for test in claims.tests)
    groups: dict[tuple[str, str], list[str]] = {}
    for name, family in claims.families.items():
        when = family["fixed"], family.get("note", "").rstrip(".")
        groups.setdefault(when, []).append(name)
    lines = []
    for (fixed, note), names in sorted(groups.items()):
        count = f"{len(names)} families of {sum(sizes[name] for name in names)} tests"
        own = count if fixed == "after" else "; ".join(f"{name} ({sizes[name]})" for name in names)
        lines.append(f"- **{fixed}**{f' ({note})' if note else ''}: {own}")
    return "\n".join(lines)


def _left_out(claims: Claims) -> str:
    """The tests that could decide nothing, by the reason; they still count in their families."""
    parts = []
    for name, reason in claims.left_out.items():
        tests = [test for test in claims.tests if test.left_out == name]
        models = Counter(_model(test, claims) for test in tests)
        shown = (f"{count} of {model}" for model, count in models.items())
        parts.append(f"- {reason} Tests: {', '.join(shown)}.")
    return "\n".join(parts)


def _not_run(results: Path) -> str:
    """The names of the paper's studies of which results/ has no rows at any scale."""
    run = {read_json(file)["study"] for file in results.glob("*/run.json")}
    papers = {name: find_study(name).paper for name in studies() if name not in run}
    return ", ".join(f"`{name}`" for name, paper in papers.items() if paper) + "."


def _counts(
    name: str, claims: Sequence[Claim], verdicts: Mapping[Test, Verdict]
) -> tuple[str, ...]:
    """A line of the table of topics: its claims, and its tests by verdict."""
    tests = [test for claim in claims for test in claim.tests if not test.left_out]
    counts = Counter(verdicts[test].kind for test in tests)
    counts[NOT_TESTED] += sum(not claim.tests for claim in claims)
    return (name, str(len(claims)), *(str(counts[one] or "") for one in ORDER))


def draw_differences(claims: Claims, verdicts: Mapping[Test, Verdict], path: Path) -> None:
    """Draw each difference in accuracy beside the paper's: a line for each test, by topic."""
    blocks: dict[str, list[tuple[str, Test, Verdict]]] = {}  # by topic, each with its name
    for claim in claims.claims:
        for test in claim.tests:
            own = verdicts[test]
            is_shown = own.change and own.measure == "accuracy" and not test.left_out
            if is_shown and test.paper is not None:
                text = f"{_model(test, claims)}: {difference_text(test)}".replace("`", "")
                blocks.setdefault(claim.topic, []).append((fill(text, _LONGEST), test, own))
    columns: tuple[list[str], list[str]] = ([], [])  # of about the same height
    heights = [0, 0]
    for topic, lines in blocks.items():
        shorter = heights.index(min(heights))
        columns[shorter].append(topic)
        heights[shorter] += sum(_height(name) for name, *_ in lines) + 2
    with figure_style():
        figure, all_axes = new_figure((12.8, 0.135 * max(heights) + 0.8), columns=2, sharey="none")
        for axes, column in zip(all_axes, columns, strict=True):
            _draw_topics(axes, {topic: blocks[topic] for topic in column})
            axes.set_ylim(max(heights), -0.5)
        keys = [
            legend_key(label=kind, linestyle="", marker="o", color=color)
            for kind, color in _COLORS.items()
        ]
        paper = legend_key(label="the paper's difference", linestyle="", **_PAPER_MARK)
        legend_above(figure, more=[*keys, paper])
        save_figure(figure, path)


def _height(name: str) -> int:
    """The lines of text that the name of a difference takes."""
    return name.count("\n") + 1


def _draw_topics(axes: Any, blocks: Mapping[str, Sequence[tuple[str, Test, Verdict]]]) -> None:
    axes.axvline(0, color=MUTED, linewidth=0.6, zorder=0)
    top, places, names = 0, [], []
    for topic, lines in blocks.items():
        title = {"weight": "bold", "fontsize": 7, "va": "center", "bbox": _OVER_THE_LINE}
        axes.text(-104, top, topic, **title)
        top += 1
        for name, test, own in lines:
            assert own.change
            place = top + (_height(name) - 1) / 2
            places.append(place)
            names.append(name)
            mean, low, high = (100 * x for x in (own.change.mean, own.change.low, own.change.high))
            style = {"color": _COLORS[own.kind], "markersize": 3, "elinewidth": 1}
            axes.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", **style)
            axes.plot(test.paper, place, **_PAPER_MARK)
            top += _height(name)
        top += 1
    axes.set_yticks(places, names, fontsize=5.5, linespacing=0.9)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-105, 105)
    axes.set_xlabel("difference in accuracy, points, 95% interval")
    axes.grid(visible=False, axis="y")


_LONGEST = 90  # characters of a line of a name
_COLORS = {
    CONFIRMED: "#009e73", NO_LOSS: "#0072b2", CONTRADICTED: "#d55e00", SMALLER: "#cc79a7",
    UNDECIDED: MUTED,
}  # fmt: skip
_OVER_THE_LINE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
_PAPER_MARK = {"marker": "D", "markersize": 2.6, "color": "black", "markerfacecolor": "none",
               "markeredgewidth": 0.6}  # fmt: skip


def _lines(claim: Claim, claims: Claims, verdicts: Mapping[Test, Verdict]) -> list[list[str]]:
    """The lines of a claim; its words stand in the first, and a model where it changes."""
    words = f"{claim.claim} ({claim.where})"
    if not claim.tests:
        return [[words, "", "", "", "", f"**{NOT_TESTED}**: {claim.why}"]]
    if all(test.left_out for test in claim.tests):
        why = "its tests [could decide nothing](#what-could-not-be-tested-here)"
        return [[words, "", "", "", "", why]]
    lines, above = [], ""
    tests = [test for test in claim.tests if not test.left_out]
    without = [test for test in tests if verdicts[test].kind == NOT_TESTED]
    for test in tests:
        if len(without) == 1 or test not in without:
            difference, model, *rest = _cells(test, claims, verdicts[test])
            lines.append([words, difference, model if model != above else "", *rest])
            words, above = "", model
    if len(without) > 1:
        models = ", ".join(dict.fromkeys(_model(test, claims) for test in without))
        lines.append([words, f"{len(without)} tests", models, "", "", f"**{NOT_TESTED}**"])
    return lines


def _cells(test: Test, claims: Claims, own: Verdict) -> list[str]:
    """A line without the words of the claim: difference, model, interval, paper, verdict."""
    unit, model = UNITS[own.measure], _model(test, claims)
    if own.change:
        count = f"{own.change.n:,}" if own.change.n else "weights"
        model = f"[{model}]({claims.link(test.results)}), {count} × {own.change.seeds}"
    interval = f"{unit.text(own.change.mean)} {unit.bounds(own.change)}" if own.change else own.text
    difference, _, note = test.source.partition(", ")
    note = test.source if test.name else note  # of a pool
    paper = difference if test.distribution else ""
    if test.paper is not None:
        paper = unit.text(unit.read(test.paper)) if test.parts[0].against else f"{test.paper:g}"
    paper += f" ({note})" if note else ""
    note = own.note.removesuffix(" than in the paper")
    verdict = f"**{own.verdict}**" + (f": {note}" if note else "")
    return [difference_text(test), model, interval, paper, verdict]


def _model(test: Test, claims: Claims) -> str:
    names = dict.fromkeys(claims.models[part.results]["model"] for part in test.parts)
    return ", ".join(names)


def difference_text(test: Test) -> str:
    """What is subtracted from what.

    Of two trainings `uniform-k(1)` − `canonical`, `uniform`, and of two kinds of questions of one
    model `canonical`: attack − `canonical`.
    """
    if test.name:
        return test.name
    (part,) = test.parts
    (name,) = part.of
    if test.distribution:
        return f"{short_spec(part.of[name])}, shares of all numbers of splits"
    if not part.against:
        return f"{short_spec(part.of[name])} − the paper's value"
    rows = part.rows
    if name == "eval_scheme":
        both = f"{_questions(part.of[name])} − {_questions(part.against[name])}"
        task = ", CUTE" if rows.get("task") == "cute" else ""
        return f"{short_spec(rows['train_scheme'])}: {both}{task}"
    first, second = (short_spec(side[name]) for side in (part.of, part.against))
    task = rows.get("task", "langgame")
    sign = "/" if UNITS[measure_of(rows)].is_ratio else "−"
    parts = [f"{_OF_FIELD.get(name, '')}{first} {sign} {second}"]
    if task == "text":
        parts += [f"{short_spec(rows['eval_scheme'])} text"]
    elif "eval_scheme" in rows:
        parts += [
            _questions(rows["eval_scheme"]),
            *([_TASKS.get(task, task)] if task != "langgame" else []),
        ]
    parts += [_LAYERS[rows["layer"]]] if "layer" in rows else []
    parts += [_BOUNDS[rows["bound"]]] if "bound" in rows else []
    before = rows.get("pretrain_scheme")
    parts += [f"pre-trained with {short_spec(before)}"] if before else []
    return ", ".join(parts)


_TASKS = {"cute": "CUTE"}
_OF_FIELD = {"pretrain_scheme": "pre-training ", "few_shot_scheme": "examples "}
_LAYERS = {0: "first layer", -1: "last layer"}
_BOUNDS = {"theorem": "log₁₀ γ", "measured": "change of the logits, `uniform`"}


def _questions(eval_scheme: str) -> str:
    if not eval_scheme.startswith("adversarial"):
        return short_spec(eval_scheme)
    start = " from a uniform start" if "start=uniform" in eval_scheme else ""
    return f"attack{' at distance 4' if '(2, 4)' in eval_scheme else ''}{start}"


def short_spec(spec: str) -> str:
    """A spec as code, without the name of its strength.

    >>> short_spec("uniform-k(alpha=1)"), short_spec("stochastok(ways=3, splits=1)")
    ('`uniform-k(1)`', '`stochastok(ways=3, splits=1)`')
    """
    short = re.sub(r'[(](alpha|p)=([0-9.]+)(, rule="hf")?[)]', r"(\2)", spec)
    return f"`{short}`"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown with columns aligned to the left."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
