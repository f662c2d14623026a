"""Base of measurements: a section of a study, the options of a command, and the work, in one class.

A measurement is a frozen dataclass. Its fields, made by :func:`robustok.checks.option`, are the
section of the YAML and the options of the command of its name. :meth:`Measurement.planned` yields
the cells of one model, and :meth:`Measurement.run` makes the numbers of one cell. A cell holds a
copy of the measurement with one scheme; the fields of this copy enter the key of the cell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

from robustok import evaluation
from robustok.attack.settings import GROUP
from robustok.checks import Settings, option
from robustok.runtime.display import Progress, visible
from robustok.runtime.environment import computed_once
from robustok.runtime.files import JsonFields, JsonObject, write_rows
from robustok.runtime.records import in_groups
from robustok.samplers import Sampler, Spec, sampler
from robustok.samplers.strength import sampler_at_splits, splits_in
from robustok.study.cell import CORE, QUESTION_TOKENS, Cell, Summary
from robustok.study.inputs import CorpusCell, QuestionsCell, TokenizerCell
from robustok.study.models import ModelCell
from robustok.study.sections import EvalSpecs, FewShot
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True)
class Subject:
    """A model to measure, and the inputs of its measurements.

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


@dataclass(frozen=True, kw_only=True)
class Measurement(Settings, ABC):
    """A kind of measurement; a cell holds a copy for one scheme."""

    kind: ClassVar[str]  # the name of the section, the command and the cells
    reads_chat: ClassVar[bool] = False  # whether a chat template can be around a question
    reads_weights: ClassVar[bool] = False  # whether a server cannot give what it needs
    task: ClassVar[str] = "text"  # the task in results, where it is not that of the questions

    @property
    def eval_scheme(self) -> str:
        """The evaluation scheme, attack or measurement that the row in results names."""
        return self.kind

    def planned(self, subject: Subject) -> Iterator[MeasuredCell]:
        """The cells of one model: each variant on each of its inputs."""
        for inputs, variant in product(self.measured_on(subject), self.variants()):
            yield MeasuredCell(
                measurement=variant,
                model=subject.model,
                tokenizer=subject.tokenizer,
                seed=subject.seed,
                **inputs,
            )

    def variants(self) -> Iterator[Self]:
        """The measurements of single cells."""
        yield self

    @abstractmethod
    def measured_on(self, subject: Subject) -> Iterable[JsonFields]:
        """The inputs of cells, `questions`, `few_shot` or `corpus`; none where nothing is due."""

    @abstractmethod
    def tokens_read(self, cell: MeasuredCell) -> float:
        """The approximate number of tokens that the model reads, for estimates of cost."""

    @abstractmethod
    def run(self, opened: OpenedCell) -> Summary:
        """The numbers of one cell, as JSON."""

    def rows(self, row: JsonFields) -> Iterable[JsonFields]:
        """The rows of JSON that the command prints for a cell.

        ``row`` has the numbers of the cell, its names, and the rows of its ``items``, which are not
        printed.
        """
        yield {name: value for name, value in row.items() if name not in ("items", "answers")}

    @abstractmethod
    def line(self, row: JsonFields) -> str:
        """One of ``rows`` as a line for people."""


@dataclass(frozen=True, kw_only=True)
class ByScheme(Measurement):
    """A measurement under each scheme in turn; in a cell it has one scheme."""

    eval_schemes: EvalSpecs = option(
        "how texts are tokenized",
        "--scheme",
        "-s",
        default=("canonical", "uniform"),
        metavar="SCHEME",
    )

    @property
    def scheme(self) -> str:
        """The scheme of a cell."""
        return self.eval_schemes[0]

    @property
    def eval_scheme(self) -> str:
        return self.scheme

    def variants(self) -> Iterator[Self]:
        for scheme in self.eval_schemes:
            yield replace(self, eval_schemes=(scheme,))

    @property
    def is_fixed(self) -> bool:
        """Whether the scheme of a cell always draws the same."""
        return splits_in(self.scheme) is None and Spec.parse(self.scheme).is_deterministic

    def sampler(self, vocab: Vocabulary, texts: Sequence[str]) -> Sampler:
        """The sampler of a cell; of a measured strength, the one that has it on these texts."""
        return sampler_at_splits(self.scheme, vocab, texts) or sampler(self.scheme, vocab)

    def spec_of(self, drawn_by: Sampler) -> dict[str, str]:
        """The spec of a scheme that is named by its measured strength, for a row."""
        return {} if drawn_by.spec == self.scheme else {"eval_spec": drawn_by.spec}


