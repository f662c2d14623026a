"""The files of compiled kernels: their owners, damage, full disks, what is removed, warmup."""

import hashlib
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import pytest
from tests.compiler.conftest import CODE, call_in_new_process
from tests.oracles.processes import run

from robustok import kernel_warmup, kernels
from robustok.kernels.compiler import cache

LOADED = """
import sys
import numpy as np
from numba.core.runtime import nrtdynmod
from robustok.kernels.batch import gather, split_at_fixed
from robustok.kernels.compiler.cache import cache_directory

slow, create = [], nrtdynmod.create_nrt_module
nrtdynmod.create_nrt_module = lambda context: slow.append("runtime") or create(context)

def print_slow():
    names = ("awkward", "scipy.linalg", "numba.np.arraymath")
    print(*slow, *[name for name in names if name in sys.modules])

texts = split_at_fixed(np.array([0, 2]), np.array([False, True]))
assert gather(np.array([7, 8], np.int32), texts)[0].tolist() == [7]
print(cache_directory())
print_slow()
offsets = np.array([0, 2], sys.argv[1])  # a type that the cache has not
assert split_at_fixed(offsets, np.array([False, True])).tolist() == texts.tolist()
assert sum(split_at_fixed.stats.cache_misses.values())
print_slow()
"""
CONTENT = bytes(range(64))
is_root = hasattr(os, "geteuid") and os.geteuid() == 0
needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no modes here")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the runtime and kernels: tests take a copy of it."""
    place = tmp_path_factory.mktemp("compiled")
    directory, compiling, _ = loaded_in_new_process(place, "int32")
    assert compiling.startswith("runtime ")
    return Path(directory)


def loaded_in_new_process(place: Path, new_type: str) -> list[str]:
    return run(LOADED, new_type, NUMBA_CACHE_DIR=str(place)).stdout.splitlines()


