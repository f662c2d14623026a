"""SmolLM2 behind real vLLM beside the same weights in this process: answers, requests, seconds.

    vllm serve FOLDER --host 127.0.0.1 --port 8000 --max-model-len 1024 --max-num-seqs 16 \\
        --dtype float32 --enforce-eager
    python benchmarks/served.py http://127.0.0.1:8000/v1 --pid PID_OF_VLLM

FOLDER is that of the packaged model (`robustok.runtime.hub.packaged_folder("smollm2-135m")`).
Prints a line of JSON for each part. Processor seconds of the server are those of its processes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import robustok as rt
import robustok.attack.search as search
import robustok.evaluation.accuracy as accuracy
from robustok.attack import attack_items
from robustok.evaluation import evaluate, perplexity, solved_examples
from robustok.models import ServedModel, load_model
from robustok.runtime.hub import packaged_folder
from robustok.scoring.engine import text_losses
from robustok.tasks import frequent_words, langgame
from robustok.tokenizer.vocabulary import start_token_ids

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def processor_seconds(pid: int | None) -> float:
    """Of a process and all its children so far."""
    process = psutil.Process(pid)
    family = [process, *(process.children(recursive=True) if pid else [])]
    return sum(sum(one.cpu_times()[:2]) for one in family)


def recorded(module: Any, log_probs: list[np.ndarray]) -> None:
    """Let a module's `score_many` also append its log-probabilities to a list."""
    score_many = module.score_many

    def record(*arguments: Any, **options: Any) -> Any:
        results = score_many(*arguments, **options)
        log_probs.extend(scores.log_probs for scores in results)
        return results

    module.score_many = record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    folder = packaged_folder("smollm2-135m")
    vocab = rt.Vocabulary.load(folder)
    served, local = ServedModel(options.url), load_model(folder, dtype=options.dtype)
    log_probs: list[np.ndarray] = []
    for module in (accuracy, search):
        recorded(module, log_probs)

    def measured(call: Any, model: Any, pid: int | None) -> tuple[Any, list[np.ndarray], Any]:
        log_probs.clear()
        before = time.perf_counter(), processor_seconds(pid), served.n_requests
        result = call(model)
        seconds, processor = time.perf_counter() - before[0], processor_seconds(pid) - before[1]
        numbers = {"seconds": round(seconds, 1), "processor": round(processor, 1)}
        return result, list(log_probs), numbers | {"requests": served.n_requests - before[2]}

    def compare(name: str, call: Any, answers: Any) -> None:
        other, theirs, remote = measured(call, served, options.pid)
        here, ours, own = measured(call, local, None)
        differences = [float(np.abs(a - b).max()) for a, b in zip(theirs, ours, strict=True)]
        row = {"part": name, "served": remote, "local": own, "answers": answers(here, other)}
        row |= {"log_probs": sum(a.size for a in ours), "largest": max(differences, default=None)}
        print(json.dumps(row), flush=True)

    items = langgame(frequent_words(200), 200, seed=0, split="test")
    start = np.array(start_token_ids(vocab, "<|endoftext|>"))
    examples = solved_examples(vocab, items[:5], "stochastok(alpha=1)", seed=0)
    texts = [line for line in README.splitlines() if len(line) > 60][:12]
    row = vocab.encode_batch([README[:9000]])

    def of_questions(scheme: str, chosen: Any, prefix: Any, draws: int = 1) -> Any:
        return lambda model: evaluate(
            model, vocab, chosen, scheme, draws=draws, seed=0, prefix=prefix
        )

    def equal_answers(here: Any, other: Any) -> str:
        pairs = zip(here.outcomes, other.outcomes, strict=True)
        return f"{sum(a.predictions == b.predictions for a, b in pairs)} of {len(here.outcomes)}"

    def equal_attacks(here: Any, other: Any) -> str:
        pairs = zip(here.attacks, other.attacks, strict=True)
        equal = sum(np.array_equal(a.ids, b.ids) for a, b in pairs)
        scored = sum(one.n_scored for one in here.attacks)
        return f"{equal} of {len(here.attacks)}, {scored} tokenizations"

    compare("canonical", of_questions("canonical", items, start), equal_answers)
    compare("uniform", of_questions("uniform", items, start), equal_answers)
    compare("few-shot", of_questions("uniform", items[5:25], examples, draws=2), equal_answers)
    compare(
        "adversarial",
        lambda model: attack_items(model, vocab, items[:6], steps=2, seed=0, prefix=start),
        equal_attacks,
    )
    compare(
        "texts",
        lambda model: perplexity(model, vocab, texts, "uniform", draws=2, seed=0, start=0),
        lambda here, other: [here.perplexity, other.perplexity],
    )
    compare(
        "long text",
        lambda model: text_losses(model, row, max_length=1024, start=0),
        lambda here, other: [float(here[0]), float(other[0])],
    )


if __name__ == "__main__":
    main()
