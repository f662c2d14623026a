"""The paper's robustness bound from the weights, beside measured changes of hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from robustok import attack as attacks
from robustok import evaluation
from robustok.checks import option
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields
from robustok.study.cell import Summary
from robustok.study.measurements.base import MeasuredCell, OnQuestions, OpenedCell, Subject
from robustok.study.sections import EvalSpec
from robustok.tasks import Item

_NORMS = ("embedding", "head", "largest_embedding")


@dataclass(frozen=True, kw_only=True)
class Bound(OnQuestions):
    """The bound of a model, and with questions the measured changes that it bounds."""

    kind: ClassVar[str] = "bound"
    reads_weights: ClassVar[bool] = True
    on_benchmarks: ClassVar[bool] = False
    task: ClassVar[str] = "weights"

    distance: int = option("k of the bound", default=1, min=1)
    tokens: int | None = option(
        "n in the proof; null: the longest tokenization measured", default=None, min=1
    )
    scheme: EvalSpec = option("scheme of the questions", default="uniform")
    draws: int = option("draws of each question", default=10, min=1)
    attack: bool = option("also measure attacked tokenizations", default=True)

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        if any(data.is_attacked for data in subject.questions):
            yield from super().measured_on(replace(subject, few_shots=(None,)))  # questions alone
        elif subject.is_last:
            yield {}

    def tokens_read(self, cell: MeasuredCell) -> float:
        return self.question_tokens(cell) * self.draws if cell.questions else 0.0

    def run(self, opened: OpenedCell) -> Summary:
        name = opened.cell.model.name_in_figure
        bound = evaluation.lipschitz_bound(opened.model, progress=opened.progress)
        ratios = self._ratios(opened) if opened.cell.questions else None
        n = self.tokens or (ratios.longest if ratios else None)
        return {
            **{field: getattr(bound, field) for field in _NORMS},
            "distance": self.distance,
            "tokens": n,
            "bound": [{"model": name, **row} for row in bound.table(self.distance, tokens=n)],
            **({} if ratios is None else self._measured(ratios, name)),
            "precision": opened.precision,
        }

    def _measured(self, ratios: evaluation.Ratios, model: str) -> Summary:
        changes = [{"model": model, **row} for row in ratios.table()]
        return {"changes": changes, "n": ratios.items, "draws": ratios.draws}

    def _ratios(self, opened: OpenedCell) -> evaluation.Ratios:
        """The measured ratios; the attack on each question leaves out neighbors that do not fit."""
        items, _ = opened.questions(self.items)

        def attack_group(group: Sequence[Item], progress: Progress) -> Summary:
            model, options = opened.model, {"overflow": "canonical", "progress": progress}
            result = attacks.attack_items(model, opened.vocab, group, seed=opened.seed, **options)
            return {"ids": [attack.ids.tolist() for attack in result.attacks]}

        groups = opened.in_groups(items, attack_group) if self.attack else []
        return evaluation.lipschitz_ratios(
            opened.model,
            opened.vocab,
            items,
            attacked=[ids for group in groups for ids in group["ids"]],
            draws=self.draws,
            seed=opened.seed,
            sampler=self.scheme,
            progress=opened.progress,
        )

    def line(self, row: JsonFields) -> str:
        gamma = power_of_ten(row["bound"][-1]["log10_gamma_theorem"])
        return f"{row['model']}: γ {gamma} at distance {row['distance']}"


def power_of_ten(log10: float) -> str:
    """
    >>> power_of_ten(345.301)
    '2.00e+345'
    """
    whole = int(log10 // 1)
    return f"{10 ** (log10 - whole):.2f}e{whole:+03d}"
