"""How fast the samplers are, in MB/s and as multiples of `tokenizers`' canonical encoding.

    python benchmarks/sampling.py [--part english] [--tokenizer T.json ...] [--text FILE.jsonl]

Three tables, or one of them with ``--part``. `english` and `languages` draw new text from strings:
each measurement begins with empty caches, draws other text first, and then times documents of 8 KB
that it has not seen. `known` draws English documents of 1 to 16 KB, which it repeats, from
canonical ids (`uniform` from strings), all jobs in turns. There, `bpe-dropout` is compared with
`tokenizers`' own dropout and all else with its canonical encoding. Medians of processor time on one
thread. `encoding.py` measures the canonical encoding of new text. Prints Markdown tables.
"""

from __future__ import annotations

import json
import lzma
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import robustok as rt
from common import (
    DATA,
    Encode,
    arguments,
    cut,
    medians,
    print_heads,
    print_row,
    read_documents,
    sentencepiece_sampler,
    tiktoken_encoding,
)

NEW = (
    "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform", "uniform-k(alpha=0.1)",
    "uniform-k(alpha=1)", "uniform-k(alpha=3)", "bpe-dropout(p=0.1)",
)  # fmt: skip
IN_LANGUAGES = (*NEW[:3], "uniform-k(alpha=1)", "bpe-dropout(p=0.1)")
KNOWN = (
    "stochastok(alpha=0.1)", "stochastok(alpha=1)", "stochastok(alpha=3)",
    "stochastok-uniform(alpha=0.1)", "stochastok-uniform(alpha=1)", "stochastok-uniform(alpha=3)",
    "uniform", "uniform-k(alpha=0.1)", "uniform-k(alpha=0.5)", "uniform-k(alpha=1)",
    "uniform-k(alpha=3)", "bpe-dropout(p=0.1, rule=provilkov)", "bpe-dropout(p=0.1, rule=hf)",
    "bpe-dropout(p=0.1, rule=sentencepiece)",
)  # fmt: skip
ENCODER, DROPOUT = "tokenizers", "tokenizers, dropout=0.1"
LANGUAGES = {"code": "python", "Chinese": "zh", "Hindi": "hi", "Arabic": "ar"}
OF_LANGUAGES = DATA / "corpus" / "multilingual_code.jsonl.xz"


def call_of(vocab: rt.Vocabulary, name: str) -> Encode:
    """A fresh encoder or sampler as a function of texts or ids."""
    if name == ENCODER:
        return lambda texts: vocab.data.library.encode_batch(texts, add_special_tokens=False)
    if name == "Vocabulary.encode_batch":
        return vocab.encode_batch
    sampler = rt.sampler(name, vocab)
    return lambda texts: sampler.sample_batch(texts, seed=0, threads=1)


def read_languages() -> dict[str, str]:
    """The texts of `multilingual_code.jsonl.xz` by the names of `LANGUAGES`, and all mixed."""
    by_code: dict[str, list[str]] = {}
    mixed: list[str] = []
    with lzma.open(OF_LANGUAGES, "rt", encoding="utf8") as lines:
        for line in lines:
            row = json.loads(line)
            by_code.setdefault(row["lang"], []).append(row["text"])
            mixed.append(row["text"][:500])
    texts = {name: "\n".join(by_code[code]) for name, code in LANGUAGES.items()}
    return texts | {"mixed": "\n".join(mixed)}


def cells_of(
    vocab: rt.Vocabulary, documents: list[str], known: float, rounds: int, specs: Sequence[str]
) -> dict[str, str]:
    """MB/s of each encoder and spec on new text, after the ``known`` share of the documents."""
    other, new = documents[: int(known * len(documents))], documents[int(known * len(documents)) :]
    names = (ENCODER, "Vocabulary.encode_batch", *specs)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            vars(vocab).pop("gigatoken", None)  # the caches that grow with the text
            vocab.gigatoken.load()
            for key in [k for k in vocab._derived if str(k).startswith("bpe-dropout merges")]:
                vocab._derived.pop(key)
            call = call_of(vocab, name)
            call(other)
            start = time.process_time()
            call(new)
            seconds[name].append(time.process_time() - start)
    size = sum(len(text.encode("utf8")) for text in new)
    rates = {name: size / statistics.median(times) / 1e6 for name, times in seconds.items()}
    return {name: f"{rate:.1f} ({rate / rates[ENCODER]:.1f})" for name, rate in rates.items()}


