"""What a training is to do and what it did: its options, the record and the card in its folder.

The record is `training.json`, with checksums of the weights. The card is `README.md`, with how to
load the model and what it was trained on. Its last line is a digest of the text before it: a card
that was changed since, or that another program wrote, is never replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robustok.checks import Settings, option
from robustok.errors import RobustokError
from robustok.models.load import PRECISIONS, has_lora, overflow_option, save_tokenizer
from robustok.runtime.files import JsonFields, JsonObject, write_whole
from robustok.runtime.records import (
    check_unused,
    digests_of,
    read_finished,
    read_record,
    write_record,
)

_option = partial(option, panel="Training")
RECORD = "training.json"
CHECKPOINTS = "checkpoints"
README = "README.md"
_SIGNATURE = re.compile(r"\n<!-- robustok ([0-9a-f]{64}) -->\n\Z")  # of the text before it
_VERSIONS = re.compile(r"^### Framework versions\n\n- PEFT .*$", re.MULTILINE)
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "config.json", "adapter_config.json")
WEIGHTS = (*_WEIGHTS, *(f"steps/*/{name}" for name in _WEIGHTS))  # and of models kept on the way


@dataclass(frozen=True)
class Recipe(Settings):
    """AdamW with a linear warm-up and a linear decay.

    >>> PRESETS["paper-tiny-llm-finetune"].learning_rate
    0.0001

    bfloat16 is automatic mixed precision. Checkpoints are written every ``save_every`` steps,
    rounded up to a multiple of 10, and every ten minutes.

    Raises RobustokError for a value out of range.
    """

    steps: int = _option("optimizer steps", min=1)
    batch_size: int = _option("rows of an optimizer step, over all processes", min=1)
    learning_rate: float = _option("greatest learning rate", gt=0)
    warmup_steps: int = _option(
        "steps over which the learning rate rises, from the share min_lr_ratio", default=0, min=0
    )
    min_lr_ratio: float = _option(
        "first and final learning rate as a share of the greatest",
        default=0.1,
        min=0,
        le=1,
        flags=(),
    )
    weight_decay: float = _option("weight decay of AdamW", default=0.01, min=0, flags=())
    max_grad_norm: float = _option(
        "norm that gradients are clipped to", default=1.0, gt=0, flags=()
    )
    gradient_accumulation_steps: int = _option(
        "forward passes per step, to save memory", default=1, min=1
    )
    precision: Literal["auto", "float32", "bfloat16"] = _option(
        "auto (what is fastest here), float32 or bfloat16",
        default="auto",
        metavar="TYPE",
        choices=PRECISIONS,
    )
    save_every: int = _option(
        "steps between checkpoints", default=200, min=1, flags=(), in_key=False
    )
    dropout: float | None = _option(
        "after embeddings and layers, and in attention  [default: the model's]",
        default=None,
        min=0,
        lt=1,
    )
    keep_every: int | None = _option(
        "steps between models kept in OUT/steps  [default: none]", default=None, min=1
    )
    report_to: str = _option(
        "where losses are logged: names of transformers, as tensorboard,wandb",
        default="none",
        metavar="NAMES",
        in_key=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps > self.steps:
            raise RobustokError(
                f"warmup_steps is {self.warmup_steps}: it must be from 0 to the steps, {self.steps}"
            )

    @property
    def last_row(self) -> int:
        """Rows before the last step, at which a schedule has its last strength."""
        return (self.steps - 1) * self.batch_size

    @property
    def rows_per_device(self) -> int:
        """Rows of one forward pass of one process.

        Raises RobustokError if the batch does not divide evenly.
        """
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        steps = self.gradient_accumulation_steps
        if self.batch_size % (steps * processes):
            raise RobustokError(
                f"batch_size {self.batch_size} is not a multiple of {steps} gradient accumulation "
                f"steps x {processes} processes: change one of them"
            )
        return self.batch_size // (steps * processes)


@dataclass(frozen=True, kw_only=True)
class Questions(Settings):
    """How questions become rows to train on."""

    overflow: str = overflow_option()
    prefix: Sequence[int] | np.ndarray = ()
    fixed_draws: int | None = _option(
        "draws of a question  [default: new ones in each epoch]", default=None, min=1
    )
    end: str | int | None = _option(
        "token after each answer, or none  [default: the tokenizer's, where there are no choices]",
        default=None,
        metavar="TOKEN",
    )


@dataclass(frozen=True)
class Finetuning(Questions, Recipe):
    """The settings of a fine-tuning: those of :class:`Recipe`, and how questions become rows.

    >>> Finetuning(3, 4, 1e-3, pack=64).pack
    64

    A row longer than the model's longest input is an error, or by ``overflow`` an empty one
    (``"drop"``), one whose prompt lost its start (``"left"``) or the canonical one. ``prefix`` are
    the ids before every question, which continues the text of ordinary ones. The epochs use
    ``fixed_draws`` draws of each question in turn. ``end``, a token or its id, is in the loss.
    Packed questions do not attend to each other.
    """

    pack: int | None = _option(
        "tokens of a row, into which questions are packed", default=None, min=2
    )


def step_folder(out: Path, step: int) -> Path:
    """The folder of the model that a training with ``keep_every`` keeps after a step."""
    return out / "steps" / str(step)


def save_tokenizers(source: str, out: Path) -> None:
    """Save the tokenizer with a trained model and with those kept on its way."""
    for folder in (out, *(out / "steps").glob("*")):
        save_tokenizer(source, folder)


PRESETS = {
    # The paper's tables on pre-training Tiny-LLM, fine-tuning it, and fine-tuning larger models.
    "paper-tiny-llm-pretrain": Recipe(
        30_000,
        480,
        6e-4,
        warmup_steps=5_000,
        weight_decay=0.1,
        gradient_accumulation_steps=8,
        save_every=1_000,
        dropout=0.1,
    ),
    # A batch of 480 rows of 512 tokens, into which questions are packed (`pack`).
    "paper-tiny-llm-finetune": Recipe(
        3_000,
        480,
        1e-4,
        warmup_steps=500,
        weight_decay=0.05,
        gradient_accumulation_steps=8,
        dropout=0.1,
    ),
    # The table gives no batch size for this one; 64 is ours.
    "paper-finetune": Recipe(1_500, 64, 1e-4, warmup_steps=150, weight_decay=0.01),
}


@dataclass(frozen=True)
class Training:
    """What a training run did.

    >>> from robustok.training import finetune
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=4, learning_rate=1e-3, seed=0, out="runs/b")
    >>> done.output_dir, done.steps, done.overflowed
    ('runs/b', 2, 0)

    Args:
        output_dir: the output folder.
        steps: number of optimizer steps.
        losses: (step, mean loss of the steps since the last entry), in nats, every 10 steps and
            at the last one.
        tokens: ids trained on. Padding is not counted, but that at the end of packed rows is.
        seconds: wall-clock time of the steps. Time before a restart counts as far as the last
            checkpoint.
        waiting: share of ``seconds`` spent on waiting for batches, from 0 to 1.
        overflowed: number of rows that were longer than the longest input.
        precision: ``"float32"`` or ``"bfloat16"``, which it computed in.
    """

    output_dir: str
    steps: int
    losses: tuple[tuple[int, float], ...]
    tokens: int
    seconds: float
    waiting: float
    overflowed: int
    precision: str

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def check_output(out: Path, *inputs: object) -> None:
    """Raise RobustokError unless a folder is new, empty or that of a training, and no input's."""
    folder = out.resolve()
    for path in (Path(str(name)) for name in inputs if name):
        if path.is_dir() and path.resolve() in (folder, *folder.parents):
            raise RobustokError(f"{out} is the input {path}, or inside of it: give another folder")
    if out.is_dir() and not (out / RECORD).exists():
        check_unused(out, sorted(path for path in out.iterdir() if not path.name.startswith(".")))