def copy_of(compiled: Path, place: Path) -> Path:
    """The same cache directory below ``place``, as a process would have made it there."""
    directory = place / "robustok" / compiled.name
    shutil.copytree(compiled, directory)
    for folder in (directory, directory.parent):
        folder.chmod(0o700)
    return directory


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only cache directory of this process, with a file ``kernel`` of `CONTENT`."""
    directory = tmp_path / "robustok" / "kernels-1"
    monkeypatch.setattr(cache, "_directory", lambda: directory)
    cache.write("kernel", CONTENT)
    assert cache.read("kernel") == CONTENT
    return directory


# Damage


def test_a_file_that_is_not_whole_reads_as_none(directory: Path) -> None:
    file = directory / "kernel"
    whole = file.read_bytes()
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        assert cache.read("kernel") is None, size
    file.write_bytes(whole + b"\0")
    assert cache.read("kernel") is None
    for bit in range(0, 8 * len(whole), 8 * len(whole) // 200):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        assert cache.read("kernel") is None, bit
    cache.write("kernel", CONTENT)
    assert cache.read("kernel") == CONTENT


def test_a_file_of_another_kernel_or_of_other_sources_reads_as_none(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write("other", CONTENT)
    (directory / "other").replace(directory / "kernel")
    assert cache.read("kernel") is None
    cache.write("kernel", CONTENT)
    moved = directory.rename(directory.with_name("kernels-2"))
    monkeypatch.setattr(cache, "_directory", lambda: moved)
    assert cache.read("kernel") is None


def test_a_file_that_is_no_file_reads_as_none(directory: Path) -> None:
    file = directory / "kernel"
    target = file.rename(directory / "elsewhere")
    file.symlink_to(target)
    assert cache.read("kernel") is None
    file.unlink()
    file.mkdir()
    assert cache.read("kernel") is None
    file.rmdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(file)
        assert cache.read("kernel") is None
    with (directory / "large").open("wb") as large:
        large.truncate(1 << 40)
    assert cache.read("large") is None


# Other users


def give_away(path: Path) -> None:
    os.chown(path, 12345, -1, follow_symlinks=False)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def open_to_group(path: Path) -> None:
    os.chown(path, -1, 12345)
    path.chmod(0o770)


@needs_owners
@pytest.mark.parametrize("part", ["kernels-1/kernel", "kernels-1", ".", ".."])
@pytest.mark.parametrize("change", [give_away, open_to_all, open_to_group])
def test_nothing_is_read_where_another_user_can_write(
    directory: Path, change: Callable[[Path], None], part: str
) -> None:
    if change is not open_to_all and not is_root:
        pytest.skip("only root can give files to others")
    change(directory.parent / part)
    assert cache.read("kernel") is None
    cache.write("kernel", b"new")
    if part == "kernels-1/kernel":
        assert cache.read("kernel") == b"new"
    else:
        assert cache.cache_directory() is None
        assert (directory / "kernel").read_bytes()[32:] == CONTENT


@needs_owners
def test_a_sticky_parent_is_safe_and_a_sticky_directory_is_not(directory: Path) -> None:
    directory.parent.parent.chmod(0o1777)
    assert cache.read("kernel") == CONTENT
    directory.chmod(0o1777)
    assert cache.read("kernel") is None


@needs_owners
def test_the_target_of_a_symbolic_link_is_checked(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory.parent, target_is_directory=True)
    linked = link / directory.name
    monkeypatch.setattr(cache, "_directory", lambda: linked)
    assert cache.read("kernel") == CONTENT
    directory.chmod(0o777)
    assert cache.read("kernel") is None
    directory.chmod(0o700)
    if is_root:
        give_away(link)
        assert cache.read("kernel") is None


@needs_owners
@pytest.mark.parametrize(
    ("name", "members", "is_private"),
    [
        ("user", [], True),
        ("user", ["user"], True),
        ("user", ["user", "other"], False),
        ("staff", [], False),  # all users of a Mac share this group, which lists no members
    ],
)
def test_a_group_of_this_user_alone_may_write(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    members: list[str],
    is_private: bool,
) -> None:
    import grp
    import pwd

    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("user", *"x" * 6)))
    monkeypatch.setattr(grp, "getgrgid", lambda group: grp.struct_group((name, "", group, members)))
    monkeypatch.setattr(cache, "_is_private", cache._is_private.__wrapped__)
    directory.parent.chmod(0o770)
    assert cache.read("kernel") == (CONTENT if is_private else None)


class Foreign:
    """Pickles to a call that leaves a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.mkdir, (str(self.trace),)


@needs_owners
def test_a_pickle_with_a_checksum_where_others_can_write_is_not_executed(
    tmp_path: Path, compiled: Path
) -> None:
    (place := tmp_path / "place").mkdir()
    directory = copy_of(compiled, place)
    for file in directory.iterdir():
        content = pickle.dumps(Foreign(tmp_path / "executed"))
        name = f"{directory.name}/{file.name}\0".encode()
        file.write_bytes(hashlib.sha256(name + content).digest() + content)
    place.chmod(0o777)
    assert call_in_new_process(place).compiled == 1
    assert not (tmp_path / "executed").exists()


# Disks


FULL = """
import resource, runpy, sys
size = int(sys.argv.pop())
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
""" + CODE  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_a_disk_that_fills_while_kernels_compile_costs_time_only(tmp_path: Path) -> None:
    for size in (0, 7_000):
        call = call_in_new_process(tmp_path, FULL, str(size))
        assert call.compiled
        assert not list(tmp_path.glob("**/*.part"))
    assert call_in_new_process(tmp_path).compiled
    assert call_in_new_process(tmp_path).loaded


# File permissions do not bind root; in /proc nobody can make a directory.
READ_ONLY = """
import importlib, pkgutil
import robustok as rt, robustok.kernels
from robustok.kernels.compiler import dispatcher
from tokenizers import Tokenizer, models

dispatcher.DELAY = 0  # also a fast processor prints the message
for module in pkgutil.iter_modules(robustok.kernels.__path__):
    importlib.import_module(f"robustok.kernels.{module.name}")
vocab = rt.Vocabulary.load(Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])))
print(rt.StochasTok(vocab, alpha=1).sample([2], seed=0).tolist())
"""


