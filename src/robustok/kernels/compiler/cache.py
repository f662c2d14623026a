"""Files of compiled kernels: one for each kernel and types of arguments, with a checksum.

The name of a cache directory is a hash of all that machine code depends on: the kernel sources, the
releases of Python, numba, llvmlite and numpy, the processor and numba's settings. A file starts
with the SHA-256 of the name of its directory, its own name and its content. Nothing is unpickled or
executed before that is verified, and neither a directory nor files are used to which another user
can write. What is missing, damaged or unsafe reads as None: the kernel is compiled again.

A wheel may bring the directory of `baseline`, a processor whose code many others execute. It is
read first, and never written. Its owner is not checked, as for the sources beside it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba import config

from robustok.runtime.environment import user_cache
from robustok.runtime.files import part_of

_X86_FEATURES = (
    "avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf",
    "sse3", "ssse3", "sse4.1", "sse4.2", "xsave",
)  # fmt: skip
# The architecture in LLVM's name of the system -> LLVM's name of the processor that wheels have
# kernels for, and the features that a processor needs to execute them.
_BASELINES = {
    "x86_64": ("x86-64-v3", _X86_FEATURES),
    "aarch64": ("generic", ()),
    "arm64": ("apple-m1", ()),  # Apple's name of aarch64; the oldest processor of such a Mac
}
PACKAGED = "machine_code"  # directory within `_KERNELS` of what a wheel brings
_KERNELS = files("robustok.kernels")  # their sources, also where they are in an archive
_PREFIX = "kernels-"
_KEPT = 8  # directories of other sources or settings that stay
_IN_USE = 24 * 3600  # seconds since the last start of a process that uses a directory
_PATIENCE = 120  # seconds to wait for another process; then both compile
_DIGEST_SIZE = hashlib.sha256().digest_size
_MAX_SIZE = 1 << 26  # of a file; the largest kernel takes 1 MB
_SETTINGS = (
    "BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "USING_SVML"
)  # fmt: skip
# Neither follow a symbolic link nor wait for the writer of a pipe; Windows has no such flags.
_READ_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def read(name: str) -> bytes | None:
    """The content of a file, or None where no directory has it whole."""
    packaged, directory = packaged_directory(), _directory()
    if packaged is not None:
        with suppress(OSError):
            content = _verified(packaged.name, name, (packaged / name).read_bytes())
            if content is not None:
                return content
    if directory is None:
        return None
    with suppress(OSError):
        _check_safe(directory)
        content = _verified(directory.name, name, _read_own(directory / name))
        if content is not None:
            with suppress(OSError):
                os.utime(directory)  # see `_remove_unused`
            return content
    return None


def write(name: str, content: bytes) -> None:
    """Keep ``content`` in the cache directory, if there is one and its disk is not full."""
    directory = cache_directory()
    if directory is not None:
        with suppress(OSError), part_of(directory / name) as part:
            part.touch(mode=0o600)
            part.write_bytes(_digest(directory.name, name, content) + content)


@contextmanager
def one_process(name: str) -> Iterator[None]:
    """Hold the lock of a file; without it where nothing can be written or locked.

    Processes that start at once would otherwise each compile the same kernels.
    """
    from filelock import FileLock

    directory = cache_directory()
    with ExitStack() as stack:
        if directory is not None:
            with suppress(OSError, NotImplementedError):  # a timeout is an OSError
                lock = FileLock(directory / f"{name}.lock", timeout=_PATIENCE)
                stack.enter_context(lock)
        yield


def cache_directory() -> Path | None:
    """The directory that compiled kernels are written to; None where it is not safe and writable.

    A subdirectory of ``NUMBA_CACHE_DIR`` where that is set, or else of the user's cache directory.
    """
    directory = _directory()
    if directory is not None:
        with suppress(OSError):
            _make(directory)
            if os.access(directory, os.W_OK):
                return directory
    return None


@cache
def packaged_directory() -> Traversable | None:
    """The directory of kernels that a wheel has brought for this environment, or None.

    Where the user names a processor, kernels are compiled for that.
    """
    is_named = (config.CPU_NAME, config.CPU_FEATURES) != (None, None)
    processor = baseline()
    if is_named or processor is None or not (_KERNELS / PACKAGED).is_dir():
        return None
    directory = _KERNELS / PACKAGED / _directory_name((processor, ""))
    return directory if directory.is_dir() else None


@cache
def _directory() -> Path | None:
    """The directory that may hold compiled kernels; it need not exist. None without a home."""
    with suppress(RuntimeError):
        parent = Path(config.CACHE_DIR) / "robustok" if config.CACHE_DIR else user_cache()
        return parent.absolute() / _directory_name(_processor())
    return None


def baseline() -> str | None:
    """LLVM's name of the processor that wheels have kernels for; None where this one is older."""
    architecture = binding.get_process_triple().partition("-")[0]
    name, needed = _BASELINES.get(architecture, (None, ()))
    features = binding.get_host_cpu_features()
    return name if all(features.get(feature, False) for feature in needed) else None


