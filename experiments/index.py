"""The page docs/results/index.md: every claim with its tests and verdicts, and a figure of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.claims import RESULTS, Claim, Claims, Test
from experiments.verdicts import (
    CONFIRMED, CONTRADICTED, NO_LOSS, NOT_TESTED, ORDER, SMALLER, UNDECIDED, UNITS, Verdict,
    judge_all,
)  # fmt: skip
from robustok.report.style import GRID, MUTED, figure_style, legend_above, new_figure, save_figure
from robustok.runtime.files import read_json
from robustok.study import find_study, studies

PUBLISHED = ("fine-tuning", "few-shot")  # pages of models that were published


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
        _counts(f"[{topic}](#{topic.lower().replace(' ', '-')})", own, verdicts)
        for topic, own in topics.items()
    ]
    text = claims.page.format(
        counts=table(_COUNT_HEAD, [*counts, _counts("all", claims.claims, verdicts)]),
        models=table(("model", "what it is"), [*about.items()]),
    )
    parts = [text.strip()]
    for topic, own in topics.items():
        lines = [line for claim in own for line in _lines(claim, claims, verdicts)]
        parts += [f"## {topic}", table(_HEAD, lines)]
    used = Counter(test.family for claim in claims.claims for test in claim.tests)
    families = [
        [name, str(used[name]), family["fixed"], family.get("note", "")]
        for name, family in claims.families.items()
    ]
    runs = [
        f"- {model['model']}: `robustok study run {model['run']}`, kept as `{name}`"
        for name, model in claims.models.items()
        if "run" in model
    ]
    parts += ["## Runs that would decide more", claims.runs_text.strip(), "\n".join(runs)]
    parts += ["## Studies without rows", claims.not_run_text.strip(), _not_run(results)]
    parts += ["## Families", claims.families_text.strip(), table(_FAMILY_HEAD, families)]
    return "\n\n".join(parts) + "\n"


_HEAD = ("claim", "difference", "model, questions × seeds", "[95%]", "paper", "verdict")
_COUNT_HEAD = ("topic", "claims", *ORDER)
_FAMILY_HEAD = ("family", "comparisons", "fixed", "note")


def _not_run(results: Path) -> str:
    """The included studies of the paper of which results/ has no rows at any scale."""
    run = {read_json(file)["study"] for file in results.glob("*/run.json")}
    papers = {name: find_study(name).paper for name in studies() if name not in run}
    return "\n".join(f"- `{name}`: {paper.where}" for name, paper in papers.items() if paper)


def _counts(
    name: str, claims: Sequence[Claim], verdicts: Mapping[Test, Verdict]
) -> tuple[str, ...]:
    """A line of the table of topics: its claims, and its tests by verdict."""
    tests = [test for claim in claims for test in claim.tests]
    counts = Counter(verdicts[test].kind for test in tests)
    counts[NOT_TESTED] += sum(not claim.tests for claim in claims)
    return (name, str(len(claims)), *(str(counts[one] or "") for one in ORDER))


def draw_differences(claims: Claims, verdicts: Mapping[Test, Verdict], path: Path) -> None:
    """Draw each difference in accuracy against the paper's, in a panel of published models and one
    of small models."""
    published = {run for name in PUBLISHED for run in claims.pages[name]["runs"]}
    panels: dict[str, _Marks] = {"Published models": {}, "Small models from random weights": {}}
    of_published, of_small = panels.values()
    for test, own in verdicts.items():
        if own.change and own.measure == "accuracy" and test.against and test.paper is not None:
            marks = of_published if test.results in published else of_small
            marks.setdefault(own.kind, []).append((test.paper, own.change))
    with figure_style():
        figure, all_axes = new_figure((8.4, 4.3), columns=2)
        for axes, (title, marks) in zip(all_axes, panels.items(), strict=True):
            _draw_marks(axes, marks)
            axes.set(xlim=(-105, 105), ylim=(-105, 105), title=title)
            axes.set_xlabel("the paper's difference, points")
        all_axes[0].set_ylabel("difference here, points, 95% interval")
        legend_above(figure, *all_axes)
        save_figure(figure, path)


_Marks = dict[str, list[tuple[float, Any]]]


def _draw_marks(axes: Any, marks: _Marks) -> None:
    axes.axline((0, 0), slope=1, color=GRID, zorder=0)
    axes.axhline(0, color=MUTED, linewidth=0.6, zorder=0)
    axes.axvline(0, color=MUTED, linewidth=0.6, zorder=0)
    for kind, style in _MARKERS.items():
        own = marks.get(kind, [])
        below = [100 * (change.mean - change.low) for _, change in own]
        above = [100 * (change.high - change.mean) for _, change in own]
        axes.errorbar(
            [paper for paper, _ in own],
            [100 * change.mean for _, change in own],
            yerr=[below, above],
            label=kind,
            linestyle="",
            elinewidth=0.7,
            **style,
        )


_MARKERS: dict[str, dict[str, Any]] = {
    CONFIRMED: {"marker": "o", "color": "#009e73"},
    NO_LOSS: {"marker": "s", "color": "#0072b2"},
    CONTRADICTED: {"marker": "X", "color": "#d55e00"},
    UNDECIDED: {"marker": "o", "color": MUTED, "markerfacecolor": "white"},
}


def _lines(claim: Claim, claims: Claims, verdicts: Mapping[Test, Verdict]) -> list[list[str]]:
    """The lines of a claim; its words stand in the first."""
    words = f"{claim.claim} ({claim.where})"
    if not claim.tests:
        return [[words, "", "", "", "", f"**{NOT_TESTED}**: {claim.why}"]]
    lines = []
    for test in claim.tests:
        own, unit = verdicts[test], UNITS[verdicts[test].measure]
        model = claims.models[test.results]["model"]
        if own.change:
            link = claims.link(test.results)
            count = f"{own.change.n:,}" if own.change.n else "weights"
            model = f"[{model}]({link}), {count} × {own.change.seeds}"
        interval = f"{unit.mean(own.change)} {unit.bounds(own.change)}" if own.change else ""
        paper = "" if test.paper is None else unit.text(unit.read(test.paper))
        paper = paper if test.against else f"{test.paper:g}"
        paper += f" ({note})" if (note := test.source.partition(", ")[2]) else ""
        verdict = f"**{own.verdict}**" + (f": {own.note}" if own.note else "")
        lines.append([words, difference_text(test), model, interval, paper, verdict])
        words = ""
    return lines


def difference_text(test: Test) -> str:
    """What is subtracted from what, as `uniform-k(1)` − `canonical`, `uniform` questions."""
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
        trained = f"trained with {short_spec(rows['train_scheme'])}: "
        return f"{trained}{_questions(part.of[name])} − {_questions(part.against[name])}"
    first, second = (short_spec(side[name]) for side in (part.of, part.against))
    task = rows.get("task", "langgame")
    sign = "/" if task == "text" or rows.get("bound") == "measured" else "−"  # a ratio
    parts = [f"{_OF_FIELD.get(name, '')}{first} {sign} {second}"]
    if task == "text":
        parts += [f"{short_spec(rows['eval_scheme'])} text"]
    elif "eval_scheme" in rows:
        parts += [_questions(rows["eval_scheme"]), *([task] if task != "langgame" else [])]
    parts += [_LAYERS[rows["layer"]]] if "layer" in rows else []
    parts += [_BOUNDS[rows["bound"]]] if "bound" in rows else []
    before = rows.get("pretrain_scheme")
    parts += [f"after pre-training with {short_spec(before)}"] if before else []
    return ", ".join(parts)


_OF_FIELD = {"pretrain_scheme": "pre-training ", "few_shot_scheme": "examples "}
_LAYERS = {0: "first layer", -1: "last layer"}
_BOUNDS = {"theorem": "log₁₀ γ", "measured": "change of the logits, `uniform` questions"}


def _questions(eval_scheme: str) -> str:
    if not eval_scheme.startswith("adversarial"):
        return f"{short_spec(eval_scheme)} questions"
    start = " from a uniform start" if "start=uniform" in eval_scheme else ""
    return f"attacked questions{' at distance 4' if '(2, 4)' in eval_scheme else ''}{start}"


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