def print_english(paths: Sequence[str], english: str, rounds: int) -> None:
    """A table of all specs on the last fifth of the documents, after drawing the others."""
    print("New English text, from strings, one thread: MB/s (times `tokenizers`)\n")
    print_heads("what", *(Path(path).parent.name for path in paths))
    documents = cut(english[: 5 << 20])
    columns = [cells_of(rt.Vocabulary.load(path), documents, 0.8, rounds, NEW) for path in paths]
    for name in columns[0]:
        print_row(name, *(column[name] for column in columns))


def print_languages(paths: Sequence[str], english: str, rounds: int) -> None:
    """A table of tokenizers by languages."""
    texts = {"English": english[:300_000], **read_languages()}
    print("\nNew text by tokenizer and language, from strings: MB/s (times `tokenizers`)\n")
    print_heads("tokenizer", "text", ENCODER, "encode_batch", *IN_LANGUAGES, texts=2)
    for path in paths:
        vocab = rt.Vocabulary.load(path)
        for language, text in texts.items():
            raw = text.encode("utf8")[:300_000]
            documents = cut(raw.decode("utf8", "ignore"))
            cells = cells_of(vocab, documents, 0.5, rounds, IN_LANGUAGES)
            print_row(Path(path).parent.name, language, *cells.values())


def jobs_for(vocab: rt.Vocabulary, texts: list[str]) -> dict[str, Callable[[], object]]:
    """The encoder, its own dropout, every scheme, and the public competitors that are installed."""
    ids = vocab.encode_batch(texts)
    dropping = type(vocab.data.library).from_str(vocab.data.library.to_str())
    dropping.model.dropout = 0.1
    jobs: dict[str, Callable[[], object]] = {
        ENCODER: lambda: vocab.data.library.encode_batch(texts, add_special_tokens=False),
        DROPOUT: lambda: dropping.encode_batch(texts, add_special_tokens=False),
    }
    for spec in KNOWN:
        call, rows = call_of(vocab, spec), texts if spec == "uniform" else ids
        jobs[spec] = lambda call=call, rows=rows: call(rows)  # type: ignore[misc]
    # The fastest canonical encoder, and the fastest other sampler of `uniform`, which draws from
    # the whole lattice: sentencepiece over the same tokens with equal scores.
    encoding = tiktoken_encoding(vocab)
    if encoding is not None:
        jobs["tiktoken.encode_ordinary"] = lambda: [encoding.encode_ordinary(t) for t in texts]
    sample = sentencepiece_sampler(vocab)
    if sample is not None:
        few = texts[:20]
        share = sum(map(len, few)) / sum(map(len, texts))
        jobs["sentencepiece, uniform"] = lambda: [sample(text) for text in few] and share
    return jobs


def print_known(paths: Sequence[str], texts: list[str], rounds: int) -> None:
    """The table of repeated documents, from canonical ids."""
    size = sum(len(t.encode("utf8")) for t in texts)
    print("\nKnown text, from ids\n")
    print_heads("tokenizer", "what", "times the encoder", "MB/s", texts=2)
    for path in paths:
        seconds = medians(jobs_for(rt.Vocabulary.load(path), texts), rounds)
        for name, spent in seconds.items():
            base = seconds[DROPOUT if name.startswith("bpe-dropout") else ENCODER]
            speeds = f"{base / spent:.1f}", f"{size / spent / 1e6:.1f}"
            print_row(Path(path).parent.name, name, *speeds)


def main() -> None:
    options = arguments(__doc__, parts=("english", "languages", "known"))
    english = "\n".join(read_documents(options.text, 6 << 20))
    if options.part in (None, "english"):
        print_english(options.tokenizer, english, options.rounds)
    if options.part in (None, "languages") and OF_LANGUAGES.exists():
        print_languages(options.tokenizer, english, options.rounds)
    if options.part in (None, "known"):
        texts = read_documents(options.text, options.bytes)
        print_known(options.tokenizer, texts, options.rounds)


if __name__ == "__main__":
    main()
