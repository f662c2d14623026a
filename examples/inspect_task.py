"""Task of Inspect: accuracy on multiple-choice items whose tokenization an attack chooses.

    inspect eval examples/inspect_task.py --model none -T path=MODEL -T items=questions.jsonl

A relative path is one of the folder of that command, though Inspect runs a task in the folder of
its file. The attack needs log-probabilities after token ids, which the models of Inspect do not
give. The solver therefore loads the model of the folder or hub name ``path`` itself.
"""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Score, accuracy, scorer, stderr
from inspect_ai.solver import solver

from robustok import Vocabulary
from robustok.attack import attack
from robustok.models import load_model
from robustok.tasks import read_items


@task
def robust_accuracy(
    path: str, items: str, max_scored: int = 200, limit: int | None = None, seed: int = 0
) -> Any:
    """Accuracy after an attack on every item.

    Args:
        path: the model, a folder or hub name.
        items: JSON Lines with question, choices and label, or a benchmark.
        max_scored: tokenizations that the attack scores for an item.
        limit: the first so many items, by default all.
        seed: decides all random choices.
    """
    path, items = _resolved(path), _resolved(items)
    samples = [
        Sample(
            id=item.key, input=item.question, choices=list(item.choices),
            target=item.choices[item.label], metadata={"label": item.label},
        )
        for item in read_items(items, limit=limit)
    ]  # fmt: skip
    return Task(
        dataset=MemoryDataset(samples),
        solver=attack_tokenization(path, max_scored, seed),
        scorer=chosen_option(),
    )


@solver
def attack_tokenization(path: str, max_scored: int = 200, seed: int = 0) -> Any:
    """Answers with the option that the model prefers under the attacked tokenization.

    Args:
        path: the model, a folder or hub name.
        max_scored: tokenizations that the attack scores for an item.
        seed: decides all random choices.
    """

    async def solve(state: Any, generate: Any) -> Any:
        model, vocab = _loaded(path)
        options = [choice.value for choice in state.choices]
        result = attack(
            model, vocab, state.input_text, options, state.metadata["label"],
            restarts=1000, max_scored=max_scored, seed=seed,
        )  # fmt: skip
        answer = options[max(range(len(options)), key=lambda i: result.log_probs[i])]
        state.metadata |= {
            "ids": result.ids.tolist(), "margins": result.margins, "n_scored": result.n_scored,
        }  # fmt: skip
        state.output = ModelOutput.from_content(path, answer)
        return state

    return solve


@scorer(metrics=[accuracy(), stderr()])
def chosen_option() -> Any:
    """Whether the chosen option is the right one."""

    async def score(state: Any, target: Any) -> Any:
        answer = state.output.completion
        return Score(value="C" if answer == target.text else "I", answer=answer)

    return score


def _resolved(name: str) -> str:
    """A path as the shell that started Inspect sees it; any other name as it is."""
    given = Path(os.environ.get("PWD", ".")) / name
    return str(given) if given.exists() else name


@cache
def _loaded(path: str) -> tuple[Any, Any]:
    return load_model(path), Vocabulary.load(path)
