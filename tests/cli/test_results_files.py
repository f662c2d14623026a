"""Files of results: their report, and how pandas and datasets open them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import ITEMS, Shell

from robustok.cli import evaluate
from robustok.cli.app import run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A folder with the runs of questions that are drawn and attacked."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(folder)
        for line in (
            "evaluate -s canonical -s uniform --draws 3 --out predictions",
            "evaluate -s adversarial(steps=1) --out attacks",
        ):
            assert run(f"{line} {model} --items {model}/items.jsonl --seed 0".split()) == 0
    return folder


def test_several_folders_have_one_report(results: Path, tmp_path: Path) -> None:
    files = [str(results / name) for name in ("predictions", "attacks")]
    assert run(["study", "report", *files]) == 2
    assert run(["study", "report", *files, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# Accuracy of model when the tokenization of a text changes\n")
    assert "model | uniform |" in text and "model | adversarial(" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no results.jsonl"),
        ("", "has no rows"),
        ("text", "is not JSON"),
        ("[1]\n", "give the folder of a study"),
        ("null\n", "give the folder of a study"),
        ("5\n", "results.jsonl is damaged, or of another program"),
        ('{"query": "a", "choices": ["b", "c"], "label": 0}\n', "has a row without eval_scheme"),
        ('{"accuracy": 0.5}\n', "has a row without eval_scheme"),
    ],
)
def test_another_folder_is_refused_in_one_line(
    content: str | None, message: str, tmp_path: Path, shell: Shell
) -> None:
    if content is not None:
        (tmp_path / "results.jsonl").write_text(content)
    assert message in shell.fails("study", "report", str(tmp_path))
    assert not (tmp_path / "report.html").exists()


def test_results_open_in_pandas_and_datasets_in_one_line(results: Path, tmp_path: Path) -> None:
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    cache = {"split": "train", "cache_dir": str(tmp_path)}
    run = results / "predictions"
    table = pandas.read_parquet(run / "items.parquet")
    rows = datasets.load_dataset("json", data_files=str(run / "items/*.jsonl"), **cache)
    assert table["key"].tolist() == rows["key"][:] == [item.key for item in ITEMS] * 2
    assert sorted(table["correct"]) == sorted(rows["correct"][:])


def test_without_pyarrow_there_is_no_table_of_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"model": [{"model": "m", "eval_scheme": "canonical", "items": [{"correct": 1.0}]}]}
    evaluate._write_parquet(rows, tmp_path / "with")
    monkeypatch.setattr(evaluate, "find_spec", lambda _: None)
    evaluate._write_parquet(rows, tmp_path / "without")
    assert [path.name for path in tmp_path.iterdir()] == ["with"]


def test_a_folder_of_folders_of_results_is_refused_with_their_names(
    tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "results.jsonl").write_text("")
    assert f"such as {tmp_path / 'a'}" in shell.fails("study", "report", str(tmp_path))
