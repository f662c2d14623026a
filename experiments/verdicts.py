"""Verdicts on the claims of `claims.yaml`, from the kept rows of `results/` alone.

Accuracies are compared by the package's one comparison, question by question and seed by seed, and
the comparisons of a family by Holm's method. Perplexities and distances have no answers: they are
paired by seed (Student's t). `judge` makes the verdict of a test, and `index` the page of all, with
its figure.

A verdict is one of five: confirmed (the 95% interval excludes zero in the claim's direction),
contradicted here (it excludes the claim's direction), no loss larger than the margin (the 90%
interval ends above it), undecided (none of these, or fewer seeds than planned), and not tested.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from robustok.evaluation.comparison import Difference, clear_differences, difference
from robustok.evaluation.intervals import LEVEL, interval
from robustok.report.frame import Results, points_text
from robustok.report.style import GRID, MUTED, figure_style, legend_above, new_figure, save_figure
from robustok.runtime.files import read_json
from robustok.runtime.inputs import read_rows
from robustok.study import find_study, studies

RESULTS = Path(__file__).with_name("results")
CLAIMS = Path(__file__).with_name("claims.yaml")
CONFIRMED, CONTRADICTED, UNDECIDED = "confirmed", "contradicted here", "undecided"
NO_LOSS, NOT_TESTED = "no loss larger than X", "not tested"
ORDER = (CONFIRMED, NO_LOSS, CONTRADICTED, UNDECIDED, NOT_TESTED)
PUBLISHED = ("fine-tuning", "few-shot")  # pages of models that were published
HYPOTHESES = {"higher": False, "lower": False, "no loss": True, "equal": True}  # with a margin?
# Of the choice of a family or margin, relative to its data; between: some seeds were seen.
TIMES = ("before", "between", "after")
LEVEL_OF_NO_LOSS = 0.1
LARGER, SMALLER = "larger than in the paper", "smaller than in the paper"
SEEDS_FOR_BOUNDS = 2  # the interval of one seed covers the questions only

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Test:
    """One comparison that decides a claim: a line of the page. See the head of claims.yaml."""

    results: str
    of: Row
    against: Row
    hypothesis: str
    seeds: int
    family: str
    rows: Row = field(default_factory=dict)
    margin: float = 0.0
    margin_fixed: str = ""
    paper: float | None = None
    source: str = ""  # `from` in the file

    def __post_init__(self) -> None:
        has_margin = HYPOTHESES.get(self.hypothesis)
        if has_margin is None or (self.margin > 0) != has_margin:
            raise ValueError(f"{self}: one of {[*HYPOTHESES]}, the last two with a margin")
        if has_margin and self.margin_fixed not in TIMES:
            raise ValueError(f"{self}: margin_fixed is one of {TIMES}")


@dataclass(frozen=True)
class Claim:
    """What the paper says, and its tests; `why` where there are none."""

    topic: str
    claim: str
    where: str
    tests: tuple[Test, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Claims:
    """The content of claims.yaml."""

    page: str  # the text above the tables
    not_run_text: str
    runs_text: str
    families_text: str
    pages: dict[str, dict[str, Any]]
    models: dict[str, dict[str, str]]
    families: dict[str, dict[str, str]]
    claims: tuple[Claim, ...]

    def link(self, folder: str) -> str:
        """Where the rows of a folder are shown, relative to docs/results."""
        for name, page in self.pages.items():
            if folder in page["runs"]:
                return f"{name}.md#{folder}"
        return self.models[folder]["page"]


@dataclass(frozen=True)
class Verdict:
    """What a test came to; `change` is None where nothing was measured."""

    verdict: str
    note: str = ""
    change: Difference | None = None
    measure: str = "accuracy"

    @property
    def kind(self) -> str:
        """One of `ORDER`: the verdict without the margin's size."""
        return re.sub(r"[\d.]+$", "X", self.verdict)


@dataclass(frozen=True)
class Unit:
    """How differences of one measure are printed, and read from claims.yaml."""

    scale: float  # a difference times this is what the file has and the page prints
    digits: int
    name: str = ""
    is_ratio: bool = False  # the difference is that of logarithms

    def text(self, value: float, digits: int | None = None) -> str:
        digits = self.digits if digits is None else digits
        if self.is_ratio:
            return f"×{math.exp(value):.{digits}f}"
        text = f"{self.scale * value:+.{digits}f}".replace("-", "−")
        return text if float(text.replace("−", "-")) else text[1:]

    def mean(self, change: Difference) -> str:
        return points_text(change)[0] if self.scale > 1 else self.text(change.mean)

    def size(self, half_width: float) -> str:
        return self.text(half_width).lstrip("+") + self.name

    def bounds(self, change: Difference, digits: int | None = None) -> str:
        if math.isinf(change.low):
            return "[–, –]"
        return f"[{self.text(change.low, digits)}, {self.text(change.high, digits)}]"

    def read(self, number: float) -> float:
        """A number of the file as a difference."""
        return math.log(number) if self.is_ratio else number / self.scale


