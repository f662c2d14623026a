"""TokSuite in the comparison with the paper: all subsets, and the 18 pairs that the paper gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robustok.report import write_report
from robustok.report.sources import read_source
from robustok.report.tables import paper_section
from robustok.runtime.files import write_rows
from robustok.study import find_study
from robustok.tasks.benchmarks import TOKSUITE

# Questions of the subsets that the paper names.
SIZES = {
    "abbreviations": 37, "character_substitution": 16, "colloquial": 40, "contractions": 41,
    "date_formats": 18, "historical_spelling": 40, "keyboard_proximity_errors": 41,
    "ocr_errors": 42, "orthographic_errors": 80, "scripted_text": 40, "similar_words": 74,
    "spaced_styling": 40, "spelled_out": 15, "web_search_query": 37,
}  # fmt: skip
STUDY = find_study("tiny-llm-toksuite").model_dump(mode="json")
(TABLE,) = STUDY["paper"]["tables"]


def values() -> dict[tuple[str, str], list[float | None]]:
    return {(row["task"], row["pretrain_scheme"]): row["values"] for row in TABLE["rows"]}


def test_the_18_pairs_of_the_paper_are_typed_and_are_shares_of_the_subsets() -> None:
    pairs = 0
    for name in TOKSUITE:
        rows = [values()[f"toksuite/{name}", p] for p in ("canonical", "stochastok(alpha=0.5)")]
        for before, after in zip(*rows, strict=True):
            assert (before is None) == (after is None)
            for share in (before, after):
                if share is not None:
                    right = share / 100 * SIZES[name]
                    assert right == pytest.approx(round(right), abs=0.01)
            pairs += before is not None
    assert pairs == 18
    for rows in (values()["toksuite", p] for p in ("canonical", "stochastok(alpha=0.5)")):
        for share in rows:
            assert share is not None
            assert share / 100 * 1140 == pytest.approx(round(share / 100 * 1140), abs=0.06)


def test_a_subset_is_compared_over_its_own_questions(tmp_path: Path) -> None:
    (tmp_path / "items").mkdir()
    (tmp_path / "study.json").write_text(json.dumps(STUDY))
    kinds = ["contractions", "contractions", "contractions", "contractions", "lowercase"]
    rights = {0: [1, 1, 1, 0, 0], 1: [1, 0, 1, 0, 1]}
    with (tmp_path / "results.jsonl").open("w") as out:
        for seed, right in rights.items():
            row = {
                "study": "tiny-llm-toksuite", "scale": "full", "pretrain_scheme": "canonical",
                "train_scheme": "canonical", "eval_scheme": "canonical", "task": "toksuite",
                "accuracy": 0.6,
                "low": 0.2, "high": 0.9, "n": 5, "draws": 1, "seed": seed, "cell": f"c{seed}",
                "seconds": 1.0, "chance": 0.25,
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")
            items = [
                {"key": str(i), "kind": kind, "label": 0, "correct": float(one)}
                for i, (kind, one) in enumerate(zip(kinds, right, strict=True))
            ]
            write_rows(tmp_path / "items" / f"c{seed}.jsonl", items)
    section = paper_section(STUDY["paper"], read_source(tmp_path).rows)
    assert section
    lines = {(line[0], line[1]): line[3] for line in section.tables[0].texts}
    assert lines["toksuite", "canonical"].startswith("60.0 [")
    assert lines["toksuite/contractions", "canonical"].startswith("62.5 [")
    assert lines["toksuite/contractions", "canonical"].endswith("/ 58.5 (+4.0)")
    assert lines["toksuite/lowercase", "canonical"].startswith("50.0 [")
    assert lines["toksuite/homoglyphs", "canonical"] == "not run / –"
    write_report(tmp_path)
    assert "toksuite/contractions" in (tmp_path / "report.md").read_text(encoding="utf-8")
