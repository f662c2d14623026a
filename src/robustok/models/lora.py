"""Low-rank adapters, with the paper's numbers as the default."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.errors import RobustokError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


def add_lora(
    model: PreTrainedModel,
    *,
    seed: int,
    rank: int = 8,
    alpha: float = 32,
    dropout: float = 0.05,
    targets: tuple[str, ...] | None = None,
) -> PeftModel:
    """Freeze a model and add low-rank adapters, which alone are trained and saved.

    >>> light = add_lora(model, seed=0)
    >>> light.num_parameters(only_trainable=True) < 0.02 * light.num_parameters()
    True

    Args:
        model: a causal language model of transformers; it is changed in place.
        seed: any integer that torch accepts; it decides the initial weights of the adapters.
        rank: rank of an adapter's two matrices, at least 1.
        alpha: scale of the adapters: their output is multiplied by ``alpha / rank``.
        dropout: probability, from 0 to 1, that an input of an adapter is zeroed during training.
        targets: names of the layers that get an adapter; by default peft's choice for the
            architecture (``q_proj`` and ``v_proj`` of a Llama).

    :func:`load_model` on the trained folder merges the adapter into its base model, which must
    still be where it was loaded from.

    Raises RobustokError for an architecture without default LoRA layers in peft.
    Source: the paper's table "Supervised fine-tuning for Hugging Face models".
    """
    import torch
    from peft import LoraConfig, TaskType, get_peft_model

    if rank < 1:
        raise RobustokError(f"rank is {rank}: it must be at least 1")
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=list(targets) if targets else None,
        task_type=TaskType.CAUSAL_LM,
    )
    with torch.random.fork_rng(), _quiet():
        torch.manual_seed(seed)
        try:
            light = get_peft_model(model, config)
        except ValueError as e:
            reason = str(e).strip().split("\n")[0]
            raise RobustokError(f"cannot add LoRA: {reason}; name the layers as targets") from e
    base = config.base_model_name_or_path
    if base and Path(base).is_dir():  # to be found from any working directory
        config.base_model_name_or_path = str(Path(base).resolve())
    return light  # type: ignore[return-value]


def has_lora(path_or_name: str | Path) -> bool:
    """Whether this is a folder of LoRA weights, which belong to a base model elsewhere."""
    return (Path(path_or_name) / "adapter_config.json").is_file()


def base_of_lora(folder: str | Path) -> str:
    """The path or name of the model that the LoRA weights of a folder belong to."""
    from peft import PeftConfig

    return str(PeftConfig.from_pretrained(str(folder)).base_model_name_or_path)


def merge_lora(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """The base model with the LoRA weights of a folder added into its own."""
    from peft import PeftModel

    with _quiet(), warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")
        try:
            return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()  # type: ignore
        except UserWarning:
            raise RobustokError(
                f"the adapter in '{folder}' lacks weights: the file is damaged"
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that peft calls forth: it reads what transformers has renamed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        yield
