"""Files of results: their report, and how pandas and datasets open them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import ITEMS, Shell, rows_in

from robustok.cli.app import run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with the run of `evaluate` in predictions, and attacks.jsonl of `attack`."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "judge_of_files.py").write_text("def longer(text, answer):\n    return len(answer)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        for line in (
            "evaluate -s canonical -s uniform --draws 3 --out predictions",
            "attack --steps 1 --out attacks.jsonl",
            "attack --objective margin --suite --max-scored 5 --out suite.jsonl "
            "--generate answers.jsonl --judge judge_of_files:longer --max-new-tokens 3",
            "certify --distance 2 --distance 4 --draws 20 --enumerate 5 --out bounds",
        ):
            assert run(f"{line} {model} --items {model}/items.jsonl --seed 0".split()) == 0
    return folder


def items_in(run: Path) -> list[list[dict]]:
    """The results of each question, for each row of a run."""
    rows = rows_in(run / "results.jsonl")
    return [rows_in(run / "items" / f"{row['cell']}.jsonl") for row in rows]


def test_the_run_of_evaluate_has_a_report(results: Path, shell: Shell) -> None:
    run = results / "predictions"
    page = run / "report.html"
    written = page.read_bytes()
    assert shell.ok("report", str(run)) == f"The report is at {page}\n"
    assert page.read_bytes() == written
    text = page.with_suffix(".md").read_text()
    assert text.startswith("# evaluate: model\n")
    for (scheme, draws), items in zip(
        (("canonical", 1), ("uniform", 3)), items_in(run), strict=True
    ):
        accuracy = 100 * sum(item["correct"] for item in items) / len(ITEMS)
        cells = rf"{scheme} \| {accuracy:.1f} \| .* \| {len(ITEMS)} \| {draws} \|"
        line = rf"\| model \| {cells}"
        assert re.search(line, text), (line, text)
    assert (run / "figures" / "heatmap.png").is_file()


def test_the_attacks_of_attack_have_a_report_with_a_curve(results: Path) -> None:
    assert run(["report", str(results / "attacks.jsonl")]) == 0
    folder = results / "attacks-report"
    text = (folder / "report.md").read_text()
    attacks = rows_in(results / "attacks.jsonl")
    held = [not row["success"] for row in attacks[1:]]
    line = rf"adversarial\(.*steps=1\) \| {100 * sum(held) / len(held):.1f} \|"
    assert re.search(line, text)
    assert "seed 0" in text
    assert (folder / "figures" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "figures/curve.png" in text


def test_every_row_says_seed_and_draws(results: Path) -> None:
    for draws, rows in zip((1, 3), items_in(results / "predictions"), strict=True):
        assert {(row["seed"], row["draws"], len(row["predictions"])) for row in rows} == {
            (0, draws, draws)
        }
    for name, skipped in (("attacks", 1), ("suite", 0), ("answers", 0)):
        kept = rows_in(results / f"{name}.jsonl")[skipped:]
        assert [row["seed"] for row in kept] == [0] * len(ITEMS), name


def test_certificates_have_a_report(results: Path) -> None:
    folder = results / "bounds"
    text = (folder / "report.md").read_text()
    (rows,) = items_in(folder)
    for at, distance in enumerate((2, 4)):
        verdicts = [row["certificates"][at]["verdict"] for row in rows]
        counts = " | ".join(str(verdicts.count(v)) for v in ("same", "open", "flips", "attacked"))
        assert f"| model | {distance} | {len(ITEMS)} | {counts} |" in text
    assert (folder / "figures" / "certificates.png").is_file()
    page = (folder / "report.html").read_text()
    assert "Certificates: the same answer" in page and "data:image/svg+xml" in page


def test_attacks_of_other_objectives_and_their_answers_have_a_report(results: Path) -> None:
    paths = [str(results / f"{name}.jsonl") for name in ("suite", "answers")]
    assert run(["report", *paths, "--out", str(results / "both")]) == 0
    text = (results / "both" / "report.md").read_text()
    rows = rows_in(Path(paths[0]))
    for row in rows:
        gain = row["score"] - row["canonical_score"]
        assert f"| {row['canonical_score']:+.4g} | {row['score']:+.4g} | {gain:+.4g} |" in text
    broken = sum(row["success"] for row in rows)
    assert f"{100 * broken / len(rows):.1f}% broken (95% interval " in text
    answers = rows_in(Path(paths[1]))
    mean = sum(row["attacked_verdict"] for row in answers) / len(answers)
    assert f"{mean:.3f} attacked" in text
    assert (results / "both" / "figures" / "suite-scores.svg").is_file()


def test_several_files_have_one_report(results: Path, tmp_path: Path) -> None:
    files = [str(results / name) for name in ("predictions", "attacks.jsonl")]
    assert run(["report", *files]) == 2
    assert run(["report", *files, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# evaluate: model\n")
    assert "canonical | uniform |" in text and "attacks | adversarial(" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("", "has no rows"),
        ("text", "is not JSON"),
        ("[1]\n", "holds no results"),
        ('{"query": "a", "choices": ["b", "c"], "label": 0}\n', "the file of attacks"),
        ('{"config": {}, "check": "0"}\n{"key": "a"}\n', "the file of attacks"),
        ('{"accuracy": 0.5}\n', "holds no results"),
    ],
)
def test_another_file_is_refused_in_one_line(
    content: str | None, message: str, tmp_path: Path, shell: Shell
) -> None:
    path = tmp_path / "other.jsonl"
    if content is not None:
        path.write_text(content)
    assert message in shell.fails("report", str(path))
    assert not (tmp_path / "other-report").exists()


def test_results_open_in_pandas_and_datasets_in_one_line(results: Path, tmp_path: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    cache = {"split": "train", "cache_dir": str(tmp_path)}
    run = results / "predictions"
    table = pandas.read_parquet(run / "items.parquet")
    rows = datasets.load_dataset("json", data_files=str(run / "items/*.jsonl"), **cache)
    assert table["key"].tolist() == rows["key"][:] == [item.key for item in ITEMS] * 2
    assert sorted(table["correct"]) == sorted(rows["correct"][:])

    path = str(results / "attacks.jsonl")
    table = pandas.read_json(path, lines=True)[1:]
    rows = datasets.load_dataset("json", data_files=path, **cache).skip(1)
    assert sorted(table["key"]) == sorted(rows["key"][:]) == [item.key for item in ITEMS]
    assert table["n_scored"].tolist() == rows["n_scored"][:]
