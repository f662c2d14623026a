"""The report and its figures say what the rows say, as text, in one file that fetches nothing."""

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from robustok.attack.settings import AttackSettings
from robustok.report import Results, write_report
from robustok.report.attacked import summary_table
from robustok.report.figures import attack_panels, draw_bound, draw_embeddings, heat_panels
from robustok.report.source import read_source
from robustok.report.style import Row, colors, one_line
from robustok.report.tables import (
    accuracy_table,
    measurement_section,
    paper_section,
    versus_canonical,
)
from robustok.report.write import where
from robustok.runtime.display import markdown
from robustok.runtime.files import write_csv, write_rows
from robustok.study import find_study

ATTACK = "adversarial(distances=(2), start=canonical, steps=10)"
ACCURACY = {"canonical": 0.95, "stochastok(alpha=0.5)": 0.7, "uniform": 0.4, ATTACK: 0.25}


def row(train: str, query: str, accuracy: float) -> dict[str, Any]:
    return {
        "study": "quick", "train_scheme": train, "eval_scheme": query, "accuracy": accuracy,
        "low": accuracy - 0.03, "high": accuracy + 0.03, "n": 200, "draws": 10, "seed": 0,
        "seconds": 2.5, "chance": 0.25, "versions": {"robustok": "0"},
        "model": {"architecture": "llama", "layers": 3, "width": 128, "heads": 4,
                  "parameters": 700_000, "training_seconds": 60.0},
    }  # fmt: skip


ROWS = [row("canonical", query, share) for query, share in ACCURACY.items()] + [
    row("uniform-k(alpha=1)", query, 0.95 - 0.02 * i) for i, query in enumerate(ACCURACY)
]


