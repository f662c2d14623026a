"""Accuracy on questions whose tokenization an attack chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from robustok import attack as attacks
from robustok.attack.settings import AttackSettings, unsearched_ids
from robustok.evaluation.intervals import curve_of
from robustok.models.load import Overflow, overflow_option
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields, JsonObject
from robustok.samplers import Spec, measure
from robustok.study.cell import Summary
from robustok.study.measurements.base import (
    MeasuredCell,
    OnQuestions,
    OpenedCell,
    chance,
    rounded,
)
from robustok.study.sections import eval_spec

# For estimates of cost:
STEP_NEIGHBORS = 80  # tokenizations that an attack scores in a step
STEPS_TAKEN = 3  # until an attack succeeds or gives up


@dataclass(frozen=True, kw_only=True)
class Attack(AttackSettings, OnQuestions):
    """The greedy attack of the paper's Algorithm 2, or another search."""

    kind: ClassVar[str] = "attack"
    on_benchmarks: ClassVar[bool] = False
    reads_chat: ClassVar[bool] = True

    overflow: Overflow = overflow_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", eval_spec(str(Spec.parse(self.start))))
        if self.search != AttackSettings.search:  # of which it is known that there is one
            _ = attacks.SEARCHES[self.search]

    @property
    def eval_scheme(self) -> str:
        return str(self)

    @property
    def settings(self) -> JsonObject:
        """The fields of :class:`AttackSettings`, which attacks take."""
        return {field.name: getattr(self, field.name) for field in fields(AttackSettings)}

    def tokens_read(self, cell: MeasuredCell) -> float:
        tokens = self.question_tokens(cell) / 3  # neighbors share most of their tokens
        return tokens * min(self.steps, STEPS_TAKEN) * len(self.distances) * STEP_NEIGHBORS

    def run(self, opened: OpenedCell) -> Summary:
        from robustok.attack.engine import (
            AttackedModel,
            accuracy_under,
            attack_questions,
            question_prompts,
        )

        items, around_ids = opened.questions(self.items)
        prompts = question_prompts(items)
        around = around_ids.get("prefix"), around_ids.get("suffix")
        model = AttackedModel(opened.model, opened.vocab, *around, self.overflow)

        def attack_group(group: Sequence[attacks.Prompt], progress: Progress) -> Summary:
            attacked, dropped = attack_questions(model, group, self, opened.seed, progress=progress)
            return {"attacks": [a.as_row() for a in attacked], "dropped": dropped}

        groups = opened.in_groups(prompts, attack_group)
        rows = [row for group in groups for row in group["attacks"]]
        attacked = [attacks.Attack.from_row(row) for row in rows]
        summary = accuracy_under(attacked)
        opened.write_items(
            row
            | {"tokens": opened.spelled(row["ids"])}
            | {"canonical_tokens": opened.spelled(row["canonical_ids"])}
            for row in rows
        )
        overflowed = sum(group["dropped"] for group in groups)
        overflowed += sum(a.overflowed for a in attacked)
        strength = measure(
            opened.vocab, [a.canonical_ids for a in attacked], [a.ids for a in attacked]
        )
        keys = {a.key for a in attacked}
        return {
            **summary,
            **unsearched_ids(opened.vocab, self),
            **({"overflowed": overflowed} if overflowed else {}),
            "chance": chance([item for item in items if item.key in keys]),
            **rounded(strength.mean()),
            "precision": opened.precision,
        }

    def rows(self, row: JsonFields) -> Iterator[JsonFields]:
        (printed,) = super().rows(row)
        items = row["items"]
        max_scored = max(item["n_scored"] for item in items)
        reached_at = [item["reached_at"] for item in items]
        single = {}
        if len(items) == 1:
            names = ("ids", "success", "tokens")
            margins = attacks.Attack.from_row(items[0]).margins
            single = {"margins": margins, **{name: items[0][name] for name in names}}
        yield {
            **printed,
            "curve": curve_of("accuracy", [reached_at], most=max_scored),
            **single,
        }

    def line(self, row: JsonFields) -> str:
        from robustok.attack.engine import attack_line

        text = attack_line(row)
        if "margins" in row:
            margins = " → ".join(f"{margin:+.3f}" for margin in row["margins"])
            text += f"\n{'|'.join(row['tokens'])}\nmargins {margins}"
        return text
