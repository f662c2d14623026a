"""The analyses of schemes: tables, CSV and figures that hold what the library computed."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
from tests.guard.tokenizers_of import byte_level
from tests.report.test_figures import check

import robustok as rt
from experiments import __main__, analyses
from experiments.splits import segmentations, split_counts

TEXT = "the theater is there"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return byte_level(None)


def test_split_counts(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    specs = ["stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform"]
    for draws, schemes in ((200, specs), (5, ["stochastok(alpha=2000)"])):  # too flat to see
        result = [split_counts(vocab, TEXT, spec, seed=0, draws=draws) for spec in schemes]
        wanted = [row for one in result for row in one.table()]
        rows = check(analyses.draw_split_counts(result, tmp_path), wanted)
        drawn = [float(r["share"]) for r in rows if r["distribution"] == f"{draws} draws"]
        assert sum(drawn) == pytest.approx(len(schemes))


def test_segmentations(vocab: rt.Vocabulary, tmp_path: Path) -> None:
    result = {
        name: segmentations(vocab, TEXT, ["uniform", "stochastok"], seed=0, draws=200, splits=n)
        for name, n in (("one", 2), ("two", 5))
    }
    rows = [{"tokenizer": name, **row} for name, one in result.items() for row in one.table()]
    check(analyses.draw_segmentations(result, tmp_path), rows)


@pytest.mark.parametrize(
    ("name", "column"), [("split-counts", "share"), ("segmentations", "share"), ("dropout", "mean")]
)
def test_each_analysis_is_a_command(
    name: str,
    column: str,
    vocab: rt.Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocab.data.library.save(str(tmp_path / "tokenizer.json"))
    line = f"{name} -t {tmp_path}/tokenizer.json --draws 20 --out {tmp_path}/out --text"
    monkeypatch.setattr(sys, "argv", ["experiments", *line.split(), TEXT])
    __main__.main()
    with (tmp_path / "out" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    head, *lines = capsys.readouterr().out.splitlines()
    assert column in head.split() and len(lines) == len(rows) > 3