@dataclass(frozen=True, kw_only=True)
class OnQuestions(Measurement):
    """A measurement of each task's questions, zero-shot or after few-shot examples."""

    on_benchmarks: ClassVar[bool] = True  # whether also on the benchmarks of a study

    items: int | None = option(
        "number of questions of each task, at most", "--limit", default=None, min=1
    )

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        tasks = [data for data in subject.questions if self.on_benchmarks or data.is_attacked]
        if not self.on_benchmarks:
            # Sentences alone, as of BLiMP; where there is nothing else, their cell says why.
            tasks = [data for data in tasks if data.has_questions] or tasks
        for data, few_shot in product(tasks, subject.few_shots):
            if subject.is_last:
                yield {"questions": (data,), "few_shot": few_shot}

    def question_tokens(self, cell: MeasuredCell) -> float:
        """About how many canonical tokens the questions have."""
        count = cell.questions[0].count
        return QUESTION_TOKENS * (min(self.items, count) if self.items else count)


@dataclass(frozen=True, kw_only=True)
class MeasuredCell(Cell):
    """One measurement of one model."""

    measurement: Measurement
    model: ModelCell
    tokenizer: TokenizerCell
    seed: int
    corpus: CorpusCell | None = None
    questions: tuple[QuestionsCell, ...] = ()
    few_shot: FewShot | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.measurement.kind

    @property
    def eval_scheme(self) -> str:
        """The evaluation scheme, attack or measurement that the row in results names."""
        return self.measurement.eval_scheme

    @property
    def task(self) -> str:
        """The name of the task in results."""
        return self.task_questions.task if self.task_questions else self.measurement.task

    @property
    def task_questions(self) -> QuestionsCell | None:
        """The questions of a measurement of one task."""
        has_task = isinstance(self.measurement, OnQuestions) and self.questions
        return self.questions[0] if has_task else None

    @property
    def label(self) -> str:
        few_shot = f" after {self.few_shot.scheme}" if self.few_shot else ""
        scheme = "" if self.eval_scheme == self.kind else f" on {self.eval_scheme}"
        task = self.task_questions.description if self.task_questions else ""
        return f"{self.kind} {self.model.description}{scheme}{task}{few_shot}"

    @property
    def work(self) -> float:
        return 2 * self.model.origin.parameters * self.measurement.tokens_read(self) / CORE + 1

    def run(self, folder: Path, progress: Progress) -> Summary:
        return self.measurement.run(OpenedCell(self, folder, progress))


@dataclass(frozen=True)
class OpenedCell:
    """The opened inputs of a cell, and the folder of its files."""

    cell: MeasuredCell
    run_folder: Path
    progress: Progress

    @property
    def folder(self) -> Path:
        """The folder of the cell's files."""
        return self.cell.path(self.run_folder)

    @property
    def seed(self) -> int:
        return self.cell.seed

    @computed_once
    def vocab(self) -> Vocabulary:
        return self.cell.tokenizer.vocabulary(self.run_folder)

    @computed_once
    def model(self) -> Any:
        return self.cell.model.open(self.run_folder)

    @property
    def precision(self) -> str:
        """The type of the model's weights."""
        from robustok.scoring.engine import scored_model  # imports torch

        return scored_model(self.model).precision

    @computed_once
    def start(self) -> list[int]:
        """The ids before every text: the start token, or none."""
        return self.cell.model.start_ids(self.vocab)

    def questions(self, count: int | None) -> tuple[list[Item], JsonObject]:
        """The first `count` questions, and the ids around each, as `prefix` and `suffix`.

        Before a question are the start token and few-shot examples, or else a chat template.
        """
        few_shot = self.cell.few_shot
        items, examples = self.cell.questions[0].test_and_examples(
            self.run_folder, few_shot.examples if few_shot else 0, self.seed
        )
        if few_shot is None:
            tokenizer = self.cell.tokenizer.source(self.run_folder)
            return items[:count], self.cell.model.around(self.vocab, tokenizer)
        scheme = sampler(few_shot.scheme, self.vocab)

        def prefix(question: str) -> Any:
            return evaluation.solved_examples(
                self.vocab, examples, scheme, seed=self.seed, question=question, start=self.start
            )

        return items[:count], {"prefix": prefix}

    def in_groups(
        self, items: Sequence[Any], run: Callable[[Sequence[Any], Progress], Summary]
    ) -> list[Summary]:
        """The results of ``run`` by group of items; the cell's folder keeps finished groups.

        Those of another precision, as `dtype: auto` chooses on another machine, are not continued.
        """
        folder = self.folder / "groups" / self.precision
        return in_groups(folder, {}, items, run, self.progress, size=GROUP)

    def spelled(self, ids: Iterable[int]) -> list[str]:
        """The tokens of a tokenization, for people."""
        return [visible(self.vocab.tokens[i]) for i in ids]

    def write_items(self, rows: Iterable[JsonFields]) -> None:
        """Write the results of each question; the run keeps the file."""
        write_rows(self.folder / "items.jsonl", rows)


def chance(items: Sequence[Item]) -> float:
    """Accuracy of a guess."""
    return sum(1 / len(item.choices) for item in items) / len(items)


def rounded(strength: Mapping[str, float]) -> dict[str, float]:
    """A strength with four decimal places, as in a row."""
    return {name: round(value, 4) for name, value in strength.items()}
