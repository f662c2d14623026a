"""Every analysis becomes a PNG, an SVG and a CSV that holds what is drawn."""

from __future__ import annotations

import csv
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.guard.tokenizers_of import byte_level

import robustok as rt
from robustok.analysis import bias, dropout_splits, growth, segmentations, split_counts, summarize
from robustok.report import analyses

pytest.importorskip("matplotlib")
TEXT = "the theater is there"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(None)


def check(paths: list[Path], rows: list[analyses.Row]) -> list[dict[str, str]]:
    png, svg, table = paths
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert read == [{k: str(v) for k, v in row.items()} for row in rows]
    return read


def test_split_counts(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    specs = ["stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform"]
    result = [split_counts(vocab, TEXT, spec, seed=0, draws=200) for spec in specs]
    rows = check(analyses.draw_split_counts(result, tmp_path), analyses.split_rows(result))
    drawn = [float(r["share"]) for r in rows if r["distribution"] == "200 draws"]
    assert sum(drawn) == pytest.approx(3)


def test_a_distribution_too_flat_to_see_ends_with_the_draws(
    vocab: rt.Vocabulary, tmp_path: Path
) -> None:
    result = [split_counts(vocab, TEXT, "stochastok(alpha=2000)", seed=0, draws=5)]
    check(analyses.draw_split_counts(result, tmp_path), analyses.split_rows(result))


def test_segmentations(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    result = {
        name: segmentations(vocab, TEXT, ["uniform", "stochastok"], seed=0, draws=200, splits=n)
        for name, n in (("one", 2), ("two", 5))
    }
    rows = analyses.segmentation_rows(result)
    check(analyses.draw_segmentations(result, tmp_path), rows)
    assert {r["tokenizer"] for r in rows} == {"one", "two"}


def test_dropout_has_the_papers_rows_beside(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    result = dropout_splits(vocab, TEXT, seed=0, draws=50)
    rows = check(analyses.draw_dropout(result, tmp_path), analyses.dropout_rows(result))
    assert [r["rule"] for r in rows].count("paper") == 4


def test_bias_and_growth(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    summaries = {"a": summarize(bias(vocab, ["the", "rest", "then"], seed=0, draws=300))}
    check(analyses.draw_bias(summaries, tmp_path), analyses.bias_rows(summaries))
    ratios = {"a": growth(vocab, [TEXT, "rest"], seed=0, alphas=[0.5, 1])}
    check(analyses.draw_growth(ratios, tmp_path), analyses.growth_rows(ratios))


def test_figures_are_the_same_every_time(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    result = [split_counts(vocab, TEXT, "uniform", seed=0, draws=100)]
    first = [p.read_bytes() for p in analyses.draw_split_counts(result, tmp_path / "a")]
    assert [p.read_bytes() for p in analyses.draw_split_counts(result, tmp_path / "b")] == first
