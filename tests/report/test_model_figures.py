"""Figures of what happens inside a model: files, their data, and what they show."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from robustok.report.analyses import draw_bound, draw_curve, draw_embeddings, draw_gap


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
    *moves("no items", "theorem", [10, 1e3, 1e5]),
]
GAP = [
    verdicts("canonical", 2, 5, 0, 1, 4),
    verdicts("canonical", "all", 0, 2, 3, 5),
    verdicts("uniform-k", 2, 10, 0, 0, 0),
]


@pytest.mark.parametrize(
    ("draw", "rows", "texts"),
    [
        (draw_embeddings, EMBEDDINGS, ["uniform-k", "the word alone", "distance to the canonical"]),
        (draw_bound, BOUND, ["as in the proof", "attacked", "no items", "change per √distance"]),
        (draw_bound, BOUND[-3:], ["as in the theorem"]),
        (draw_gap, GAP, ["certified", "the attack missed it", "within distance", "all"]),
    ],
)
def test_a_figure_is_three_files_and_says_what_it_shows(
    draw: Any, rows: list[dict[str, Any]], texts: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # text as text, to be read here
    draw(rows, tmp_path / "some.figure")
    assert (tmp_path / "some.figure.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "some.figure.svg").read_text()
    assert [text for text in texts if text not in svg] == []
    with (tmp_path / "some.figure.csv").open() as file:
        written = list(csv.DictReader(file))
    assert len(written) == len(rows)
    for row, written_row in zip(rows, written, strict=True):
        assert written_row == {k: "" if v is None else str(v) for k, v in row.items()}


def test_only_what_was_measured_is_in_the_legend(tmp_path: Path, monkeypatch: Any) -> None:
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")
    draw_bound(BOUND[-3:], tmp_path / "weights")
    draw_embeddings(distances("canonical", ""), tmp_path / "alone")
    weights, alone = ((tmp_path / f"{n}.svg").read_text() for n in ("weights", "alone"))
    assert "attacked" not in weights and "proof" not in weights
    assert "the word alone" not in alone


def test_a_figure_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_gap(GAP, tmp_path / name)
    for ending in ("png", "svg"):
        first, second = ((tmp_path / f"{n}.{ending}").read_bytes() for n in ("a", "b"))
        assert first == second


def test_every_curve_is_drawn(tmp_path: Path) -> None:
    points = [{"n_scored": n, "accuracy": 0.5, "low": 0.4, "high": 0.6} for n in (1, 9)]
    draw_curve({f"search-{i}": points for i in range(7)}, tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_text().count("<!-- search-") == 7
