"""Conversion of a recipe to the arguments of transformers' Trainer."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch
from transformers import TrainingArguments

from robustok.errors import RobustokError
from robustok.training.recipe import Recipe

LOG_EVERY = 10  # steps


def trainer_arguments(recipe: Recipe, seed: int, folder: Path) -> TrainingArguments:
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
        adam_beta1=recipe.betas[0],
        adam_beta2=recipe.betas[1],
        max_grad_norm=recipe.max_grad_norm,
        # Explicit: otherwise processes without an accelerator do not form a group.
        use_cpu=not torch.accelerator.is_available(),
        bf16=recipe.precision == "bfloat16",
        torch_compile=recipe.torch_compile,
        seed=seed % 2**32,
        data_seed=seed % 2**32,
        logging_steps=LOG_EVERY,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        save_strategy="steps",
        # A multiple of the logging steps: a checkpoint does not hold a partial sum of losses.
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


def check_launch() -> None:
    """Refuse FSDP without an accelerator, and warn where a launcher started fewer processes.

    accelerate would run DDP without a notice. On a CPU, ``accelerate launch --num_processes 2``
    starts one process; it sets the address of the others but no WORLD_SIZE.
    """
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ and "MASTER_ADDR" in os.environ
    if launched and "WORLD_SIZE" not in os.environ and not torch.accelerator.is_available():
        logging.getLogger(__name__).warning(
            "accelerate launch started one process, since on a CPU it ignores --num_processes: "
            "use torchrun --nproc_per_node for several"
        )
    requested = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if requested and not torch.accelerator.is_available():
        raise RobustokError(
            "FSDP needs accelerators, and there are none here: launch without --use_fsdp"
        )
