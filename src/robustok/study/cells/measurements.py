"""Measurements of a model as cells: accuracy, attacks, perplexity, embeddings, and drift.

A new kind of measurement is a section of the schema, a subclass of :class:`MeasurementCell`, and an
entry in `MEASUREMENTS`. Every measurement has a row in results.jsonl. :class:`ExamplesCell` draws
the examples of a report, which need no model.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from robustok import attack as attacks
from robustok import evaluation
from robustok.attack.settings import ObjectiveSettings, suite_label
from robustok.evaluation.intervals import share
from robustok.evaluation.results import FewShot
from robustok.models.devices import precision_of
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.runtime.files import read_rows, write_json, write_rows
from robustok.samplers import Spec, measure, sampler, schedule
from robustok.samplers.strength import sampler_at_splits, splits_in
from robustok.study.cells.base import CORE, QUESTION_TOKENS, Cell, Summary
from robustok.study.cells.inputs import CorpusCell, DataCell, QuestionsCell, TokenizerCell
from robustok.study.cells.models import FINETUNED, ModelCell
from robustok.study.schema import NOT_IN_KEY, AttackSection, DriftSection, Study
from robustok.tasks import Item, frequent_words
from robustok.tokenizer.vocabulary import Vocabulary

# For estimates of cost:
DOCUMENT_TOKENS = 2_500  # of a held-out document
STEP_NEIGHBORS = 80  # tokenizations that an attack scores in a step
STEPS_TAKEN = 3  # until an attack succeeds or gives up
SUITE_SEARCHES = 6  # of a suite
SAMPLING_COST = 15  # of sampling a token, as a multiple of reading one of a long row


@dataclass(frozen=True)
class Subject:
    """A model to measure, and what it is measured with.

    `questions` are all that the study evaluates on, `few_shots` the examples before them, by each
    scheme in turn (None for no examples). `is_last` is false for a pre-trained model that the study
    trains further.
    """

    model: ModelCell
    seed: int
    tokenizer: TokenizerCell
    corpus: CorpusCell | None
    questions: tuple[QuestionsCell, ...]
    few_shots: tuple[FewShot | None, ...]
    is_last: bool

    @property
    def cell_fields(self) -> dict[str, Any]:
        """The arguments that every :class:`MeasurementCell` takes."""
        return {"model": self.model, "tokenizer": self.tokenizer, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class MeasurementCell(Cell):
    """A measurement of one model; `eval_scheme` names what it was measured under."""

    model: ModelCell
    tokenizer: TokenizerCell
    seed: int

    @classmethod
    @abstractmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        """The measurements of this kind that a study makes of a model."""

    @property
    @abstractmethod
    def eval_scheme(self) -> str:
        """What it was measured under, as the row in results names it."""

    @property
    def task(self) -> str:
        """The name of the task in results."""
        return "text"

    @property
    def label(self) -> str:
        return f"{self.kind} {self.model.description} on {self.eval_scheme}"

    @property
    @abstractmethod
    def tokens(self) -> float:
        """About how many tokens the model reads."""

    @property
    def work(self) -> float:
        return 2 * self.model.origin.parameters * self.tokens / CORE + 1


@dataclass(frozen=True, kw_only=True)
class PerplexityCell(MeasurementCell):
    """Perplexity of held-out documents drawn by a scheme; without a corpus, of the questions."""

    kind: ClassVar[str] = "perplexity"

    spec: str
    corpus: CorpusCell | None
    questions: tuple[QuestionsCell, ...] = field(default=(), metadata=NOT_IN_KEY)

    @classmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        if study.perplexity is None or subject.model.training == FINETUNED:
            return
        questions = () if subject.corpus else subject.questions
        for spec in study.perplexity.eval_schemes:
            yield cls(spec=spec, corpus=subject.corpus, questions=questions, **subject.cell_fields)

    @property
    def eval_scheme(self) -> str:
        return self.spec

    @property
    def tokens(self) -> float:
        if self.corpus is None:
            return 2 * QUESTION_TOKENS * sum(data.count for data in self.questions)
        return self.corpus.text.measured * DOCUMENT_TOKENS

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab = self.tokenizer.vocabulary(folder)
        if self.corpus is not None:
            texts = self.corpus.held_out(folder)
        else:
            texts = [text for data in self.questions for text in _question_texts(data, folder)]
        drawn = sampler(self.spec, vocab).sample_batch(texts, seed=self.seed)
        start = next(iter(self.model.start_ids(vocab)), None)
        result = evaluation.perplexity(
            self.model.load(folder), vocab, texts, self.spec, seed=self.seed, start=start,
            progress=progress,
        )  # fmt: skip
        return asdict(result) | _strength(vocab, texts, drawn)


@dataclass(frozen=True, kw_only=True)
class EmbeddingsCell(MeasurementCell):
    """How far apart a model's layers put the tokenizations of each frequent word."""

    kind: ClassVar[str] = "embeddings"
    eval_scheme: ClassVar[str] = "embeddings"

    words: int
    draws: int

    @classmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        if part := study.embeddings:
            yield cls(words=part.words, draws=part.draws, **subject.cell_fields)

    @property
    def tokens(self) -> float:
        return self.words * self.draws * 3  # a word has few tokens; its tokenizations share them

    def run(self, folder: Path, progress: Progress) -> Summary:
        # The name in a figure, different for a pre-trained model and the models trained from it.
        scheme = self.model.scheme
        before = "before fine-tuning" if scheme == "canonical" else f"{scheme} before fine-tuning"
        fine_tuned = self.model.training == FINETUNED
        vocab = self.tokenizer.vocabulary(folder)
        result = evaluation.embedding_distances(
            self.model.load(folder), vocab, frequent_words(self.words), draws=self.draws,
            seed=self.seed, prefix=self.model.start_ids(vocab) or None,
            name=self.model.description if fine_tuned else before, progress=progress,
        )  # fmt: skip
        return {"layers": result.table()}


