"""Kernels that a wheel brings: loaded without a compilation where they fit, compiled where not."""

import shutil
from pathlib import Path

import pytest
from tests.compiler.conftest import Call, call_in_new_process

from robustok.kernels.compiler import cache

SOURCE = Path(cache.__file__).parents[2]
pytestmark = pytest.mark.skipif(
    cache.baseline() is None, reason="wheels have no kernels for this processor"
)


def call(package: Path, place: Path, **settings: str) -> Call:
    """Call a kernel of ``package`` in a new process."""
    return call_in_new_process(place, PYTHONPATH=str(package), **settings)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with one compiled kernel, as in the environment of a user."""
    folder = tmp_path_factory.mktemp("built")
    package = folder / "package"
    without = shutil.ignore_patterns("__pycache__", "machine_code")
    shutil.copytree(SOURCE, package / "robustok", ignore=without)
    settings = {"NUMBA_CPU_NAME": str(cache.baseline()), "NUMBA_CPU_FEATURES": ""}
    assert call(package, folder / "cache", **settings)[1:] == (False, 0, 1)
    kernels = package / "robustok" / "kernels" / cache.PACKAGED
    shutil.copytree(folder / "cache" / "robustok", kernels, ignore=shutil.ignore_patterns("*.lock"))
    return package


def test_a_kernel_of_the_wheel_is_loaded_and_no_file_is_written(
    built: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in built.rglob("*")}
    assert call(built, tmp_path / "user")[1:] == (True, 1, 0)
    assert not list(tmp_path.iterdir())
    assert {path: path.stat().st_mtime_ns for path in built.rglob("*")} == before


def test_an_altered_file_is_compiled_again(built: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(built, package)
    for file in (package / "robustok" / "kernels" / cache.PACKAGED).glob("*/*"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    assert call(package, tmp_path / "user")[1:] == (True, 0, 1)
    assert call(package, tmp_path / "user")[1:] == (True, 1, 0)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the kernels', with what a wheel brings for this environment."""
    folder = tmp_path / "kernels"
    (folder / "compiler").mkdir(parents=True)
    for source in ("walk.py", "compiler/cache.py"):
        (folder / source).write_text("x = 1\n")
    monkeypatch.setattr(cache, "_KERNELS", folder)
    name = cache._directory_name((str(cache.baseline()), ""))
    (folder / cache.PACKAGED / name).mkdir(parents=True)
    return folder


CHANGES = {
    "numba": ("numba.__version__", "0.68.999"),
    "llvmlite": ("llvmlite.__version__", "0.0.1"),
    "numpy": ("np.__version__", "2.999.0"),
    "python": ("sys.implementation.cache_tag", "another-3"),
    "system": ("binding.get_process_triple", lambda: "x86_64-another-system"),
    "processor": ("binding.get_host_cpu_features", dict),
    "processor that the user names": ("config.CPU_NAME", "x86-64"),
    "checked kernels": ("config.BOUNDSCHECK", 1),
    "vector library": ("config.USING_SVML", True),
}


@pytest.mark.parametrize("change", [*CHANGES, "walk.py", "compiler/cache.py"])
def test_kernels_of_another_environment_or_of_other_sources_are_not_taken(
    sources: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(cache.np, "__version__", cache.np.__version__ + ".1")  # a patch release
    assert cache.packaged_directory.__wrapped__() is not None
    if change in CHANGES:
        name, value = CHANGES[change]
        monkeypatch.setattr(f"robustok.kernels.compiler.cache.{name}", value)
    else:
        (sources / change).write_text("x = 2\n")
    assert cache.packaged_directory.__wrapped__() is None
