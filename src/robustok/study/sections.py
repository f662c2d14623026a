"""The sections of a study that say what is trained and what it is trained on.

Those of measurements are the classes of :mod:`robustok.study.measurements`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from robustok.attack.settings import is_attack
from robustok.checks import Settings, option
from robustok.errors import RobustokError
from robustok.models import Lora, Shape
from robustok.models.load import PRECISIONS
from robustok.runtime.files import JsonObject
from robustok.samplers.spec import Spec
from robustok.samplers.strength import splits_in
from robustok.training.recipe import Recipe

# Metadata of a field that does not enter the keys of cells: it changes no result, or it enters
# through another cell.
NOT_IN_KEY: dict[str, Any] = {"in_key": False}


def _train_spec(spec: str) -> str:
    """The spec or schedule as results name it; one at a measured strength, `splits`, stays."""
    return spec if splits_in(spec) is not None else str(Spec.parse(spec))


def eval_spec(spec: str) -> str:
    """The spec as results name it; raises ValueError for a schedule."""
    name = _train_spec(spec)
    if splits_in(name) is None and Spec.parse(name).is_schedule:
        raise ValueError(f"{name} is a schedule: only training takes one")
    return name


def _distinct(specs: tuple[str, ...]) -> tuple[str, ...]:
    for i, spec in enumerate(specs):
        if spec in specs[:i]:
            raise ValueError(f"{spec} is already in the list")
    return specs


def _listed(value: object) -> Any:
    """A text as a list with one item; None as an empty list."""
    if isinstance(value, list):
        return tuple(value)
    return () if value is None else (value,) if isinstance(value, str) else value


_Listed = BeforeValidator(_listed, json_schema_input_type=tuple[str, ...] | str | None)
EvalSpec = Annotated[str, AfterValidator(eval_spec)]
EvalSpecs = Annotated[tuple[EvalSpec, ...], Field(min_length=1), AfterValidator(_distinct)]
TrainSpec = Annotated[str, AfterValidator(_train_spec)]
TrainSpecs = Annotated[tuple[TrainSpec, ...], Field(min_length=1), AfterValidator(_distinct)]


@dataclass(frozen=True, kw_only=True)
class QuestionFiles(Settings):
    """Questions that exist, instead of generated ones: JSON Lines, as `--items` takes them."""

    train: str = option("file of the questions to train on")
    test: str = option("file of the questions to evaluate on")


@dataclass(frozen=True, kw_only=True)
class WordTask(Settings):
    """Generated questions about the letters of words: LangGame or CUTE."""

    kind: Literal["langgame", "cute"] = option("the game")
    format: Literal["paper", "short"] = option(
        "the wording of the questions, and how options are made", default="paper"
    )
    words: int = option("number of the most frequent English words", default=200, min=8)
    words_file: str | None = option("a file with one word per line, instead", default=None)
    data: QuestionFiles | None = option(
        "files of questions, of which the first are used, instead of generated ones", default=None
    )
    train: int = option("questions to train on", min=1)
    test: int = option("questions to evaluate on", min=1)


@dataclass(frozen=True, kw_only=True)
class TokenizerSection(Settings):
    """A byte-level BPE trained on the study's own training text, or one that exists."""

    size: int | None = option("tokens of a tokenizer that is trained", default=None, min=257)
    name: str | None = option("a tokenizer.json, a folder, or a hub name", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.size is None) == (self.name is None):
            raise RobustokError("give size, or the name of one that exists")


