"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from pydantic import TypeAdapter, with_config

from robustok.checks import Settings, option
from robustok.errors import RobustokError, nearest
from robustok.runtime.files import JsonObject
from robustok.runtime.hub import is_served
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
    other_models: tuple[ModelSection, ...] = option(
        "further models that exist, measured as the first one", default=()
    )
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
    def by_model(self) -> Iterator[Study]:
        """The study of each model, that of `model` first."""
        for model in (self.model, *self.other_models):
            yield replace(self, model=model, other_models=()) if self.other_models else self

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
    for is_wrong, field, message in chain(_rules(study), _rules_of_lists(study)):
        if is_wrong:
            yield field, message


def _rules(study: Study) -> Iterator[tuple[object, str, str]]:
    """Whether sections contradict each other, the field to change, and what is wrong."""
    model, pretrain, corpus, task = study.model, study.pretrain, study.corpus, study.task
    on_text = pretrain is not None and pretrain.source == "corpus"
    needs_text = on_text or (study.perplexity and not task)
    has_text = corpus is not None and (corpus.hub or corpus.train or not on_text)
    held_out = corpus is not None and (corpus.hub or corpus.held_out)
    trained = pretrain or study.finetune or model.name is None
    several = study.repeats > 1 or study.first_repeat or study.few_shot or study.other_models
    yield (
        task is None and (study.finetune or (study.attacks and not study.questions)),
        "task", "there is no task to fine-tune on or to attack: give a task section",
    )  # fmt: skip
    yield (
        study.strength and not (study.finetune or study.evaluate),
        "strength", "there are no schemes to set: give a finetune or an evaluate section",
    )  # fmt: skip
    yield (
        study.evaluate and not (task or study.benchmarks or study.questions),
        "evaluate", "there are no questions to evaluate on: give a task or benchmarks section",
    )  # fmt: skip
    yield (
        study.readme and (trained or several),
        "readme", "it is for one model that exists: no training, one seed, no few_shot",
    )  # fmt: skip
    yield (
        study.other_models and trained,
        "other_models", "they exist, as the first one: give model.name, and train nothing",
    )  # fmt: skip
    yield (
        model.is_chat and (study.few_shot or study.finetune),
        "model", "a chat template is around questions alone: leave few_shot and finetune out",
    )  # fmt: skip
    yield (
        model.name is None and pretrain is None,
        "model", "random weights need a pretrain section, or give model.name",
    )  # fmt: skip
    yield (
        model.name is None and study.tokenizer is None,
        "tokenizer", "a model from random weights needs a tokenizer section",
    )  # fmt: skip
    yield (
        model.name is not None and pretrain is not None,
        "pretrain", "only random weights are pre-trained: leave it or model.name out",
    )  # fmt: skip
    yield (
        model.name is not None and study.tokenizer and study.tokenizer.size is not None,
        "tokenizer", "a model with a name has a tokenizer: leave the section out",
    )  # fmt: skip
    yield (
        pretrain and not on_text and task is None,
        "pretrain", "there is no task to pre-train on: give a task section, or source: corpus",
    )  # fmt: skip
    yield (
        needs_text and not has_text,
        "corpus", "this study needs text: give files with --corpus and --held-out",
    )  # fmt: skip
    yield (
        needs_text and has_text and study.perplexity and not held_out,
        "corpus.held_out", "perplexity needs text held out: give a file with --held-out",
    )  # fmt: skip


def _rules_of_lists(study: Study) -> Iterator[tuple[object, str, str]]:
    """The same for what stands in lists and numbers."""
    task, evaluate, benchmarks = study.task, study.evaluate, study.benchmarks
    served = [one for one in (study.model, *study.other_models) if is_served(one.name)]
    yield (
        served and study.finetune,
        "finetune", "a model behind a server cannot be trained: give its folder",
    )  # fmt: skip
    yield (
        served and study.tokenizer is None,
        "tokenizer", "a server does not give its tokenizer: name its file or folder",
    )  # fmt: skip
    yield (
        study.perplexity and any(one.start_token is None for one in served),
        "model.start_token", "a server does not say which token begins a text, which perplexity "
        "needs: give the start token",
    )  # fmt: skip
    for one in study.measurements if served else ():
        message = f"{one.kind} needs the weights of the model, which a server does not give"
        yield one.reads_weights, "model", message
    for one in study.measurements if study.model.is_chat else ():
        message = f"{one.kind} reads no chat template: leave chat and system out"
        yield not one.reads_chat, "model", message
    strengths = study.strength.splits if study.strength else ()
    for part, name in SCHEMES_SET:
        for spec in getattr(getattr(study, part), name, ()):
            splits, message = splits_in(spec), "give the scheme, and its splits under strength"
            yield (
                splits is not None and splits not in strengths,
                f"{part}.{name}",
                (f"{spec}: {message}"),
            )
    for i, name in enumerate(benchmarks.names if benchmarks and not benchmarks.folder else ()):
        if name not in HUB:
            yield True, f"benchmarks.names.{i}", f"no benchmark '{name}': {nearest(name, HUB)}"
    names = [attack.eval_scheme for attack in study.attacks]
    for i, name in enumerate(names):
        yield name in names[:i], f"attacks.{i}", f"{name} is already in the list"
    limits = {f"attacks.{i}.items": attack.items for i, attack in enumerate(study.attacks)}
    if evaluate:
        limits["evaluate.items"] = evaluate.items
        limits["evaluate.canonical_items"] = evaluate.canonical_items
    for field, items in limits.items():
        if task and items:
            message = f"{items} questions, but task.test is {task.test}"
            yield items > task.test, field, message
    examples = study.few_shot.examples if study.few_shot else 0
    for one in filter(None, (task, *(study.other_tasks or ()))):
        message = f"{examples} examples, but {one.kind} has {one.train} questions to train on"
        yield examples > one.train, "few_shot.examples", message
    if study.bound and not (task or study.questions):
        for name in ("items", "scheme", "draws", "attack"):
            changed = getattr(study.bound, name) != getattr(Bound, name)
            yield changed, f"bound.{name}", "nothing is drawn without questions: leave it out"
