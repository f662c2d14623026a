"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

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

SCHEMES_SET = (("finetune", "schemes"), ("evaluate", "eval_schemes"))  # set by `strength`


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
        measured = (self.perplexity, self.evaluate, *self.attacks, self.bound, self.embeddings)
        return (one for one in measured if one is not None)


STUDY = TypeAdapter(Study)  # reads the fields of a study, and writes them


def _contradictions(study: Study) -> Iterator[tuple[str, str]]:
    """What is wrong across sections: a field and a message for each."""
    yield from ((field, message) for is_wrong, field, message in _RULES if is_wrong(study))
    yield from _wrong_measurements(study)
    yield from _wrong_lists(study)
    yield from _wrong_numbers(study)


def _on_text(study: Study) -> bool:
    """Whether models are pre-trained on the corpus."""
    return study.pretrain is not None and study.pretrain.source == "corpus"


def _needs_text(study: Study) -> bool:
    return bool(_on_text(study) or (study.perplexity and not study.task))


def _has_text(study: Study) -> bool:
    corpus = study.corpus
    return bool(corpus and (corpus.hub or corpus.train or not _on_text(study)))


def _is_held_out(study: Study) -> bool:
    return bool(study.corpus and (study.corpus.hub or study.corpus.held_out))


def _is_trained(study: Study) -> bool:
    return bool(study.pretrain or study.finetune or study.model.name is None)


def _served(study: Study) -> list[ModelSection]:
    return [model for model in (study.model, *study.other_models) if is_served(model.name)]


# Whether sections contradict each other, the field to change, and what is wrong.
_RULES: tuple[tuple[Callable[[Study], object], str, str], ...] = (
    (lambda s: s.task is None and (s.finetune or (s.attacks and not s.questions)), "task",
     "there is no task to fine-tune on or to attack: give a task section"),
    (lambda s: s.strength and not (s.finetune or s.evaluate), "strength",
     "there are no schemes to set: give a finetune or an evaluate section"),
    (lambda s: s.evaluate and not (s.task or s.benchmarks or s.questions), "evaluate",
     "there are no questions to evaluate on: give a task or benchmarks section"),
    (lambda s: s.readme and (_is_trained(s) or s.repeats > 1 or s.first_repeat or s.few_shot
                             or s.other_models), "readme",
     "it is for one model that exists: no training, one seed, no few_shot"),
    (lambda s: s.other_models and _is_trained(s), "other_models",
     "these are models that exist: give model.name, too, and train nothing"),
    (lambda s: s.model.is_chat and (s.few_shot or s.finetune), "model",
     "a chat template is around questions alone: leave few_shot and finetune out"),
    (lambda s: s.model.name is None and s.pretrain is None, "model",
     "random weights need a pretrain section, or give model.name"),
    (lambda s: s.model.name is None and s.tokenizer is None, "tokenizer",
     "a model from random weights needs a tokenizer section"),
    (lambda s: s.model.name is not None and s.pretrain, "pretrain",
     "only random weights are pre-trained: leave it or model.name out"),
    (lambda s: s.model.name is not None and s.tokenizer and s.tokenizer.size, "tokenizer",
     "a model with a name has a tokenizer: leave the section out"),
    (lambda s: s.pretrain and not _on_text(s) and s.task is None, "pretrain",
     "there is no task to pre-train on: give a task section, or source: corpus"),
    (lambda s: _needs_text(s) and not _has_text(s), "corpus",
     "this study needs text: give files with --corpus and --held-out"),
    (lambda s: _needs_text(s) and s.perplexity and not _is_held_out(s), "corpus.held_out",
     "perplexity needs text held out: give a file with --held-out"),
    (lambda s: _served(s) and s.finetune, "finetune",
     "a model behind a server cannot be trained: give its folder"),
    (lambda s: _served(s) and s.tokenizer is None, "tokenizer",
     "a server does not give its tokenizer: name its file or folder"),
    (lambda s: s.perplexity and any(model.start_token is None for model in _served(s)),
     "model.start_token", "a server does not say which token begins a text, which perplexity "
     "needs: give the start token"),
    (lambda s: not [*s.measurements], "evaluate",
     "nothing is measured: give evaluate, attacks, bound, perplexity or embeddings"),
)  # fmt: skip


def _wrong_measurements(study: Study) -> Iterator[tuple[str, str]]:
    """What measurements need that the model or the study has not."""
    for one in study.measurements:
        if one.reads_weights and _served(study):
            message = "needs the weights of the model, which a server does not give"
            yield "model", f"{one.kind} {message}"
        if not one.reads_chat and study.model.is_chat:
            yield "model", f"{one.kind} reads no chat template: leave chat and system out"
    if study.bound and not (study.task or study.questions):
        for name in ("items", "scheme", "draws", "attack"):
            if getattr(study.bound, name) != getattr(Bound, name):
                yield f"bound.{name}", "nothing is drawn without questions: leave it out"


def _wrong_lists(study: Study) -> Iterator[tuple[str, str]]:
    """Schemes, benchmarks and attacks that no list may have."""
    strengths = study.strength.splits if study.strength else ()
    for part, name in SCHEMES_SET:
        for spec in getattr(getattr(study, part), name, ()):
            if splits_in(spec) not in (None, *strengths):
                advice = (
                    "give the scheme alone; measured splits stand in a study's section strength"
                )
                yield f"{part}.{name}", f"{spec}: {advice}"
    benchmarks = study.benchmarks
    for i, name in enumerate(benchmarks.names if benchmarks and not benchmarks.folder else ()):
        if name not in HUB:
            yield f"benchmarks.names.{i}", f"no benchmark '{name}': {nearest(name, HUB)}"
    names = [attack.eval_scheme for attack in study.attacks]
    for i, name in enumerate(names):
        if name in names[:i]:
            yield f"attacks.{i}", f"{name} is already in the list"


def _wrong_numbers(study: Study) -> Iterator[tuple[str, str]]:
    """More questions or examples than there are."""
    limits = {f"attacks.{i}.items": attack.items for i, attack in enumerate(study.attacks)}
    for name in ("items", "canonical_items"):
        limits[f"evaluate.{name}"] = getattr(study.evaluate, name, None)
    for field, items in limits.items():
        if study.task and items and items > study.task.test:
            yield field, f"{items} questions, but task.test is {study.task.test}"
    examples = study.few_shot.examples if study.few_shot else 0
    for one in filter(None, (study.task, *(study.other_tasks or ()))):
        if examples > one.train:
            message = f"{examples} examples, but {one.kind} has {one.train} questions to train on"
            yield "few_shot.examples", message
