"""One training run on transformers' Trainer, which continues an interrupted run."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from robustok.display import Progress
from robustok.files import locked
from robustok.models.fingerprint import model_fingerprint
from robustok.training.arguments import check_launch, trainer_arguments
from robustok.training.checkpoints import last_checkpoint, seal, write_errors_in_one_line
from robustok.training.dropout import dropout_of
from robustok.training.recipe import Recipe
from robustok.training.record import CHECKPOINTS, claim, finish, read_result
from robustok.training.result import Perplexity, Training
from robustok.training.watch import Watch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FIRST = "_robustok_first"  # attribute of a model: its training's folder and first fingerprint
# Options that may change when a run continues: they do not change its steps.
_HOW = ("gradient_accumulation_steps", "torch_compile", "workers", "save_every")


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

    The same call continues an interrupted run from its last undamaged
    checkpoint, with the same losses; after a finished one it loads the trained
    weights and returns the record. ``settings`` identifies the run: a folder
    made with other settings, or from a model with other weights, is refused.
    The folder is locked during the run.

    Raises RobustokError for a loss that is not a number, for a folder of
    another run or in use by one, and where the disk is full.
    """
    out = Path(out)
    arguments = trainer_arguments(recipe, seed, out / CHECKPOINTS)
    planned = {k: v for k, v in asdict(recipe).items() if k not in _HOW}
    first_in, first = getattr(model, _FIRST, (None, ""))
    if first_in != out.resolve():  # else an earlier call has already changed the weights
        first = model_fingerprint(model)
    identity = json.loads(json.dumps({**settings, **planned, "seed": seed, "model": first}))
    main_process = os.environ.get("RANK", "0") == "0"
    with locked(out) if main_process else nullcontext():
        done = read_result(out, identity)
        setattr(model, _FIRST, (out.resolve(), first))
        if done is not None:
            _load_weights(model, out)
            return done
        check_launch()
        if main_process:
            with write_errors_in_one_line(out):
                claim(out, identity)
        watch = Watch(dataset, recipe.steps, progress)
        with _undisturbed(), dropout_of(model, recipe.dropout):
            trainer = _Trainer(
                model=model,
                args=arguments,
                train_dataset=dataset,
                data_collator=collator,
                callbacks=[watch, *callbacks],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.order = order
            trainer.train(resume_from_checkpoint=_resumed_from(trainer, out / CHECKPOINTS))
            training = _result(trainer, watch, dataset, out)
            with write_errors_in_one_line(out):
                _save(trainer, out, identity, training)
    return training


class _Trainer(Trainer):
    """A Trainer that seals its checkpoints, and may take the rows in a given order."""

    order: Any = None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return super()._get_train_sampler(train_dataset) if self.order is None else self.order

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(str(self.args.output_dir))
        with write_errors_in_one_line(folder.parent):
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()  # each process writes its own random state
            if self.is_world_process_zero():
                seal(folder / f"checkpoint-{self.state.global_step}")


def _resumed_from(trainer: Trainer, folder: Path) -> str | None:
    """The checkpoint to go on from, chosen by the first process for all."""
    last = last_checkpoint(folder) if trainer.is_world_process_zero() else None
    chosen = [str(last) if last else None]
    broadcast_object_list(chosen)
    return chosen[0]


def _result(trainer: Trainer, watch: Watch, dataset: Any, out: Path) -> Training:
    history: list[dict[str, Any]] = trainer.state.log_history
    return Training(
        output_dir=str(out),
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


def _save(trainer: Trainer, out: Path, identity: dict[str, Any], training: Training) -> None:
    # Every process takes part: with sharded weights, each holds some of them.
    trainer.save_model(str(out))
    if trainer.is_world_process_zero():
        (out / "training_args.bin").unlink(missing_ok=True)  # a pickle
        finish(out, identity, training)
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)


def pad_id(model: PreTrainedModel) -> int:
    """The id of padding. Padding is masked, so any id is valid if the model names none."""
    for name in ("pad_token_id", "eos_token_id"):
        value = getattr(model.config, name, None)
        if isinstance(value, int) and value >= 0:
            return value
    return 0


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Restore the global random generators and progress bars, which the Trainer changes."""
    bars, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()
    # Its warnings about tied weights and file times are expected here.
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


def _load_weights(model: PreTrainedModel, out: Path) -> None:
    from safetensors.torch import load_file, load_model

    adapter = out / "adapter_model.safetensors"
    if adapter.is_file():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(adapter))
    else:
        load_model(model, str(out / "model.safetensors"))
