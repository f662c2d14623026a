"""TokSuite in the comparison with the paper: all subsets, and the 18 pairs that the paper gives."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import save_model
from tests.report.test_merge import row

from robustok.errors import RobustokError
from robustok.report import write_report
from robustok.report.source import read_source
from robustok.report.tables import paper_section
from robustok.runtime.files import write_rows
from robustok.study import find_study, run_study
from robustok.tasks import read_items
from robustok.tasks.benchmarks import TOKSUITE

# Questions of the subsets that the paper names.
SIZES = {
    "abbreviations": 37, "character_substitution": 16, "colloquial": 40, "contractions": 41,
    "date_formats": 18, "historical_spelling": 40, "keyboard_proximity_errors": 41,
    "ocr_errors": 42, "orthographic_errors": 80, "scripted_text": 40, "similar_words": 74,
    "spaced_styling": 40, "spelled_out": 15, "web_search_query": 37,
}  # fmt: skip
STUDY = find_study("tiny-llm-toksuite").as_dict()
(TABLE,) = STUDY["paper"]["tables"]


def values() -> dict[tuple[str, str], list[float | None]]:
    return {(line["task"], line["pretrain_scheme"]): line["values"] for line in TABLE["rows"]}


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
            of = {"study": "tiny-llm-toksuite", "task": "toksuite", "n": 5, "cell": f"c{seed}"}
            out.write(json.dumps(row("canonical", "canonical", 0.6, seed, **of)) + "\n")
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


SUBSETS = ("canonical", "character_deletion", "character_substitution")


def copy_of_repository(folder: Path, prefix: str) -> Path:
    """Made-up questions as the repositories of TokSuite hold them: a configuration a subset."""
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    card = ["---", "configs:"]
    for subset in SUBSETS:
        name = f"{prefix}_{subset}"
        rows: list[dict[str, Any]] = [
            {
                "question": f" What comes after {number}? ",
                "choices": [str(number + i) for i in (1, 2, 3, 4)],
                "answer": 0, "answer_label": "A", "split": "test", "subcategories": subset,
                "lang": "eng_Latn", "notes": "", "id": f"{number}-1.0", "set_id": f"{number}",
                "variation_id": "1.0",
            }
            for number in range(12)
        ]  # fmt: skip
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "test-00000-of-00001.parquet")
        card += [f"- config_name: {name}", "  data_files:", "  - split: test",
                 f"    path: {name}/test-*"]  # fmt: skip
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))
    return folder


@pytest.mark.parametrize("prefix", ["toksuite_english", "tokenizer_robustness_completion_farsi"])
def test_a_copy_of_the_repository_is_read_with_its_subsets(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = copy_of_repository(tmp_path / "toksuite", prefix)
    items = read_items(folder)
    assert [item.kind for item in items[::12]] == list(SUBSETS)
    assert (items[0].question, items[0].choices[0]) == ("What comes after 0?", " 1")
    assert len({item.key for item in items}) == len(items) == 36
    with pytest.raises(RobustokError, match="a copy of a benchmark's repository"):
        read_items(folder / f"{prefix}_canonical")


def test_a_study_of_a_copy_has_a_line_a_subset_and_a_column_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    copy_of_repository(tmp_path / "toksuite", "toksuite_english")
    study = find_study(
        "toksuite", benchmarks=str(tmp_path), model=str(save_model(tmp_path / "model"))
    )
    run_study(study, tmp_path / "run")
    write_report(tmp_path / "run")
    text = (tmp_path / "run/report.md").read_text(encoding="utf-8")
    section = text.partition("## Accuracy by kind of question")[2].partition("\n## ")[0]
    head, _, *lines = [line for line in section.splitlines() if line.startswith("|")]
    assert "| kind | questions | canonical | stochastok(alpha=0.1) |" in head
    assert study.evaluate and head.count("|") == 2 + len(study.evaluate.eval_schemes) + 1
    assert [line.split(" | ")[0] for line in lines] == [f"| {subset}" for subset in SUBSETS]
    assert all(line.split(" | ")[1] == "12" and "[" in line.split(" | ")[3] for line in lines)
