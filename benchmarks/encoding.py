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

import statistics
from pathlib import Path

import robustok as rt
from common import (
    Encode,
    arguments,
    cut,
    print_heads,
    print_row,
    rates_of_new_text,
    read_documents,
    tiktoken_encoding,
)


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


def main() -> None:
    options = arguments(__doc__, 6_000_000, ("gpt2", "llama3", "llama2", "internlm2"))
    texts = cut(" ".join(read_documents(options.text, options.bytes)))
    print_heads("tokenizer", "encoder", "MB/s", "quartiles", "times `tokenizers`", texts=2)
    for path in map(Path, options.tokenizer):
        rates = rates_of_new_text(encoders(rt.Vocabulary.load(path), path), texts, options.rounds)
        for name, values in rates.items():
            times = [a / b for a, b in zip(values, rates["tokenizers"], strict=True)]
            low, median, high = statistics.quantiles(values, n=4)
            speeds = f"{median:.1f}", f"{low:.1f} to {high:.1f}", f"{statistics.median(times):.1f}"
            print_row(path.parent.name, name, *speeds)


if __name__ == "__main__":
    main()
