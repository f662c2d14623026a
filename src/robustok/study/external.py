"""Models, tokenizers and files outside a study, and the identity of their content in keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from robustok.errors import RobustokError
from robustok.files import sha256_of
from robustok.packaged import is_packaged, packaged_identity


@dataclass(frozen=True)
class External:
    """A hub name, a folder or a file: ``name`` opens it, ``identity`` enters the key of a cell.

    >>> External("org/model@1a2b", "org/model@1a2b").name
    'org/model@1a2b'
    """

    name: str
    identity: str


def external_file(path: str | Path, *, read: bool = True) -> External:
    """A file, identified by its content, or by its path if it is not read."""
    return External(str(path), _digest(Path(path)) if read else str(path))


def external_model(name: str, *, read: bool = True) -> External:
    """A model or tokenizer: one of the hub by its commit, a folder or file by its content.

    A packaged model, such as smollm2-135m, is identified by the digest of its weights.
    """
    if is_packaged(name):
        return External(name, packaged_identity(name))
    pinned = pinned_name(name, read=read)
    return External(pinned, _content_or_name(pinned))


def pinned_name(name: str, kind: str = "model", *, read: bool = True) -> str:
    """A hub name with its commit, so that another revision is another cell."""
    if not read:
        return name
    from robustok.models.hub import pinned

    return pinned(name, kind)


def _content_or_name(name: str) -> str:
    path = Path(name)
    if path.is_file():
        return _digest(path)
    if not path.is_dir():
        return name
    patterns = ("*.safetensors", "tokenizer.json", "config.json")
    digests = [_digest(file) for pattern in patterns for file in sorted(path.glob(pattern))]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)[:16]
    except OSError as error:
        raise RobustokError(f"{path} cannot be read: {error.strerror}") from None
