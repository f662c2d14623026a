"""The scoring engine against scoring each (tokenization, option) as a sequence of its own.

    python benchmarks/scoring.py --tokenizer PATH/tokenizer.json [--questions 3] [--neighbors 32]

Same model, machine, process and requests; the two take turns, and each line gives the median
of the ratios of their times. The model has a realistic shape (Llama, 12 layers, width
512, the tokenizer's vocabulary) and random weights, which cost the same as trained ones. The
requests are those of a real greedy attack on LangGame questions: the neighborhoods at
distance 2 of each question, all questions of a round together, without prefix and then
under K = 10 solved examples.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from robustok import Vocabulary
from robustok.evaluation import attack_items, solved_examples
from robustok.evaluation.adversarial import search as search_module
from robustok.scoring import Request, score_many
from robustok.tasks.langgame_items import langgame
from robustok.tasks.words import frequent_words

_BATCH_TOKENS = 2048  # of one naive forward pass, about its best on a CPU


def naive(model: Any, request: Request) -> np.ndarray:
    """Log-probabilities [questions, options] from padded batches of whole sequences."""
    prefix = [] if request.prefix is None else list(request.prefix)
    pairs = [(list(q), list(o)) for q in request.questions for o in request.options]
    size = max(1, _BATCH_TOKENS // max(len(prefix) + len(q) + len(o) for q, o in pairs))
    scores = []
    with torch.inference_mode():
        for begin in range(0, len(pairs), size):
            batch = pairs[begin : begin + size]
            rows = [prefix + q + o for q, o in batch]
            width = max(map(len, rows))
            ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
            logits = model(input_ids=ids, attention_mask=mask).logits
            for i, (row, (_, option)) in enumerate(zip(rows, batch, strict=True)):
                at = torch.arange(len(row) - len(option), len(row))
                log_probs = logits[i, at - 1].log_softmax(-1)
                scores.append(float(log_probs[torch.arange(len(at)), ids[i, at]].double().sum()))
    return np.array(scores).reshape(len(request.questions), len(request.options))


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
        attack_items(
            model,
            vocab,
            items,
            steps=steps,
            max_neighbors=neighbors,
            objective="log-probability",
            seed=0,
            prefix=prefix,
        )
    finally:
        search_module.score_many = original
    return rounds[1:]  # the first scores the starts alone


def compare(name: str, model: Any, rounds: list[list[Request]], floor: float) -> None:
    ratios, off = [], 0.0
    computed = nodes = whole = 0
    slow = fast = 0.0
    for requests in rounds:
        began = time.perf_counter()
        scores = score_many(model, requests)
        between = time.perf_counter()
        wanted = [naive(model, request) for request in requests]
        ended = time.perf_counter()
        ratios.append((ended - between) / (between - began))
        slow, fast = slow + ended - between, fast + between - began
        computed += sum(s.tokens_computed for s in scores)
        whole += sum(s.tokens_naive for s in scores)
        nodes += prefix_tree_nodes(requests)
        for score, want in zip(scores, wanted, strict=True):
            off = max(off, float(np.abs(score.log_probs - want).max()))
    print(
        f"{name}: {statistics.median(ratios):.1f} times faster (median of {len(ratios)} rounds, "
        f"{min(ratios):.1f} to {max(ratios):.1f}; floor {floor:.0f}); {slow:.1f} s against "
        f"{fast:.1f} s\n    tokens: {whole} naive, {computed} computed, {nodes} nodes "
        f"(computed / nodes {computed / nodes:.3f}, at most 1.1); "
        f"largest difference {off:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", default="../shared/data/tokenizers/gpt2/tokenizer.json")
    parser.add_argument("--questions", type=int, default=3)
    parser.add_argument("--neighbors", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_args()
    vocab = Vocabulary.load(chosen.tokenizer)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab.size,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    model: Any = LlamaForCausalLM(config).eval()
    print(f"{model.num_parameters() / 1e6:.0f}M parameters, {torch.get_num_threads()} threads")
    warm = Request([[1, 2, 3]], [[4], [5]])
    score_many(model, [warm])
    naive(model, warm)
    sizes = (chosen.questions, chosen.neighbors)
    rounds = rounds_of_an_attack(model, vocab, *sizes, chosen.steps, None)
    compare("attack, no prefix", model, rounds, 6)
    solved = langgame(frequent_words(500), 10, seed=1, split="train", format="short")
    prefix = solved_examples(vocab, solved, seed=0)
    rounds = rounds_of_an_attack(model, vocab, 2, 12, 2, prefix)
    compare(f"attack, K = 10 ({len(prefix)} tokens)", model, rounds, 30)


if __name__ == "__main__":
    main()
