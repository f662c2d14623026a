"""One training run on transformers' Trainer: quiet, resumable, and stopped by a NaN."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from robustok.errors import RobustokError
from robustok.models.fingerprint import model_fingerprint
from robustok.training.recipe import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Progress = Callable[[int, int], None]

LOG_EVERY = 10
RECORD = "training.json"
CHECKPOINTS = "checkpoints"
_BEGUN = "_robustok_begun"  # of a model: the folder of its training, what it was at first
# What may change between a stop and going on: how the same steps are done.
_HOW = ("accumulate", "compiled", "workers", "save_every")


class Perplexity(NamedTuple):
    """How well held-out text was predicted at a step, when drawn by a scheme.

    >>> Perplexity(500, "uniform", 61.2, 1.31).bits_per_byte
    1.31

    ``perplexity`` is per id of the drawn sequences, so longer tokenizations
    lower it; ``bits_per_byte`` counts the same text for every scheme.
    """

    step: int
    scheme: str
    perplexity: float
    bits_per_byte: float


@dataclass(frozen=True)
class Training:
    """What a training run did.

    >>> from robustok.training import finetune
    >>> done = finetune(model, vocab, items, sampler=rt.sampler("uniform", vocab), steps=2,
    ...                 batch_size=4, learning_rate=1e-3, seed=0, out="runs/b")
    >>> done.path, done.steps, done.overflowed
    ('runs/b', 2, 0)

    ``losses`` holds (step, mean loss of the steps since the one before), every
    10 steps; ``tokens`` the ids trained on, padding not counted; ``seconds`` the
    wall-clock time of the steps, over all restarts but the last as far as it
    was saved; ``waiting`` the share of it spent on getting batches;
    ``overflowed`` how many rows were longer than the context; ``perplexities``
    what pre-training measured on held-out text.
    """

    path: str
    steps: int
    losses: tuple[tuple[int, float], ...]
    tokens: int
    seconds: float
    waiting: float
    overflowed: int
    perplexities: tuple[Perplexity, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


def train(
    model: PreTrainedModel,
    dataset: Any,
    collator: Any,
    recipe: Recipe,
    *,
    seed: int,
    out: str | Path,
    settings: dict[str, Any],
    progress: Progress | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    order: Any = None,
) -> Training:
    """Train in place and leave the model and a record of the run in ``out``.

    The same call goes on where a killed one stopped, from its last whole
    checkpoint, with the same losses; after a finished one it loads the trained
    weights and returns the record. ``settings`` says what the run is: a folder
    made with other settings, or from a model with other weights, is refused.

    Raises RobustokError for a loss that is not a number, for a folder of
    another run, and where the disk is full.
    """
    out = Path(out)
    arguments = _arguments(recipe, seed, out / CHECKPOINTS)
    planned = {k: v for k, v in asdict(recipe).items() if k not in _HOW}
    begun_in, first = getattr(model, _BEGUN, (None, ""))
    if begun_in != out.resolve():  # else trained, or a part of the way, by an earlier call
        first = model_fingerprint(model)
    identity = json.loads(json.dumps({**settings, **planned, "seed": seed, "model": first}))
    done = _finished(out, identity)
    setattr(model, _BEGUN, (out.resolve(), first))
    if done is not None:
        _load_weights(model, out)
        return done
    _check_sharding()
    _claim(out, identity)
    watch = _Watch(dataset, recipe.steps, progress)
    with _undisturbed():
        trainer = (_Ordered if order else Trainer)(
            model=model,
            args=arguments,
            train_dataset=dataset,
            data_collator=collator,
            callbacks=[watch, *callbacks],
        )
        trainer.remove_callback(PrinterCallback)
        if isinstance(trainer, _Ordered):
            trainer.order = order
        last = _last_checkpoint(out / CHECKPOINTS)
        try:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
            history: list[dict[str, Any]] = trainer.state.log_history
            training = Training(
                path=str(out),
                steps=trainer.state.global_step,
                losses=tuple((int(row["step"]), row["loss"]) for row in history if "loss" in row),
                tokens=int(trainer.state.num_input_tokens_seen),
                seconds=watch.seconds,
                waiting=watch.waiting / max(watch.seconds, 1e-9),
                overflowed=int(getattr(dataset, "overflowed", 0)),
                perplexities=tuple(
                    Perplexity(*(row[name] for name in Perplexity._fields))
                    for row in history
                    if "perplexity" in row
                ),
            )
            # Every process takes part: where the weights are sharded, all have some of them.
            trainer.save_model(str(out))
            if trainer.is_world_process_zero():
                (out / "training_args.bin").unlink(missing_ok=True)  # a pickle
                _write_json(out / RECORD, {"identity": identity, "training": asdict(training)})
                shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
        except (OSError, RuntimeError, SafetensorError) as e:
            if not _is_about_writing(e):
                raise
            raise RobustokError(
                f"could not write under '{out}' ({str(e).splitlines()[0]}): "
                "make room and start again, it goes on from its last checkpoint"
            ) from e
    return training


def _check_sharding() -> None:
    """Without an accelerator, accelerate leaves FSDP aside and says nothing."""
    asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if asked and not torch.accelerator.is_available():
        raise RobustokError(
            "FSDP needs accelerators, and there are none here: launch without --use_fsdp"
        )


class _Ordered(Trainer):
    """A Trainer that takes the rows in an order of ours, for schedules."""

    order: Any = None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return self.order


def _is_about_writing(error: Exception) -> bool:
    """Weights, optimiser and state are written by three libraries, each with errors of its own."""
    torchs_own = ("PytorchStreamWriter", "iostream error", "inline_container")
    told = any(name in str(error) for name in torchs_own)
    if isinstance(error, BrokenPipeError):
        return False  # who was told of the progress is gone
    return told or isinstance(error, (OSError, SafetensorError))


def pad_id(model: PreTrainedModel) -> int:
    """The id that fills padding. Padding is masked, so any id serves where the model names none."""
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(model.config, name, None)
        if isinstance(value, int) and value >= 0:
            return value
    return 0


def _arguments(recipe: Recipe, seed: int, folder: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.rows_per_pass,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": recipe.steps - recipe.warmup,
            "decay_type": "linear",
            "min_lr_ratio": recipe.final_rate,
        },
        warmup_steps=recipe.warmup,
        weight_decay=recipe.weight_decay,
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        max_grad_norm=recipe.clip,
        # Said outright: otherwise processes without an accelerator never find each other.
        use_cpu=not torch.accelerator.is_available(),
        bf16=recipe.precision == "bfloat16",
        torch_compile=recipe.compiled,
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        logging_steps=LOG_EVERY,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        save_strategy="steps",
        # A multiple of the logging steps: a loss half gathered is not in a checkpoint.
        save_steps=-(-recipe.save_every // LOG_EVERY) * LOG_EVERY,
        save_total_limit=2,
        dataloader_num_workers=recipe.workers,
        dataloader_persistent_workers=recipe.workers > 0,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=False,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to=[],
    )


class _Watch(TrainerCallback):
    """Moves the epoch, counts time, reports progress, and stops at a NaN."""

    def __init__(self, dataset: Any, steps: int, progress: Progress | None) -> None:
        self.dataset, self.steps, self.progress = dataset, steps, progress
        self.seconds = self.waiting = 0.0
        self._mark = time.perf_counter()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._mark = time.perf_counter()
        if self.progress:
            self.progress(state.global_step, self.steps)

    def on_epoch_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        # accelerate forgets a data set's set_epoch after a resume and with several processes.
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(int(state.epoch or 0))

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.waiting += self._lap()

    def on_step_end(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._lap()
        if self.progress:
            self.progress(state.global_step, self.steps)

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(loss):
            raise RobustokError(
                f"the loss is {loss} at step {state.global_step}: lower the learning rate, "
                "raise the warm-up, or use float32; the last checkpoint is kept"
            )

    def on_save(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._lap()

    def _lap(self) -> float:
        now = time.perf_counter()
        lap, self._mark = now - self._mark, now
        self.seconds += lap
        return lap


@contextmanager
def _undisturbed() -> Iterator[None]:
    """The Trainer seeds every global generator and draws bars; both are put back afterwards."""
    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    # Its warnings are about tied weights and file times, which are as they should be.
    hf_logging.set_verbosity_error()
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            hf_logging.set_verbosity(level)
            if bars:
                hf_logging.enable_progress_bar()
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _finished(out: Path, identity: dict[str, Any]) -> Training | None:
    record = out / RECORD
    if not record.is_file():
        return None
    saved = json.loads(record.read_text(encoding="utf-8"))
    _same(saved["identity"], identity, out)
    if "training" not in saved:
        return None
    row = saved["training"]
    row["losses"] = tuple((step, loss) for step, loss in row["losses"])
    row["perplexities"] = tuple(Perplexity(*measured) for measured in row["perplexities"])
    return Training(**row)


def _claim(out: Path, identity: dict[str, Any]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / RECORD).is_file() and os.environ.get("RANK", "0") == "0":
            _write_json(out / RECORD, {"identity": identity})
    except OSError as e:
        raise RobustokError(f"could not write to '{out}': {e.strerror or e}") from e


def _same(saved: dict[str, Any], identity: dict[str, Any], out: Path) -> None:
    if not identity["model"]:  # this process holds no weights to tell it from
        identity = {**identity, "model": saved.get("model")}
    changed = [k for k in sorted({*saved, *identity}) if saved.get(k) != identity.get(k)]
    if changed:
        k = changed[0]
        if k == "model":
            raise RobustokError(
                f"'{out}' holds a training run of another model (its weights differ): "
                "use another folder"
            )
        raise RobustokError(
            f"'{out}' holds a training run with {k} = {saved.get(k)}, not {identity.get(k)}: "
            "use another folder"
        )


def _last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; ones that a kill left half written are removed."""
    whole = []
    for path in folder.glob("checkpoint-*"):
        try:
            # The Trainer writes this file last.
            step = json.loads((path / "trainer_state.json").read_text())["global_step"]
            whole.append((step, path))
        except (OSError, ValueError, KeyError):
            shutil.rmtree(path, ignore_errors=True)
    return max(whole)[1] if whole else None


def _load_weights(model: PreTrainedModel, out: Path) -> None:
    from safetensors.torch import load_file, load_model

    adapter = out / "adapter_model.safetensors"
    if adapter.is_file():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(adapter))
    else:
        load_model(model, str(out / "model.safetensors"))


def _write_json(path: Path, content: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as f:
        json.dump(content, f, indent=1)
        f.flush()
        os.fsync(f.fileno())
    partial.replace(path)
