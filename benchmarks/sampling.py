"""How fast the samplers are, in MB/s and as multiples of `tokenizers`' canonical encoding.

    python benchmarks/sampling.py [--part english] [--tokenizer T.json ...] [--text FILE.jsonl]

Three tables, or one of them with ``--part``. `english` and `languages` draw new text from strings
(`new_text.py`). `known` draws English documents of 1 to 16 KB, which it repeats, from canonical ids
(`uniform` from strings), as medians of processor time, all jobs in turns. There, `bpe-dropout` is
compared with `tokenizers`' own dropout and all else with its canonical encoding. All on one thread.
`encoding.py` measures the canonical encoding of new text. Prints Markdown tables; --json: the last
table alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at import: one thread for the encoder too
os.environ["RAYON_NUM_THREADS"] = "1"

import robustok as rt
from common import DATA, arguments, medians, print_heads, print_row, read_documents
from new_text import print_english, print_languages

FLOORS = {
    "stochastok(alpha=0.1)": 20, "stochastok(alpha=1)": 20, "stochastok(alpha=3)": 20,
    "stochastok-uniform(alpha=0.1)": 8, "stochastok-uniform(alpha=1)": 8,
    "stochastok-uniform(alpha=3)": 8, "uniform": 8, "uniform-k(alpha=0.1)": 3,
    "uniform-k(alpha=0.5)": 3, "uniform-k(alpha=1)": 3, "uniform-k(alpha=3)": 3,
    "bpe-dropout(p=0.1, rule=provilkov)": 1, "bpe-dropout(p=0.1, rule=hf)": 1,
    "bpe-dropout(p=0.1, rule=sentencepiece)": 1,
    "grampa(temperature=2, min_length=2)": None, "maxmatch-dropout(p=0.2)": None,
}  # fmt: skip
LANGUAGES = DATA / "corpus" / "multilingual_code.jsonl.xz"
ENCODER, DROPOUT = "tokenizers.encode_batch", "tokenizers.encode_batch, dropout=0.1"


def jobs_for(vocab: rt.Vocabulary, texts: list[str]) -> dict[str, Callable[[], object]]:
    """The encoder, its own dropout, every scheme, and the public competitors that are installed."""
    ids = vocab.encode_batch(texts)
    tokenizer = vocab.data.library
    dropping = type(tokenizer).from_str(tokenizer.to_str())
    dropping.model.dropout = 0.1

    jobs: dict[str, Callable[[], object]] = {
        ENCODER: lambda: tokenizer.encode_batch(texts, add_special_tokens=False),
        DROPOUT: lambda: dropping.encode_batch(texts, add_special_tokens=False),
        "Vocabulary.encode_batch, again": lambda: vocab.encode_batch(texts),
    }
    for spec in FLOORS:
        scheme = rt.sampler(spec, vocab)
        rows = texts if spec == "uniform" else ids
        jobs[spec] = lambda scheme=scheme, rows=rows: scheme.sample_batch(rows, seed=0, threads=1)
    # The fastest canonical encoder, and the fastest other sampler of `uniform`, which draws from
    # the whole lattice: sentencepiece over the same tokens with equal scores.
    encoding = tiktoken_encoding(vocab)
    if encoding is not None:
        jobs["tiktoken.encode_ordinary"] = lambda: [encoding.encode_ordinary(t) for t in texts]
    return jobs | sentencepiece_job(vocab, texts)


def sentencepiece_job(vocab: rt.Vocabulary, texts: list[str]) -> dict[str, Callable[[], object]]:
    """Uniform sampling with sentencepiece, of the first 20 texts."""
    sample = sentencepiece_sampler(vocab)
    if sample is None:
        return {}
    share = sum(len(t.encode("utf8")) for t in texts[:20]) / sum(
        len(t.encode("utf8")) for t in texts
    )

    def job() -> float:
        for text in texts[:20]:
            sample(text)
        return share

    return {"sentencepiece, uniform": job}


def sentencepiece_sampler(vocab: rt.Vocabulary) -> Callable[[str], list[int]] | None:
    """Sampling by sentencepiece over the same tokens with equal scores; None without it.

    Bytes travel as the printable GPT-2 alphabet.
    """
    try:
        import sentencepiece

        pb: Any = importlib.import_module("sentencepiece.sentencepiece_model_pb2")  # needs protobuf
    except ImportError:
        return None
    from robustok.tokenizer.data import byte_alphabet

    letters = {byte: letter for letter, byte in byte_alphabet().items()}
    model = pb.ModelProto()
    model.trainer_spec.model_type = pb.TrainerSpec.UNIGRAM
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = False
    model.pieces.add(piece="<unk>", type=pb.ModelProto.SentencePiece.UNKNOWN)
    for i in vocab.ordinary.nonzero()[0].tolist():
        model.pieces.add(piece="".join(letters[b] for b in vocab.tokens[i]), score=0.0)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    table = {byte: ord(letter) for byte, letter in letters.items()}

    def sample(text: str) -> list[int]:
        spelled = text.encode("utf8").decode("latin1").translate(table)
        return processor.encode(spelled, enable_sampling=True, alpha=1.0, nbest_size=-1)

    return sample


def tiktoken_encoding(vocab: rt.Vocabulary) -> Any:
    """tiktoken's encoding of a byte-level vocabulary; None for others, or where it is missing."""
    try:
        import tiktoken
    except ImportError:
        return None
    if not vocab.data.family.startswith("byte-level"):
        return None
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        if vocab.size > 100_000
        else r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    )
    ranks = {vocab.tokens[i]: i for i in vocab.ordinary.nonzero()[0].tolist()}
    return tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def main() -> None:
    options = arguments(__doc__)
    print_new_text(options)
    if options.part in (None, "known"):
        print_known(options)


def print_new_text(options: argparse.Namespace) -> None:
    """The tables of new text; the one by language needs the data of ROBUSTOK_DATA."""
    if options.json:
        return
    english = "\n".join(read_documents(options.text, 6 << 20))
    if options.part in (None, "english"):
        print_english(options.tokenizer, english, options.rounds)
    if options.part in (None, "languages") and LANGUAGES.exists():
        print_languages(options.tokenizer, english, LANGUAGES, options.rounds)


def print_known(options: argparse.Namespace) -> None:
    """The table of repeated documents, from canonical ids."""
    texts = read_documents(options.text, options.bytes)
    size = sum(len(t.encode("utf8")) for t in texts)
    rows = []
    for path in options.tokenizer:
        vocab = rt.Vocabulary.load(path)
        rates = medians(jobs_for(vocab, texts), options.rounds)
        for name, seconds in rates.items():
            base = rates[DROPOUT if name.startswith("bpe-dropout") else ENCODER]
            rows.append({
                "tokenizer": Path(path).parent.name, "what": name, "times": base / seconds,
                "megabytes_per_second": size / seconds / 1e6, "floor": FLOORS.get(name),
            })  # fmt: skip
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
        return
    print("\nKnown text, from ids\n")
    print_heads("tokenizer", "what", "times the encoder", "floor", "MB/s", texts=2)
    for r in rows:
        speeds = f"{r['times']:.1f}", r["floor"] or "", f"{r['megabytes_per_second']:.1f}"
        print_row(r["tokenizer"], r["what"], *speeds)


if __name__ == "__main__":
    main()