@dataclass(frozen=True, kw_only=True)
class ChatModel(Settings):
    """How a model that exists is loaded, and what is around every question."""

    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "type of the weights: auto (what is fastest here), float32 or bfloat16",
        default="auto",
        choices=PRECISIONS,
        metavar="TYPE",
        panel="Model",
    )
    start_token: str | None = option(
        "special token before every text, as '<|begin_of_text|>'  [default: none]",
        default=None,
        metavar="TOKEN",
        panel="Model",
    )
    chat: bool = option(
        "the question is the user's turn of the chat template",
        default=False,
        panel="Model",
        **NOT_IN_KEY,
    )
    system: str | None = option(
        "system message of the chat template; implies chat",
        default=None,
        panel="Model",
        **NOT_IN_KEY,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_chat and self.start_token is not None:
            raise RobustokError("a chat template has its own start token: leave start_token out")

    @property
    def is_chat(self) -> bool:
        """Whether the chat template is around a question; a system message implies it."""
        return self.chat or self.system is not None


@dataclass(frozen=True, kw_only=True)
class ModelSection(ChatModel):
    """A causal language model from random weights, or one that exists."""

    name: str | None = option(
        "a folder or a hub name, which determines the sizes, or the address of a server",
        default=None,
    )
    label: str | None = option(
        "name of a named model in results; by default its name", default=None
    )
    parameters: float | None = option(
        "of a named model, for the estimate of its cost", default=None, gt=0
    )
    layers: int | None = option("number of decoder layers", default=None, min=1)
    width: int | None = option("hidden size", default=None, min=8)
    heads: int | None = option("attention heads", default=None, min=1)
    kv_heads: int | None = option("heads of keys and values", default=None, min=1)
    feed_forward: int | None = option("size of the feed-forward layers", default=None, min=8)
    max_length: int | None = option("longest input, in tokens", default=None, min=16)
    tied: bool = option("input and output embeddings are one", default=True)
    architecture: Literal["llama", "gpt2", "qwen3", "gemma3"] = option(
        "of a model from random weights", default="llama"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        missing = [name for name in SIZES if getattr(self, name) is None]
        if self.name is None and missing:
            raise RobustokError(f"give {missing[0]}, or the name of a model that exists")
        if self.name is not None and len(missing) < len(SIZES):
            raise RobustokError("a model with a name has its own sizes; give one or the other")
        if self.name is None and (self.start_token is not None or self.is_chat):
            raise RobustokError(
                "a model from random weights has no start_token and no chat template"
            )
        if self.name is None and (self.label is not None or self.parameters is not None):
            raise RobustokError("label and parameters are of a model with a name: leave them out")
        _ = self.name is not None or self.shape

    @property
    def shape(self) -> Shape:
        """The shape of a model from random weights; raises RobustokError for impossible sizes."""
        return Shape(**self.sizes())

    def sizes(self) -> JsonObject:
        """The sizes of a model from random weights, and its architecture."""
        return {name: getattr(self, name) for name in ("architecture", *SIZES, "tied")}


SIZES = ("layers", "width", "heads", "kv_heads", "feed_forward", "max_length")


@dataclass(frozen=True, kw_only=True)
class CorpusSection(Settings):
    """Text to pre-train on and to measure perplexity with: files, or a data set of the hub."""

    train: tuple[str, ...] = option(
        "files to train on: .txt, .jsonl or .parquet, the first two also compressed", default=()
    )
    held_out: Annotated[tuple[str, ...], _Listed] = option(
        "one file or several to measure perplexity on", default=()
    )
    sample_by: Literal["line", "document"] = option(
        "what a document is in .txt files", default="line"
    )
    hub: str | None = option(
        "a data set of the hub instead; its first documents are held out", default=None
    )
    documents: int | None = option("greatest number of documents to train on", default=None, min=1)
    measured: int | None = option(
        "greatest number of held-out documents; null: all of the files", default=100, min=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hub and self.measured is None:
            raise RobustokError("give measured, the documents of the hub that are held out")


@dataclass(frozen=True, kw_only=True)
class TrainingSection(Recipe):
    """What pre-training and fine-tuning have in common."""

    schemes: TrainSpecs = field(
        metadata={"description": "specs or schedules; a model each", **NOT_IN_KEY}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.rows_per_device

    @property
    def recipe(self) -> JsonObject:
        """The fields of :class:`Recipe`, which training takes."""
        return {field.name: getattr(self, field.name) for field in fields(Recipe)}


@dataclass(frozen=True, kw_only=True)
class PretrainSection(TrainingSection):
    """Models trained from random weights, on the task's questions or on the corpus."""

    source: Literal["task", "corpus"] = option(
        "text to train on: the task's questions, or the corpus", default="task"
    )
    end_of_text: str | None = option(
        "token after each document; null: the tokenizer's own", default=None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_every is not None:
            raise RobustokError("models on the way are of a fine-tuning: leave keep_every out")


@dataclass(frozen=True, kw_only=True)
class FinetuneSection(TrainingSection):
    """Models trained further on the task's questions, from every pre-trained one."""

    lora: Lora | None = None
    fixed_draws: int | None = option(
        "draws of each question; null: anew in every epoch", default=None, min=1
    )
    pack: int | None = option(
        "tokens of a row of packed questions; null: one question is a row", default=None, min=16
    )


@dataclass(frozen=True, kw_only=True)
class BenchmarksSection(Settings):
    """Multiple-choice data sets that every model is also evaluated on."""

    names: tuple[str, ...] = option(
        "names on the hub, as arc_easy and copa; none: all of the folder", default=()
    )
    folder: str | None = option("folder of NAME.jsonl files, instead of the hub", default=None)
    items: int = option("greatest number of questions of each", default=500, min=1)


SOURCES = (
    "JSON Lines with question, choices and label, a folder of such files, or the name of a "
    "benchmark on the hub"
)


@dataclass(frozen=True, kw_only=True)
class QuestionsSection(Settings):
    """Multiple-choice questions that exist, as they are: files, folders or hub names."""

    items: Annotated[tuple[str, ...], _Listed] = option(SOURCES, min_length=1)


@dataclass(frozen=True, kw_only=True)
class FewShot(Settings):
    """Solved examples before every question, drawn by each scheme in turn; a cell has one."""

    examples: int = option("solved examples before each question", default=10, min=1)
    schemes: EvalSpecs = option(
        "how the questions of the examples are tokenized, in turn",
        default=("canonical",),
    )

    @property
    def scheme(self) -> str:
        """The scheme of a cell."""
        return self.schemes[0]

    def variants(self) -> Iterator[FewShot]:
        """The same with one scheme each."""
        for scheme in self.schemes:
            yield replace(self, schemes=(scheme,))


@dataclass(frozen=True, kw_only=True)
class StrengthSection(Settings):
    """Measured strengths that every scheme is set to, in place of its own parameter."""

    splits: tuple[Annotated[float, Field(gt=0, le=100)], ...] = option(
        "splits per canonical token, on average over the questions", min_length=1, max_length=20
    )


@dataclass(frozen=True, kw_only=True)
class PaperRow(Settings):
    """The paper's values for one model, in the order of the table's columns."""

    pretrain_scheme: TrainSpec | None = option("scheme of the pre-training", default=None)
    task: str | None = option("of several tasks, which", default=None)
    train_scheme: str = option("scheme of the training, or of the few-shot examples")
    values: tuple[float | None, ...] = option(
        "in percent, or perplexity; null where the paper has none"
    )


@dataclass(frozen=True, kw_only=True)
class PaperTable(Settings):
    """A table or figure of the paper, beside which the report sets the study's own values."""

    note: str = option("which figure or table this is, or what to know of its values", default="")
    measure: Literal["accuracy", "perplexity", "embeddings"] = option(
        "what the values are", default="accuracy"
    )
    columns: tuple[str, ...] = option("evaluation schemes and attacks; of embeddings: the layers")
    rows: tuple[PaperRow, ...] = option("a model each")

    def __post_init__(self) -> None:
        super().__post_init__()
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise RobustokError(
                    f"the row of {row.train_scheme} has {len(row.values)} values for "
                    f"{len(self.columns)} columns"
                )
        if self.measure != "embeddings":  # whose columns are layers; others as results name them
            rows = [replace(row, train_scheme=_train_spec(row.train_scheme)) for row in self.rows]
            columns = (name if is_attack(name) else _train_spec(name) for name in self.columns)
            object.__setattr__(self, "rows", tuple(rows))
            object.__setattr__(self, "columns", tuple(columns))


@dataclass(frozen=True, kw_only=True)
class Paper(Settings):
    """The part of the paper that a study reproduces, with its numbers."""

    where: str = option("figure or table, as Figure 2")
    claims: tuple[str, ...] = option("the paper's conclusions, one sentence each", default=())
    tables: tuple[PaperTable, ...] = option("its numbers", default=())
