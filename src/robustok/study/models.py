"""Models as cells: one that exists, one pre-trained from random weights, one fine-tuned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from robustok import training
from robustok.models import add_lora, load_model, load_tokenizer, open_model, small_model
from robustok.models.served import ServedModel
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonObject
from robustok.samplers import schedule
from robustok.samplers.strength import sampler_at_splits
from robustok.study.cell import CORE, QUESTION_TOKENS, Cell, Summary
from robustok.study.inputs import CorpusCell, DataCell, External, TokenizerCell
from robustok.study.sections import (
    NOT_IN_KEY,
    FinetuneSection,
    ModelSection,
    PretrainSection,
    TrainingSection,
)
from robustok.tokenizer.chat import chat_frame
from robustok.tokenizer.vocabulary import Vocabulary, end_of_text, start_token_ids
from robustok.training.recipe import recorded_identity, save_tokenizers, step_folder

FINETUNED, PRETRAINED, UNTRAINED = "fine-tuning", "pre-training", ""  # the last training
PUBLISHED = "as published"  # a model that exists, without a record of its training

# The model that this process opened last, by the folder of the run and the key of its cell.
_OPENED: dict[tuple[Path, str], Any] = {}


def close_model() -> None:
    """Free the model that :meth:`ModelCell.open` keeps."""
    _OPENED.clear()


class ModelCell(Cell):
    """A model that other cells train further or measure."""

    training: ClassVar[str]
    scheme: str  # of its last training

    @property
    @abstractmethod
    def origin(self) -> OriginCell:
        """The model before fine-tuning; itself where there was none."""

    @property
    @abstractmethod
    def description(self) -> str:
        """How the model was trained, in a few words."""

    @property
    def trained_with(self) -> str:
        """The scheme of its last training as results have it."""
        return self.scheme

    @property
    def name_in_figure(self) -> str:
        """The description, different for a pre-trained model and those trained from it."""
        if self.training != PRETRAINED:
            return self.description
        before = "before fine-tuning"
        return before if self.scheme == "canonical" else f"{self.scheme} {before}"

    @property
    def label(self) -> str:
        return f"{self.kind} {self.description}"

    def start_ids(self, vocab: Vocabulary) -> list[int]:
        """The ids before every text: the start token, or none."""
        return start_token_ids(vocab, self.origin.start_token)

    def around(self, vocab: Vocabulary, tokenizer: str) -> JsonObject:
        """The ids around every question that stay as they are: `prefix`, `suffix`, or none.

        ``tokenizer`` is what ``vocab`` was loaded from.
        """
        start = self.start_ids(vocab)
        return {"prefix": np.array(start, np.int32)} if start else {}

    def source(self, folder: Path) -> str | Path:
        """What `load_model` takes."""
        return self.path(folder) / "model"

    def load(self, folder: Path, **options: Any) -> Any:
        return load_model(self.source(folder), **{"dtype": self.origin.dtype, **options})

    def open(self, folder: Path) -> Any:
        """The model to measure. It stays loaded until another one is opened or trained."""
        cell_path = folder.resolve(), self.key
        if cell_path not in _OPENED:
            close_model()  # before another one is in memory
            _OPENED[cell_path] = open_model(self.source(folder), dtype=self.origin.dtype)
        return _OPENED[cell_path]

    def run(self, folder: Path, progress: Progress) -> Summary:
        """Open a model that exists, so that an error comes before any work with it."""
        model = self.open(folder)
        is_served = isinstance(model, ServedModel)  # whose size is not known
        return {"parameters": None if is_served else model.num_parameters()}


class OriginCell(ModelCell):
    """A model that fine-tuning starts from."""

    parameters: float  # about how many, for estimates of cost
    start_token: str | None  # before every text, by its name
    dtype: str  # of the weights to measure, also of models trained from it

    @property
    def origin(self) -> OriginCell:
        return self


@dataclass(frozen=True)
class BaseCell(OriginCell):
    """A model that exists."""

    kind: ClassVar[str] = "base"
    training: ClassVar[str] = UNTRAINED
    scheme: ClassVar[str] = "canonical"  # type: ignore[misc]

    model: External
    parameters: float = field(metadata=NOT_IN_KEY)
    start_token: str | None = None
    dtype: str = "auto"
    name: str | None = field(default=None, metadata=NOT_IN_KEY)  # in results

    @property
    def description(self) -> str:
        return self.name or self.model.name.partition("@")[0]

    @property
    def trained_with(self) -> str:
        """The scheme in the record of its training, where its folder has one of this library."""
        recorded = recorded_identity(Path(self.model.name)).get("sampler")
        return recorded if isinstance(recorded, str) else PUBLISHED

    def source(self, folder: Path) -> str:
        return self.model.name


@dataclass(frozen=True)
class ChatCell(BaseCell):
    """A chat model that exists. A question is the user's turn of its template."""

    system: str | None = None

    def around(self, vocab: Vocabulary, tokenizer: str) -> JsonObject:
        return chat_frame(load_tokenizer(tokenizer), system=self.system)._asdict()


