"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from robustok.study.measurements import (
    Attack,
    Bound,
    Certify,
    Drift,
    Embeddings,
    Evaluate,
    Marginal,
    Measurement,
    Perplexity,
    Vote,
)
from robustok.study.measurements.text import OnText
from robustok.study.sections import (
    BenchmarksSection,
    CorpusSection,
    ExamplesSection,
    FewShot,
    FinetuneSection,
    ModelSection,
    Paper,
    PretrainSection,
    QuestionsSection,
    StrengthSection,
    Strict,
    TokenizerSection,
    WordTask,
    seed_in_range,
)


class Study(Strict):
    """One figure, table or question, from data to report.

    >>> from robustok.study import find_study
    >>> find_study("teaser").paper.where
    'Figure 1'
    """

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]*$", description="in lower case, with digits and hyphens"
    )
    title: str = Field(description="title of the report")
    about: str = Field("", description="what the study measures, for its list")
    scale: str = Field("full", description="which of the scales this is")
    seed: Annotated[int, AfterValidator(seed_in_range)] = Field(
        description="seed of the first repeat"
    )
    repeats: int = Field(
        1, ge=1, description="repeats of models and measurements, with the following seeds"
    )
    first_repeat: int = Field(
        0, ge=0, description="number of the first repeat; those before it are of another run"
    )
    threads: int | None = Field(
        None, ge=1, description="threads of each cell; as many cells as fit run at once"
    )
    readme: bool = Field(False, description="also write the report of one model as its README.md")
    task: WordTask | None = Field(
        None, description="generated questions to train and evaluate on; null: none"
    )
    other_tasks: tuple[WordTask, ...] | None = Field(
        None, description="further questions to evaluate on"
    )
    tokenizer: TokenizerSection | None = Field(None, description="null: the named model's own")
    model: ModelSection
    corpus: CorpusSection | None = None
    pretrain: PretrainSection | None = None
    finetune: FinetuneSection | None = None
    benchmarks: BenchmarksSection | None = None
    few_shot: FewShot | None = None
    questions: QuestionsSection | None = None
    evaluate: Evaluate | None = None
    strength: StrengthSection | None = None
    attacks: tuple[Attack, ...] = ()
    certify: Certify | None = None
    vote: Vote | None = None
    bound: Bound | None = None
    perplexity: Perplexity | None = None
    marginal: Marginal | None = None
    embeddings: Embeddings | None = None
    drift: Drift | None = None
    examples: ExamplesSection | None = None
    paper: Paper | None = None

    @property
    def repeat_numbers(self) -> range:
        """The numbers of the repeats; each adds its number to the seed."""
        return range(self.first_repeat, self.first_repeat + self.repeats)

    @model_validator(mode="after")
    def _readme_of_one_model(self) -> Study:
        trained = self.pretrain or self.finetune or self.model.name is None
        if self.readme and (trained or self.repeats > 1 or self.first_repeat or self.few_shot):
            raise ValueError(
                "readme is for one model that exists: no training, one seed, no few_shot"
            )
        return self

    @model_validator(mode="after")
    def _chat_around_questions(self) -> Study:
        if self.model.is_chat and (self.few_shot or self.finetune):
            raise ValueError(
                "a chat template is around questions alone: leave few_shot and finetune out"
            )
        for one in self.measurements if self.model.is_chat else ():
            if not one.reads_chat:
                raise ValueError(f"{one.kind} reads no chat template: leave chat and system out")
        return self

    @property
    def measurements(self) -> Iterator[Measurement]:
        """All measurements, in the order in which a model is measured."""
        of_text = (self.perplexity, self.marginal)
        of_answers = (self.evaluate, *self.attacks, self.certify, self.vote)
        of_states = (self.bound, self.embeddings)
        for one in (*of_text, *of_answers, *of_states, self.drift):
            if one is not None:
                yield one

    @property
    def reads_text(self) -> bool:
        """Whether a measurement reads held-out text."""
        return any(isinstance(one, OnText) for one in self.measurements)