UNITS = {
    "accuracy": Unit(100, 1, " points"),
    "distance": Unit(1, 3),
    "perplexity": Unit(1, 3, is_ratio=True),
    "bound": Unit(1, 3),
    "change": Unit(1, 2, is_ratio=True),
    "splits": Unit(1, 2, " splits"),
    "share": Unit(100, 1, " points"),
}


def read_claims(path: Path = CLAIMS) -> Claims:
    """Read the claims file; an unknown field, family or folder is an error."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    claims = []
    for number, entry in enumerate(content["claims"]):
        tests = []
        for place, fields in enumerate(entry.pop("tests", ())):
            if "family" in fields and fields["family"] not in content["families"]:
                raise ValueError(f"{path} has no family '{fields['family']}'")
            if fields["results"] not in content["models"]:
                raise ValueError(f"{path} has no model '{fields['results']}'")
            alone = {"family": f"{number}.{place}", "source": fields.pop("from", "")}
            tests.append(Test(**alone | fields))
        claims.append(Claim(tests=tuple(tests), **entry))
    used = {test.family for claim in claims for test in claim.tests}
    for name, family in content["families"].items():
        if name not in used or family["fixed"] not in TIMES:
            raise ValueError(f"the family '{name}' has no test, or is not fixed {TIMES}")
    return Claims(**content | {"claims": tuple(claims)})


def judge_all(claims: Claims, results: Path = RESULTS) -> dict[Test, Verdict]:
    """The verdict of every test, with Holm's method within each family."""
    tests = [test for claim in claims.claims for test in claim.tests]
    rows = {name: _rows(results / name) for name in {test.results for test in tests}}
    pairs = {test: pair for test in tests if (pair := _pair(test, rows[test.results]))}
    families: dict[str, dict[Test, tuple[Row, Row]]] = {}
    for test, pair in pairs.items():
        families.setdefault(test.family, {})[test] = pair
    kept = {test for own in families.values() for test in clear_differences(own, compare=compare)}
    sizes = Counter(test.family for test in tests)
    return {
        test: judge(
            test,
            pairs.get(test),
            is_clear=test in kept,
            at_chance=_at_chance(test, rows[test.results]),
            others=sizes[test.family] - len(families.get(test.family, ())),
        )
        for test in tests
    }


def listed(claims: Claims) -> list[dict[str, Any]]:
    """Each test as the fields of a line: what was compared, the difference and the verdict."""
    verdicts = judge_all(claims)
    return [_listed(claim, test, verdicts[test]) for claim in claims.claims for test in claim.tests]


def _listed(claim: Claim, test: Test, own: Verdict) -> dict[str, Any]:
    change = own.change
    bounds = {} if change is None else {
        name: getattr(change, name) for name in ("mean", "low", "high", "p", "n", "seeds")
    }  # fmt: skip
    return {
        "topic": claim.topic, "results": test.results, "difference": _difference_text(test),
        "measure": own.measure, **bounds, "verdict": own.verdict, "note": own.note,
    }  # fmt: skip


def text_of(line: Mapping[str, Any]) -> str:
    """A line of :func:`listed` for a terminal."""
    unit = UNITS[line["measure"]]
    bounds = [unit.text(line[name]) for name in ("mean", "low", "high") if name in line]
    parts = (line["results"], line["difference"], " ".join(bounds), line["verdict"], line["note"])
    return "  ".join(part for part in parts if part)


def judge(
    test: Test,
    pair: tuple[Row, Row] | None,
    *,
    is_clear: bool,
    at_chance: bool = False,
    others: int = 0,
) -> Verdict:
    """The verdict of one test.

    Args:
        test: the test.
        pair: the rows of `against` and of `of`, with answers or values by seed; None without rows.
        is_clear: whether Holm's method keeps the difference within the test's family.
        at_chance: whether neither side is above chance on canonical questions.
        others: tests of the family without rows, which Holm's method has not counted.
    """
    if pair is None:
        return Verdict(NOT_TESTED)
    change, measure = compare(*pair), pair[0]["measure"]
    unit = UNITS[measure]
    if change.seeds < test.seeds:
        excluded = "" if at_chance else _paper_is_excluded(test, change, unit)
        note = f"{change.seeds} of {test.seeds} seeds{excluded}"
        return Verdict(UNDECIDED, note, change, measure)
    if others:
        return Verdict(UNDECIDED, f"tests of its family without rows: {others}", change, measure)
    if HYPOTHESES[test.hypothesis]:
        verdict, note = _within_margin(test, pair, change, is_clear=is_clear)
    elif is_clear:
        is_right = (change.mean > 0) == (test.hypothesis == "higher")
        verdict = CONFIRMED if is_right else CONTRADICTED
        note = _beside_paper(test, change, unit) if is_right else ""
    else:
        verdict, note = UNDECIDED, ""
    if verdict == UNDECIDED and at_chance:
        note = "neither side is above chance on canonical questions"
    elif verdict == UNDECIDED:
        note = _why_undecided(test, change, unit)
    return Verdict(verdict, note, change, measure)


