"""One training run on transformers' Trainer: its arguments, its callbacks and its continuation.

The model is changed while it is trained, and as before afterwards: dropout, attention, the cache,
and the input of the head.
"""

from __future__ import annotations

import json
import logging
import math
import os
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list, send_to_device
from torch import nn
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging as hf_logging

from robustok.checks import IGNORED
from robustok.errors import RobustokError
from robustok.models.load import PRECISIONS, model_fingerprint, resolve_precision
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject, disk_full_in_one_line, locked
from robustok.runtime.records import digests_of, read_finished, write_record
from robustok.training.recipe import (
    CHECKPOINTS,
    Recipe,
    Training,
    check_output,
    claim,
    finish,
    read_result,
    recorded_identity,
    step_folder,
)
from robustok.training.rows import RowOrder

LOG_EVERY = 10  # steps
SAVE_SECONDS = 600  # greatest age of the last checkpoint
CHECKSUMS = "checksums.json"  # of a checkpoint, which is whole once this is there

_log = logging.getLogger(__name__)  # commands print it

_OF_ROWS = ("index", "overflowed")  # numbers of a batch that the model does not read
_MEASURED = ("seconds", "waiting", "overflowed")  # by a TrainingWatch
_FIRST_RUN = "_robustok_first"  # attribute of a model: its training's folder and first fingerprint
# Options that may change when a run continues: they do not change its steps.
_HOW = ("gradient_accumulation_steps", "save_every", "keep_every", "report_to")
_ATTENTION = "attention_dropout"  # attribute of the attention of models without nn.Dropout
_SHARES = (_ATTENTION, "dropout", "hidden_dropout")  # attributes that models read as numbers
_LAYERS = ("self_attn", "mlp")  # of a decoder layer, whose outputs are added to the residual
_SHORT = 256  # tokens; memory of eager attention grows with their square


