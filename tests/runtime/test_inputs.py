"""Input files: one rule for names, compression, byte order marks and damage, for every reader."""

import gzip
import io
import lzma
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustok.errors import RobustokError
from robustok.runtime import inputs
from robustok.runtime.files import write_rows
from robustok.runtime.inputs import MARK, find_inputs, json_of, lines_of, open_input, read_rows


def compressed(suffix: str, data: bytes) -> bytes:
    if suffix == ".zst":
        return pa.compress(data, "zstd", asbytes=True)
    return {".gz": gzip.compress, ".xz": lzma.compress, "": bytes}[suffix](data)


@pytest.mark.parametrize("mark", [b"", MARK])
@pytest.mark.parametrize("suffix", ["", *inputs.COMPRESSIONS])
def test_rows_are_read_back_from_every_compression(
    tmp_path: Path, suffix: str, mark: bytes
) -> None:
    rows = [{"text": "naïve \u2028 line"}, [1, 2], None]
    write_rows(tmp_path / "a.jsonl", rows)
    path = tmp_path / f"b.JSONL{suffix.upper()}"
    path.write_bytes(compressed(suffix, mark + (tmp_path / "a.jsonl").read_bytes()))
    assert read_rows(path) == rows
    assert [file.format for file in find_inputs(path).files] == ["jsonl"]


@pytest.mark.parametrize("end", [-9, 0])
@pytest.mark.parametrize("suffix", inputs.COMPRESSIONS)
def test_a_truncated_compressed_file_is_one_line(tmp_path: Path, suffix: str, end: int) -> None:
    numbers = np.random.default_rng(0).integers(1 << 60, size=999)
    data = b"".join(b'{"n": %d}\n' % i for i in numbers)
    path = tmp_path / f"b.jsonl{suffix}"
    path.write_bytes(compressed(suffix, data)[:end])
    with pytest.raises(RobustokError, match=r"cannot be read|is not JSON") as error:
        read_rows(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b'{"a": 1}\n{"a": \n', "Expecting value"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "invalid start byte"),
        (b"1\n" + b"[" * 200_000, "recursion"),
        ("1\n".encode("utf-16"), "save the file as UTF-8"),
    ],
)
def test_a_line_that_is_not_json_is_named(tmp_path: Path, damage: bytes, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(damage)
    with pytest.raises(RobustokError, match=rf"rows\.jsonl:[12] is not JSON: .*{reason}"):
        read_rows(path)


def test_a_long_line_is_never_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE", 8)
    content = b"12345678\n" + b"1234567\n123456789\n1\n" + b"x" * 30
    assert list(lines_of(io.BytesIO(content))) == [
        (0, None), (9, b"1234567"), (17, None), (27, b"1"), (29, None),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="longer than"):
        json_of(None)


@given(
    lines=st.lists(st.binary(max_size=9).filter(lambda line: not set(line) & {10, 13})),
    end=st.sampled_from([b"\n", b"\r\n"]),
    edges=st.lists(st.integers(1, 60)),
    mark=st.sampled_from([b"", MARK]),
)
def test_every_line_is_in_one_range(
    lines: list[bytes], end: bytes, edges: list[int], mark: bytes
) -> None:
    """Wherever the ranges of a file meet."""
    data = mark + end.join(lines)
    cuts = sorted({0, *edges})
    ranges = zip(cuts, [*cuts[1:], len(data) + 1], strict=True)
    found = [entry for a, b in ranges for entry in lines_of(io.BytesIO(data), a, b)]
    assert found == list(lines_of(io.BytesIO(data)))
    expected = lines[:-1] if lines and not lines[-1] else lines
    first = expected[:1] if mark else [line.removeprefix(MARK) for line in expected[:1]]
    if mark and lines in ([], [b""]):
        expected = first = [b""]  # the mark alone is a line
    assert [line for _, line in found] == first + expected[1:]


@given(
    parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    zeros=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    block=st.sampled_from([1, 7, 1 << 20]),
)
def test_all_streams_of_an_xz_file_are_read(
    parts: list[bytes], zeros: list[int], block: int
) -> None:
    data = b"".join(
        lzma.compress(part) + b"\0" * (4 * n) for part, n in zip(parts, zeros, strict=False)
    )
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "_BLOCK", block)
        path = Path(folder) / "a.xz"
        path.write_bytes(data)
        with open_input(path) as stream:
            assert stream.read() == b"".join(parts)


@given(at=st.integers(0, 2000), bit=st.integers(0, 7))
def test_no_changed_bit_of_an_xz_file_loses_a_part_silently(at: int, bit: int) -> None:
    parts = [bytes(np.random.default_rng(n).integers(97, 110, 300, np.uint8)) for n in (0, 1)]
    data = bytearray(b"".join(map(lzma.compress, parts)))
    data[at % len(data)] ^= 1 << bit
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xz"
        path.write_bytes(bytes(data))
        with pytest.raises(inputs.DAMAGE), open_input(path) as stream:
            assert stream.read() == b"".join(parts)
            raise EOFError  # nothing was lost


HIDDEN = [".hidden.jsonl", "._a.jsonl", "_meta/x.jsonl"]


def test_a_folder_is_read_by_one_rule(tmp_path: Path) -> None:
    unread = ["3.jsonl.bz2", "4.jsonl.bak", "5.arrow", "6.tmp", "7.parquet.gz", "notes.txt"]
    for name in ("b/2.jsonl.gz", "1.JSONL", *unread, *HIDDEN):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    files, others, _ = find_inputs(tmp_path)
    assert ([file.name for file in files], others) == (["1.JSONL", "b/2.jsonl.gz"], unread)
    files, others, _ = find_inputs(f"{tmp_path}/*")
    assert [Path(file.name).name for file in files] == ["1.JSONL", "2.jsonl.gz"]
    assert [Path(name).name for name in others] == unread
    texts = find_inputs(tmp_path, ["text"])
    assert [file.name for file in texts.files] == ["notes.txt"]
    for name in unread:
        with pytest.raises(RobustokError, match=rf"{name} is not read: give \.parquet, \.jsonl"):
            find_inputs(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.jsonl", "no such file or folder"),
        ("empty", r"no input file in .* \(not read: a\.csv"),
    ],
)
def test_where_no_file_is_found(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.csv").write_bytes(b"")
    with pytest.raises(RobustokError, match=message):
        find_inputs(tmp_path / name)
