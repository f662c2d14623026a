"""Prompts of preference data (TRL's DPOTrainer), and of rollouts (GRPOTrainer, RLOOTrainer)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robustok.errors import RobustokError
from robustok.integrations.perturb import Perturb

Row = dict[str, Any]


def is_preference(row: Row) -> bool:
    """Whether a row is one of DPOTrainer: ids of a prompt and of two completions."""
    return {"prompt_ids", "chosen_ids", "rejected_ids"} <= {*row}


def perturbed_preferences(perturb: Perturb, rows: Sequence[Row]) -> list[Row]:
    """Rows with drawn prompts; both completions stay, and share the drawn prompt.

    >>> perturb = Perturb(rt.sampler("uniform-k(k=2)", vocab), seed=0)
    >>> prompt = vocab.encode("hello world").tolist()
    >>> row = {"prompt_ids": prompt, "chosen_ids": [275], "rejected_ids": [276]}
    >>> perturbed_preferences(perturb, [row])
    [{'prompt_ids': [272, 79, 275], 'chosen_ids': [275], 'rejected_ids': [276]}]

    A prompt stays canonical where its draw would push a completion beyond ``max_length``.
    """
    longest = [max(row["chosen_ids"], row["rejected_ids"], key=len) for row in rows]
    drawn = perturb(
        [
            {
                "input_ids": [*row["prompt_ids"], *completion],
                "completion_mask": [0] * len(row["prompt_ids"]) + [1] * len(completion),
            }
            for row, completion in zip(rows, longest, strict=True)
        ]
    )
    return [
        {**row, "prompt_ids": new["input_ids"][: new["completion_mask"].count(0)]}
        for row, new in zip(rows, drawn, strict=True)
    ]


def perturb_rollouts(trainer: Any, perturb: Perturb, *, share_group: bool) -> None:
    """Draw the prompts of a GRPOTrainer or RLOOTrainer while it trains; completions are its own.

    ``share_group``: the generations of one prompt share its draw. Otherwise each has its own, by
    its number in the group.

    Raises RobustokError for groups apart with vLLM, which takes one prompt for a group.
    """
    if not share_group and getattr(trainer, "use_vllm", False):
        raise RobustokError(
            "vLLM generates a whole group from one prompt: choose share_group=True, or "
            "use_vllm=False"
        )
    tokenize = trainer._tokenize_prompts

    def tokenize_and_draw(prompts: list[Any]) -> Any:
        prompt_ids, *rest = tokenize(prompts)
        if rest and rest[0] is not None:
            raise RobustokError("prompts with images cannot be perturbed: use text prompts")
        if trainer.model.training:
            first = trainer.accelerator.process_index * len(prompt_ids)
            numbers = [
                0 if share_group else (first + i) % trainer.num_generations
                for i in range(len(prompt_ids))
            ]
            rows = [{"input_ids": list(ids)} for ids in prompt_ids]
            prompt_ids = [row["input_ids"] for row in perturb(rows, numbers)]
        return prompt_ids, *rest

    trainer._tokenize_prompts = tokenize_and_draw
