"""Every figure is a PNG, an SVG and a CSV that holds what is drawn, the same every time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.guard.tokenizers_of import byte_level

import robustok as rt
from robustok.analysis import segmentations, split_counts
from robustok.report import analyses
from robustok.report.figures import draw_bound, draw_embeddings
from robustok.report.frame import Row

pytest.importorskip("matplotlib")
TEXT = "the theater is there"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(None)


def check(paths: list[Path], rows: list[Row]) -> list[dict[str, str]]:
    png, svg, table = paths
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    return read


def table(results: list[Any]) -> list[Row]:
    return [row for result in results for row in result.table()]


def test_split_counts(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    specs = ["stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform"]
    result = [split_counts(vocab, TEXT, spec, seed=0, draws=200) for spec in specs]
    rows = check(analyses.draw_split_counts(result, tmp_path), table(result))
    drawn = [float(r["share"]) for r in rows if r["distribution"] == "200 draws"]
    assert sum(drawn) == pytest.approx(3)
    # A distribution too flat to see ends with the draws.
    flat = [split_counts(vocab, TEXT, "stochastok(alpha=2000)", seed=0, draws=5)]
    check(analyses.draw_split_counts(flat, tmp_path), table(flat))


def test_segmentations(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    result = {
        name: segmentations(vocab, TEXT, ["uniform", "stochastok"], seed=0, draws=200, splits=n)
        for name, n in (("one", 2), ("two", 5))
    }
    rows = [{"tokenizer": name, **row} for name, one in result.items() for row in one.table()]
    check(analyses.draw_segmentations(result, tmp_path), rows)
    assert {r["tokenizer"] for r in rows} == {"one", "two"}


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


def verdicts(model: str, distance: Any, *counts: int) -> dict[str, Any]:
    same, open_, flips, attacked = counts
    return {
        "model": model, "distance": distance, "n": sum(counts), "same": same, "open": open_,
        "flips": flips, "attacked": attacked, "open_upper": None,
    }  # fmt: skip


EMBEDDINGS = [
    *distances("canonical", ""),
    *distances("uniform-k", ""),
    *distances("uniform-k", "I said {word} to every one of them more than twice."),
]
BOUND = [
    *moves("canonical", "theorem", [10, 1e4, 1e7]),
    *moves("canonical", "proof", [10, 1e5, 1e9]),
    *moves("canonical", "sampled", [0, 3, 20]),
    *moves("canonical", "adversarial", [0, 4, 40]),
    *moves("deep", "proof", [10, 1e150, 1e299]),
    *moves("no items", "theorem", [10, 1e3, 1e5]),
]


@pytest.mark.parametrize(
    ("draw", "rows", "texts", "absent"),
    [
        (draw_embeddings, EMBEDDINGS, ["uniform-k", "the word alone", "distance to the"], []),
        (draw_embeddings, EMBEDDINGS[:3], ["canonical"], ["the word alone"]),
        (draw_bound, BOUND, ["dashed: attacked", "canonical", "change per √dist"], ["no items"]),
        (draw_bound, BOUND[6:9], ["solid: drawn"], ["attacked"]),
    ],
)
def test_a_figure_says_what_it_shows(
    draw: Any, rows: list[dict[str, Any]], texts: list[str], absent: list[str], tmp_path: Path,
    monkeypatch: Any,
) -> None:  # fmt: skip
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # text as text, to be read here
    draw(rows, tmp_path / "some.figure")
    paths = [tmp_path / f"some.figure.{ending}" for ending in ("png", "svg", "csv")]
    check(paths, rows)
    svg = paths[1].read_text()
    assert [text for text in texts if text not in svg] == []
    assert [text for text in absent if text in svg] == []