def make(folder: Path) -> Path:
    study = {"name": "quick", "title": "A <title> & more", "about": "What it is."}
    (folder / "study.json").write_text(json.dumps(study))
    write_rows(folder / "results.jsonl", ROWS)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with its report."""
    folder = make(tmp_path_factory.mktemp("written"))
    write_report(folder)
    return folder


def test_the_table_has_accuracies_and_changes_that_add_up() -> None:
    table = accuracy_table(Results(ROWS))
    assert table.head == ["fine-tuned", "canonical", "uniform", "attack d = 2"]
    name, *entries = table.lines[0]
    assert str(name) == "canonical"
    assert [entry.text for entry in entries] == ["95.0", "40.0", "25.0"]
    assert table.texts[0][2] == "40.0 [37.0, 43.0], −55.0 [−59.3, −50.7] from 95.0"
    drawn = accuracy_table(Results(ROWS[:2]))  # of few schemes all are columns
    assert drawn.head == ["fine-tuned", "canonical", "stochastok(alpha=0.5)"]
    without = [r for r in ROWS if r is not ROWS[2]]
    assert accuracy_table(Results(without)).texts[0][2] == "not run"


def test_an_attack_is_compared_on_the_questions_that_it_attacked() -> None:
    plain = {f"q{i}": float(i >= 20) for i in range(200)}  # 160 of 180 right, and 90 of 100
    attacked = {f"q{i}": float(i >= 60) for i in range(100)}
    rows = [
        row("canonical", "canonical", 0.9) | {"answers": plain},
        row("canonical", ATTACK, 0.4) | {"answers": attacked, "n": 100},
    ]
    ((_, before, after),) = accuracy_table(Results(rows)).lines
    assert (before.text, after.text) == ("90.0", "40.0")
    assert after.change.startswith("−40.0 [") and after.change.endswith("] from 80.0")


def test_differences_to_canonical_training_are_marked_where_holm_keeps_them() -> None:
    base = row("canonical", "uniform", 0.5)
    near, far = row("stochastok(alpha=1)", "uniform", 0.55), row("uniform", "uniform", 0.9)
    ((head, lines, _),) = versus(over_seeds(3, base, near, far))
    assert head == ["minus canonical", "uniform"]  # no questions were canonical
    assert [line[1].endswith("*") for line in lines] == [True, True]
    more = [row(f"uniform-k(alpha={i})", "uniform", 0.5) for i in range(1, 9)]
    ((_, lines, _),) = versus(over_seeds(3, base, near, far, *more))
    assert [line[1].endswith("*") for line in lines[:2]] == [False, True]
    for seeds in (1, 2):  # too few for a star
        ((_, ((_, change),), _),) = versus(over_seeds(seeds, base, far))
        assert change.startswith("+40.0 [") and "*" not in change


def versus(results: Results) -> Any:
    section = versus_canonical(results)
    return section and section.tables


def over_seeds(seeds: int, *rows: dict[str, Any]) -> Results:
    return Results([row | {"seed": seed} for row in rows for seed in range(seeds)])


def test_differences_between_few_shot_examples_are_not_called_training() -> None:
    rows = [row(context, "uniform", 0.5) for context in ("canonical", "uniform")]
    shown = [r | {"few_shot_scheme": r["train_scheme"], "train_scheme": "canonical"} for r in rows]
    for measured, what in ((rows, "training"), (shown, "few-shot examples")):
        section = versus_canonical(Results(measured))
        assert section and section.title == f"Difference to canonical {what}"


def test_the_worst_of_several_attacks_counts_a_question_broken_by_any(folder: Path) -> None:
    (folder / "items").mkdir()
    attacks = {"adversarial(steps=2)": "ab", "adversarial(steps=2, beam=4)": "bc"}
    rows = []
    for i, (scheme, broken) in enumerate(attacks.items()):
        items = [{"key": key, "success": key in broken} for key in "abcde"]
        write_rows(folder / "items" / f"c{i}.jsonl", items)
        numbers = {"cell": f"c{i}", "n": 5, "n_scored": 9, "proved": 0.2, "unsearched_ids": 256}
        rows.append(row("canonical", scheme, 0.6) | numbers)
    write_rows(folder / "results.jsonl", rows)
    results = Results(read_source(folder).rows)
    worst = results.get("canonical", "worst of 2 attacks")
    assert worst is not None and results.attacks == [*attacks, "worst of 2 attacks"]
    assert (worst["accuracy"], worst["n"]) == (0.4, 5)
    low, accuracy, high = (worst[name] for name in ("low", "accuracy", "high"))
    assert 0 < low < accuracy < high < 1
    write_report(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "| attack d = 2 | attack d = 2 beam 4 | worst of 2 attacks |" in text
    assert "proved 20.0" in text and "256 second ids of the vocabulary are not searched" in text
    one_question = [rows[0], rows[1] | {"cell": "other"}]  # whose answers are not known
    write_rows(folder / "results.jsonl", one_question)
    assert Results(read_source(folder).rows).attacks == [*attacks]


@pytest.mark.parametrize(("settings", "names"), [
    (["max_scored=80", "max_scored=500"], ["max_scored = 80", "max_scored = 500"]),
    (["steps=3", "restarts=5"], ["steps = 3", "steps = 10 restarts = 5"]),
    (["objective=log-probability", "steps=10"], ["objective = log-probability", ""]),
    (["search=random, max_scored=8", "max_scored=9"], ["", ""]),
])  # fmt: skip
def test_attacks_of_one_name_have_the_settings_that_differ(
    settings: list[str], names: list[str]
) -> None:
    schemes = [str(AttackSettings.parse(f"adversarial({own})")) for own in settings]
    results = Results([row("canonical", scheme, 0.5) for scheme in schemes])
    kinds = ["random attack" if "random" in own else "attack" for own in settings]
    wanted = [f"{kind} d = 2 {name}".strip() for kind, name in zip(kinds, names, strict=True)]
    (bars,), (heat,) = attack_panels(results), heat_panels(results)
    for panel in (bars, heat):
        assert [one_line(panel.groups[scheme]) for scheme in schemes] == wanted
    assert accuracy_table(results).head[1:] == wanted
    assert [where(scheme, schemes) for scheme in schemes] == [f"under {name}" for name in wanted]
    scores = {"canonical_score": 0.1, "score": 0.2, "n_scored": 9}
    prompts = summary_table([scores | {"eval_scheme": scheme} for scheme in schemes])
    assert [line[0] for line in prompts.lines] == wanted


def test_page_text_and_figures_have_every_number(written: Path) -> None:
    page = (written / "report.html").read_text()
    assert "A &lt;title&gt; &amp; more" in page
    assert "−55.0" in page
    assert page.count("<tr>") == 3 + len(ROWS) + 2 + 1
    fetched = re.findall(r'(?:src|href|srcset)="([^"]*)"', page)
    assert fetched and all(url.startswith("data:image/svg+xml;base64,") for url in fetched)
    assert "@import" not in page and "url(" not in page
    text = (written / "report.md").read_text()
    assert text.startswith("# A &lt;title> & more\n") and "(figures/teaser.png)" in text
    assert "\nIntervals of one seed cover the choice of questions only.\n" in text
    assert len(re.findall(r"(?m)^\| (canonical|uniform-k\S*) \|", text)) == len(ROWS) + 3
    for name in ("teaser", "heatmap"):
        assert (written / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (written / "figures" / f"{name}.svg").read_text()
    with (written / "figures" / "teaser.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [(r["eval_scheme"], float(r["accuracy"])) for r in read[:2]] == [
        ("canonical", 0.95), ("stochastok(alpha=0.5)", 0.7),
    ]  # fmt: skip


def test_the_same_rows_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_report(written, out=tmp_path)
    for name in ("report.html", "report.md", "figures/teaser.png", "figures/heatmap.svg"):
        assert (tmp_path / name).read_bytes() == (written / name).read_bytes()


def test_two_strengths_of_a_scheme_have_two_colors() -> None:
    result = colors(["canonical", "stochastok(alpha=0.1)", "stochastok(alpha=1)", "mine"])
    assert len({*result.values()}) == 4


def test_models_that_were_pre_trained_with_a_mix_have_a_panel() -> None:
    mix = "mix(0.5 canonical, 0.5 uniform-k(k=1))"
    rows = [r | {"pretrain_scheme": p, "cell": f"{p}{i}"}
            for p in ("canonical", mix) for i, r in enumerate(ROWS)]  # fmt: skip
    _, panel = attack_panels(Results(rows))
    assert panel.title == "mix 0.5 canonical 0.5 uniform-k(k=1) pre-training"


def test_an_ensemble_is_a_column_of_the_report() -> None:
    query = "ensemble(uniform, draws=8)"
    more = [row(train, query, 0.8) for train in ("canonical", "uniform-k(alpha=1)")]
    results = Results([*ROWS, *more])
    (panel,) = heat_panels(results)
    assert panel.groups[query] == "uniform\n8 draws at once"
    assert {panel.cells[bar, query]["accuracy"] for bar in panel.series} == {0.8}  # type: ignore[index]
    section = measurement_section(results)
    assert section and query in [line[1] for line in section.tables[0].lines]


def test_a_table_of_the_paper_has_its_note(tmp_path: Path) -> None:
    study = find_study("tiny-llm-langgame").as_dict()
    rows = [row("canonical", "canonical", 0.5) | {"pretrain_scheme": "canonical"}]
    section = paper_section(study["paper"], rows)
    assert section
    assert [table.note.split(".")[0] for table in section.tables] == [
        "Figure 2, left panel", "Figure 2, right panel", "The grid in the appendix",
    ]  # fmt: skip
    _, right, grid = section.tables
    values = {line[1]: [cell.split("/ ")[1] for cell in line[2:]] for line in right.texts}
    assert values["stochastok(alpha=0.1)"] == ["81.4", "81.1", "80.8", "79.3", "73.9"]
    assert values["stochastok(alpha=0.5)"] == ["78.0", "78.5", "78.8", "78.6", "78.1"]
    assert grid.texts[0][2].startswith("50.0 [")
    (teaser,) = find_study("teaser").paper.tables  # type: ignore[union-attr]
    assert "not plain StochasTok" in teaser.note


def check(paths: list[Path], rows: list[Row]) -> list[dict[str, str]]:
    png, svg, table = paths
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    return read


def distances(model: str, sentence: str, layers: int = 3) -> list[dict[str, Any]]:
    return [
        {"layer": i, "mean": 0.5 + i / 10, "low": 0.4 + i / 10, "high": 0.6 + i / 10,
         "mean_of_others": 0.4, "model": model, "sentence": sentence, "words": 9, "single": 0,
         "draws": 5, "seed": 0}
        for i in range(layers)
    ]  # fmt: skip


def moves(model: str, kind: str, values: list[float]) -> list[dict[str, Any]]:
    return [
        {"model": model, "kind": kind, "depth": i, "mean": v / 2, "max": v}
        for i, v in enumerate(values)
    ]


EMBEDDINGS = [
    *distances("canonical", ""),
    *distances("uniform-k", ""),
    *distances("uniform-k", "I said {word} to every one of them more than twice."),
]
BOUND = [*moves("canonical", "sampled", [0, 3, 20]), *moves("canonical", "adversarial", [0, 4, 40])]


@pytest.mark.parametrize(
    ("draw", "rows", "texts", "absent"),
    [
        (draw_embeddings, EMBEDDINGS, ["uniform-k", "the word alone", "distance to the"], []),
        (draw_embeddings, EMBEDDINGS[:3], ["canonical"], ["the word alone"]),
        (draw_bound, BOUND, ["dashed: attacked", "canonical", "change per √dist"], []),
        (draw_bound, BOUND[:3], ["solid: drawn"], ["attacked"]),
    ],
)
def test_a_figure_says_what_it_shows(
    draw: Any, rows: list[dict[str, Any]], texts: list[str], absent: list[str], tmp_path: Path,
    monkeypatch: Any,
) -> None:  # fmt: skip
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # text as text, to be read here
    draw(rows, tmp_path / "some.figure", "a model, 9M parameters")
    paths = [tmp_path / f"some.figure.{ending}" for ending in ("png", "svg", "csv")]
    check(paths, rows)
    svg = paths[1].read_text()
    assert [text for text in [*texts, "a model, 9M parameters"] if text not in svg] == []
    assert [text for text in absent if text in svg] == []


HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style></title><b>", "]]>",
    "`a` | b", "[a](javascript:alert(1))", "{{ 7 * 7 }}{% raw %}", "&lt;i&gt;", "line\nline",
    "' onmouseover='alert(1)", "<svg/onload=alert(1)>", "-->", "$\\no{1}$",
)  # fmt: skip
NAME = " ".join(HOSTILE)
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "p", "h1", "h2", "span",
    "ul", "li", "b", "section", "picture", "source", "img", "div", "table", "thead", "tr", "th",
    "tbody", "td", "small", "details", "summary", "pre", "footer", "wbr", "i",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "class", "style", "id", "media", "srcset", "src", "alt",
    "tabindex", "role", "aria-label",
}  # fmt: skip


class Page(HTMLParser):
    """Checks that a page has only our tags and attributes, and collects its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= ATTRIBUTES
        values = dict(attrs)
        assert tag != "img" or str(values["src"]).startswith("data:image/svg+xml;base64,")

    def handle_data(self, data: str) -> None:
        self.text += data