def trainer_arguments(recipe: Recipe, seed: int, folder: Path, precision: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.rows_per_device,
        gradient_accumulation_steps=recipe.gradient_accumulation_steps,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={
            "num_decay_steps": recipe.steps - recipe.warmup_steps,
            "decay_type": "linear",
            "min_lr_ratio": recipe.min_lr_ratio,
        },
        warmup_steps=recipe.warmup_steps,
        weight_decay=recipe.weight_decay,
        adam_beta1=0.9,
        adam_beta2=0.95,
        max_grad_norm=recipe.max_grad_norm,
        # Explicit: otherwise processes without an accelerator do not form a group.
        use_cpu=not torch.accelerator.is_available(),
        bf16=precision == "bfloat16",
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        logging_steps=LOG_EVERY,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        save_strategy="steps",
        # A multiple of the logging steps: a checkpoint does not hold a partial sum of losses.
        save_steps=-(-recipe.save_every // LOG_EVERY) * LOG_EVERY,
        save_total_limit=2,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=False,
        remove_unused_columns=False,
        use_cache=False,  # with a cache, packed questions would attend to each other
        disable_tqdm=True,
        report_to=[name.strip() for name in recipe.report_to.split(",")],
    )


def check_launch(devices: int) -> None:
    """Refuse FSDP without an accelerator, and several GPUs of one process.

    accelerate would run DDP without a notice, and the Trainer would take ``batch_size`` rows for
    each GPU. On a CPU ``accelerate launch --num_processes 2`` starts one process, which a warning
    says; it sets the address of the others but no WORLD_SIZE.
    """
    if devices > 1:
        raise RobustokError(
            f"one process sees {devices} GPUs: start one for each with torchrun --nproc_per_node "
            f"{devices}, or show it one with CUDA_VISIBLE_DEVICES=0"
        )
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ
    if launched and "WORLD_SIZE" not in os.environ and not torch.accelerator.is_available():
        _log.warning(
            "accelerate launch started one process, since on a CPU it ignores --num_processes: "
            "use torchrun --nproc_per_node for several"
        )
    requested = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if requested and not torch.accelerator.is_available():
        raise RobustokError(
            "FSDP needs accelerators, and there are none here: launch without --use_fsdp"
        )


class TrainingWatch(TrainerCallback):
    """Measures time, reports progress, and stops at a NaN loss.

    It also asks for a checkpoint where the last one is ten minutes old, and keeps the model of
    every n-th step. What it has measured is in the log of each checkpoint, from which a continued
    run goes on.
    """

    def __init__(self, out: Path, keep_every: int | None, progress: Progress) -> None:
        self.out, self.keep_every, self.progress = out, keep_every, progress
        self.seconds = self.waiting = 0.0
        self.overflowed = 0
        self._mark = self._saved = time.perf_counter()

    def on_train_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._mark = self._saved = time.perf_counter()
        for row in state.log_history:
            vars(self).update({name: row[name] for name in _MEASURED if name in row})
        self.progress(state.global_step, state.max_steps)

    def on_step_begin(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self.waiting += self._lap()

    def on_step_end(self, args, state, control, model=None, **kwargs) -> None:  # type: ignore[override]
        self._lap()
        self.progress(state.global_step, state.max_steps)
        # A short run, and the last steps of any, have a loss too.
        control.should_log = control.should_log or state.global_step >= state.max_steps
        # At a logging step only: a checkpoint does not hold a partial sum of losses.
        if state.global_step % args.logging_steps == 0:
            due = [self._mark - self._saved >= SAVE_SECONDS]
            broadcast_object_list(due)  # all processes save, or none
            control.should_save = control.should_save or due[0]
        keeps = self.keep_every and state.global_step % self.keep_every == 0
        if keeps and state.is_world_process_zero:
            inner: Any = getattr(model, "module", model)  # without DistributedDataParallel
            inner.save_pretrained(step_folder(self.out, state.global_step))

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        loss = (logs or {}).get("loss")
        if loss is None:
            return
        if not math.isfinite(loss):
            raise RobustokError(
                f"the loss is {loss} at step {state.global_step}: lower the learning rate, "
                "raise the warm-up, or use float32; the last checkpoint is kept"
            )
        step, steps = state.global_step, state.max_steps
        # At most 20 lines for a run, besides the last.
        if state.is_world_process_zero and (
            step % max(steps // 20, 1) < args.logging_steps or step == steps
        ):
            _log.info("step %d of %d: loss %.4f", step, steps, loss)

    def on_save(self, args, state, control, **kwargs) -> None:  # type: ignore[override]
        self._lap()
        self._saved = self._mark

    def _lap(self) -> float:
        now = time.perf_counter()
        lap, self._mark = now - self._mark, now
        self.seconds += lap
        return lap


def train(
    model: PreTrainedModel,
    dataset: Any,
    collator: object,
    recipe: Recipe,
    *,
    out: str | Path,
    settings: dict[str, Any],
    adversary: Any = None,
    progress: Progress = no_progress,
) -> Training:
    """Train in place and leave the model and a record of the run in ``out``.

    The same call continues an interrupted run from its last undamaged checkpoint, with the same
    losses; after a finished one it loads the trained weights and returns the record. ``settings``
    identifies the run: a folder made with other settings, or from a model with other weights, is
    refused. The folder is locked during the run. A ``dataset`` has a ``seed``, and by its
    ``row_length``, the tokens of a long row, the attention is chosen; one that is not iterable is a
    :class:`PromptDataset`, of which an ``adversary`` may attack every n-th batch. Weights that are
    trained become float32: updates of AdamW would be rounded away in bfloat16.

    Raises RobustokError for a loss that is not a number, for steps without a row that fits, for a
    folder of another run or in use by one, and where the disk is full.
    """
    out = Path(out)
    main_process = os.environ.get("RANK", "0") == "0"
    if main_process:
        check_output(out, getattr(model.config, "name_or_path", ""))
    precision, seed = _precision(recipe, model, out), dataset.seed
    arguments = trainer_arguments(recipe, seed, out / CHECKPOINTS, precision)
    recipe_ = {k: v for k, v in asdict(recipe).items() if k not in _HOW}
    first_out, first_fingerprint = getattr(model, _FIRST_RUN, (None, ""))
    is_same_run = first_out == out.resolve()  # of an earlier call, which has changed the weights
    if not is_same_run:
        first_fingerprint = model_fingerprint(model)
    _to_float32(model)
    identity = json.loads(json.dumps({**settings, **recipe_, "precision": precision, "seed": seed}))
    identity["model"] = first_fingerprint
    with disk_full_in_one_line(out), locked(out) if main_process else nullcontext():
        finished = read_result(out, identity)
        setattr(model, _FIRST_RUN, (out.resolve(), first_fingerprint))
        if finished is not None:
            if main_process:
                _log.warning("%s holds this training, finished: nothing is trained", out)
                shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)  # where it was killed then
            _load_weights(model, out)
            return finished
        check_launch(arguments.n_gpu)
        if main_process:
            claim(out, identity)
        watch = TrainingWatch(out, recipe.keep_every, progress)
        with (
            _undisturbed(),
            dropout_of(model, recipe.dropout),
            fast_steps(model, precision, dataset.row_length) as attention,
        ):
            if main_process:
                _log.info("precision %s, attention %s", precision, attention)
            trainer = _made_trainer(
                recipe.report_to,
                model=model,
                args=arguments,
                train_dataset=dataset,
                data_collator=partial(_collate, collator),
                callbacks=[watch],
            )
            trainer.remove_callback(PrinterCallback)
            trainer.watch, trainer.adversary, trainer.forward = watch, adversary, model.forward
            checkpoint = _resumed_from(trainer, out / CHECKPOINTS)
            if checkpoint is None and is_same_run and model_fingerprint(model) != first_fingerprint:
                raise RobustokError(
                    f"the model was changed by an interrupted training in {out}, which has no "
                    "checkpoint to continue from: load the model again"
                )
            if main_process and checkpoint is not None:
                _log.info("continues after step %s", checkpoint.rpartition("-")[2])
            trainer.train(resume_from_checkpoint=checkpoint)
        model.forward = trainer.forward
        training = _result(trainer, watch, out, precision)
        with _undisturbed():
            _save(trainer, out, identity, training)
    return training


def _to_float32(model: PreTrainedModel) -> None:
    low = [p for p in model.parameters() if p.requires_grad and p.element_size() < 4]
    if low:
        _log.info("weights of %s are trained in float32", str(low[0].dtype).removeprefix("torch."))
    for weights in low:
        weights.data = weights.data.float()


def _made_trainer(report_to: str, **arguments: Any) -> _Trainer:
    """The Trainer; its errors about its reporters become one line."""
    try:
        return _Trainer(**arguments)
    except (RuntimeError, ValueError, ImportError) as error:
        if report_to == "none":
            raise
        raise RobustokError(f"report_to {report_to}: {str(error).splitlines()[0]}") from error


def _collate(collator: Any, rows: Sequence[JsonObject]) -> JsonObject:
    """A batch with the index of every row, and the number of its draws that were too long."""
    numbers = {name: torch.tensor([int(row.get(name, 0)) for row in rows]) for name in _OF_ROWS}
    return {**collator(rows), **numbers}


class _Trainer(Trainer):
    """A Trainer that seals its checkpoints, and takes the rows in the order of the data set.

    Data loaders read ahead: it adds up what overflowed in the batches that it trains on, and lets
    an adversary attack a batch by the weights before its step.
    """

    watch: Any = None
    adversary: Any = None
    forward: Any = None  # the model's own, around which accelerate puts casts to bfloat16
    overflowed: Any = 0  # since the last log, in this process
    targets: Any = 0  # ids in the loss since then

    def _get_train_sampler(self, train_dataset: object = None) -> Any:
        dataset: Any = self.train_dataset
        steps = self.args.max_steps * self.args.gradient_accumulation_steps
        return RowOrder(dataset, steps * self.args.train_batch_size * self.args.world_size)

    def get_batch_samples(self, epoch_iterator: Any, *args: Any) -> Any:
        # Before the Trainer counts the labels, of which an attack may drop some.
        if self.adversary is not None and self.state.global_step % self.adversary.every == 0:
            epoch_iterator = map(self._attacked, epoch_iterator)
        return super().get_batch_samples(epoch_iterator, *args)

    def _attacked(self, batch: JsonObject) -> Any:
        dataset: Any = self.train_dataset
        with _forward_of(self.model, self.forward):  # in the precision of the weights
            rows = dataset.attacked(batch["index"].tolist(), self.adversary)
        return send_to_device(self.data_collator(rows), self.args.device)

    def training_step(
        self, model: PreTrainedModel, inputs: Any, num_items_in_batch: object = None
    ) -> Any:
        numbers = {name: inputs.pop(name) for name in _OF_ROWS}
        self.overflowed = self.overflowed + numbers["overflowed"].sum()
        self.targets = self.targets + (inputs["labels"] != IGNORED).sum()
        if num_items_in_batch is not None:  # 0 where all rows of a step were dropped
            num_items_in_batch = torch.as_tensor(num_items_in_batch).clamp(min=1)
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        here = torch.as_tensor([self.overflowed, self.targets], device=self.args.device)
        overflowed, targets = self.accelerator.reduce(here).tolist()  # type: ignore[union-attr]
        if "loss" in logs and not targets:
            raise RobustokError(
                f"no row of the steps before {self.state.global_step + 1} fits into the model's "
                "longest input: choose overflow left or canonical"
            )
        self.watch.overflowed += overflowed
        self.overflowed = self.targets = 0
        measured = {name: getattr(self.watch, name) for name in _MEASURED}
        super().log({**logs, **measured}, *args, **kwargs)

    def _save_checkpoint(self, model: PreTrainedModel, trial: object) -> None:
        folder = Path(str(self.args.output_dir))
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()  # each process writes its own random state
        if self.is_world_process_zero():
            checkpoint = folder / f"checkpoint-{self.state.global_step}"
            # A pickle that nothing reads.
            (checkpoint / "training_args.bin").unlink(missing_ok=True)
            write_record(checkpoint / CHECKSUMS, {"files": digests_of(checkpoint)})


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose files all have their checksums; later ones are removed.

    One that was finished and then damaged is reported in one line of the log.
    """
    paths = folder.glob("checkpoint-*[0-9]")
    for path in sorted(paths, key=lambda path: int(path.name[len("checkpoint-") :]), reverse=True):
        if read_finished(path / CHECKSUMS, "the checkpoint") is not None:
            return path
        shutil.rmtree(path, ignore_errors=True)  # damaged, or its save was not finished
    return None


def _resumed_from(trainer: Trainer, folder: Path) -> str | None:
    """The checkpoint to go on from, chosen by the first process for all."""
    last = last_checkpoint(folder) if trainer.is_world_process_zero() else None
    shared_path = [str(last) if last else None]
    broadcast_object_list(shared_path)
    return shared_path[0]


def _precision(recipe: Recipe, model: PreTrainedModel, out: Path) -> str:
    """The precision of the run; ``auto`` keeps the precision of the folder's run."""
    recorded = recorded_identity(out).get("precision")
    if recipe.precision == "auto" and recorded in PRECISIONS:
        return recorded
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    device = accelerator.type if accelerator else "cpu"
    return resolve_precision(recipe.precision, model.num_parameters(), device=device)


def _result(trainer: Trainer, watch: TrainingWatch, out: Path, precision: str) -> Training:
    history: list[JsonObject] = trainer.state.log_history
    return Training(
        output_dir=str(out),
        steps=trainer.state.global_step,
        losses=tuple((int(row["step"]), row["loss"]) for row in history if "loss" in row),
        tokens=int(trainer.state.num_input_tokens_seen),
        seconds=watch.seconds,
        waiting=watch.waiting / max(watch.seconds, 1e-9),
        overflowed=watch.overflowed,
        precision=precision,
    )


def _save(trainer: Trainer, out: Path, identity: JsonObject, training: Training) -> None:
    # Every process takes part: with sharded weights, each holds some of them.
    trainer.save_model(str(out))
    if trainer.is_world_process_zero():
        (out / "training_args.bin").unlink(missing_ok=True)  # a pickle
        model: Any = trainer.model
        name = str(getattr(model.config, "name_or_path", ""))
        finish(out, identity, training, "" if Path(name).exists() else name)
        shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)  # which hold pickles


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Restore the global random generators and progress bars, which the Trainer changes."""
    with torch.random.fork_rng(range(torch.cuda.device_count())), ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        stack.callback(hf_logging.set_verbosity, hf_logging.get_verbosity())
        if hf_logging.is_progress_bar_enabled():
            stack.callback(hf_logging.enable_progress_bar)
        hf_logging.disable_progress_bar()
        # Its warnings about tied weights and file times are expected here.
        hf_logging.set_verbosity_error()
        yield


def _load_weights(model: PreTrainedModel, out: Path) -> None:
    from safetensors.torch import load_file, load_model

    adapter = out / "adapter_model.safetensors"
    if adapter.is_file():
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(model, load_file(adapter))
    else:
        load_model(model, str(out / "model.safetensors"))


@contextmanager
def dropout_of(model: PreTrainedModel, share: float | None) -> Iterator[None]:
    """Train with this dropout inside the context; None changes nothing.

    ``share`` is the probability that a value is set to zero. GPT-2 has dropout after the
    embeddings, in attention, and after every attention and feed-forward layer; OPT, too, by numbers
    in place of modules. Llama, Qwen 3 and Gemma 3 have it in attention only, so hooks add the other
    places.
    """
    if share is None:
        yield
        return
    # Those of an adapter stay as they are.
    modules = [(name, module) for name, module in model.named_modules() if "lora_" not in name]
    changed = [(module, "p") for _, module in modules if isinstance(module, nn.Dropout)]
    changed += [
        (module, name)
        for _, module in modules
        for name in _SHARES
        if isinstance(getattr(module, name, None), (int, float))
    ]
    hooked: list[nn.Module] = []
    if all(name == _ATTENTION for _, name in changed):
        hooked = [module for name, module in modules if name.rpartition(".")[2] in _LAYERS]
        hooked.append(model.get_input_embeddings())
    with ExitStack() as stack:
        for module, name in changed:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, share)
        for module in hooked:
            stack.enter_context(module.register_forward_hook(partial(_drop, share)))
        yield


def _drop(share: float, module: nn.Module, inputs: object, output: Any) -> Any:
    """Drop values of a module's output, or of the first of a tuple."""
    if isinstance(output, tuple):
        return _drop(share, module, inputs, output[0]), *output[1:]
    return nn.functional.dropout(output, share, module.training)


@contextmanager
def _forward_of(model: Any, forward: Any) -> Iterator[None]:
    """Let a model compute by ``forward``."""
    before, model.forward = model.forward, forward
    try:
        yield
    finally:
        model.forward = before


@contextmanager
def fast_steps(model: PreTrainedModel, precision: str, row_length: int) -> Iterator[str]:
    """Train by the fastest attention and output layer; yields the name of the attention.

    ``row_length`` is the number of tokens of a long row. The backward pass of PyTorch's attention
    (`scaled_dot_product_attention`) takes four times as long as the plain formula in bfloat16 on a
    processor. A frozen output layer is copied for every row if its input is a slice of the hidden
    states that is not contiguous.
    """
    base = getattr(model, "get_base_model", lambda: model)()
    attention = str(base.config._attn_implementation)
    is_slow = precision == "bfloat16" and attention == "sdpa" and row_length <= _SHORT
    uses_eager = is_slow and not torch.accelerator.is_available()
    head = base.get_output_embeddings()
    with ExitStack() as stack:
        # The Trainer switches the cache off.
        use_cache = getattr(model.config, "use_cache", True)
        stack.callback(setattr, model.config, "use_cache", use_cache)
        if uses_eager:
            base.set_attn_implementation("eager")
            stack.callback(base.set_attn_implementation, attention)
        if head is not None:
            stack.enter_context(head.register_forward_pre_hook(_contiguous))
        yield "eager" if uses_eager else attention


def _contiguous(_module: object, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return (inputs[0].contiguous(), *inputs[1:])
