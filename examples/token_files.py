"""Write the packed shards of `robustok corpus` as data sets of Megatron-LM or nanotron.

    robustok corpus texts.jsonl shards -t tokenizer.json -s "uniform-k(alpha=0.5)" --seed 0 \
        --format packed
    python examples/token_files.py shards out --tokenizer tokenizer.json --format megatron

For each shard and draw:

- `megatron`: `.bin` and `.idx`, the indexed data set of Megatron-LM, which
  `megatron.core.datasets.indexed_dataset` reads. Each document is a sequence.
- `nanotron`: `.ds`, `.ds.index` and `.ds.metadata`, the token files of datatrove.

A document ends with the end token that the packed shard has. Ids take two bytes where the
vocabulary allows it. Equal shards give equal files.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

import numpy as np

import robustok as rt

# The largest vocabularies whose ids take two bytes, as each reader expects it.
UINT16 = {"megatron": 65499, "nanotron": 65536}
MEGATRON_CODES = {"<u2": 8, "<i4": 4}  # of NumPy types, in the index


def main(shards: str, out: str, tokenizer: str, format: str) -> None:
    vocab = rt.Vocabulary.load(tokenizer)
    narrow = vocab.size <= UINT16[format]
    offset_files = sorted(Path(shards).glob("data/*.offsets.npy"))
    if not offset_files:
        raise SystemExit(f"{shards}/data holds no packed shards: use --format packed")
    Path(out).mkdir(parents=True, exist_ok=True)
    for path in offset_files:
        name = path.name.removesuffix(".offsets.npy")
        offsets = np.load(path)
        rows = np.load(path.with_name(f"{name}.npy"), mmap_mode="r")
        ids = rows.reshape(-1)[: offsets[-1]]  # without the padding of the last row
        if format == "megatron":
            write_megatron(Path(out) / name, ids.astype("<u2" if narrow else "<i4"), offsets)
        else:
            ids = ids.astype("<u2" if narrow else "<u4")
            write_nanotron(Path(out) / name, ids, offsets, vocab.fingerprint)
    print(f"{len(offset_files)} data sets in {out}")


def write_megatron(path: Path, ids: np.ndarray, offsets: np.ndarray) -> None:
    """An indexed data set: the ids, and an index of the sequences and documents."""
    ids.tofile(f"{path}.bin")
    lengths, starts = np.diff(offsets), offsets[:-1]
    documents = np.arange(len(offsets))
    header = struct.pack("<QBQQ", 1, MEGATRON_CODES[ids.dtype.str], len(lengths), len(documents))
    with Path(f"{path}.idx").open("wb") as index:
        index.write(b"MMIDIDX\0\0" + header)
        index.write(lengths.astype("<i4").tobytes())
        index.write((starts * ids.dtype.itemsize).astype("<i8").tobytes())
        index.write(documents.astype("<i8").tobytes())


def write_nanotron(path: Path, ids: np.ndarray, offsets: np.ndarray, fingerprint: str) -> None:
    """Token files: the ids, where the documents end, and what the ids are."""
    ids.tofile(f"{path}.ds")
    offsets[1:].astype("<u8").tofile(f"{path}.ds.index")
    # The tokenizer and the bytes of a token, and the number of tokens, twice.
    about = f"{fingerprint}|{ids.dtype.itemsize}\n{len(ids)}\n{len(ids):,} tokens"
    Path(f"{path}.ds.metadata").write_text(about)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("shards", help="output folder of robustok corpus")
    parser.add_argument("out", help="folder of the data sets")
    parser.add_argument("--tokenizer", required=True, help="the tokenizer of the corpus")
    parser.add_argument("--format", choices=UINT16, default="megatron")
    main(**vars(parser.parse_args()))