def _within_margin(
    test: Test, pair: tuple[Row, Row], change: Difference, *, is_clear: bool
) -> tuple[str, str]:
    """The verdict of a test with a margin, from the 90% interval, and its note."""
    unit = UNITS[pair[0]["measure"]]
    at_90, margin = compare(*pair, level=LEVEL_OF_NO_LOSS), unit.read(test.margin)
    inside = f"90% interval {unit.bounds(at_90, digits=max(2, unit.digits))}"
    is_loss = is_clear and change.mean < 0
    if test.hypothesis == "no loss" and at_90.low > -margin:
        smaller = "; a smaller loss is clear" if is_loss else ""
        return NO_LOSS.replace("X", f"{test.margin:g}"), f"{inside}{smaller}"
    if test.hypothesis == "equal" and -margin < at_90.low and at_90.high < margin:
        return CONFIRMED, f"within ±{test.margin:g}, {inside}"
    if is_loss or (is_clear and test.hypothesis == "equal"):
        is_beyond = at_90.high < -margin or (test.hypothesis == "equal" and at_90.low > margin)
        change_name = "loss" if test.hypothesis == "no loss" else "change"
        smaller = f"a {change_name} smaller than {test.margin:g} is not excluded, {inside}"
        return CONTRADICTED, "" if is_beyond else smaller
    return UNDECIDED, ""


def _why_undecided(test: Test, change: Difference, unit: Unit) -> str:
    if change.is_clear:
        why = "the interval excludes zero, Holm's correction does not keep it"
    else:
        why = f"smallest visible effect {unit.size((change.high - change.low) / 2)}"
    return f"{why}{_paper_is_excluded(test, change, unit)}"


def _paper_is_excluded(test: Test, change: Difference, unit: Unit) -> str:
    """That the whole interval is short of the paper's difference, from two seeds on."""
    if test.paper is None or change.seeds < SEEDS_FOR_BOUNDS:
        return ""
    if unit is UNITS["accuracy"] and change.before + unit.read(test.paper) > 1:
        return f"; no room for the paper's difference above {100 * change.before:.1f}%"
    is_short = _beside_paper(test, change, unit) == SMALLER
    return "; the paper's difference is excluded" if is_short else ""


def _beside_paper(test: Test, change: Difference, unit: Unit) -> str:
    """The side of the paper's difference that the whole interval is on, from two seeds on."""
    if test.paper is None or change.seeds < SEEDS_FOR_BOUNDS:
        return ""
    paper = unit.read(test.paper)
    is_above, is_below = change.low > paper, change.high < paper
    if test.hypothesis == "lower":
        is_above, is_below = is_below, is_above
    return LARGER if is_above else SMALLER if is_below else ""


def _at_chance(test: Test, rows: list[Row]) -> bool:
    """Whether neither side is above chance on canonical questions: then no effect can show.

    As the test itself, it has no more seeds than planned.
    """
    for side in (test.of, test.against):
        chosen = _chosen(rows, test.rows | side | {"eval_scheme": "canonical"})
        by_seed = sorted((row for row in chosen if "chance" in row), key=_seed)
        merged = Results(by_seed[: test.seeds]).rows
        if not merged or merged[0]["low"] > merged[0]["chance"]:
            return False
    return True


def compare(first: Row, second: Row, *, level: float = LEVEL) -> Difference:
    """Second minus first, from the answers to each question, or from one value a seed."""
    if "answers" in first:
        return difference(first, second, level=level)
    seeds = sorted(first["values"].keys() & second["values"].keys())
    changes = [second["values"][seed] - first["values"][seed] for seed in seeds]
    mean = math.fsum(changes) / len(changes)
    before = math.fsum(first["values"][seed] for seed in seeds) / len(seeds)
    low, high, p = -math.inf, math.inf, 1.0
    if "standard_error" in second:  # of as many draws on both sides
        parts = [(2 * second["standard_error"] ** 2, second["n"] - 1)]
        low, high, p = interval(mean, parts, level=level)
    elif len(seeds) > 1:
        variance = math.fsum((change - mean) ** 2 for change in changes) / (len(seeds) - 1)
        parts = [(variance / len(seeds), len(seeds) - 1)]
        low, high, p = interval(mean, parts, level=level)
    return Difference(
        before=before, after=before + mean, low=low, high=high, p=p, n=second["n"], seeds=len(seeds)
    )


