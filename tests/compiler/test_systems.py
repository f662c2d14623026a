"""What the cache of kernels and its wheels do on other systems: names are those of LLVM there."""

import os
import sys
from pathlib import Path

import pytest
from llvmlite import binding
from tests.oracles.processes import run

import robustok as rt
from robustok.kernels.compiler import cache
from robustok.runtime.environment import user_cache

LINUX, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
MAC, WINDOWS = "arm64-apple-darwin23.6.0", "x86_64-pc-windows-msvc"


def pretend(monkeypatch: pytest.MonkeyPatch, triple: str, *features: str) -> None:
    monkeypatch.setattr(cache.binding, "get_process_triple", lambda: triple)
    monkeypatch.setattr(cache.binding, "get_host_cpu_features", lambda: dict.fromkeys(features, 1))


@pytest.mark.parametrize(
    ("triple", "features", "processor"),
    [
        (LINUX, cache._X86_FEATURES, "x86-64-v3"),
        (WINDOWS, cache._X86_FEATURES, "x86-64-v3"),
        (WINDOWS, ("sse3", "ssse3"), None),
        ("x86_64-apple-darwin23.6.0", ("sse3",), None),  # an emulated processor
        (ARM, (), "generic"),
        (MAC, (), "apple-m1"),
        ("powerpc64le-unknown-linux-gnu", (), None),
    ],
)
def test_each_architecture_has_a_processor_that_others_execute(
    monkeypatch: pytest.MonkeyPatch, triple: str, features: tuple[str, ...], processor: str | None
) -> None:
    pretend(monkeypatch, triple, *features)
    assert cache.baseline() == processor


def test_llvm_knows_the_processors_of_wheels(capfd: pytest.CaptureFixture) -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    for triple in (LINUX, ARM, MAC, WINDOWS):
        name, _ = cache._BASELINES[triple.partition("-")[0]]
        machine = binding.Target.from_triple(triple).create_target_machine(cpu=name)
        code = f'target triple = "{triple}"\ndefine void @f() {{\n  ret void\n}}'
        assert machine.emit_object(binding.parse_assembly(code))
    assert "not a recognized processor" not in capfd.readouterr().err


def test_code_of_a_mac_is_for_all_releases_of_its_system(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {}
    for triple in (MAC, "arm64-apple-darwin24.1.0", "arm64-apple-darwin", ARM, LINUX, WINDOWS):
        pretend(monkeypatch, triple)
        names[triple] = cache._directory_name(("generic", ""))
    assert len(set(names.values())) == 4
    assert names[MAC] == names["arm64-apple-darwin24.1.0"] == names["arm64-apple-darwin"]


@pytest.mark.parametrize(
    ("system", "variable", "directory"),
    [
        ("win32", "LOCALAPPDATA", "robustok"),
        ("darwin", "HOME", "Library/Caches/robustok"),
        ("linux", "HOME", ".cache/robustok"),
        ("win32", "XDG_CACHE_HOME", "robustok"),
    ],
)
def test_the_cache_is_where_the_system_keeps_those_of_a_user(
    monkeypatch: pytest.MonkeyPatch, system: str, variable: str, directory: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, "/user")
    assert user_cache() == Path("/user", directory)


def test_the_cache_works_without_owners_and_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "robustok" / "kernels-1"
    monkeypatch.setattr(cache, "_directory", lambda: directory)
    monkeypatch.delattr(os, "geteuid", raising=False)
    cache.write("kernel", b"code")
    directory.chmod(0o777)  # as Windows reports every directory
    assert cache.read("kernel") == b"code"


# A process without what Windows has not. Other packages are imported before that.
ON_WINDOWS = """
import ctypes, importlib, multiprocessing, os, pkgutil, select, signal, sys
import multiprocessing.heap, multiprocessing.connection, filelock, numba, numpy, tokenizers, click
import numba.core.registry, numba.np.ufunc

for name in ("fcntl", "grp", "pwd", "resource", "termios", "pty"):
    sys.modules[name] = None
for owner, names in (
    (os, "fork forkpty register_at_fork sched_getaffinity getuid geteuid getgid fchmod fchown "
         "O_NOFOLLOW mkfifo statvfs uname killpg sysconf getloadavg wait4 pread"),
    (signal, "SIGKILL SIGHUP SIGALRM SIGUSR1 SIGPIPE SIGQUIT"),
    (select, "poll epoll"),
):
    for name in names.split():
        if hasattr(owner, name):
            delattr(owner, name)
sys.platform = "win32"
library = ctypes.CDLL

def load(name, *arguments, **options):
    if name is None:
        raise TypeError("LoadLibrary() argument 1 must be str, not None")
    return library(name, *arguments, **options)

ctypes.CDLL = load
import robustok as rt
import robustok.cli.app
for package in ("runtime", "kernels", "lattice", "tokenizer", "samplers", "guard", "corpus"):
    for module in pkgutil.walk_packages([f"{rt.__path__[0]}/{package}"], f"robustok.{package}."):
        importlib.import_module(module.name)
vocab = rt.Vocabulary.load("demo")
ids = rt.sampler("stochastok(alpha=1)", vocab).sample("hello world", seed=0)
print(ids.tolist(), rt.Guard(vocab).check(ids).canonical)
"""


def test_the_package_imports_and_draws_without_what_windows_has_not() -> None:
    vocab = rt.Vocabulary.load("demo")
    ids = rt.sampler("stochastok(alpha=1)", vocab).sample("hello world", seed=0)
    canonical = rt.Guard(vocab).check(ids).canonical
    # Kernels come from the cache of this process. A compilation would import parts of numba and of
    # its extensions that read the name of the system.
    done = run(ON_WINDOWS)
    assert done.stdout == f"{ids.tolist()} {canonical}\n"