def claim(out: Path, identity: JsonObject) -> None:
    """Write the identity of the folder's run, and remove checkpoints of an unknown run."""
    if not recorded_identity(out):
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        write_record(out / RECORD, {"identity": identity, "files": {}})


def recorded_identity(out: Path) -> JsonObject:
    """The settings of a folder's run; empty without a readable record."""
    return (read_record(out / RECORD) or {}).get("identity", {})


def finish(out: Path, identity: JsonObject, training: Training, base_model: str) -> None:
    """Write the result, the hub name of the model that was trained, checksums, and a model card.

    ``base_model`` is empty for a model from random weights or of a folder.
    """
    record = {
        "identity": identity,
        "base_model": base_model,
        "training": asdict(training),
        "files": digests_of(out, *WEIGHTS),
    }
    if may_write_card(out):
        library = "peft" if has_lora(out) else "transformers"
        base = f"base_model: {base_model}\n" * bool(base_model)
        head = f"---\nlibrary_name: {library}\n{base}pipeline_tag: text-generation\n"
        head += "tags:\n- robustok\n- stochastic-tokenization\n---\n\n"
        write_card(out, f"{head}{loading(out)}\n{trained_on(record)}")
    write_record(out / RECORD, record)


def read_result(out: Path, identity: JsonObject) -> Training | None:
    """The result of a finished run whose files are as it left them, or None.

    Raises RobustokError where the folder belongs to another run.
    """
    saved = read_finished(out / RECORD, "the training")
    if saved is None:
        return None
    _check_identity(saved["identity"], identity, out)
    if "training" not in saved:
        return None
    row = saved["training"]
    row["losses"] = tuple((step, loss) for step, loss in row["losses"])
    return Training(**row)


