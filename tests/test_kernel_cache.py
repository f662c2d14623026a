"""The directory of compiled kernels: its name, its place, and what is removed from it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from robustok import kernel_warmup
from robustok.kernels.compiler import cache, first_use

CODE = """
import numpy as np
from robustok.kernels.batch import split_at_fixed
from robustok.kernels.compiler.cache import cache_directory

assert split_at_fixed(np.array([0, 2]), np.array([False, True])).tolist() == [[0, 0, 0, 1]]
calls = split_at_fixed.stats
print(cache_directory(), sum(calls.cache_hits.values()), sum(calls.cache_misses.values()))
"""


def call_in_new_process(place: Path, **settings: str) -> tuple[Path, int, int]:
    """The cache directory of a new process, and whether it loaded or compiled its kernel."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(place), **settings}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    directory, hits, misses = done.stdout.split()
    return Path(directory), int(hits), int(misses)


def test_a_stale_index_beside_the_kernels_is_not_read(tmp_path: Path) -> None:
    """Numba unpickles an index before it checks its age, which fails for a class that is gone."""
    directory, hits, misses = call_in_new_process(tmp_path)
    assert (hits, misses) == (0, 1)
    assert directory.parent == tmp_path / "robustok"
    assert call_in_new_process(tmp_path) == (directory, 1, 0)
    for index in directory.glob("*/*.nbi"):  # an index of other sources
        index.write_bytes(b"not a pickle")
    stale = directory.rename(directory.with_name("kernels-of-other-sources"))
    assert call_in_new_process(tmp_path)[1:] == (0, 1)
    assert stale.exists()


def test_checked_kernels_have_a_directory_of_their_own(tmp_path: Path) -> None:
    plain, _, _ = call_in_new_process(tmp_path)
    checked, _, misses = call_in_new_process(tmp_path, NUMBA_BOUNDSCHECK="1")
    assert plain != checked and misses == 1


LOADED = """
import sys
import numpy as np
from robustok.kernels.batch import gather, split_at_fixed

texts = split_at_fixed(np.array([0, 2]), np.array([False, True]))
assert gather(np.array([7, 8], np.int32), texts)[0].tolist() == [7]
slow = ("awkward", "scipy.linalg", "numba.np.arraymath")
print([name for name in slow if name in sys.modules])
offsets = np.array([0, 2], sys.argv[1])  # a type that no cache has
assert split_at_fixed(offsets, np.array([False, True])).tolist() == texts.tolist()
assert sum(split_at_fixed.stats.cache_misses.values())
"""


def test_a_cached_kernel_is_loaded_without_the_compiler(tmp_path: Path) -> None:
    """numba imports its compiler for any call, and the extensions of all packages; both are slow.

    A new type after that is compiled all the same.
    """
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", LOADED]
    first, second = (
        subprocess.run([*command, t], capture_output=True, text=True, check=True, env=env).stdout
        for t in ("int32", "int16")
    )
    assert "numba.np.arraymath" in first
    assert second.strip() == "[]"


RUNTIME = """
import numpy as np
from llvmlite import binding
from numba.core.runtime import nrtdynmod, rtsys
from robustok.kernels.batch import gather, split_at_fixed

compiled, create = [], nrtdynmod.create_nrt_module
nrtdynmod.create_nrt_module = lambda context: compiled.append(1) or create(context)
texts = split_at_fixed(np.array([0, 2]), np.array([False, True]))
print(len(compiled))
kernel = split_at_fixed.overloads[split_at_fixed.signatures[0]].library
assert (kernel._shared_module is None) == (not compiled)
assert rtsys.library._get_module_for_linking().get_function("NRT_incref")
assert gather(np.array([7, 8], np.int32), texts)[0].tolist() == [7]
"""


