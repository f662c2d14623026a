"""Names of the hub, ``owner/name`` or ``owner/name@revision``, checked without a request."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from robustok.errors import RobustokError

_FILE_SUFFIXES = (".json", ".jsonl", ".model", ".safetensors", ".bin", ".pt", ".txt")


def split_revision(path_or_name: str | Path) -> tuple[str, str | None]:
    """The repository and the revision of a name; a path that exists has no revision.

    >>> split_revision("gpt2@main"), split_revision("gpt2")
    (('gpt2', 'main'), ('gpt2', None))
    """
    name = str(path_or_name)
    if "@" not in name or Path(name).exists():
        return name, None
    repository, _, revision = name.partition("@")
    return repository, revision or None


def check_hub_name(name: str, kind: str) -> None:
    """Raise RobustokError for a name that is a path, or that no repository of the hub can have.

    Asks no server. ``kind`` is what the caller loads, such as "model".

    >>> check_hub_name("openai-community/gpt2@main", "model")
    >>> try:
    ...     check_hub_name("./runs/model", "model")
    ... except RobustokError as error:
    ...     print(error)
    no file or folder './runs/model': give a model folder or a hub name
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repository, _ = split_revision(name)
    owner, slash, _ = repository.partition("/")
    is_path = repository.startswith((".", "/", "~")) or "\\" in repository
    if is_path or repository.count("/") > 1 or repository.endswith("/"):
        raise RobustokError(f"no file or folder '{name}': give a {kind} folder or a hub name")
    if slash and Path(owner).is_dir():
        raise RobustokError(
            f"no file or folder '{name}' ('{owner}' is a folder here): give a {kind} folder "
            "or a hub name"
        )
    if Path(name).is_file():
        raise RobustokError(f"'{name}' is a file and no {kind}: give a {kind} folder or a hub name")
    if repository.lower().endswith(_FILE_SUFFIXES):
        raise RobustokError(f"no file '{name}': give a {kind} file or folder, or a hub name")
    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise RobustokError(
            f"'{name}' is no file, no folder and no valid hub name: give a {kind} folder, or "
            "owner/name"
        ) from None


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


def hub_failure(error: BaseException) -> str:
    """Why a library could not load a hub name, in one line; names offline mode and a lost network.

    >>> hub_failure(OSError("config.json is damaged"))
    'config.json is damaged'
    """
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