@dataclass(frozen=True, kw_only=True)
class AccuracyCell(MeasurementCell):
    """Accuracy of a model on questions, zero-shot or few-shot."""

    data: QuestionsCell
    few_shot: FewShot | None = None

    @property
    def task(self) -> str:
        return self.data.task

    @property
    def label(self) -> str:
        after = f" after {self.few_shot.scheme}" if self.few_shot else ""
        return super().label + self.data.description + after

    def _questions(
        self, count: int, vocab: Vocabulary, folder: Path
    ) -> tuple[list[Item], np.ndarray | None]:
        """The first `count` questions, and the ids before each: start token, few-shot examples."""
        few_shot = self.few_shot
        items, examples = self.data.test_and_examples(folder, few_shot.count if few_shot else 0)
        start = self.model.start_ids(vocab)
        if few_shot is None:
            return items[:count], np.array(start, np.int32) if start else None
        prefix = evaluation.solved_examples(
            vocab, examples, few_shot.scheme, seed=self.seed, start=start
        )
        return items[:count], prefix

    def _summary(self, result: Any, items: Sequence[Item], folder: Path) -> Summary:
        """The summary of an evaluation or attack; its rows for each question go to items.jsonl."""
        write_rows(self.path(folder) / "items.jsonl", result.table())
        names = ("accuracy", "low", "high", "n", "draws")
        summary = {name: getattr(result, name) for name in names} | {"chance": _chance(items)}
        if (consistency := getattr(result, "consistency", None)) is not None:
            summary["consistency"] = round(consistency, 4)
        return summary | ({"overflowed": result.overflowed} if result.overflowed else {})


@dataclass(frozen=True, kw_only=True)
class EvaluateCell(AccuracyCell):
    """Accuracy over questions drawn by a scheme."""

    kind: ClassVar[str] = "evaluate"

    spec: str  # of the questions
    items: int
    draws: int
    ensemble: str | None = None  # how the draws of a question give one answer

    @classmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        part = study.evaluate
        if part is None or not subject.is_last:
            return
        for data, few_shot, spec in product(
            subject.questions, subject.few_shots, part.eval_schemes
        ):
            fixed = splits_in(spec) is None and Spec.parse(spec).is_deterministic
            # By how they give one answer.
            draws: dict[str | None, int] = {None: 1 if fixed else part.draws}
            if part.ensemble is not None and not fixed:
                draws["mean"] = part.ensemble
            for ensemble, count in draws.items():
                yield cls(
                    spec=spec, items=part.items, draws=count, ensemble=ensemble, data=data,
                    few_shot=few_shot, **subject.cell_fields,
                )  # fmt: skip

    @property
    def eval_scheme(self) -> str:
        return f"ensemble({self.spec}, draws={self.draws})" if self.ensemble else self.spec

    @property
    def tokens(self) -> float:
        return 2 * QUESTION_TOKENS * self.items * self.draws

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab = self.tokenizer.vocabulary(folder)
        items, prefix = self._questions(self.items, vocab, folder)
        at_strength = sampler_at_splits(self.spec, vocab, [item.question for item in items])
        drawn_by = at_strength or sampler(self.spec, vocab)
        drawing: Any = {"draws": self.draws, "seed": self.seed}
        result = evaluation.evaluate(
            self.model.load(folder), vocab, items, drawn_by, ensemble=self.ensemble, prefix=prefix,
            overflow="left", progress=progress, **drawing,
        )  # fmt: skip
        strength = evaluation.drawn_strength(vocab, items, drawn_by, **drawing)
        return {
            **self._summary(result, items, folder),
            **_rounded(strength),
            "precision": result.precision,
            "tokens_per_question": round(result.tokens_computed / result.n, 1),
            **({"eval_spec": drawn_by.spec} if at_strength else {}),
        }


