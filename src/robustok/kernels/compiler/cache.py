"""Directory of compiled kernels: one for each combination of what the machine code depends on.

The name of the directory holds a hash of all kernel sources and their place, the releases of
Python, numba and llvmlite, the processor and numba's settings. Numba checks only the file of the
kernel itself, and only after it has unpickled its index; with the hash, no process reads an index
of other sources. Many processes may use one directory, also on a shared file system: numba writes
every file under a temporary name and renames it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import llvmlite
import numba
from llvmlite import binding
from numba import config

from robustok.user_cache import user_cache

_KERNELS = files("robustok.kernels")  # their sources, also where they are in an archive
_PREFIX = "kernels-"
_KEPT = 8  # directories of other sources or settings that stay
_IN_USE = 24 * 3600  # seconds since the last start of a process that uses a directory
_PROBE = bytes(1 << 16)  # written to find out whether a directory, or its disk, is full
_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT",
    "CPU_NAME", "CPU_FEATURES")  # fmt: skip


@cache
def cache_directory() -> Path | None:
    """The directory that this process keeps compiled kernels in; None where none is writable.

    The first writable one of: a subdirectory of ``NUMBA_CACHE_DIR`` where that is set, or of the
    user's cache directory; and a private one among the temporary files. Directories of other
    sources that were not used for a day are removed, except for the newest.
    """
    name = _PREFIX + _fingerprint()
    for parent in _parents():
        directory = parent / name
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(parent)
            is_new = not directory.exists()
            directory.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(_PROBE)
            os.utime(directory)
        except OSError:
            continue
        if is_new:
            _remove_unused(parent)
        return directory
    return None


def kernels_are_cached() -> bool:
    """Whether an earlier process left compiled kernels."""
    directory = cache_directory()
    return directory is not None and any(directory.glob("*/*.nbi"))


def move_into(directory: Path, other: Path) -> None:
    """Move the compiled functions of another cache, of the same name, that this one lacks.

    A function is one index (.nbi) and a file for each signature (.nbc); the index moves last.
    """
    for index in other.glob("*/*.nbi"):
        target = directory / index.parent.name / index.name
        if target.exists():
            continue
        target.parent.mkdir(exist_ok=True)
        for data in index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"):
            data.replace(target.with_name(data.name))
        index.replace(target)


def _fingerprint() -> str:
    """A hash of everything that the machine code of the kernels depends on."""
    digest = hashlib.sha256()
    for folder in (_KERNELS, _KERNELS / "compiler"):
        sources = [f for f in folder.iterdir() if f.name.endswith(".py")]
        for source in sorted(sources, key=lambda f: f.name):
            name = f"{folder.name}/{source.name}"
            digest.update(f"{name}\0".encode() + source.read_bytes() + b"\0")
    features = binding.get_host_cpu_features().flatten()
    versions = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__)
    processor = (binding.get_process_triple(), binding.get_host_cpu_name(), features)
    settings = [getattr(config, name, None) for name in _SETTINGS]
    place = str(Path(__file__).parents[1])  # numba keeps the kernels of each installation apart
    digest.update(repr((versions, processor, settings, place)).encode())
    return digest.hexdigest()[:24]


def _parents() -> Iterator[Path]:
    """Directories that may hold the cache, the preferred one first."""
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / "robustok"
    else:
        yield user_cache()
    user = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    yield Path(tempfile.gettempdir()) / f"robustok{user}"


def _check_owner(parent: Path) -> None:
    """Raise OSError where another user can write to ``parent``: numba unpickles what is in it."""
    if not hasattr(os, "getuid"):  # Windows keeps the temporary files of a user private
        return
    status = parent.lstat()
    if parent.parent == Path(tempfile.gettempdir()) and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022
    ):
        raise PermissionError(f"{parent} belongs to another user")


def _remove_unused(parent: Path) -> None:
    """Remove all but the newest directories, unless they were used today."""
    try:
        used = {d: d.stat().st_mtime for d in parent.glob(f"{_PREFIX}*")}
    except OSError:  # another process removes them
        return
    for directory in sorted(used, key=lambda d: used[d], reverse=True)[_KEPT:]:
        if used[directory] < time.time() - _IN_USE:
            shutil.rmtree(directory, ignore_errors=True)
