"""Outputs as other programs read them, each by a reader written here from the format's facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import documents, write_jsonl
from tests.corpus.test_run import rows_of

pytestmark = pytest.mark.usefixtures("inline")


def test_datasets_loads_the_output_folder(tmp_path: Path, run: Any) -> None:
    datasets = pytest.importorskip("datasets")
    write_jsonl(tmp_path / "in" / "a.jsonl", [*documents(10), 5])  # the last one is a reject
    assert run(tmp_path / "in").rejects == 1
    wanted = [row["input_ids"] for row in rows_of(tmp_path / "out")]
    cache = str(tmp_path / "cache")
    for call in ({"path": str(tmp_path / "out")},
                 {"path": "parquet", "data_dir": str(tmp_path / "out")}):  # fmt: skip
        rows = datasets.load_dataset(**call, split="train", cache_dir=cache)
        assert rows["input_ids"][:] == wanted


def test_text_of_every_type_is_read(tmp_path: Path, run: Any) -> None:
    kinds = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()]
    columns = []
    for i, kind in enumerate(kinds):
        table = pa.table({"text": pa.array(documents(3)).cast(kind)})
        (tmp_path / str(i)).mkdir()
        pq.write_table(table, tmp_path / str(i) / "a.parquet")
        run(tmp_path / str(i), f"out{i}")
        (shard,) = (tmp_path / f"out{i}" / "data").iterdir()
        columns.append(pq.read_table(shard)["input_ids"].to_pylist())
    assert columns == columns[:1] * len(kinds)