@dataclass(frozen=True, kw_only=True)
class AttackCell(AccuracyCell):
    """Accuracy over questions whose tokenization an attack chooses."""

    kind: ClassVar[str] = "attack"

    attack: AttackSection

    @classmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        if not subject.is_last:
            return
        word_tasks = [data for data in subject.questions if isinstance(data, DataCell)]
        for data, few_shot, attack in product(word_tasks, subject.few_shots, study.attacks):
            yield cls(attack=attack, data=data, few_shot=few_shot, **subject.cell_fields)

    @property
    def eval_scheme(self) -> str:
        return self.attack.eval_scheme

    @property
    def tokens(self) -> float:
        if self.attack.suite:
            return self.attack.items * SUITE_SEARCHES * self.attack.limit * QUESTION_TOKENS / 3
        # The neighbors of a tokenization share most of their tokens.
        steps = self.attack.items * min(self.attack.steps, STEPS_TAKEN) * len(self.attack.distances)
        return steps * STEP_NEIGHBORS * QUESTION_TOKENS / 3

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab, model = self.tokenizer.vocabulary(folder), self.model.load(folder)
        items, prefix = self._questions(self.attack.items, vocab, folder)
        if self.attack.suite:
            return self._run_suite(model, vocab, items, prefix, folder, progress)
        result = attacks.attack_items(
            model, vocab, items, settings=self.attack.settings, seed=self.seed, prefix=prefix,
            overflow="left", resume_file=self.path(folder) / "attacks.jsonl", progress=progress,
        )  # fmt: skip
        reached = [attack.ids for attack in result.attacks]
        return {
            **self._summary(result, items, folder),
            **_strength(vocab, [item.question for item in items], reached),
            "start_accuracy": result.start_accuracy,
            "precision": precision_of(model),
        }

    def _run_suite(
        self, model: Any, vocab: Vocabulary, items: Sequence[Item], prefix: Any, folder: Path,
        progress: Progress,
    ) -> Summary:  # fmt: skip
        objective = attacks.objective_by_name(
            model, vocab, ObjectiveSettings("margin"), prefix=prefix
        )
        result = attacks.run_suite(
            vocab,
            [attacks.Prompt.of_item(item) for item in items],
            objective,
            suite=str(self.attack.suite),
            seed=self.seed,
            max_scored=self.attack.limit,
            resume_file=self.path(folder) / "attacks.jsonl",
            progress=progress,
        )
        parts = result.parts.items()
        rows = [{"search": name, **attack.as_row()} for name, part in parts for attack in part]
        write_rows(self.path(folder) / "items.jsonl", rows)
        broken = {row["key"] for row in rows if row["success"]}
        held = [item.key not in broken for item in items]
        return self._suite_summary(vocab, items, held, [attack.ids for attack in result.worst]) | {
            "start_accuracy": float(np.mean([a.canonical_score <= 0 for a in result.worst])),
            "precision": precision_of(model),
        }

    def _suite_summary(
        self, vocab: Vocabulary, items: Sequence[Item], held: Sequence[bool], ids: list[np.ndarray]
    ) -> Summary:
        """The summary of a suite, from whether each question held and the worst ids of each."""
        return {
            **share("accuracy", held),
            "n": len(items),
            "draws": 1,
            "chance": _chance(items),
            **_strength(vocab, [item.question for item in items], ids),
        }


@dataclass(frozen=True, kw_only=True)
class TransferCell(AttackCell):
    """A suite's worst tokenizations together with those found against the other models."""

    kind: ClassVar[str] = "transfer"

    own: AttackCell  # the suite against this model
    others: tuple[AttackCell, ...]  # the same suite against the other models

    @property
    def eval_scheme(self) -> str:
        return suite_label(str(self.attack.suite), self.attack.limit, len(self.others))

    @property
    def tokens(self) -> float:
        return self.attack.items * SUITE_SEARCHES * len(self.others) * QUESTION_TOKENS

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab, model = self.tokenizer.vocabulary(folder), self.model.load(folder)
        items, prefix = self._questions(self.attack.items, vocab, folder)
        own, others = _attacks_of([self.own], folder), _attacks_of(self.others, folder)
        rows = []
        for done, item in enumerate(items, 1):
            # How far the best wrong option is above the right one.
            objective = attacks.Margin(model, vocab, item.choices, item.label, prefix=prefix)
            broken = any(row["success"] for row in own[item.key])
            limit = objective.max_length
            tried = [r for r in others[item.key] if limit is None or len(r["ids"]) <= limit]
            candidates = Ragged.from_rows([np.array(r["ids"], np.int32) for r in tried])
            scores = objective(candidates).tolist() if tried else []
            scored: list[Any] = [row | {"of_model": None} for row in own[item.key]]
            scored += [row | {"score": one} for row, one in zip(tried, scores, strict=True)]
            best = max(scored, key=lambda row: row["score"])  # of equal ones an own one
            worst = {name: best[name] for name in ("key", "ids", "score", "of_model")}
            rows.append(worst | {"success": broken or best["score"] > 0})
            progress(done, len(items))
        write_rows(self.path(folder) / "items.jsonl", rows)
        held = [not row["success"] for row in rows]
        ids = [np.array(row["ids"], np.int32) for row in rows]
        return self._suite_summary(vocab, items, held, ids)


