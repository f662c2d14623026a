"""Install a built wheel into empty environments and use it.

    python .ci/release.py build/dist

Uses the Python that runs it and all newer ones on the PATH.
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
          "robustok/report/templates/report.html.jinja", "robustok/py.typed")  # fmt: skip
CORE = """
import sys, robustok as rt
from tokenizers import Tokenizer, models, pre_tokenizers, trainers, decoders
t = Tokenizer(models.BPE()); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.decoder = decoders.ByteLevel()
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
t.train_from_iterator(["hello world"] * 9, trainers.BpeTrainer(
    vocab_size=270, initial_alphabet=alphabet, show_progress=False))
vocab = rt.Vocabulary.load(t)
ids = rt.sampler("uniform-k(alpha=1)", vocab).sample("hello world", seed=0)
assert vocab.decode_bytes(ids) == b"hello world", ids
assert not {"torch", "transformers"} & set(sys.modules)
print("robustok", rt.__version__, "draws", ids.tolist())
"""


def check_contents(dist: Path) -> Path:
    """Check the contents of both archives; returns the wheel."""
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in NEEDED if name not in names]
    assert not missing, f"the wheel lacks {missing}"
    with tarfile.open(source) as archive:
        inside = archive.getnames()
    assert any(name.endswith("/CITATION.cff") for name in inside), "the source lacks CITATION.cff"
    return wheel


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


def smoke(python: str, wheel: Path, folder: Path) -> None:
    run(python, "-m", "venv", str(folder))
    interpreter = str(folder / "bin" / "python")
    run(interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    packages = run(interpreter, "-m", "pip", "list", "--format=freeze").lower()
    assert "torch" not in packages and "transformers" not in packages, packages
    print(run(interpreter, "-c", CORE).strip())
    extras = f"{wheel}[cli,study,report]"
    run(interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", extras)
    command = str(folder / "bin" / "robustok")
    assert "finetune" in run(command, "--help")
    assert "quick" in run(command, "study", "list")


def run(*command: str) -> str:
    # Only the wheel is tested, so nothing of the checkout may be imported.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tempfile.gettempdir()
    )
    assert not done.returncode, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    built = check_contents(Path(sys.argv[1]).resolve())
    for python in pythons():
        with tempfile.TemporaryDirectory() as empty:
            print(run(python, "--version").strip())
            smoke(python, built, Path(empty) / "venv")
