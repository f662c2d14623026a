"""What several benchmarks share: their data, options, encoders, medians and tables.

To be imported before `tokenizers`, which reads its number of threads once: one for all encoders.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RAYON_NUM_THREADS", "1")  # `corpus.py` sets others

DATA = Path(os.environ.get("ROBUSTOK_DATA", "../shared/data")).resolve()
ENGLISH = DATA / "corpus" / "english_val.jsonl.xz"
DOCUMENT = 8192  # characters
Encode = Callable[[list[str]], object]


def tokenizer_file(name: str) -> Path:
    return DATA / "tokenizers" / name / "tokenizer.json"


def options_of(description: str | None) -> argparse.ArgumentParser:
    """A parser described by the first line of a docstring."""
    return argparse.ArgumentParser(description=(description or "").splitlines()[0])


def arguments(
    description: str | None, size: int = 600_000, names: tuple[str, ...] = ("gpt2", "llama3"),
    parts: tuple[str, ...] = (),
) -> argparse.Namespace:  # fmt: skip
    """What to measure on: by default these tokenizers and the English text of ROBUSTOK_DATA."""
    parser = options_of(description)
    parser.add_argument("--tokenizer", action="append", help="default: those in ROBUSTOK_DATA")
    parser.add_argument("--text", type=Path, default=ENGLISH)
    parser.add_argument("--bytes", type=int, default=size)
    parser.add_argument("--rounds", type=int, default=7)
    if parts:
        parser.add_argument("--part", choices=parts)
    options = parser.parse_args()
    options.tokenizer = options.tokenizer or [str(tokenizer_file(name)) for name in names]
    missing = [p for p in [*options.tokenizer, str(options.text)] if not Path(p).exists()]
    if missing:
        sys.exit(f"{missing[0]} is not there: name tokenizers and a text, or set ROBUSTOK_DATA")
    return options


def read_documents(path: Path, total: int) -> list[str]:
    """Documents of 1 to 16 KB, up to ``total`` bytes, from .jsonl, .jsonl.xz or .txt."""
    opener = lzma.open if path.suffix == ".xz" else open
    documents: list[str] = []
    size = 0
    with opener(path, "rt", encoding="utf8") as lines:  # type: ignore[operator]
        for i, line in enumerate(lines):
            text = json.loads(line)["text"] if ".jsonl" in path.name else line
            raw = text.encode("utf8")[: (1 << 10) << (i % 5)]  # 1, 2, 4, 8, 16 KB in turn
            text = raw.decode("utf8", errors="ignore")
            if len(text) < 500:
                continue
            documents.append(text)
            size += len(text.encode("utf8"))
            if size >= total:
                break
    return documents


def cut(text: str) -> list[str]:
    """A text as documents of 8,192 characters."""
    return [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]


def medians(
    jobs: Mapping[str, Callable[[], object]], rounds: int,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, float]:  # fmt: skip
    """Median seconds of each job, all jobs once a round so that noise is shared."""
    for job in jobs.values():
        job()
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            start = clock()
            share = job()  # a job too slow for all documents says which share of them it did
            spent = clock() - start
            seconds[name].append(spent / share if isinstance(share, float) else spent)
            del share  # freeing an encoder's result takes milliseconds: not the next job's
    return {name: statistics.median(values) for name, values in seconds.items()}


def rates_of_new_text(
    jobs: dict[str, Encode], texts: list[str], rounds: int
) -> dict[str, list[float]]:
    """MB/s of each encoder in each round of new documents, of which the first two thirds are known.

    Every encoder remembers words, so all encode the known ones first.
    """
    known = len(texts) * 2 // 3
    for encode in jobs.values():
        encode(texts[:known])
    rates: dict[str, list[float]] = {name: [] for name in jobs}
    size = (len(texts) - known) // rounds
    for number in range(rounds):
        new = texts[known + number * size : known + (number + 1) * size]
        megabytes = sum(len(text.encode()) for text in new) / 1e6
        for name, encode in jobs.items():
            start = time.process_time()
            result = encode(new)
            rates[name].append(megabytes / (time.process_time() - start))
            del result
    return rates


def tiktoken_encoding(vocab: Any) -> Any:
    """tiktoken's encoding of a byte-level vocabulary; None for others, or where it is missing."""
    try:
        import tiktoken
    except ImportError:
        return None
    if not vocab.data.family.startswith("byte-level") or vocab.data.stages.cut_pattern is None:
        return None
    ranks = {vocab.tokens[i]: i for i in vocab.ordinary.nonzero()[0].tolist()}
    return tiktoken.Encoding(
        "bench", pat_str=vocab.data.stages.cut_pattern, mergeable_ranks=ranks, special_tokens={}
    )


def sentencepiece_sampler(vocab: Any) -> Callable[[str], list[int]] | None:
    """Sampling by sentencepiece over the same tokens with equal scores; None without it.

    Bytes travel as the printable GPT-2 alphabet.
    """
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2  # needs protobuf
    except ImportError:
        return None
    from robustok.tokenizer.data import byte_alphabet

    pb: Any = sentencepiece_model_pb2
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


def print_heads(*heads: str, texts: int = 1) -> None:
    """The first lines of a Markdown table, whose columns after ``texts`` hold numbers."""
    print(f"| {' | '.join(heads)} |\n|" + "---|" * texts + "--:|" * (len(heads) - texts))


def print_row(*cells: Any) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
