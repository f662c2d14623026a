"""corpus and data: what they print, what they leave, and one line with code 2 on what cannot be."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Shell
from tests.corpus.conftest import documents, inline, tokenizer, write_jsonl

from robustok.cli import terminal
from robustok.runtime.files import locked
from robustok.tasks import read_items

__all__ = ["inline", "tokenizer"]
pytestmark = pytest.mark.usefixtures("inline")


def test_a_corpus_is_drawn(tmp_path: Path, tokenizer: Path, shell: Shell) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [*documents(30), 5])
    write_jsonl(tmp_path / "in" / "b.jsonl", documents(10, seed=1))
    files = f"{tmp_path}/in/a.jsonl {tmp_path}/in/b.* {tmp_path}/out"
    line = f"corpus {files} -t {tokenizer} -s uniform --seed 3 --draws 2"
    first, second, third = shell.ok(line).splitlines()
    assert first.startswith("40 documents, 80 rows and ")
    assert second.startswith("a canonical token: ")
    assert third.startswith("1 reject (a row, or a file")
    tables = [pq.read_table(p) for p in sorted((tmp_path / "out" / "data").iterdir())]
    assert sum(map(len, tables)) == 80
    receipt = shell.json(line)
    assert receipt == json.loads((tmp_path / "out" / "__run__" / "receipt.json").read_text())
    assert (receipt["rows"], receipt["rejects"], receipt["settings"]["seed"]) == (80, 1, 3)


def test_ray_takes_no_workers(tmp_path: Path, tokenizer: Path, shell: Shell) -> None:
    line = f"corpus {tmp_path} {tmp_path}/out -t {tokenizer} -s uniform --seed 3"
    assert "--workers has no effect on Ray" in shell.fails(f"{line} --engine ray --workers 2")


def test_a_log_has_the_time_left(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.bar("shards") as progress:
        for clock[0], done in ((30.0, 0), (40.0, 10), (70.0, 500)):
            progress(done, 2000)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "shards: 0.0% of 2,000"
    assert second == "shards: 25.0% of 2,000, 0:01:32 left"


@pytest.mark.parametrize("game", ["langgame", "cute"])
def test_the_folder_is_a_data_set(game: str, tmp_path: Path, shell: Shell) -> None:
    import datasets

    out = tmp_path / "made"
    shell.ok(f"data {game} --seed 0 --out {out} --words 300 --train 420 --test 420")
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 420, "test": 420}
    items = read_items(out / "test.jsonl")
    row = loaded["test"][0]
    assert (row["question"], tuple(row["choices"])) == (items[0].question, items[0].choices)


def test_a_data_set_is_never_mixed_with_another(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "out"
    line = f"data cute --words 50 --train 20 --test 20 --out {out} --seed"
    with locked(out):
        assert "another run is at work" in shell.fails(f"{line} 0")
    shell.ok(f"{line} 0")
    before = {path: path.read_bytes() for path in out.glob("*.jsonl")}
    (out / "test.jsonl").unlink()  # as after a run that was stopped
    assert "holds results with other seed" in shell.fails(f"{line} 1")
    shell.ok(f"{line} 0")
    assert {path: path.read_bytes() for path in out.glob("*.jsonl")} == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "train.jsonl").write_text("mine")
    other = line.replace(str(out), str(tmp_path / "notes"))
    assert "holds other files (train.jsonl)" in shell.fails(f"{other} 0")
