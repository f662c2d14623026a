"""Checks that the hub still has what the studies name: one row of a data set, one configuration.

Every name has its commit, so that a data set that changes does not change a result. A tokenizer and
a configuration are small; the weights of a model are not downloaded.
"""

from __future__ import annotations

from typing import NamedTuple

from robustok.errors import RobustokError
from robustok.models.load import load_config
from robustok.runtime.hub import hub_failure
from robustok.study.cells.base import Cell
from robustok.study.cells.inputs import BenchmarkCell, CorpusCell, ExistingTokenizerCell
from robustok.study.cells.models import BaseCell
from robustok.study.config import find_study, studies
from robustok.study.planner import plan
from robustok.study.sources import HubText
from robustok.tasks import HUB, read_items
from robustok.tokenizer.vocabulary import Vocabulary


class HubName(NamedTuple):
    """Something of the hub that a study needs: its kind, its name, and the studies."""

    kind: str
    name: str
    studies: tuple[str, ...]


_KINDS: dict[type[Cell], str] = {
    BaseCell: "model",
    ExistingTokenizerCell: "tokenizer",
    CorpusCell: "text",
    BenchmarkCell: "benchmark",
}


def hub_names() -> list[HubName]:
    """All that the studies at full scale read from the hub, each once.

    >>> sorted({entry.kind for entry in hub_names()})
    ['benchmark', 'model', 'text', 'tokenizer']
    """
    users: dict[tuple[str, str], dict[str, None]] = {}
    for study in studies():
        for cell in plan(find_study(study), read=False):
            for name in cell.hub_names:
                name = cell.name if isinstance(cell, BenchmarkCell) else name
                users.setdefault((_KINDS[type(cell)], name), {})[study] = None
    return [HubName(kind, name, tuple(own)) for (kind, name), own in sorted(users.items())]


def open_on_hub(entry: HubName) -> str | None:
    """Open one row, tokenizer or configuration; what is wrong in one line, or None.

    Args:
        entry: one of :func:`hub_names`.
    """
    kind, name, _ = entry
    try:
        if kind == "model":
            load_config(name)
        elif kind == "tokenizer":
            Vocabulary.load(name)
        elif kind == "benchmark":
            read_items(name, limit=1)
            if isinstance(HUB[name].config, str):  # its examples
                read_items(name, limit=1, split="train")
        elif not next(HubText(None, 1, name).held_out(), ""):
            return f"{name} has no text in its first row"
    except Exception as error:  # the hub's libraries raise many kinds, all with the same meaning
        return str(error) if isinstance(error, RobustokError) else hub_failure(error)
    return None