@dataclass(frozen=True, kw_only=True)
class TrainedCell(ModelCell):
    """A model that the study trains. Its folder is a model that every command takes."""

    options: TrainingSection
    scheme: str
    seed: int
    repeat: int = field(metadata=NOT_IN_KEY)  # of the study; only shown in the label
    tokenizer: TokenizerCell
    data: DataCell | None = None

    @property
    def description(self) -> str:
        return f"{self.scheme} #{self.repeat}" if self.repeat else self.scheme

    @property
    def work(self) -> float:
        options, length = self.options, self._row_length
        if length is None:  # drawn tokenizations are about twice as long as the canonical ones
            length = QUESTION_TOKENS * (1 if self.scheme == "canonical" else 2)
        tokens = float(options.steps * options.batch_size) * length
        return 6 * self.origin.parameters * tokens / CORE

    @property
    @abstractmethod
    def _row_length(self) -> int | None:
        """Tokens of a full row; None where a row is one question."""

    def _train(
        self,
        train: Callable[..., Any],
        model: Any,
        vocab: Vocabulary,
        content: Any,
        folder: Path,
        progress: Progress,
        **settings: Any,
    ) -> Summary:
        """Train by :func:`robustok.training.pretrain` or ``finetune``, and save the model."""
        close_model()
        out = self.path(folder) / "model"
        common: Any = {"seed": self.seed, "out": out, "progress": progress}
        result = train(model, vocab, content, **common, **self.options.recipe, **settings)
        save_tokenizers(self.tokenizer.source(folder), out)
        return {
            "parameters": model.num_parameters(),
            "last_loss": result.losses[-1][1] if result.losses else None,
            "tokens": result.tokens,
            "overflowed": result.overflowed,
            "precision": result.precision,
        }

    def _train_on_questions(
        self, model: Any, vocab: Vocabulary, folder: Path, progress: Progress, **settings: object
    ) -> Summary:
        """Train with new draws at every step; only the answer enters the loss."""
        assert self.data is not None
        items = self.data.training_items(folder)
        at_strength = sampler_at_splits(self.scheme, vocab, [item.question for item in items])
        settings |= {
            "sampler": at_strength or schedule(self.scheme, vocab),
            "prefix": self.start_ids(vocab),
            "overflow": "canonical",  # of a question that becomes too long, which is counted
        }
        summary = self._train(training.finetune, model, vocab, items, folder, progress, **settings)
        return summary | ({"train_spec": at_strength.spec} if at_strength else {})


@dataclass(frozen=True, kw_only=True)
class PretrainCell(TrainedCell, OriginCell):
    """A small model trained from random weights, on a corpus or on the questions of a task."""

    kind: ClassVar[str] = "pretrain"
    training: ClassVar[str] = PRETRAINED
    start_token: ClassVar[None] = None  # type: ignore[misc]

    options: PretrainSection
    model: ModelSection
    parameters: float = field(metadata=NOT_IN_KEY)
    corpus: CorpusCell | None = None

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.model.dtype

    @property
    def _row_length(self) -> int | None:
        return (self.model.max_length or 512) if self.corpus else None

    def run(self, folder: Path, progress: Progress) -> Summary:
        vocab, end = self.tokenizer.vocabulary(folder), self.options.end_of_text
        end_id = end_of_text(vocab, end)
        model = small_model(vocab.size, self.model.shape, seed=self.seed, end_id=end_id)
        if self.corpus is None:
            return self._train_on_questions(model, vocab, folder, progress)
        settings = {"sampler": schedule(self.scheme, vocab), "end": end}
        text = self.corpus.training_ids(folder)
        return self._train(training.pretrain, model, vocab, text, folder, progress, **settings)


@dataclass(frozen=True, kw_only=True)
class FinetuneCell(TrainedCell):
    """A model trained further on the questions of a task."""

    kind: ClassVar[str] = "finetune"
    training: ClassVar[str] = FINETUNED

    options: FinetuneSection
    model: OriginCell

    @property
    def origin(self) -> OriginCell:
        return self.model

    @property
    def description(self) -> str:
        scheme = self.model.scheme if isinstance(self.model, PretrainCell) else "canonical"
        pretraining = "" if scheme == "canonical" else f"{scheme}, then "
        return pretraining + super().description

    @property
    def _row_length(self) -> int | None:
        return self.options.pack

    def run(self, folder: Path, progress: Progress) -> Summary:
        model, options = self.model.load(folder, dtype="float32", device="cpu"), self.options
        if options.lora:
            model = add_lora(model, options.lora, seed=self.seed)
        settings = {"fixed_draws": options.fixed_draws, "pack": options.pack}
        vocab = self.tokenizer.vocabulary(folder)
        return self._train_on_questions(model, vocab, folder, progress, **settings)


@dataclass(frozen=True)
class StepCell(ModelCell):
    """A model that a fine-tuning kept on its way: a point of its learning curve."""

    kind: ClassVar[str] = "step"
    training: ClassVar[str] = FINETUNED

    step: int
    model: FinetuneCell

    @property
    def origin(self) -> OriginCell:
        return self.model.origin

    @property
    def scheme(self) -> str:  # type: ignore[override]
        return self.model.scheme

    @property
    def description(self) -> str:
        return f"{self.model.description} at step {self.step}"

    def source(self, folder: Path) -> Path:
        return step_folder(self.model.path(folder) / "model", self.step)
