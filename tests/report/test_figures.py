"""Every figure is a PNG, an SVG and a CSV that holds what is drawn, the same every time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from robustok.report.figures import draw_bound, draw_embeddings
from robustok.report.frame import Row


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
BOUND = [
    *moves("canonical", "sampled", [0, 3, 20]),
    *moves("canonical", "adversarial", [0, 4, 40]),
]


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
    draw(rows, tmp_path / "some.figure")
    paths = [tmp_path / f"some.figure.{ending}" for ending in ("png", "svg", "csv")]
    check(paths, rows)
    svg = paths[1].read_text()
    assert [text for text in texts if text not in svg] == []
    assert [text for text in absent if text in svg] == []
