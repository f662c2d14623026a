"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import TypeAdapter, with_config

from robustok.checks import Settings, option
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonObject
from robustok.samplers.strength import splits_in
from robustok.study.measurements import (
    Attack,
    Bound,
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
    TokenizerSection,
    WordTask,
)
from robustok.tasks import HUB

SCHEMES_SET = (
    ("finetune", "schemes"),
    ("evaluate", "eval_schemes"),
)  # set by `strength`


class Contradiction(RobustokError):
    """Sections that contradict each other; ``field`` is the dotted name of one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@with_config(extra="forbid", allow_inf_nan=False)  # of the sections, too
@dataclass(frozen=True, kw_only=True)
class Study(Settings):
    """One figure, table or question, from data to report.

    >>> from robustok.study import find_study
    >>> find_study("teaser").paper.where
    'Figure 1'

    Args:
        model: the section of the model. ``corpus``, ``pretrain``, ``finetune``, ``benchmarks``,
            ``few_shot``, ``questions``, ``strength`` and ``paper`` are sections, too.
        evaluate: a measurement, as ``bound``, ``perplexity``, ``embeddings`` and each
            of ``attacks``.

    Every field of a section has its text in :func:`study_schema`.
    """

    name: str = option("in lower case, with digits and hyphens", pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = option("title of the report")
    about: str = option("what the study measures, for its list", default="")
    scale: str = option("which of the scales this is", default="full")
    seed: int = option("seed of the first repeat", min=0, lt=2**62)
    repeats: int = option(
        "repeats of models and measurements, with the following seeds", default=1, min=1
    )
    first_repeat: int = option(
        "number of the first repeat; those before it are of another run", default=0, min=0
    )
    threads: int | None = option(
        "threads of each cell; as many cells as fit run at once", default=None, min=1
    )
    readme: bool = option("also write the report of one model as its README.md", default=False)
    task: WordTask | None = option(
        "generated questions to train and evaluate on; null: none", default=None
    )
    other_tasks: tuple[WordTask, ...] | None = option(
        "further questions to evaluate on", default=None
    )
    tokenizer: TokenizerSection | None = option("null: the named model's own", default=None)
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
    bound: Bound | None = None
    perplexity: Perplexity | None = None
    embeddings: Embeddings | None = None
    paper: Paper | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, message in _contradictions(self):
            raise Contradiction(field, message)

    def as_dict(self) -> JsonObject:
        """The fields of the study as JSON has them."""
        return STUDY.dump_python(self, mode="json")

    @property
    def repeat_numbers(self) -> range:
        """The numbers of the repeats; each adds its number to the seed."""
        return range(self.first_repeat, self.first_repeat + self.repeats)

    @property
    def measurements(self) -> Iterator[Measurement]:
        """All measurements, in the order in which a model is measured."""
        of_answers = (self.evaluate, *self.attacks)
        for one in (self.perplexity, *of_answers, self.bound, self.embeddings):
            if one is not None:
                yield one


STUDY = TypeAdapter(Study)  # reads the fields of a study, and writes them


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
    yield from _of_bound(study)


def _of_bound(study: Study) -> Iterator[tuple[str, str]]:
    if study.bound and not (study.task or study.questions):
        for name in ("items", "scheme", "draws", "attack"):
            if getattr(study.bound, name) != getattr(Bound, name):
                yield f"bound.{name}", "nothing is drawn without questions: leave it out"


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
            yield "corpus", "this study needs text: give files with --corpus and --held-out"
        elif study.perplexity and not (corpus.hub or corpus.held_out):
            yield "corpus.held_out", "perplexity needs text held out: give a file with --held-out"


def _of_counts(study: Study) -> Iterator[tuple[str, str]]:
    task, evaluate = study.task, study.evaluate
    names = ("items", "canonical_items")
    limits = {f"evaluate.{name}": getattr(evaluate, name) for name in names} if evaluate else {}
    limits |= {f"attacks.{i}.items": attack.items for i, attack in enumerate(study.attacks)}
    for field, items in limits.items():
        if task and items and items > task.test:
            yield field, f"{items} questions, but task.test is {task.test}"
    examples = study.few_shot.examples if study.few_shot else 0
    for one in (task, *(study.other_tasks or ())):
        if one and examples > one.train:
            message = f"{examples} examples, but {one.kind} has {one.train} questions to train on"
            yield "few_shot.examples", message
