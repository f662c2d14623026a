"""The current commit of a name of the hub."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from robustok.hub_names import split_revision
from robustok.packaged import is_packaged

_COMMIT = re.compile(r"[0-9a-f]{40}")


@lru_cache
def pinned(name: str, kind: str = "model") -> str:
    """A hub name with its present commit, ``owner/name@commit``; paths stay as they are.

    Asks the hub, or else its cache on this machine. The name comes back unchanged where neither
    knows it. ``kind`` is "model" or "dataset".
    """
    if Path(name).exists() or is_packaged(name):
        return name
    repository, revision = split_revision(name)
    if revision and _COMMIT.fullmatch(revision):
        return name
    commit = _commit_online(repository, revision, kind) or _commit_cached(
        repository, revision, kind
    )
    return f"{repository}@{commit}" if commit else name


def _commit_online(repository: str, revision: str | None, kind: str) -> str | None:
    from huggingface_hub import HfApi

    try:
        return HfApi().repo_info(repository, revision=revision, repo_type=kind, timeout=10).sha
    except Exception:  # the client raises many kinds; loading reports what is wrong
        return None


def _commit_cached(repository: str, revision: str | None, kind: str) -> str | None:
    """The commit that the cache has for a revision."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"{kind}s--{repository.replace('/', '--')}" / "refs"
    try:
        commit = (folder / (revision or "main")).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None
