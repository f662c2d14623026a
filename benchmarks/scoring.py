"""The scoring engine beside a loop over the same requests, and beside the matrix rate.

    python benchmarks/scoring.py [--case tiny attack few-shot long-target vocabulary] [--rounds 3]

The careful loop, plain PyTorch, scores each distinct sequence once, reads the prefix that all of a
request share from a key-value cache, and computes logits only where a token is scored. The limit is
the time that the linear layers alone take for the nodes of the prefix tree, at the best rate of
this machine, and the output layer for the scored positions.

All take turns on the same model, process and thread; times are processor seconds. A case prints the
median and the range of the ratios over its rounds. The models are Llamas of random weights, which
cost the same as trained ones. The requests are those of a greedy attack on LangGame questions,
the neighborhoods at distance 2 of each question, or the neighborhood of a prompt followed by a long
target (``long-target``, ``vocabulary``).
"""

from __future__ import annotations

import bisect
import copy
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import options_of, tokenizer_file
from robustok import Ragged, Vocabulary
from robustok.attack import attack_items
from robustok.attack import search as search_module
from robustok.evaluation import solved_examples
from robustok.models import Shape, small_model
from robustok.scoring import Request, score_many
from robustok.scoring.forward import quiet
from robustok.tasks import frequent_words, langgame

_BATCH_TOKENS = 2048  # of one forward pass of a loop, about its best on a CPU
PROMPT = (
    "What color is the sky on a clear summer day, and what color is the grass in the garden "
    "behind the house in the same season?"
)
TARGET = "The sky is blue and the grass is green, as far as anyone can see from the old garden."


def prefix_tree_nodes(requests: list[Request]) -> int:
    """Distinct prefixes of all sequences, their last tokens left out: no one looks back to them."""
    prefixes = set()
    for request in requests:
        prefix = () if request.prefix is None else tuple(int(i) for i in request.prefix)
        for question in request.questions:
            for option in request.options:
                ids = (*prefix, *(int(i) for i in question), *(int(i) for i in option))[:-1]
                prefixes.update(ids[:length] for length in range(1, len(ids) + 1))
    return len(prefixes)


def rounds_of_an_attack(
    model: Any, vocab: Vocabulary, questions: int, neighbors: int, steps: int, prefix: Any
) -> list[list[Request]]:
    """What a greedy attack asks the engine for, round by round."""
    rounds: list[list[Request]] = []

    def record(model: Any, requests: list[Request], **settings: Any) -> Any:
        rounds.append(list(requests))
        return score_many(model, requests, **settings)

    items = langgame(frequent_words(500), questions, seed=0, split="test", format="short")
    original, search_module.score_many = search_module.score_many, record
    try:
        settings: Any = {"steps": steps, "max_neighbors": neighbors, "prefix": prefix}
        attack_items(model, vocab, items, objective="log-probability", seed=0, **settings)
    finally:
        search_module.score_many = original
    return rounds[1:]  # the first scores the starts alone


