"""Data sets of examples/token_files.py, each by a reader written here from the format's facts."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.corpus.conftest import documents, write_jsonl
from tests.corpus.test_run import rows_of
from tests.oracles.scripts import script

import robustok as rt

pytestmark = pytest.mark.usefixtures("inline")


def read_megatron(path: Path) -> list[list[int]]:
    """Sequences of an indexed data set, whose every document is one sequence."""
    index = path.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack("<QBQQ", index[9:34])
    assert version == 1
    dtype = np.dtype({4: np.int32, 8: np.uint16}[code])
    at = 34
    lengths = np.frombuffer(index, np.int32, sequences, at)
    pointers = np.frombuffer(index, np.int64, sequences, at := at + 4 * sequences)
    starts = np.frombuffer(index, np.int64, documents, at := at + 8 * sequences)
    assert len(index) == at + 8 * documents
    assert starts.tolist() == list(range(sequences + 1))
    tokens = path.with_suffix(".bin").read_bytes()
    assert len(tokens) == lengths.sum() * dtype.itemsize
    return [
        np.frombuffer(tokens, dtype, n, p).tolist() for n, p in zip(lengths, pointers, strict=True)
    ]


def read_nanotron(path: Path) -> list[list[int]]:
    """Documents of a token file of datatrove."""
    size = int(Path(f"{path}.metadata").read_text().splitlines()[0].rpartition("|")[2])
    tokens = np.fromfile(path, {2: np.uint16, 4: np.uint32}[size])
    ends = np.fromfile(f"{path}.index", np.uint64).astype(int)
    assert ends[-1] == len(tokens) == int(Path(f"{path}.metadata").read_text().splitlines()[1])
    return [part.tolist() for part in np.split(tokens, ends)[:-1]]


READERS = {"megatron": (read_megatron, ".bin"), "nanotron": (read_nanotron, ".ds")}


@pytest.mark.parametrize("format", READERS)
def test_token_files(
    tmp_path: Path, tokenizer: Path, run: Any, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", [*documents(20), ""])
    run(source, "rows", draws=2)
    example = script("examples/token_files.py")
    example.main(str(tmp_path / "rows"), str(tmp_path / "narrow"), str(tokenizer), format)
    monkeypatch.setitem(example.UINT16, format, 0)  # a large vocabulary has wider tokens
    example.main(str(tmp_path / "rows"), str(tmp_path / "wide"), str(tokenizer), format)
    (end,) = rt.Vocabulary.load(str(tokenizer)).special
    rows = rows_of(tmp_path / "rows")
    read, suffix = READERS[format]
    for draw in range(2):
        name = f"part-000000.draw{draw}{suffix}"
        narrow, wide = tmp_path / "narrow" / name, tmp_path / "wide" / name
        assert read(narrow) == [[*row["input_ids"], end] for row in rows if row["draw"] == draw]
        assert read(wide) == read(narrow)
        assert wide.stat().st_size == 2 * narrow.stat().st_size