def flat(text: str) -> str:
    """Without the spaces and line ends that a page may move."""
    return "".join(text.split())


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    study = {"name": NAME, "title": NAME, "about": NAME, "data": {"file": NAME}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    rows: list[dict[str, Any]] = [
        row | {"study": NAME, "task": f"{task} {NAME}", "versions": {NAME: NAME},
               "model": row["model"] | {"name": NAME}}
        for task in ("a", "b") for row in ROWS
    ]  # fmt: skip
    write_rows(tmp_path / "results.jsonl", rows)
    return tmp_path


def test_a_report_shows_markup_as_text(hostile: Path) -> None:
    page = Page(write_report(hostile))
    assert flat(page.text).count(flat(NAME)) >= 5
    text = (hostile / "report.md").read_text(encoding="utf-8")
    assert "<script" not in text and "<img" not in text and "<svg" not in text
    assert "a](javascript" not in text
    assert markdown(NAME) in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
    for path in sorted((hostile / "figures").glob("*.svg")):
        assert "<script" not in path.read_text(encoding="utf-8")


def test_a_csv_has_no_formulas(tmp_path: Path) -> None:
    texts = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "a=1", "b\n=1", "uniform"]
    rows = [{"name": text, "value": -0.5} for text in [*texts, "\r=1"]]
    write_csv(tmp_path / "a.csv", rows)
    with (tmp_path / "a.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == [
        *(f"'{text}" for text in texts[:5]), *texts[5:], " =1",
    ]  # fmt: skip
    assert {row["value"] for row in read} == {"-0.5"}