def test_the_runtime_and_the_code_for_inlining_are_not_compiled_again(tmp_path: Path) -> None:
    """The runtime stays linkable: a kernel that is compiled later is linked with it."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", RUNTIME]
    outputs = []
    for _ in range(3):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env)
        outputs.append(done.stdout.strip())
        for file in tmp_path.glob("robustok/*/*/batch.gather*"):
            file.unlink()  # so that the next process compiles it
    assert outputs == ["1", "0", "0"]
    (runtime,) = tmp_path.glob("robustok/*/runtime.pickle")
    runtime.write_bytes(b"")
    subprocess.run([sys.executable, "-c", CODE], check=True, env=env, stdout=subprocess.DEVNULL)
    assert runtime.stat().st_size


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files in place of those of the kernels, whose hash is taken instead of the real one."""
    folder = tmp_path / "sources"
    (folder / "compiler").mkdir(parents=True)
    for name in ("called.py", "caller.py", "compiler/jit.py"):
        (folder / name).write_text("x = 1\n")
    monkeypatch.setattr(cache, "_KERNELS", folder)
    return folder


@pytest.mark.parametrize("name", ["called.py", "compiler/jit.py"])
def test_the_name_depends_on_every_source(sources: Path, name: str) -> None:
    before = cache._fingerprint()
    assert before == cache._fingerprint()
    (sources / name).write_text("x = 2\n")
    assert cache._fingerprint() != before


def test_the_name_depends_on_the_processor(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache._fingerprint()
    monkeypatch.setattr(cache.binding, "get_host_cpu_name", lambda: "another")
    assert cache._fingerprint() != before


def test_a_directory_that_cannot_be_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.config, "CACHE_DIR", "/proc/none")
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    directory = cache.cache_directory.__wrapped__()
    assert directory is not None and directory.parent.parent == tmp_path
    assert directory.parent.stat().st_mode & 0o777 == 0o700


def test_a_temporary_directory_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.config, "CACHE_DIR", "/proc/none")
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    open_to_all = next(p for p in cache._parents() if p.parent == tmp_path)
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert cache.cache_directory.__wrapped__() is None


def test_directories_unused_for_a_day_are_removed_except_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.config, "CACHE_DIR", str(tmp_path))
    now = time.time()
    for days in range(12):
        old = tmp_path / "robustok" / f"kernels-{days}"
        old.mkdir(parents=True)
        os.utime(old, (now - days * 86_400, now - days * 86_400))
    (tmp_path / "robustok" / "other").mkdir()
    directory = cache.cache_directory.__wrapped__()
    assert directory is not None
    left = {p.name for p in (tmp_path / "robustok").iterdir()}
    assert left == {"other", directory.name, *(f"kernels-{days}" for days in range(7))}


FIRST_USE = """
import numpy as np
from robustok.kernels.batch import split_at_fixed
from robustok.kernels.compiler.first_use import first_use

input()  # all processes start at once
with first_use("texts"):
    split_at_fixed(np.array([0, 2]), np.array([False, True]))
print(sum(split_at_fixed.stats.cache_misses.values()))
"""


def test_of_processes_that_start_at_once_one_compiles(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_USE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
            text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    misses = [int(process.communicate()[0]) for process in processes]
    assert sorted(misses) == [0, 0, 1]


def test_a_compilation_within_another_does_not_wait_for_it(tmp_path: Path) -> None:
    with first_use.one_process(tmp_path), first_use.one_process(tmp_path):
        lock = FileLock(tmp_path / "compiling.lock", blocking=False)
        with pytest.raises(Timeout):
            lock.acquire()
    with lock:
        pass


def test_a_warmup_in_processes_leaves_their_kernels_in_one_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_warmup, "_WORKER", CODE)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    directory = tmp_path / "robustok" / cache.cache_directory().name  # type: ignore[union-attr]
    directory.mkdir(parents=True)
    kernel_warmup._compile_in_processes(["uniform", "others"], 2, directory)
    assert {p.name for p in directory.iterdir() if p.name.startswith("tmp")} == set()
    assert call_in_new_process(tmp_path) == (directory, 1, 0)
