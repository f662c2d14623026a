"""Write the shards of `robustok corpus` as data sets of Megatron-LM or nanotron.

    robustok corpus texts.jsonl shards -t tokenizer.json -s "uniform-k(alpha=0.5)" --seed 0
    python examples/token_files.py shards out --tokenizer tokenizer.json --format megatron

For each shard and draw, so that training on one file after another does not repeat a document
immediately:

- `megatron`: `.bin` and `.idx`, the indexed data set of Megatron-LM, which
  `megatron.core.datasets.indexed_dataset` reads. Each document is a sequence.
- `nanotron`: `.ds`, `.ds.index` and `.ds.metadata`, the token files of datatrove.

The token `--end` follows each document, by default the tokenizer's own end of a text. Ids take two
bytes where the vocabulary allows it. Equal shards give equal files.
"""

from __future__ import annotations

import argparse
import struct
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

import robustok as rt
from robustok.tokenizer.vocabulary import end_of_text

# The largest vocabularies whose ids take two bytes, as each reader expects it.
UINT16 = {"megatron": 65499, "nanotron": 65536}
MEGATRON_CODES = {"<u2": 8, "<i4": 4}  # of NumPy types, in the index


def main(shards: str, out: str, tokenizer: str, format: str, end: str | None = None) -> None:
    vocab = rt.Vocabulary.load(tokenizer)
    end_id = end_of_text(vocab, end)
    narrow = vocab.size <= UINT16[format]
    files = sorted(Path(shards).glob("data/*.parquet"))
    if not files:
        raise SystemExit(f"{shards}/data holds no shards: give the output folder of a corpus")
    Path(out).mkdir(parents=True, exist_ok=True)
    for path in files:
        table = pq.read_table(path, columns=["draw", "input_ids"])
        for draw in sorted(set(table["draw"].to_pylist())):
            rows = rt.Ragged.from_arrow(table.filter(pc.field("draw") == draw)["input_ids"])
            ids = np.insert(rows.values, rows.offsets[1:], end_id)
            offsets = rows.offsets + np.arange(len(rows) + 1)
            name = Path(out) / f"{path.stem}.draw{draw}"
            if format == "megatron":
                write_megatron(name, ids.astype("<u2" if narrow else "<i4"), offsets)
            else:
                ids = ids.astype("<u2" if narrow else "<u4")
                write_nanotron(name, ids, offsets, vocab.fingerprint)
    print(f"{len(files)} shards written to {out}")


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
    parser.add_argument("--end", help="token after each document")
    main(**vars(parser.parse_args()))
