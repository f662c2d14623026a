"""Input files: which files are read, by their names, and the lines and values that they hold.

All readers of the package follow these rules. A file's format and compression are those of its
name, in any case. Of a folder and of patterns, files whose name or folder begins with a dot or an
underscore are skipped, and other files that are not read are returned by name. A byte order mark
is no part of a text. A line ends with a line feed only, since JSON may hold other separators.
"""

from __future__ import annotations

import glob
import gzip
import io
import json
import lzma
import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from robustok.checks import check_list
from robustok.errors import RobustokError
from robustok.runtime.files import reason_of

COMPRESSIONS = (".gz", ".xz", ".zst")
FORMATS = {  # by the suffix of a file
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "text",
}
ROWS = ("parquet", "jsonl")  # formats that have columns
TEXTS = (*ROWS, "text")
MAX_LINE = 64 << 20  # bytes of a line, decompressed; a longer one is never held in memory
TOO_LONG = f"longer than {MAX_LINE >> 20} MiB"
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, OSError)  # what reading a damaged file raises
MARK = b"\xef\xbb\xbf"  # byte order mark
_BLOCK = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class InputFile:
    """A file that is read; ``name`` is its path relative to the folder that was given.

    ``modified`` is in nanoseconds.
    """

    path: Path
    name: str
    format: str
    compression: str
    size: int
    modified: int

    def check_unchanged(self) -> None:
        """Raise RobustokError where the file has changed since it was listed."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise RobustokError(f"{self.path} cannot be read ({reason_of(error)})") from None
        if (status.st_size, status.st_mtime_ns) != (self.size, self.modified):
            raise RobustokError(
                f"{self.path} has changed during the run: run again, into another folder"
            )


class Inputs(NamedTuple):
    """The files to read, the names of other files in the folders, and the paths that were given."""

    files: list[InputFile]
    unread: list[str]
    given: list[Path]


def find_inputs(
    inputs: str | Path | Sequence[str | Path], formats: Collection[str] = ROWS
) -> Inputs:
    """The files of paths, folders and patterns that have one of ``formats``, sorted by name.

    Raises RobustokError for a missing file, a named file of another format, anything but a regular
    file, a link in a folder that leads out of it, and where no file is left.
    """
    if isinstance(inputs, (str, Path)):
        inputs = [inputs]
    given = [Path(path) for path in check_list("inputs", inputs, "[path]", (str, Path))]
    files: dict[Path, InputFile] = {}
    unread: dict[str, None] = {}
    for entry in given:
        for path, name in _named_paths(entry):
            kind = kind_of(path)
            if kind is not None and kind[0] in formats:
                files.setdefault(path.resolve(), _input_file(path, name, *kind))
            elif path == entry:
                raise RobustokError(f"{path} is not read: give {_wanted(formats)}")
            elif path.is_file():
                unread[name] = None
    if not files:
        others = f" (not read: {named(list(unread))})" if unread else ""
        places = ", ".join(map(str, given))
        raise RobustokError(f"no input file in {places}{others}: give {_wanted(formats)}")
    by_name = sorted(files.values(), key=lambda f: (f.name, str(f.path)))
    return Inputs(by_name, sorted(unread), given)


def named(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest


def kind_of(path: Path) -> tuple[str, str] | None:
    """Format and compression of a file by its name, as ``("jsonl", ".zst")``, or None."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ""
    kind = FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None or (kind == "parquet" and compression):
        return None
    return kind, compression


def _wanted(formats: Collection[str]) -> str:
    suffixes = [suffix for suffix, kind in FORMATS.items() if kind in formats]
    packed = [suffix for suffix in suffixes if suffix != ".parquet"]
    return f"{', '.join(suffixes)} ({', '.join(packed)} also with {', '.join(COMPRESSIONS)})"


def _named_paths(path: Path) -> Iterator[tuple[Path, str]]:
    """The files of a path, a folder or a pattern, each with its name."""
    if path.is_dir():
        for file in _files_below(path):
            yield file, str(file.relative_to(path))
    elif path.exists():
        yield path, path.name
    else:
        matches = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
        if not matches:
            raise RobustokError(f"{path}: no such file or folder, and no file matches it")
        for match in matches:
            for file in _files_below(match) if match.is_dir() else [match]:
                if not match.name.startswith("_"):
                    yield file, str(file)  # the whole path, since file names may repeat


def _files_below(folder: Path) -> list[Path]:
    """What a folder and its subfolders hold, but folders and hidden files."""
    root = folder.resolve()
    files = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if hidden or path.is_dir():
            continue
        if kind_of(path) and path.is_symlink() and not path.resolve().is_relative_to(root):
            raise RobustokError(
                f"{path} is a link to {path.resolve()}, outside {folder}: remove it, or name the"
                " file itself"
            )
        files.append(path)
    return files