def _rows(folder: Path) -> list[Row]:
    """The kept rows of a folder; none where it was not run."""
    file = folder / "results.jsonl"
    return read_rows(file) if file.is_file() else []


def _pair(test: Test, rows: list[Row]) -> tuple[Row, Row] | None:
    """The merged rows of both sides, of the first seeds that they share; None without such rows.

    The seeds are as many as planned: more, run for another test, would be a second chance.
    """
    second = _merged(rows, test.rows | test.of)
    if test.against:
        first = _merged(rows, test.rows | test.against)
    else:
        measure = second.get("measure", "accuracy")
        first = {"measure": measure, "values": {0: UNITS[measure].read(test.paper or 0.0)}}
    if not first or not second:
        return None
    by_seed = "answers" if first["measure"] == "accuracy" else "values"
    seeds = sorted(first[by_seed].keys() & second[by_seed].keys())[: test.seeds]
    for side in (first, second):
        side[by_seed] = {seed: side[by_seed][seed] for seed in seeds}
    return (first, second) if seeds else None


def _merged(rows: list[Row], wanted: Row) -> Row:
    """The rows with these fields as one, with the answers or the value of each seed."""
    layer, bound = wanted.get("layer"), wanted.get("bound")
    chosen = _chosen(rows, wanted)
    seeds = {_seed(row): row for row in chosen}
    if len(seeds) < len(chosen):
        raise ValueError(f"{wanted} is true of several rows of one seed")
    if not seeds:
        return {}
    first = chosen[0]
    if "standard_error" in first:  # of an analysis without a model
        measure = "share" if first["analysis"] == "split-counts" else "splits"
        own = {name: first[name] for name in ("standard_error", "draws")}
        return {"measure": measure, "values": {0: first["value"]}, "n": own.pop("draws")} | own
    if "accuracy" in first:
        answers = {seed: row["answers"] for seed, row in seeds.items()}
        return {"measure": "accuracy", "answers": answers}
    if layer is not None:
        values = {seed: row["layers"][layer]["mean"] for seed, row in seeds.items()}
        return {"measure": "distance", "values": values, "n": first["layers"][layer]["words"]}
    if bound == "measured":
        changes = {
            seed: [one["mean"] for one in row["changes"] if one["kind"] == "sampled"]
            for seed, row in seeds.items()
        }
        values = {seed: math.log(means[-1]) for seed, means in changes.items()}  # the logits
        return {"measure": "change", "values": values, "n": first["n"]}
    if bound is not None:  # of the whole model, whose row comes last
        values = {seed: row["bound"][-1][f"log10_gamma_{bound}"] for seed, row in seeds.items()}
        return {"measure": "bound", "values": values, "n": 0}
    values = {seed: math.log(row["perplexity"]) for seed, row in seeds.items()}
    return {"measure": "perplexity", "values": values, "n": first["texts"]}


def _chosen(rows: list[Row], wanted: Row) -> list[Row]:
    """The rows with these fields, of which `layer` and `bound` only say what a row measured."""
    fields = {name: value for name, value in wanted.items() if name not in ("layer", "bound")}
    return [
        row
        for row in rows
        if ("step" in row) == ("step" in wanted)
        and ("layers" in row) == ("layer" in wanted)
        and ("bound" in row) == ("bound" in wanted)
        and all(_field(row, name) == value for name, value in fields.items())
    ]


def _seed(row: Row) -> int:
    return row.get("seed", 0)


def _field(row: Row, name: str) -> Any:
    """A field; of a row of distances, whose model may not be fine-tuned, the model's own name."""
    if name == "train_scheme" and "layers" in row:
        return re.sub(r" #\d+$", "", row["layers"][0]["model"])
    return row.get(name)


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


_Marks = dict[str, list[tuple[float, Difference]]]  # by verdict: the paper's difference and ours


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
        lines.append([words, _difference_text(test), model, interval, paper, verdict])
        words = ""
    return lines


def _difference_text(test: Test) -> str:
    """What is subtracted from what, as `uniform-k(1)` − `canonical`, `uniform` questions."""
    (name,) = test.of
    if not test.against:
        token = f", {test.rows['splits']} splits" if "splits" in test.rows else ""
        return f"{short_spec(test.of[name])}{token} − the paper's value"
    if name == "eval_scheme":
        return f"{_questions(test.of[name])} − {_questions(test.against[name])}"
    first, second = (short_spec(side[name]) for side in (test.of, test.against))
    rows = test.rows
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