def _check_identity(saved: JsonObject, identity: JsonObject, out: Path) -> None:
    if not identity["model"]:  # this process holds no weights to identify the model by
        identity = {**identity, "model": saved.get("model")}
    names = sorted({*saved, *identity}, key=lambda name: (name == "model", name))
    changed = [name for name in names if saved.get(name) != identity.get(name)]
    if not changed:
        return
    name = changed[0]
    if name == "model":  # last: another seed makes another LoRA adapter too
        raise RobustokError(
            f"'{out}' holds a training run of other initial weights (another model, or an adapter"
            " made with another seed): use another folder"
        )
    raise RobustokError(
        f"'{out}' holds a training run with {name} = {saved.get(name)}, not {identity.get(name)}: "
        "use another folder"
    )


def write_card(folder: Path, text: str) -> Path:
    """Write the text as README.md of a folder, with its digest; returns the path."""
    write_whole(folder / README, f"{text}\n<!-- robustok {_digest(text)} -->\n")
    return folder / README


def may_write_card(folder: Path) -> bool:
    """Whether a folder has no README.md, peft's, or one that is as :func:`write_card` wrote it."""
    file = folder / README
    if not file.exists():
        return os.access(folder, os.W_OK)
    text = file.read_text(encoding="utf-8", errors="replace")
    signature = _SIGNATURE.search(text)
    if signature is not None:
        return signature[1] == _digest(text[: signature.start()])
    return _is_blank(text)


def _is_blank(text: str) -> bool:
    """Whether a page is the hub's template, to which peft adds its release at most."""
    from huggingface_hub import ModelCard, ModelCardData

    template = ModelCard.from_template(ModelCardData()).text
    body = _VERSIONS.sub("", ModelCard(text, ignore_metadata_errors=True).text)
    return body.split() == _VERSIONS.sub("", template).split()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def loading(model: Path) -> str:
    """The first part of a card: the model's name, and how to load it."""
    imported, loaded_by = "transformers", "transformers.AutoModelForCausalLM"
    if has_lora(model):
        imported, loaded_by = "peft, transformers", "peft.AutoPeftModelForCausalLM"
    name = model.resolve().name if model.is_dir() else str(model)
    return (
        f"# {name}\n\n```python\nimport {imported}\n\n"
        f'model = {loaded_by}.from_pretrained("{name}")\n'
        f'tokenizer = transformers.AutoTokenizer.from_pretrained("{name}")\n```\n'
    )


def trained_on(record: JsonFields) -> str:
    """A sentence on the training that a training.json records; empty without one."""
    identity: Any = record.get("identity") or {}
    training: Any = record.get("training") or {}
    if "sampler" not in identity:
        return ""
    base = f" from [{record['base_model']}](https://huggingface.co/{record['base_model']})"
    losses = training.get("losses") or ()
    last = f", last loss {losses[-1][1]:.3f}" if losses else ""
    tokens = f", {training['tokens']:,} tokens" if "tokens" in training else ""
    details = ", ".join(
        f"{name.replace('_', ' ')} {identity[name]}"
        for name in ("batch_size", "learning_rate", "seed")
        if identity.get(name) is not None
    )
    return (
        f"Trained with robustok{base * bool(record.get('base_model'))} on tokenizations drawn by "
        f"`{identity['sampler']}`: {identity['steps']:,} steps{tokens}{last} ({details}).\n"
    )
