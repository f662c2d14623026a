"""Last-token states of a word's tokenizations: shared prefixes against padded batches.

    python benchmarks/states.py [--tokenizer PATH/tokenizer.json] [--words 40] [--draws 50]

Same model, machine, process and rows; the two take turns, and each line gives the median of the
ratios of their times. The model has a realistic shape (Llama, 12 layers, width 512, the
tokenizer's vocabulary) and random weights, which cost the same as trained ones. The rows are
those of the study `embeddings`: for every word its canonical tokenization and uniform draws of the
others, alone and inside a sentence.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import options_of, tokenizer_file
from robustok import Ragged, Vocabulary
from robustok.evaluation.embeddings import draw_others, last_states, spell
from robustok.lattice import Lattice
from robustok.models import Shape, small_model
from robustok.tasks import frequent_words

_BATCH_TOKENS = 2048  # of one padded forward pass, about its best on a CPU
_SENTENCE = "When I asked what it was they said {word} to every one of us."


def padded(model: Any, rows: list[list[int]]) -> np.ndarray:
    """The states [layers + 1, rows, width] from padded batches, nothing shared."""
    parts = []
    size = max(1, _BATCH_TOKENS // max(map(len, rows)))
    with torch.inference_mode():
        for begin in range(0, len(rows), size):
            batch = rows[begin : begin + size]
            width = max(map(len, batch))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in batch])
            states = model.base_model(input_ids=ids, output_hidden_states=True).hidden_states
            last = torch.tensor([len(row) - 1 for row in batch])
            parts.append(torch.stack([s[torch.arange(len(batch)), last] for s in states]).numpy())
    return np.concatenate(parts, axis=1)


def rows_of(vocab: Vocabulary, words: list[str], draws: int, sentence: str | None) -> list[Any]:
    """A list of rows for each word."""
    spelled = {word: spell(vocab, word, sentence) for word in words}
    spelled = {w: s for w, s in spelled.items() if Lattice(vocab, s.ids).count() > 1}
    drawn = draw_others(vocab, {word: s.ids for word, s in spelled.items()}, draws, seed=0)
    return [
        [[*before, *row, *after] for row in (ids, *drawn[word])]
        for word, (before, ids, after) in spelled.items()
    ]


def compare(name: str, model: Any, blocks: list[list[list[int]]], together: int) -> None:
    ratios, off, slow, fast = [], 0.0, 0.0, 0.0
    for begin in range(0, len(blocks), together):
        rows = [
            [int(i) for i in row] for block in blocks[begin : begin + together] for row in block
        ]
        start = time.perf_counter()
        states = last_states(model, Ragged.from_rows(rows))
        between = time.perf_counter()
        wanted = padded(model, rows)
        end = time.perf_counter()
        ratios.append((end - between) / (between - start))
        slow, fast = slow + end - between, fast + between - start
        off = max(off, float(np.abs(states - wanted).max()))
    print(
        f"{name}: {statistics.median(ratios):.1f} times faster (median of {len(ratios)} blocks, "
        f"{min(ratios):.1f} to {max(ratios):.1f}); {slow:.1f} s against {fast:.1f} s; "
        f"largest difference {off:.1e}",
        flush=True,
    )


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--tokenizer", type=Path, default=tokenizer_file("gpt2"))
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--draws", type=int, default=50)
    chosen = parser.parse_args()
    vocab = Vocabulary.load(chosen.tokenizer)
    shape = Shape(12, 512, 8, 8, feed_forward=1376, max_length=2048, tied=False)
    model: Any = small_model(vocab.size, shape, seed=0).eval()
    print(f"{model.num_parameters() / 1e6:.0f}M parameters, {torch.get_num_threads()} threads")
    last_states(model, Ragged.from_rows([[1, 2, 3]]))
    words = frequent_words(chosen.words)
    compare("words alone", model, rows_of(vocab, words, chosen.draws, None), 10)
    compare("inside a sentence", model, rows_of(vocab, words, chosen.draws, _SENTENCE), 10)


if __name__ == "__main__":
    main()
