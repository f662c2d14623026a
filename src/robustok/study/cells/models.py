"""Models as cells: one that exists, one pre-trained from random weights, one fine-tuned."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from robustok.display import Progress
from robustok.files import read_json, write_json
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.corpus import CorpusCell
from robustok.study.cells.data import DataCell
from robustok.study.cells.tokenizer import NAME, ExistingTokenizerCell, TokenizerCell
from robustok.study.cost import training_seconds
from robustok.study.equal_strength import solved
from robustok.study.external import External
from robustok.study.schema import Finetuning, Model, Pretraining, Training

if TYPE_CHECKING:
    from robustok.vocabulary import Vocabulary


FINETUNED, PRETRAINED, UNTRAINED = "fine-tuning", "pre-training", ""  # the last training


class ModelCell(Cell):
    """A model that other cells train further or measure."""

    training: ClassVar[str] = UNTRAINED
    scheme: str  # of its last training
    parameters: float  # about how many, for estimates of cost

    @property
    def start(self) -> str | None:
        """The token before every text, by its name; None for none."""
        return None

    def start_ids(self, vocab: Vocabulary) -> list[int]:
        """The ids before every text: the start token, or none."""
        from robustok.special_tokens import special_token

        return [] if self.start is None else [special_token(vocab, self.start)]

    @property
    def label(self) -> str:
        return f"{self.kind} {self.description}"

    @property
    @abstractmethod
    def description(self) -> str:
        """How the model was trained, in a few words."""

    @property
    def pretrain_scheme(self) -> str:
        return self.scheme

    def source(self, folder: Path) -> str | Path:
        """What `load_model` takes."""
        path = self.path(folder)
        named = path / NAME
        return read_json(named) if named.is_file() else path / "model"

    def load(self, folder: Path, dtype: str = "auto") -> Any:
        from robustok.models import load_model

        return load_model(self.source(folder), dtype=dtype)


@dataclass(frozen=True)
class BaseCell(ModelCell):
    """A model that exists. It is loaded once, so that an error comes before any training."""

    kind: ClassVar[str] = "base"

    model: External
    parameters: float
    start_token: str | None = None
    scheme: ClassVar[str] = "canonical"  # type: ignore[misc]

    @property
    def fields(self) -> dict[str, Any]:
        start = {"start_token": self.start_token} if self.start_token else {}
        return {"name": self.model.identity} | start

    @property
    def start(self) -> str | None:
        return self.start_token

    @property
    def description(self) -> str:
        return self.model.name.partition("@")[0]

    @property
    def hub_names(self) -> tuple[str, ...]:
        return (self.model.name,)

    def run(self, folder: Path, progress: Progress) -> Summary:
        write_json(self.path(folder) / NAME, self.model.name)
        return {"parameters": self.load(folder).num_parameters()}


class TrainedCell(ModelCell):
    """A model that the study trains. Its folder is a model that every command takes."""

    seed: int
    repeat: int  # of the study; only shown in the label
    tokenizer: TokenizerCell

    @property
    def description(self) -> str:
        return f"{self.scheme} #{self.repeat}" if self.repeat else self.scheme

    def _settings(
        self, options: Training, vocab: Vocabulary, folder: Path, progress: Progress
    ) -> dict[str, Any]:
        """The arguments that pre-training and fine-tuning share."""
        return {name: getattr(options, name) for name in Training.model_fields} | {
            "seed": self.seed,
            "out": self.path(folder) / "model",
            "progress": progress,
        }

    def _finetune(
        self,
        model: Any,
        vocab: Vocabulary,
        data: DataCell | None,
        options: Training,
        folder: Path,
        progress: Progress,
    ) -> Summary:
        """Train on questions with new draws at every step; only the answer enters the loss."""
        from robustok.samplers import schedule
        from robustok.training import finetune

        assert data is not None
        settings = self._settings(options, vocab, folder, progress)
        items = data.training_items(folder)
        at_strength = solved(self.scheme, vocab, [item.question for item in items])
        settings["sampler"] = at_strength or schedule(self.scheme, vocab)
        # A question that becomes too long keeps its canonical tokens, and is counted.
        settings["prefix"] = self.start_ids(vocab)
        for name in ("fixed_draws", "pack"):
            settings[name] = getattr(options, name, None)
        training = finetune(model, vocab, items, overflow="canonical", **settings)
        summary = self._finish(model, training, folder)
        return summary | ({"train_spec": at_strength.spec} if at_strength else {})

    def _finish(self, model: Any, training: Any, folder: Path) -> Summary:
        from robustok.models import save_tokenizer

        save_tokenizer(self.tokenizer.source(folder), self.path(folder) / "model")
        return {
            "parameters": model.num_parameters(),
            "last_loss": training.losses[-1][1] if training.losses else None,
            "tokens": training.tokens,
            "overflowed": training.overflowed,
        }


@dataclass(frozen=True)
class PretrainCell(TrainedCell):
    """A small model trained from random weights, on a corpus or on the questions of a task."""

    kind: ClassVar[str] = "pretrain"
    training: ClassVar[str] = PRETRAINED

    options: Pretraining
    model: Model
    scheme: str
    seed: int
    repeat: int
    parameters: float
    tokenizer: TokenizerCell
    data: DataCell | None = None
    corpus: CorpusCell | None = None

    @property
    def fields(self) -> dict[str, Any]:
        fields = _option_fields(self.options) | {"source": self.options.source}
        # A tokenizer that the study trains always has the same end of text.
        if self.options.end_of_text or isinstance(self.tokenizer, ExistingTokenizerCell):
            fields["end_of_text"] = self.options.end_of_text
        return fields | {"model": self.model.key_fields(), "scheme": self.scheme, "seed": self.seed}

    @property
    def work(self) -> float:
        max_length = (self.model.max_length or 512) if self.corpus else None
        return training_seconds(self.parameters, self.options, self.scheme, max_length)

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.models import Shape, small_model
        from robustok.samplers import schedule
        from robustok.special_tokens import end_of_text
        from robustok.training import pretrain

        vocab = self.tokenizer.vocabulary(folder)
        end_id = end_of_text(vocab, self.options.end_of_text)
        shape = Shape(**self.model.sizes())
        model = small_model(vocab.size, shape, seed=self.seed, end_id=end_id)
        if self.corpus is None:
            return self._finetune(model, vocab, self.data, self.options, folder, progress)
        text, end = self.corpus.training_ids(folder), self.options.end_of_text
        settings = self._settings(self.options, vocab, folder, progress)
        settings["sampler"] = schedule(self.scheme, vocab)
        return self._finish(model, pretrain(model, vocab, text, end=end, **settings), folder)


@dataclass(frozen=True)
class FinetuneCell(TrainedCell):
    """A model trained further on the questions of a task."""

    kind: ClassVar[str] = "finetune"
    training: ClassVar[str] = FINETUNED

    options: Finetuning
    scheme: str
    seed: int
    repeat: int
    data: DataCell
    tokenizer: TokenizerCell
    model: ModelCell

    @property
    def fields(self) -> dict[str, Any]:
        lora = self.options.lora
        given = {name: getattr(self.options, name) for name in ("fixed_draws", "pack")}
        return (
            _option_fields(self.options)
            | {name: value for name, value in given.items() if value}
            | {
                "lora": lora.model_dump() if lora else None,
                "scheme": self.scheme,
                "seed": self.seed,
            }
        )

    @property
    def parameters(self) -> float:  # type: ignore[override]
        return self.model.parameters

    @property
    def start(self) -> str | None:
        return self.model.start

    @property
    def pretrain_scheme(self) -> str:
        return self.model.scheme

    @property
    def description(self) -> str:
        first, repeat = "", f" #{self.repeat}" if self.repeat else ""
        if isinstance(self.model, PretrainCell) and self.model.scheme != "canonical":
            first = f"{self.model.scheme}, then "
        return f"{first}{self.scheme}{repeat}"

    @property
    def work(self) -> float:
        return training_seconds(self.parameters, self.options, self.scheme, self.options.pack)

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.models import add_lora

        model = self.model.load(folder, dtype="float32")
        if self.options.lora:
            model = add_lora(model, seed=self.seed, **self.options.lora.model_dump())
        vocab = self.tokenizer.vocabulary(folder)
        return self._finetune(model, vocab, self.data, self.options, folder, progress)


def _option_fields(options: Training) -> dict[str, Any]:
    """The training options under the names that keys are made of, which are permanent."""
    return {
        "steps": options.steps,
        "batch_size": options.batch_size,
        "learning_rate": options.learning_rate,
        "warmup": options.warmup_steps,
        "final_rate": options.min_lr_ratio,
        "weight_decay": options.weight_decay,
        "accumulate": options.gradient_accumulation_steps,
        "precision": options.precision,
        "save_every": options.save_every,
    } | ({} if options.dropout is None else {"dropout": options.dropout})
