"""The schema of a study's YAML. Fields that are not listed here are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from robustok.attack_settings import AttackSettings
from robustok.errors import RobustokError

_ATTACK = AttackSettings()  # its defaults


class Strict(BaseModel):
    # Fields are written by their alias. Keys of cells hash these names, and a run's study.json
    # holds them, so they never change.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True
    )


class QuestionFiles(Strict):
    """Questions that exist, instead of generated ones: JSON Lines, as `--items` takes them."""

    train: str
    test: str


class WordTask(Strict):
    """Generated questions about the letters of words: LangGame or CUTE."""

    kind: Literal["langgame", "cute"]
    format: Literal["paper", "short"] = "paper"  # the wording, and how options are made
    words: int = Field(200, ge=8)  # number of the most frequent English words
    words_file: str | None = None  # or a file with one word per line, instead
    data: QuestionFiles | None = None  # or the questions themselves, of which the first are used
    train: int = Field(ge=1)  # questions
    test: int = Field(ge=1)


class Tokenizer(Strict):
    """A byte-level BPE trained on the study's own training text, or one that exists."""

    size: int | None = Field(None, ge=257)
    name: str | None = None  # a tokenizer.json, a folder, or a hub name

    @model_validator(mode="after")
    def _one(self) -> Tokenizer:
        if (self.size is None) == (self.name is None):
            raise ValueError("give size, or the name of one that exists")
        return self


class Model(Strict):
    """A causal language model from random weights, or one that exists."""

    name: str | None = None  # a folder or a hub name, which determines the sizes below
    parameters: float | None = Field(None, gt=0)  # of a named one, for the estimate of its cost
    layers: int | None = Field(None, ge=1)
    width: int | None = Field(None, ge=8)
    heads: int | None = Field(None, ge=1)
    kv_heads: int | None = Field(None, ge=1)
    feed_forward: int | None = Field(None, ge=8)
    max_length: int | None = Field(None, ge=16, serialization_alias="context")  # tokens
    tied: bool = True  # input and output embeddings are one
    start_token: str | None = None  # before every text, where the model was trained with one
    architecture: Literal["llama", "gpt2", "qwen3", "gemma3"] = "llama"

    @model_validator(mode="after")
    def _whole(self) -> Model:
        missing = [name for name in SIZES if getattr(self, name) is None]
        if self.name is None and missing:
            raise ValueError(f"give {missing[0]}, or the name of a model that exists")
        if self.name is not None and len(missing) < len(SIZES):
            raise ValueError("a model with a name has its own sizes; give one or the other")
        if self.name is None and self.start_token is not None:
            raise ValueError("a model from random weights is trained without start_token")
        return self

    def sizes(self) -> dict[str, Any]:
        """The sizes of a model from random weights, without the default architecture."""
        sizes = {name: getattr(self, name) for name in (*SIZES, "tied")}
        if self.architecture != "llama":
            sizes["architecture"] = self.architecture
        return sizes

    def key_fields(self) -> dict[str, Any]:
        """The sizes under the names that keys of cells hash, which never change."""
        return {"context" if name == "max_length" else name: v for name, v in self.sizes().items()}


SIZES = ("layers", "width", "heads", "kv_heads", "feed_forward", "max_length")


class Corpus(Strict):
    """Text to pre-train on and to measure perplexity with: files, or a data set of the hub."""

    train: tuple[str, ...] = ()  # .txt, .jsonl or .parquet, the first two also compressed
    held_out: str | None = None
    sample_by: Literal["line", "document"] = "line"  # unit of a document in .txt files
    hub: str | None = None  # its first documents are held out
    documents: int | None = Field(None, ge=1)  # greatest number to train on
    measured: int = Field(100, ge=1)  # documents held out


class Training(Strict):
    steps: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    warmup_steps: int = Field(0, ge=0, serialization_alias="warmup")
    min_lr_ratio: float = Field(0.1, ge=0, le=1, serialization_alias="final_rate")
    weight_decay: float = Field(0.01, ge=0)
    gradient_accumulation_steps: int = Field(1, ge=1, serialization_alias="accumulate")
    precision: Literal["float32", "bfloat16"] = "float32"
    save_every: int = Field(200, ge=1)  # steps between checkpoints
    dropout: float | None = Field(None, ge=0, lt=1)  # None: the model's own


class Pretraining(Training):
    source: Literal["task", "corpus"] = "task"
    schemes: tuple[str, ...] = Field(min_length=1)  # a model each
    end_of_text: str | None = None  # the token after each document; None: the tokenizer's own


class Lora(Strict):
    """Low-rank adapters instead of all weights; the defaults are the paper's."""

    rank: int = Field(8, ge=1)
    alpha: float = Field(32, gt=0)
    dropout: float = Field(0.05, ge=0, lt=1)


class Finetuning(Training):
    schemes: tuple[str, ...] = Field(min_length=1)  # a model each, from every pre-trained one
    lora: Lora | None = None
    fixed_draws: int | None = Field(None, ge=1)  # of each question; None: anew in every epoch
    pack: int | None = Field(None, ge=16)  # tokens of a row of packed questions; None: one question


class Benchmarks(Strict):
    """Multiple-choice data sets that every model is also evaluated on."""

    names: tuple[str, ...] = Field(min_length=1)  # as on the hub: arc_easy, copa, ...
    folder: str | None = None  # folder of NAME.jsonl files, instead of the hub
    items: int = Field(500, ge=1)  # at most, of each


