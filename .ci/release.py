"""Install a built wheel into empty environments, use it, and build wheels with machine code.

    python .ci/release.py build/dist [PYTHON ...]

Uses the given interpreters, by default the one that runs it and all newer ones on the PATH. In each
environment all kernels are
compiled for a processor whose code many others execute, and a second wheel is built with them
(`hatch_build.py`). Its first draws must compile nothing and write no file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

NEEDED = ("robustok/studies/quick.yaml", "robustok/play/page.html",
          "robustok/report/templates/report.html.jinja", "robustok/tokenizer/demo.json",
          "robustok/py.typed")  # fmt: skip
TOY = """
import sys, time
import robustok as rt
vocab = rt.Vocabulary.load("demo")
"""
CORE = f"""{TOY}
ids = rt.sampler("uniform-k(alpha=1)", vocab).sample("hello world", seed=0)
assert vocab.decode_bytes(ids) == b"hello world", ids
assert not {{"torch", "transformers"}} & set(sys.modules)
print("robustok", rt.__version__, "draws", ids.tolist())
"""
COMPILE = "from robustok.kernel_warmup import warmup; warmup()"
BASELINE = "from robustok.kernels.compiler.cache import baseline; print(baseline() or '')"
# The wheels of numba, which the machine code depends on, name the platforms.
TAGS = """
from importlib.metadata import distribution
tags = [line.split()[1] for line in distribution("numba").read_text("WHEEL").splitlines()
        if line.startswith("Tag:")]
print(tags[0].rpartition("-")[0] + "-" + ".".join(tag.rpartition("-")[2] for tag in tags))
"""
FIRST_DRAW = f"""{TOY}
sampler, ids = rt.sampler(sys.argv[1], vocab), vocab.encode("hello world")
start = time.process_time()
sampler.sample(ids, seed=0)
seconds = time.process_time() - start
print(sys.argv[1], "draws after", round(seconds, 2), "seconds of processor time")
assert "numba.np.arraymath" not in sys.modules, "a kernel was compiled"
"""
SPECS = ("stochastok", "uniform", "stochastok-uniform", "bpe-dropout", "uniform-k(alpha=1)")


def check_contents(dist: Path) -> tuple[Path, Path]:
    """Check the contents of both archives; returns the wheel for all systems and the source."""
    (wheel,), (source,) = dist.glob("*-none-any.whl"), dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in NEEDED if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    with tarfile.open(source) as archive:
        inside = archive.getnames()
    assert any(name.endswith("/CITATION.cff") for name in inside), "the source lacks CITATION.cff"
    return wheel, source


def pythons() -> list[str]:
    """This Python, and one working interpreter of each newer series."""
    interpreters = [sys.executable]
    for minor in range(sys.version_info.minor + 1, 20):
        name = f"python3.{minor}"
        places = [path for path in [shutil.which(name)] if path] + managed(name)
        works = next((path for path in places if runs(path)), None)
        if works:
            interpreters.append(works)
        elif places:
            print(f"{name} does not run: left out")
    return interpreters


def managed(name: str) -> list[str]:
    """Those that pyenv keeps, which its shims do not start unless one is chosen."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return []
    root = Path(subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip())
    return [str(path) for path in sorted(root.glob(f"versions/*/bin/{name}"), reverse=True)]


def runs(path: str) -> bool:
    return not subprocess.run([path, "--version"], capture_output=True).returncode


def smoke(python: str, wheel: Path, source: Path, folder: Path) -> None:
    run(python, "-m", "venv", str(folder / "venv"))
    binaries = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    interpreter = str(binaries / "python")
    # Without bytecode and a cache of packages, which fill a small disk.
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--no-cache-dir")
    install = (interpreter, "-m", "pip", "install", *options)
    run(*install, str(wheel))
    packages = run(interpreter, "-m", "pip", "list", "--format=freeze").lower()
    assert "torch" not in packages and "transformers" not in packages, packages
    print(run(interpreter, "-c", CORE).strip())
    processor = run(interpreter, "-c", BASELINE).strip()
    if processor:
        wheel = compiled_wheel(interpreter, processor, source, folder)
        print(wheel.name)
        run(*install, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
        check_first_draws(interpreter, folder / "user")
    command = str(binaries / "robustok")
    assert "finetune" in run(command, "--help")
    assert "quick" in run(command, "study", "list")


def compiled_wheel(python: str, processor: str, source: Path, folder: Path) -> Path:
    """A wheel with the kernels of the package that is installed for an interpreter.

    It is built from the archive, whose files have the same line ends on all systems.
    """
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (root,) = (folder / "source").iterdir()
    cache = folder / "cache"
    settings = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": ""}
    run(python, "-c", COMPILE, NUMBA_CACHE_DIR=str(cache), **settings)
    shutil.copytree(
        cache / "robustok", folder / "machine_code", ignore=shutil.ignore_patterns("*.lock")
    )
    run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist"),
        folder=root, ROBUSTOK_MACHINE_CODE=str(folder / "machine_code"),
        ROBUSTOK_WHEEL_TAG=run(python, "-c", TAGS).strip(),
    )  # fmt: skip
    (wheel,) = (folder / "dist").glob("*.whl")
    return Path(shutil.copy2(wheel, source.parent))


def check_first_draws(python: str, empty: Path) -> None:
    """Draw by every scheme, each in a new process of a user without files."""
    empty.mkdir()
    places = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "TMPDIR")
    settings = {name: str(empty / name) for name in places}
    (empty / "TMPDIR").mkdir()
    for spec in SPECS:
        print(run(python, "-B", "-c", FIRST_DRAW, spec, **settings).strip())
    written = [path for path in empty.rglob("*") if path.is_file()]
    assert not written, written


def run(*command: str, folder: Path | None = None, **settings: str) -> str:
    # Only the wheel is tested, so nothing of the checkout or of a shared folder may be imported.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment | settings,
            cwd=folder or empty,
        )  # fmt: skip
    assert not done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    built, archive = check_contents(Path(sys.argv[1]).resolve())
    for python in sys.argv[2:] or pythons():
        with tempfile.TemporaryDirectory() as empty:
            print(run(python, "--version").strip())
            smoke(python, built, archive, Path(empty))