def _input_file(path: Path, name: str, format: str, compression: str) -> InputFile:
    if not path.is_file():
        raise RobustokError(f"{path} is not a regular file: copy its content to one")
    status = path.stat()
    return InputFile(path.absolute(), name, format, compression, status.st_size, status.st_mtime_ns)


@contextmanager
def open_input(path: Path) -> Iterator[IO[bytes]]:
    """The decompressed stream of a file; a damaged one raises `DAMAGE`, here or when it is read."""
    suffix = path.suffix.lower()
    with path.open("rb") as raw:
        if suffix in COMPRESSIONS and path.stat().st_size == 0:
            raise EOFError("the file is empty, and a compressed one never is")
        with _decompressed(raw, suffix) as stream:
            yield stream


def _decompressed(raw: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.open(raw)
    if suffix == ".xz":
        return io.BufferedReader(_XzStreams(raw), _BLOCK)
    if suffix == ".zst":
        import pyarrow as pa

        # Unlike the reader of the package zstandard, Arrow's reports a file that ends too early.
        reader = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
        return io.BufferedReader(reader, _BLOCK)  # type: ignore[arg-type]
    return raw


class _XzStreams(io.RawIOBase):
    """The content of all streams of an .xz file.

    `lzma.open` ends without an error at the first byte that begins no further stream.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._decoder = raw, lzma.LZMADecompressor(lzma.FORMAT_XZ)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = b""
        while not content:
            data = self._compressed()
            if data is None:
                return 0
            content = self._decoder.decompress(data, len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _compressed(self) -> bytes | None:
        """The next compressed bytes, of the next stream where one has ended; None at the end."""
        if not self._decoder.eof:
            data = self._raw.read(_BLOCK) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not data:
                raise EOFError("the file ends before the end of its compressed stream")
            return data
        data = self._decoder.unused_data.lstrip(b"\0")  # zeros may stand between streams
        while not data:
            if not (block := self._raw.read(_BLOCK)):
                return None
            data = block.lstrip(b"\0")
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        return data


def damage_of(error: BaseException) -> str:
    """What is wrong with a file, in one line, from an error of its reader."""
    text = " ".join(str(error).split()) or type(error).__name__
    if "too much memory" in text:  # of zstd
        return (
            "it needs a window of more than 128 MiB, as `zstd --long=31` makes it: compress it "
            "again, with --long=27 at most"
        )
    return text


def lines_of(
    stream: IO[bytes], start: int = 0, stop: float = math.inf
) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a stream that begin from byte ``start`` up to ``stop``, each with its byte.

    Line ends and a byte order mark are left out; None stands for a line of more than
    :data:`MAX_LINE` bytes. The stream is read from its beginning, or must be one that can seek.
    """
    position = start
    if start:
        stream.seek(start - 1)
        position += _skip_line(stream) - 1
    while position < stop and (line := stream.readline(MAX_LINE + 1)):
        length = len(line)
        if length > MAX_LINE:
            length += 0 if line.endswith(b"\n") else _skip_line(stream)
            yield position, None
        else:
            yield position, (line if position else line.removeprefix(MARK)).rstrip(b"\r\n")
        position += length


def _skip_line(stream: IO[bytes]) -> int:
    """Skip the rest of a line, and return its length."""
    length = 0
    while part := stream.readline(_BLOCK):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


def json_of(line: bytes | None) -> Any:
    """The value of a line. Raises ValueError, with the reason, for one that is not JSON."""
    if line is None:
        raise ValueError(TOO_LONG)
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        is_wide = line.startswith(_UTF_16)
        reason = "it is UTF-16: save the file as UTF-8" if is_wide else error.reason
        raise ValueError(f"not JSON: {reason}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {reason_of(error)}") from None


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The line numbers and values of a file of JSON Lines, which may be compressed.

    Empty lines are skipped. Raises RobustokError, which names the line, for a missing or damaged
    file.
    """
    number = 0
    try:
        with open_input(path) as stream:
            for number, (_, line) in enumerate(lines_of(stream), 1):
                if line is None or line.strip():
                    yield number, json_of(line)
    except ValueError as error:
        raise RobustokError(
            f"{path}:{number} is {error}: give a file of one JSON object a line"
        ) from None
    except FileNotFoundError:
        raise RobustokError(f"{path}: no such file") from None
    except DAMAGE as error:
        raise RobustokError(
            f"{path} cannot be read after line {number} ({damage_of(error)})"
        ) from None


def read_rows(path: Path) -> list[Any]:
    """The values of a file of JSON Lines."""
    return [value for _, value in json_lines(path)]
