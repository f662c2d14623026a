"""A study's text: documents from files or the hub, kept as canonical ids that are mapped, not read.

Training goes through the ids in any order, so they lie in one flat file; memory stays small
whatever the corpus.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.files import write_json
from robustok.ragged import Ragged
from robustok.tasks import read_texts

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

LEARNED = 20_000_000  # characters of text that a tokenizer is learned from
_CHUNK = 1_000


def learned_from(fields: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[str]:
    """The documents that a tokenizer is trained on: the first of them."""
    seen = 0
    for text in _documents(fields, files):
        yield text
        seen += len(text)
        if seen >= LEARNED:
            return


def write_corpus(
    fields: Mapping[str, Any],
    files: Mapping[str, Any],
    vocab: Vocabulary,
    folder: Path,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Write the ids of the training text, and the documents held out; returns how much there is."""
    offsets = [0]
    texts = _documents(fields, files)
    with (folder / "ids.bin").open("wb") as out:
        while chunk := list(itertools.islice(texts, _CHUNK)):
            rows = vocab.encode_batch(chunk)
            out.write(np.ascontiguousarray(rows.values).data)
            offsets += (offsets[-1] + rows.offsets[1:]).tolist()
            progress(len(offsets), fields["documents"] or 2 * len(offsets))
    np.save(folder / "offsets.npy", np.array(offsets, np.int64), allow_pickle=False)
    held = list(itertools.islice(_held_out(fields, files), fields["measured"]))
    write_json(folder / "held_out.json", held)
    return {"documents": len(offsets) - 1, "tokens": offsets[-1], "held_out": len(held)}


def read_corpus(folder: Path) -> Ragged:
    """The ids that :func:`write_corpus` wrote, mapped from the disk."""
    offsets = np.load(folder / "offsets.npy", allow_pickle=False)
    return Ragged(np.memmap(folder / "ids.bin", np.int32, "r"), offsets)


def _documents(fields: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[str]:
    if "hub" in fields:
        texts = _from_hub(fields["hub"], after=fields["measured"])
    else:
        texts = read_texts(files["train"], sample_by=fields["sample_by"])
    return itertools.islice(texts, fields["documents"])


def _held_out(fields: Mapping[str, Any], files: Mapping[str, Any]) -> Iterator[str]:
    if "hub" in fields:
        return _from_hub(fields["hub"], after=0)
    if not files["held_out"]:
        return iter(())
    return read_texts(files["held_out"], sample_by=fields["sample_by"])


def _from_hub(name: str, *, after: int) -> Iterator[str]:
    """A data set of the hub, streamed. Its first documents are the ones held out."""
    from datasets import load_dataset

    from robustok.models.hub import split_revision

    repository, revision = split_revision(name)
    rows = load_dataset(repository, revision=revision, split="train", streaming=True).skip(after)
    return (row["text"] for row in rows)
