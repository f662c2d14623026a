"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from robustok.errors import nearest
from robustok.samplers.strength import splits_in
from robustok.study.measurements import (
    Attack,
    Bound,
    Certify,
    Embeddings,
    Evaluate,
    Measurement,
    Perplexity,
)
from robustok.study.sections import (
    BenchmarksSection,
    CorpusSection,
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
)
from robustok.tasks import HUB

CONTRADICTION = "contradiction"  # of sections; pydantic's name of the error
SCHEMES_SET = (("finetune", "schemes"), ("evaluate", "eval_schemes"))  # by `strength`


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
    seed: int = Field(ge=0, lt=2**62, description="seed of the first repeat")
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
    bound: Bound | None = None
    perplexity: Perplexity | None = None
    embeddings: Embeddings | None = None
    paper: Paper | None = None

    @property
    def repeat_numbers(self) -> range:
        """The numbers of the repeats; each adds its number to the seed."""
        return range(self.first_repeat, self.first_repeat + self.repeats)

    @model_validator(mode="after")
    def _without_contradictions(self) -> Study:
        for field, message in _contradictions(self):
            raise PydanticCustomError(
                CONTRADICTION, "{field}: {message}", {"field": field, "message": message}
            )
        return self

    @property
    def measurements(self) -> Iterator[Measurement]:
        """All measurements, in the order in which a model is measured."""
        of_answers = (self.evaluate, *self.attacks, self.certify)
        for one in (self.perplexity, *of_answers, self.bound, self.embeddings):
            if one is not None:
                yield one


def _contradictions(study: Study) -> Iterator[tuple[str, str]]:
    """What is wrong across sections: a field and a message for each."""
    if study.task is None and (study.finetune or (study.attacks and not study.questions)):
        yield "task", "there is no task to fine-tune on or to attack: give a task section"
    if study.strength and not (study.finetune or study.evaluate):
        yield "strength", "there are no schemes to set: give a finetune or an evaluate section"
    strengths = study.strength.splits if study.strength else ()
    for part, name in SCHEMES_SET:
        for spec in getattr(getattr(study, part), name, ()):
            if (splits := splits_in(spec)) is not None and splits not in strengths:
                yield f"{part}.{name}", f"{spec}: give the scheme, and its splits under strength"
    if study.evaluate and not (study.task or study.benchmarks or study.questions):
        yield "evaluate", "there are no questions to evaluate on: give a task or benchmarks section"
    if study.benchmarks and study.benchmarks.folder is None:
        for i, name in enumerate(study.benchmarks.names):
            if name not in HUB:
                yield f"benchmarks.names.{i}", f"no benchmark '{name}': {nearest(name, HUB)}"
    names = [attack.eval_scheme for attack in study.attacks]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield f"attacks.{i}", f"{name} is already in the list"
    yield from _of_one_model(study)
    yield from _of_training(study)
    yield from _of_counts(study)


def _of_one_model(study: Study) -> Iterator[tuple[str, str]]:
    trained = study.pretrain or study.finetune or study.model.name is None
    if study.readme and (trained or study.repeats > 1 or study.first_repeat or study.few_shot):
        yield "readme", "it is for one model that exists: no training, one seed, no few_shot"
    if study.model.is_chat and (study.few_shot or study.finetune):
        yield "model", "a chat template is around questions alone: leave few_shot and finetune out"
    for one in study.measurements if study.model.is_chat else ():
        if not one.reads_chat:
            yield "model", f"{one.kind} reads no chat template: leave chat and system out"


def _of_training(study: Study) -> Iterator[tuple[str, str]]:
    model, pretrain, corpus = study.model, study.pretrain, study.corpus
    if model.name is None and pretrain is None:
        yield "model", "random weights need a pretrain section, or give model.name"
    if model.name is None and study.tokenizer is None:
        yield "tokenizer", "a model from random weights needs a tokenizer section"
    if model.name is not None and pretrain is not None:
        yield "pretrain", "only random weights are pre-trained: leave it or model.name out"
    if model.name is not None and study.tokenizer and study.tokenizer.size is not None:
        yield "tokenizer", "a model with a name has a tokenizer: leave the section out"
    on_text = pretrain is not None and pretrain.source == "corpus"
    if pretrain and not on_text and study.task is None:
        message = "there is no task to pre-train on: give a task section, or source: corpus"
        yield "pretrain", message
    if on_text or (study.perplexity and not study.task):
        if corpus is None or not (corpus.hub or corpus.train or not on_text):
            yield "corpus", "this study needs text: give files as corpus and held_out"
        elif study.perplexity and not (corpus.hub or corpus.held_out):
            yield "corpus.held_out", "perplexity needs text held out: give a file as held_out"


def _of_counts(study: Study) -> Iterator[tuple[str, str]]:
    task, evaluate = study.task, study.evaluate
    limits = {"evaluate.items": evaluate.items} if evaluate else {}
    limits |= {f"attacks.{i}.items": attack.items for i, attack in enumerate(study.attacks)}
    for field, items in limits.items():
        if task and items and items > task.test:
            yield field, f"{items} questions, but task.test is {task.test}"
    examples = study.few_shot.examples if study.few_shot else 0
    for one in (task, *(study.other_tasks or ())):
        if one and examples > one.train:
            message = f"{examples} examples, but {one.kind} has {one.train} questions to train on"
            yield "few_shot.examples", message