def careful(model: Any, request: Request) -> np.ndarray:
    """Log-probabilities [questions, options]: no sequence twice, the shared prefix cached."""
    prefix = () if request.prefix is None else tuple(int(i) for i in request.prefix)
    rows = [
        [(*prefix, *map(int, q), *map(int, o)) for o in request.options] for q in request.questions
    ]
    ordered = sorted({row[:-1] for group in rows for row in group})
    carried = [a != b[: len(a)] for a, b in zip(ordered, [*ordered[1:], ()], strict=True)]
    sequences = [row for row, kept in zip(ordered, carried, strict=True) if kept]
    first, last = sequences[0], sequences[-1]  # in order: all share what these two share
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    shared = min([shared, *(len(q) + len(prefix) - 1 for q in request.questions)])
    wanted: dict[tuple[int, ...], list[tuple[int, int, int]]] = {row: [] for row in sequences}
    for i, group in enumerate(rows):
        for j, row in enumerate(group):
            host = sequences[bisect.bisect_left(sequences, row[:-1])]
            begin = len(row) - len(request.options[j])
            wanted[host] += [(i, j, at) for at in range(begin, len(row))]
    scores = np.zeros((len(rows), len(request.options)))
    with torch.inference_mode():
        cache = None
        if shared:
            cache = model.model(torch.tensor([first[:shared]]), use_cache=True).past_key_values
        sequences.sort(key=len, reverse=True)
        size = max(1, _BATCH_TOKENS // len(sequences[0]))
        for begin in range(0, len(sequences), size):
            batch = sequences[begin : begin + size]
            for (i, j, _), value in _read(model, batch, cache, shared, wanted, rows):
                scores[i, j] += value
    return scores


def _read(
    model: Any, batch: list, cache: Any, shared: int, wanted: Any, rows: Any
) -> list[tuple[tuple[int, int, int], float]]:
    """The scored places of a batch of sequences and the log-probabilities there."""
    past = copy.deepcopy(cache)
    if past is not None:
        past.batch_repeat_interleave(len(batch))
    width = max(map(len, batch))
    ids = torch.tensor([row[shared:] + (0,) * (width - len(row)) for row in batch])
    hidden = model.model(ids, past_key_values=past, use_cache=past is not None).last_hidden_state
    places = [(b, place) for b, row in enumerate(batch) for place in wanted[row]]
    at = sorted({(b, place[2] - 1 - shared) for b, place in places})
    index = {where: n for n, where in enumerate(at)}
    line, column = torch.tensor(at).T
    log_probs = model.lm_head(hidden[line, column]).log_softmax(-1)
    which = torch.tensor([index[b, place[2] - 1 - shared] for b, place in places])
    token = torch.tensor([rows[i][j][k] for _, (i, j, k) in places])
    values = log_probs[which, token].double().tolist()
    return [(place, value) for (_, place), value in zip(places, values, strict=True)]


def limit(model: Any, nodes: int, reads: int) -> float:
    """Processor seconds of the linear layers for ``nodes`` and of the head for ``reads``."""
    seconds = 0.0
    with quiet(model):
        for name, layer in model.named_modules():
            if not isinstance(layer, torch.nn.Linear) or (
                ".layers.0." not in name and name != "lm_head"
            ):
                continue
            states = torch.randn(1024 if name != "lm_head" else 256, layer.in_features)
            layer(states)
            times = []
            for _ in range(3):
                began = time.process_time()
                layer(states)
                times.append((time.process_time() - began) / len(states))
            count = reads if name == "lm_head" else nodes * model.config.num_hidden_layers
            seconds += count * statistics.median(times)
    return seconds


def scored_positions(requests: list[Request]) -> int:
    return len(
        {
            (*map(int, () if r.prefix is None else r.prefix), *map(int, q), *map(int, o[:j]))
            for r in requests
            for q in r.questions
            for o in r.options
            for j in range(len(o))
        }
    )


def timed(function: Any) -> tuple[float, Any]:
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def compare(name: str, model: Any, rounds: list[list[Request]]) -> None:
    ratios: dict[str, list[float]] = {"careful loop": [], "limit": []}
    ours, off = 0.0, 0.0
    for requests in rounds:
        seconds, scores = timed(lambda requests=requests: score_many(model, requests))
        ours += seconds
        slow, wanted = timed(lambda requests=requests: [careful(model, r) for r in requests])
        ratios["careful loop"].append(slow / seconds)
        for score, want in zip(scores, wanted, strict=True):
            off = max(off, float(np.abs(score.log_probs - want).max()))
        nodes = prefix_tree_nodes(requests)
        ratios["limit"].append(limit(model, nodes, scored_positions(requests)) / seconds)
    parts = [
        f"{key} {statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"
        for key, r in ratios.items()
    ]
    print(
        f"{name}: ours 1 ({ours / len(rounds):.2f} s a round), {', '.join(parts)}; "
        f"{len(rounds)} rounds, largest difference {off:.1e}",
        flush=True,
    )


def llama(vocabulary: int, width: int, inner: int, layers: int) -> Any:
    heads = max(4, width // 64)
    shape = Shape(layers, width, heads, heads, feed_forward=inner, max_length=2048)
    return small_model(vocabulary, shape, seed=0).eval()


def long_target(vocab: Vocabulary, text: str, target: str) -> list[list[Request]]:
    """The neighborhood of a prompt's canonical tokenization, followed by one response."""
    start = vocab.encode(text)
    rows = [start, *vocab.lattice(text).neighbors(start, distance=2)]
    return [[Request(Ragged.from_rows(rows), [vocab.encode(target)], [5, 6, 7])]]


def main() -> None:
    cases = ("tiny", "attack", "few-shot", "long-target", "vocabulary")
    parser = options_of(__doc__)
    parser.add_argument("--case", nargs="*", choices=cases, default=cases)
    parser.add_argument("--tokenizer", type=Path, default=tokenizer_file("gpt2"))
    parser.add_argument("--large", type=Path, default=tokenizer_file("llama3"))
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    vocab = Vocabulary.load(chosen.tokenizer)
    large = Vocabulary.load(chosen.large)
    if {"attack", "few-shot"} & set(chosen.case):
        model = llama(vocab.size, 512, 1376, 12)
    if "tiny" in chosen.case:
        small = llama(vocab.size, 128, 336, 3)
        rounds = rounds_of_an_attack(small, vocab, 3, 24, chosen.rounds, None)
        compare("attack, 3 layers of width 128", small, rounds)
    if "attack" in chosen.case:
        rounds = rounds_of_an_attack(model, vocab, 3, 24, chosen.rounds, None)
        compare("attack, 12 layers of width 512", model, rounds)
    if "few-shot" in chosen.case:
        solved = langgame(frequent_words(500), 10, seed=1, split="train", format="short")
        prefix = solved_examples(vocab, solved, seed=0)
        rounds = rounds_of_an_attack(model, vocab, 2, 12, chosen.rounds, prefix)
        compare(f"attack, K = 10 ({len(prefix)} tokens), 12 layers", model, rounds)
    rounds = long_target(large, PROMPT, TARGET) * chosen.rounds
    if "long-target" in chosen.case:
        small = llama(large.size, 64, 192, 4)
        compare("long target, 4 layers of width 64, 128k tokens", small, rounds)
    if "vocabulary" in chosen.case:
        model = llama(large.size, 512, 1376, 12)
        compare("long target, 12 layers of width 512, 128k tokens", model, rounds)


if __name__ == "__main__":
    main()