class FewShotExamples(Strict):
    """Solved examples before every question, drawn by each scheme in turn."""

    examples: int = Field(ge=1, serialization_alias="shots")  # before each question
    schemes: tuple[str, ...] = Field(min_length=1)


class Questions(Strict):
    """Accuracy on questions drawn by each evaluation scheme in turn."""

    eval_schemes: tuple[str, ...] = Field(min_length=1, serialization_alias="queries")
    items: int = Field(ge=1)
    draws: int = Field(10, ge=1)
    ensemble: int | None = Field(None, ge=2)  # also one answer by the mean over so many draws


class Adversary(Strict):
    """The greedy attack of the paper's Algorithm 2, or a suite of searches."""

    items: int = Field(ge=1)
    distances: tuple[int, ...] = _ATTACK.distances
    start: str = _ATTACK.start
    steps: int = Field(_ATTACK.steps, ge=1)
    objective: str = _ATTACK.objective
    stop_when_wrong: bool = False  # the same accuracy in less time, at smaller margins
    suite: Literal["standard"] | None = None  # the worst of several searches
    max_scored: int | None = Field(None, ge=1)  # tokenizations that each of them scores [500]
    transfer: bool = False  # and those that the suite found against the study's other models

    @model_validator(mode="after")
    def _readable(self) -> Adversary:
        fixed = {"distances", "start", "steps", "objective", "stop_when_wrong"}
        fixed &= self.model_fields_set
        if self.suite is not None and fixed:
            raise ValueError(f"a suite has its own searches: leave {', '.join(sorted(fixed))} out")
        if self.suite is None and self.max_scored is not None:
            raise ValueError("max_scored is for a suite: write suite: standard beside it")
        if self.suite is None and self.transfer:
            raise ValueError("transfer is for a suite: write suite: standard beside it")
        try:
            _ = self.settings
        except RobustokError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def settings(self) -> AttackSettings:
        """The attack without the number of its items."""
        return AttackSettings(
            self.distances, self.start, self.steps, self.objective,
            stop_when_wrong=self.stop_when_wrong,
        )  # fmt: skip


class Perplexity(Strict):
    """Held-out text under each scheme, for every pre-trained model."""

    eval_schemes: tuple[str, ...] = Field(min_length=1, serialization_alias="queries")


class Embeddings(Strict):
    """Distance between the tokenizations of a word, in each layer of each model."""

    words: int = Field(1000, ge=2)  # number of the most frequent English words
    draws: int = Field(50, ge=1)


class Strength(Strict):
    """Measured strengths that every scheme is set to, in place of its own parameter."""

    # Splits per canonical token, on average over the questions.
    splits: tuple[Annotated[float, Field(gt=0, le=100)], ...] = Field(min_length=1, max_length=20)


class Examples(Strict):
    """Texts whose draws the report shows in color."""

    texts: tuple[str, ...] = Field(min_length=1)
    draws: int = Field(3, ge=1)


class PaperRow(Strict):
    """The paper's values for one model, in the order of the table's columns."""

    pretrain: str | None = None
    task: str | None = None  # of several
    train: str  # or the scheme of the few-shot examples
    values: tuple[float | None, ...]  # percent, or perplexity; null where the paper has none


class PaperTable(Strict):
    note: str = ""  # which figure or table this is, or what to know of its values
    measure: Literal["accuracy", "perplexity", "embeddings"] = "accuracy"
    # Evaluation schemes and attacks; of embeddings: the layers.
    columns: tuple[str, ...] = Field(serialization_alias="queries")
    rows: tuple[PaperRow, ...]


class Paper(Strict):
    """The part of the paper that a study reproduces, with its numbers."""

    where: str  # such as Figure 2
    claims: tuple[str, ...] = ()  # the paper's conclusions, one sentence each
    tables: tuple[PaperTable, ...] = ()


class Study(Strict):
    """One figure, table or question, from data to report.

    >>> from robustok.study import find_study
    >>> find_study("teaser").paper.where
    'Figure 1'
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    about: str = ""
    scale: str = "full"  # which of the YAML's scales this is
    seed: int
    repeats: int = Field(1, ge=1)  # repeats of models and measurements, with the following seeds
    threads: int | None = Field(None, ge=1)  # of each cell; as many cells as fit run at once
    task: WordTask | None = None  # none: perplexity alone is measured
    tokenizer: Tokenizer | None = None  # the named model's own, if not given
    model: Model
    corpus: Corpus | None = None
    pretrain: Pretraining | None = None
    finetune: Finetuning | None = None
    benchmarks: Benchmarks | None = None
    few_shot: FewShotExamples | None = Field(None, serialization_alias="context")
    evaluate: Questions | None = None
    strength: Strength | None = None  # of the schemes of finetune and evaluate
    attacks: tuple[Adversary, ...] = ()
    perplexity: Perplexity | None = None
    embeddings: Embeddings | None = None
    examples: Examples | None = None
    paper: Paper | None = None

    @field_validator("seed")
    @classmethod
    def _seed_fits(cls, seed: int) -> int:
        if not 0 <= seed < 2**62:
            raise ValueError("a seed is a whole number from 0 to 2^62 - 1")
        return seed
