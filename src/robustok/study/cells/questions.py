"""Accuracy on questions as cells: under random tokenizations, and under attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from robustok.attack_settings import suite_label
from robustok.display import Progress
from robustok.files import write_rows
from robustok.study.cells.base import Summary
from robustok.study.cells.data import QuestionsCell
from robustok.study.cells.measurement import MeasurementCell, rounded
from robustok.study.cells.models import ModelCell
from robustok.study.cells.tokenizer import TokenizerCell
from robustok.study.cost import QUESTION_TOKENS, scoring_seconds
from robustok.study.equal_strength import solved
from robustok.study.schema import Adversary
from robustok.tasks import Item

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary

NEIGHBORS = 80  # tokenizations that an attack scores in a step
SUITE_LIMIT = 500  # tokenizations that each search of a suite scores for a question
SEARCHES = 6  # of a suite
STEPS = 3  # until an attack succeeds or gives up


@dataclass(frozen=True)
class FewShot:
    """Solved examples before every question, their questions tokenized by `scheme`."""

    count: int
    scheme: str


class AccuracyCell(MeasurementCell):
    """Accuracy of a model on questions, zero-shot or few-shot."""

    data: QuestionsCell
    few_shot: FewShot | None

    @property
    def version(self) -> int:
        # 2: a few-shot prompt longer than the model's longest input loses its start.
        return 2 if self.few_shot else 1

    @property
    def task(self) -> str:
        return self.data.task

    @property
    def _suffix(self) -> str:
        """The end of the label."""
        after = f" after {self.few_shot.scheme}" if self.few_shot else ""
        return self.data.description + after

    @property
    def _few_shot_fields(self) -> dict[str, Any]:
        if self.few_shot is None:
            return {}
        return {"shots": self.few_shot.count, "context": self.few_shot.scheme}

    def _questions(
        self, count: int, vocab: Vocabulary, folder: Path
    ) -> tuple[list[Item], np.ndarray | None]:
        """The first `count` questions, and the ids before each: start token, few-shot examples."""

        from robustok.evaluation import solved_examples

        few_shot = self.few_shot
        items, examples = self.data.test_and_examples(folder, few_shot.count if few_shot else 0)
        start = self.model.start_ids(vocab)
        if few_shot is None:
            return items[:count], np.array(start, np.int32) if start else None
        prefix = solved_examples(vocab, examples, few_shot.scheme, seed=self.seed, start=start)
        return items[:count], prefix

    def _summary(self, result: Any, items: Sequence[Item], folder: Path) -> Summary:
        write_rows(self.path(folder) / "items.jsonl", result.table())
        return {
            "query": self.query,
            "accuracy": result.accuracy,
            "low": result.low,
            "high": result.high,
            "n": result.n,
            "draws": result.draws,
            "chance": _chance(items),
            **({"overflowed": result.overflowed} if result.overflowed else {}),
        }


def _chance(items: Sequence[Item]) -> float:
    """Accuracy of a guess."""
    return sum(1 / len(item.choices) for item in items) / len(items)


@dataclass(frozen=True)
class EvaluateCell(AccuracyCell):
    """Accuracy over questions drawn by a scheme."""

    kind: ClassVar[str] = "evaluate"

    eval_scheme: str
    items: int
    draws: int
    seed: int
    data: QuestionsCell
    tokenizer: TokenizerCell
    model: ModelCell
    few_shot: FewShot | None = None
    ensemble: str | None = None  # how the draws of a question give one answer

    @property
    def fields(self) -> dict[str, Any]:
        # Without an ensemble the keys are those of earlier releases.
        ensemble = {"ensemble": self.ensemble} if self.ensemble else {}
        return (
            self._few_shot_fields
            | ensemble
            | {
                "seed": self.seed,
                "query": self.eval_scheme,
                "items": self.items,
                "draws": self.draws,
            }
        )

    @property
    def query(self) -> str:
        draws = f", draws={self.draws})"
        return f"ensemble({self.eval_scheme}{draws}" if self.ensemble else self.eval_scheme

    @property
    def label(self) -> str:
        at_once = f", {self.draws} draws at inference" if self.ensemble else ""
        return f"evaluate {self.model.description} on {self.eval_scheme}{at_once}{self._suffix}"

    @property
    def work(self) -> float:
        tokens = 2 * QUESTION_TOKENS * self.items * self.draws
        return scoring_seconds(self.model.parameters, tokens) + 0.5

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.evaluation import drawn_strength, evaluate
        from robustok.samplers import sampler

        vocab = self.tokenizer.vocabulary(folder)
        items, prefix = self._questions(self.items, vocab, folder)
        questions = [item.question for item in items]
        at_strength = solved(self.eval_scheme, vocab, questions)
        drawn_by = at_strength or sampler(self.eval_scheme, vocab)
        result = evaluate(
            self.model.load(folder),
            vocab,
            items,
            drawn_by,
            draws=self.draws,
            seed=self.seed,
            ensemble=self.ensemble,
            prefix=prefix,
            overflow="left",
            progress=progress,
        )
        strength = drawn_strength(vocab, items, drawn_by, draws=self.draws, seed=self.seed)
        summary = self._summary(result, items, folder) | rounded(strength)
        summary["tokens_per_question"] = round(result.tokens_computed / result.n, 1)
        return summary | ({"eval_spec": drawn_by.spec} if at_strength else {})


@dataclass(frozen=True)
class AttackCell(AccuracyCell):
    """Accuracy over questions whose tokenization an attack chooses."""

    kind: ClassVar[str] = "attack"

    attack: Adversary
    seed: int
    data: QuestionsCell
    tokenizer: TokenizerCell
    model: ModelCell
    few_shot: FewShot | None = None

    @property
    def fields(self) -> dict[str, Any]:
        attack = self.attack
        suite = {"suite": attack.suite, "max_scored": self.max_scored} if attack.suite else {}
        # Without it the keys are those of earlier releases.
        stops = {"stop_when_wrong": True} if attack.stop_when_wrong else {}
        return (
            self._few_shot_fields
            | suite
            | stops
            | {
                "items": attack.items,
                "distances": attack.distances,
                "start": attack.start,
                "steps": attack.steps,
                "objective": attack.objective,
                "seed": self.seed,
            }
        )

    @property
    def max_scored(self) -> int:
        """Tokenizations that each search of a suite scores for a question."""
        return self.attack.max_scored or SUITE_LIMIT

    @property
    def query(self) -> str:
        if self.attack.suite:
            return suite_label(self.attack.suite, self.max_scored)
        return str(self.attack.settings)

    @property
    def label(self) -> str:
        if self.attack.suite:
            return f"{self.attack.suite} suite on {self.model.description}{self._suffix}"
        return f"attack {self.model.description} from {self.attack.start}{self._suffix}"

    @property
    def work(self) -> float:
        if self.attack.suite:
            tokens = self.attack.items * SEARCHES * self.max_scored * QUESTION_TOKENS / 3
            return scoring_seconds(self.model.parameters, tokens) + 1
        # The neighbors of a tokenization share most of their tokens.
        steps = self.attack.items * min(self.attack.steps, STEPS) * len(self.attack.distances)
        tokens = steps * NEIGHBORS * QUESTION_TOKENS / 3
        return scoring_seconds(self.model.parameters, tokens) + 1

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.evaluation import attack_items
        from robustok.strength import measure

        vocab = self.tokenizer.vocabulary(folder)
        items, prefix = self._questions(self.attack.items, vocab, folder)
        if self.attack.suite:
            return self._run_suite(folder, items, prefix, progress)
        result = attack_items(
            self.model.load(folder),
            vocab,
            items,
            settings=self.attack.settings,
            seed=self.seed,
            prefix=prefix,
            overflow="left",
            resume_file=self.path(folder) / "attacks.jsonl",
            progress=progress,
        )
        canonical = vocab.encode_batch([item.question for item in items])
        reached = measure(vocab, canonical, [attack.ids for attack in result.attacks])
        summary = self._summary(result, items, folder) | rounded(reached.mean())
        return summary | {"start_accuracy": result.start_accuracy}

    def _run_suite(
        self, folder: Path, items: Sequence[Item], prefix: Any, progress: Progress
    ) -> Summary:
        from robustok.redteam import Prompt, run_suite

        vocab, model = self.tokenizer.vocabulary(folder), self.model.load(folder)
        by_key = {item.key: item for item in items}
        result = run_suite(
            vocab,
            [Prompt(item.key, item.question) for item in items],
            lambda prompt: margin(model, vocab, by_key[prompt.key], prefix),
            suite=str(self.attack.suite),
            seed=self.seed,
            max_scored=self.max_scored,
            progress=progress,
        )
        rows = [
            {"search": name, **attack.as_row()}
            for name, attacks in result.parts.items()
            for attack in attacks
        ]
        write_rows(self.path(folder) / "items.jsonl", rows)
        broken = {row["key"] for row in rows if row["success"]}
        started = float(np.mean([a.canonical_score <= 0 for a in result.worst]))
        held = [item.key not in broken for item in items]
        ids = [np.array(attack.ids, np.int32) for attack in result.worst]
        return self._worst(vocab, items, held, ids) | {"start_accuracy": started}

    def _worst(
        self, vocab: Vocabulary, items: Sequence[Item], held: Sequence[bool], ids: list[np.ndarray]
    ) -> Summary:
        """The summary of a suite: which questions no attack broke, and the worst ids of each."""
        from robustok.evaluation.intervals import clustered
        from robustok.strength import measure

        accuracy, low, high = clustered([float(one) for one in held])
        canonical = vocab.encode_batch([item.question for item in items])
        return {
            "query": self.query,
            "accuracy": accuracy,
            "low": low,
            "high": high,
            "n": len(items),
            "draws": 1,
            "chance": _chance(items),
            **rounded(measure(vocab, canonical, ids).mean()),
        }


def margin(model: Any, vocab: Vocabulary, item: Item, prefix: Any) -> Any:
    """How far the best wrong option of a question is above the right one."""
    from robustok.redteam import Margin

    return Margin(model, vocab, item.choices, item.label, prefix=prefix)