def test_kernels_compile_in_memory_where_nothing_is_writable() -> None:
    done = run(READ_ONLY, NUMBA_CACHE_DIR="/proc/none")
    assert done.stdout == "[0, 1]\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("robustok: compiling ") and " in memory, in every process" in line
    assert "NUMBA_CACHE_DIR" in line


# Places


def test_a_user_without_a_home_has_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory")

    monkeypatch.setattr(cache.config, "CACHE_DIR", "")
    monkeypatch.setattr(cache, "user_cache", homeless)
    assert cache._directory.__wrapped__() is None


def test_directories_unused_for_a_day_are_removed_except_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    for days in range(12):
        old = tmp_path / "robustok" / f"kernels-{days}"
        old.mkdir(parents=True)
        os.utime(old, (now - days * 86_400, now - days * 86_400))
    (tmp_path / "robustok" / "other").mkdir()
    directory = tmp_path / "robustok" / "kernels-new"
    monkeypatch.setattr(cache, "_directory", lambda: directory)
    assert cache.cache_directory() == directory
    left = {p.name for p in (tmp_path / "robustok").iterdir()}
    assert left == {"other", directory.name, *(f"kernels-{days}" for days in range(7))}


# Loading


def test_a_cached_kernel_is_loaded_without_the_compiler(tmp_path: Path, compiled: Path) -> None:
    """numba imports its compiler for any call, and the extensions of all packages; both are slow.

    A new type after that is compiled all the same, with the compiler, and is linked with the
    runtime that was loaded.
    """
    copy_of(compiled, tmp_path)
    _, loading, compiling = loaded_in_new_process(tmp_path, "int16")
    assert loading == ""
    assert "numba.np.arraymath" in compiling and "runtime" not in compiling


# Processes


def test_of_processes_that_start_at_once_one_compiles(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = list(pool.map(call_in_new_process, [tmp_path] * 2))
    assert sorted(call.compiled for call in calls) == [0, 1]


@pytest.mark.parametrize("error", [filelock.Timeout("kernel.lock"), NotImplementedError("flock")])
def test_a_lock_that_another_process_keeps_or_no_system_gives_is_passed_over(
    directory: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(filelock.FileLock, "acquire", fail)
    with cache.one_process("kernel"):
        cache.write("kernel", b"new")
    assert cache.read("kernel") == b"new"


def test_a_warmup_in_processes_leaves_their_kernels_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_warmup, "_WORKER", CODE)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    kernel_warmup._compile_in_processes(["uniform", "others"], 2)
    assert call_in_new_process(tmp_path).loaded


WARM = """
import importlib, pkgutil, robustok.kernels as kernels
from robustok.kernel_warmup import warmup
warmup()
for module in pkgutil.iter_modules(kernels.__path__):
    for name, kernel in vars(importlib.import_module(f"robustok.kernels.{module.name}")).items():
        if hasattr(kernel, "signatures") and kernel.py_func.__module__.endswith(module.name):
            print(name, len(kernel.signatures))
"""


def test_warmup_leaves_no_kernel_to_compile_later() -> None:
    source = "".join(p.read_text() for p in Path(kernels.__path__[0]).glob("*.py"))
    compiled = dict(line.split() for line in run(WARM).stdout.splitlines())
    # Compiled with their callers, and loaded with them, are those that another kernel calls.
    outermost = {n for n in compiled if len(re.findall(rf"\b{n}\(", source)) == 1}
    assert len(outermost) > 15
    assert {n for n in outermost if compiled[n] == "0"} == set()
    # Without the code of rare cases, and with it.
    for name in ("draw_uniform_k", "draw_stochastok_uniform"):
        assert compiled[name] == "2", name