def _processor() -> tuple[str, str]:
    """LLVM's name and features of the processor that numba compiles for."""
    name = binding.get_host_cpu_name() if config.CPU_NAME is None else config.CPU_NAME
    if config.CPU_FEATURES is not None:
        return name, config.CPU_FEATURES
    return name, binding.get_host_cpu_features().flatten()


def _directory_name(processor: tuple[str, str]) -> str:
    """The name of a directory: a hash of everything that machine code of kernels depends on."""
    digest = hashlib.sha256()
    for folder in (_KERNELS, _KERNELS / "compiler"):
        sources = [f for f in folder.iterdir() if f.name.endswith(".py")]
        for source in sorted(sources, key=lambda f: f.name):
            name = f"{folder.name}/{source.name}"
            digest.update(f"{name}\0".encode() + source.read_bytes() + b"\0")
    python = (sys.implementation.cache_tag, getattr(sys, "abiflags", ""))
    numpy = np.__version__.split(".")[:2]  # what numba's implementations depend on
    versions = (*python, numba.__version__, llvmlite.__version__, *numpy)
    # The name of a Mac's system ends with its release. Code does not depend on that.
    system = re.sub(r"(?<=-darwin)[0-9.]+$", "", binding.get_process_triple())
    target = (system, *processor)
    settings = [getattr(config, name, None) for name in _SETTINGS]
    digest.update(repr((versions, target, settings)).encode())
    return _PREFIX + digest.hexdigest()[:24]


def _verified(directory: str, name: str, data: bytes) -> bytes | None:
    """The content of a file's bytes; None where they are not those that were written."""
    content = data[_DIGEST_SIZE:]
    return content if data[:_DIGEST_SIZE] == _digest(directory, name, content) else None


def _digest(directory: str, name: str, content: bytes) -> bytes:
    """The checksum of a file. With its name, a file in place of another one is damaged, too."""
    return hashlib.sha256(f"{directory}/{name}\0".encode() + content).digest()


def _make(directory: Path) -> None:
    """Make a directory for this user alone. Raises OSError where it cannot, or is not safe."""
    is_new = not directory.exists()
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    _check_safe(directory)
    if is_new:
        _remove_unused(directory.parent)


def _read_own(path: Path) -> bytes:
    """The bytes of a file that only this user can write. Raises OSError for any other."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _READ_FLAGS)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SIZE or _is_open(status):
            raise PermissionError(f"{path} is not a file of this user alone")
        return file.read()


def _check_safe(directory: Path) -> None:
    """Raise OSError where another user can write to a directory or put another in its place.

    Both ways to it are checked, with symbolic links and without. In a parent with the sticky bit,
    such as /tmp, others can make files and not replace those of this user.
    """
    real = Path(os.path.realpath(directory))
    for path in (directory, real):
        if _is_open(path.lstat()):
            raise PermissionError(f"others can write to {path}")
    for parent in {*directory.parents, *real.parents}:
        status = parent.lstat()
        if _is_open(status) and not (_is_trusted(status) and status.st_mode & stat.S_ISVTX):
            raise PermissionError(f"others can write to {parent}, so they can replace {directory}")


def _is_open(status: os.stat_result) -> bool:
    """Whether another user than root can write to a file, directory or symbolic link."""
    if not hasattr(os, "geteuid"):  # Windows keeps the files of a user private
        return False
    if not _is_trusted(status):
        return True
    if stat.S_ISLNK(status.st_mode):  # only its owner can change it
        return False
    by_group = status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid)
    return bool(by_group or status.st_mode & stat.S_IWOTH)


def _is_trusted(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid())


@cache
def _is_private(group: int) -> bool:
    """Whether a group is the one of this user's name and has no other member.

    Many systems give each user such a group, and make all files writable for it.
    """
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == user and set(members.gr_mem) <= {user}


def _remove_unused(parent: Path) -> None:
    """Remove all but the newest directories, unless they were used today."""
    try:
        used = {d: d.stat().st_mtime for d in parent.glob(f"{_PREFIX}*")}
    except OSError:  # another process removes them
        return
    for directory in sorted(used, key=lambda d: used[d], reverse=True)[_KEPT:]:
        if used[directory] < time.time() - _IN_USE:
            shutil.rmtree(directory, ignore_errors=True)
