"""How fast texts that were never seen are encoded canonically, from strings.

    python benchmarks/encoding.py [--tokenizer T.json ...] [--text FILE.jsonl.xz] [--bytes 6000000]

`robustok` is `Vocabulary.encode_batch`. Beside it `tokenizers`, tiktoken on the same ranks
(byte-level tokenizers) and sentencepiece (where tokenizer.model lies beside the tokenizer.json).
One process and thread. Two thirds of the text are encoded first, since every encoder remembers
words. The rest is cut into documents of 8 KB, and each round takes new ones: all encoders encode
the same, in turns. Prints medians and quartiles of processor time as MB/s, and multiples of
`tokenizers` in the same round.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at import: one thread for all encoders
os.environ["RAYON_NUM_THREADS"] = "1"

import robustok as rt
from common import arguments, print_heads, print_row, read_documents
from sampling import tiktoken_encoding

DOCUMENT = 8192  # characters
Encode = Callable[[list[str]], object]


def encoders(vocab: rt.Vocabulary, path: Path) -> dict[str, Encode]:
    """The encoders that are installed, each of a list of texts."""
    tokenizer = vocab.data.library
    jobs: dict[str, Encode] = {
        "tokenizers": lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        "robustok": vocab.encode_batch,
    }
    encoding = tiktoken_encoding(vocab)
    if encoding is not None:
        jobs["tiktoken"] = lambda texts: [encoding.encode_ordinary(text) for text in texts]
    model = path.parent / "tokenizer.model"
    if not vocab.data.family.startswith("byte-level") and model.exists():
        try:
            import sentencepiece
        except ImportError:
            return jobs
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        jobs["sentencepiece"] = lambda texts: processor.encode(texts, num_threads=1)
    return jobs


def measured(jobs: dict[str, Encode], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """MB/s of each encoder in each round of new documents."""
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
            del result  # freeing it takes milliseconds: not the next encoder's
    return rates


def main() -> None:
    options = arguments(__doc__, 6_000_000, ("gpt2", "llama3", "llama2", "internlm2"))
    text = " ".join(read_documents(options.text, options.bytes))
    texts = [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
    rows = []
    for path in map(Path, options.tokenizer):
        vocab = rt.Vocabulary.load(path)
        rates = measured(encoders(vocab, path), texts, options.rounds)
        for name, values in rates.items():
            times = [a / b for a, b in zip(values, rates["tokenizers"], strict=True)]
            low, median, high = statistics.quantiles(values, n=4)
            rows.append({
                "tokenizer": path.parent.name, "encoder": name, "megabytes_per_second": median,
                "quartiles": [low, high], "times": statistics.median(times),
                "gigatoken": vocab.gigatoken.reason or "used",
            })  # fmt: skip
    if options.json:
        json.dump(rows, sys.stdout, indent=1)
        return
    print_heads("tokenizer", "encoder", "MB/s", "quartiles", "times `tokenizers`", texts=2)
    for r in rows:
        low, high = r["quartiles"]
        speeds = f"{r['megabytes_per_second']:.1f}", f"{low:.1f} to {high:.1f}", f"{r['times']:.1f}"
        print_row(r["tokenizer"], r["encoder"], *speeds)


if __name__ == "__main__":
    main()
