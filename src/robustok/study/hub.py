"""Checks that the hub still has what the studies name: one row of a data set, one configuration.

Every name has its commit, so that a data set that changes does not change a result. A tokenizer and
a configuration are small; the weights of a model are not downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from robustok.errors import RobustokError
from robustok.hub_names import hub_failure
from robustok.packaged import is_packaged
from robustok.study.catalog import find_study, studies
from robustok.study.text import HubText
from robustok.tasks import HUB, read_items


class HubName(NamedTuple):
    """Something of the hub that a study needs: its kind, its name, and the studies."""

    kind: str
    name: str
    studies: tuple[str, ...]


def hub_names() -> list[HubName]:
    """All that the studies at full scale read from the hub, each once.

    >>> sorted({entry.kind for entry in hub_names()})
    ['benchmark', 'model', 'text', 'tokenizer']
    """
    needed: dict[tuple[str, str], list[str]] = {}
    for name in studies():
        for kind, of_hub in _names_of(name):
            needed.setdefault((kind, of_hub), []).append(name)
    return [HubName(kind, name, tuple(users)) for (kind, name), users in sorted(needed.items())]


def _names_of(name: str) -> Iterator[tuple[str, str]]:
    study = find_study(name)
    model = study.model.name
    if model is not None and not is_packaged(model):
        yield "model", model
        if study.tokenizer is None:
            yield "tokenizer", model
    if study.tokenizer is not None and study.tokenizer.name is not None:
        yield "tokenizer", study.tokenizer.name
    if study.corpus is not None and study.corpus.hub is not None:
        yield "text", study.corpus.hub
    if study.benchmarks is not None:
        yield from (("benchmark", benchmark) for benchmark in study.benchmarks.names)


def open_on_hub(entry: HubName) -> str | None:
    """Open one row, tokenizer or configuration; what is wrong in one line, or None.

    Args:
        entry: one of :func:`hub_names`.
    """
    try:
        _OPEN[entry.kind](entry.name)
    except Exception as error:  # the hub's libraries raise many kinds, all with the same meaning
        return str(error) if isinstance(error, RobustokError) else hub_failure(error)
    return None


def _open_model(name: str) -> None:
    from robustok.models.load import load_config

    load_config(name)


def _open_tokenizer(name: str) -> None:
    from robustok.vocabulary import Vocabulary

    Vocabulary.load(name)


def _open_text(name: str) -> None:
    if not next(HubText(None, 1, name).held_out(), ""):
        raise RobustokError(f"{name} has no text in its first row")


def _open_benchmark(name: str) -> None:
    read_items(name, limit=1)
    if isinstance(HUB[name].config, str):  # its examples
        read_items(name, limit=1, split="train")


_OPEN: dict[str, Callable[[str], None]] = {
    "model": _open_model,
    "tokenizer": _open_tokenizer,
    "text": _open_text,
    "benchmark": _open_benchmark,
}