@dataclass(frozen=True, kw_only=True)
class DriftCell(MeasurementCell):
    """Completions sampled after canonical questions, at temperature 1, checked by the guard."""

    kind: ClassVar[str] = "drift"
    eval_scheme: ClassVar[str] = "sampled completions"

    options: DriftSection
    questions: tuple[QuestionsCell, ...]

    @classmethod
    def planned(cls, study: Study, subject: Subject) -> Iterator[MeasurementCell]:
        if study.drift is None or not subject.is_last or not subject.questions:
            return
        yield cls(options=study.drift, questions=subject.questions, **subject.cell_fields)

    @property
    def tokens(self) -> float:
        sampled = SAMPLING_COST * self.options.samples * self.options.tokens
        return self.options.prompts * len(self.questions) * (QUESTION_TOKENS + sampled)

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.evaluation.drift import completion_drift

        vocab, options = self.tokenizer.vocabulary(folder), self.options
        each = [_question_texts(data, folder)[: options.prompts] for data in self.questions]
        texts = [text for questions in each for text in questions]
        drift = completion_drift(
            self.model.load(folder),
            vocab,
            texts,
            samples=options.samples,
            tokens=options.tokens,
            seed=self.seed,
            start=self.model.start_ids(vocab),
            progress=progress,
        )
        rows = ({"key": str(i), "completions": c} for i, c in enumerate(drift.completions))
        write_rows(self.path(folder) / "items.jsonl", rows)
        return asdict(drift) | {"completions": len(texts) * options.samples}


@dataclass(frozen=True)
class ExamplesCell(Cell):
    """Draws of each scheme for a few texts, as the bytes of their tokens; reports show them."""

    kind: ClassVar[str] = "examples"

    texts: tuple[str, ...]
    schemes: tuple[str, ...]
    draws: int
    seed: int
    tokenizer: TokenizerCell

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab = self.tokenizer.vocabulary(folder)
        # Of a schedule, the scheme at the end of the training.
        samplers = {
            scheme: sampler_at_splits(scheme, vocab, self.texts) or schedule(scheme, vocab).at(1.0)
            for scheme in self.schemes
        }
        examples = []
        for text in self.texts:
            for scheme, drawn in samplers.items():
                draws = 1 if drawn.deterministic else self.draws
                rows = drawn.sample_batch([text], seed=self.seed, draws=draws)
                tokens = [[vocab.tokens[i].decode("latin-1") for i in row] for row in rows]
                examples.append({"text": text, "scheme": scheme, "draws": tokens})
        write_json(self.path(folder) / "examples.json", examples)
        return {"texts": len(self.texts)}


# In the order in which a model is measured. Transfers come after all models.
MEASUREMENTS: tuple[type[MeasurementCell], ...] = (
    PerplexityCell,
    EvaluateCell,
    AttackCell,
    EmbeddingsCell,
    DriftCell,
)


def _attacks_of(cells: Sequence[AttackCell], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The attacks of suites by the key of the question, each with the model it was found on."""
    attacks: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        for row in read_rows(cell.path(folder) / "items.jsonl"):
            model = {"of_model": cell.model.description}
            attacks.setdefault(row["key"], []).append(row | model)
    return attacks


def _question_texts(data: QuestionsCell, folder: Path) -> list[str]:
    """The questions of a task, without those that consist of whole sentences only."""
    items, _ = data.test_and_examples(folder, 0)
    return [item.question for item in items if item.question]


def _chance(items: Sequence[Item]) -> float:
    """Accuracy of a guess."""
    return sum(1 / len(item.choices) for item in items) / len(items)


def _strength(vocab: Vocabulary, texts: Sequence[str], rows: Any) -> dict[str, float]:
    """Mean splits, distance and length ratio of rows of ids, one of each text, for a summary."""
    return _rounded(measure(vocab, vocab.encode_batch(texts), rows).mean())


def _rounded(strength: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in strength.items()}
