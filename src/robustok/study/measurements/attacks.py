"""Accuracy on questions whose tokenization an attack chooses, or the worst of several searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np

from robustok import attack as attacks
from robustok.attack.settings import (
    SUITE_LIMIT,
    AttackSettings,
    ObjectiveSettings,
    suite_label,
)
from robustok.errors import RobustokError
from robustok.evaluation.intervals import curve_of, share
from robustok.models.load import Overflow, overflow_option, precision_of
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields, JsonObject
from robustok.study.cells.base import Summary
from robustok.study.measurements.base import (
    MeasuredCell,
    OnQuestions,
    Opened,
    chance,
    strength_of,
)
from robustok.study.sections import eval_spec
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary

# For estimates of cost:
STEP_NEIGHBORS = 80  # tokenizations that an attack scores in a step
STEPS_TAKEN = 3  # until an attack succeeds or gives up
SUITE_SEARCHES = 6  # of the suite

_SETTINGS = tuple(one.name for one in fields(AttackSettings))


@dataclass(frozen=True, kw_only=True)
class Attack(AttackSettings, OnQuestions):
    """The greedy attack of the paper's Algorithm 2, another search, or the suite of searches."""

    kind: ClassVar[str] = "attack"
    on_benchmarks: ClassVar[bool] = False
    reads_chat: ClassVar[bool] = True

    overflow: Overflow = overflow_option()
    suite: Literal[True] | None = field(
        default=None, metadata={"description": "the worst of several searches"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", eval_spec(self.start))
        own = AttackSettings(max_scored=self.max_scored)
        changed = [one for one in _SETTINGS if getattr(self, one) != getattr(own, one)]
        changed += ["overflow"] if self.overflow != Attack.overflow else []
        if self.suite is not None and changed:
            raise RobustokError(f"the suite has its own searches: leave {', '.join(changed)} out")

    @property
    def eval_scheme(self) -> str:
        return suite_label(self.limit) if self.suite else str(self)

    @property
    def limit(self) -> int:
        """Tokenizations that each search of the suite scores for a question."""
        return self.max_scored or SUITE_LIMIT

    def tokens_read(self, cell: MeasuredCell) -> float:
        tokens = self.question_tokens(cell) / 3  # neighbors share most of their tokens
        if self.suite:
            return tokens * SUITE_SEARCHES * self.limit
        return tokens * min(self.steps, STEPS_TAKEN) * len(self.distances) * STEP_NEIGHBORS

    def run(self, at: Opened) -> Summary:
        from robustok.attack.engine import (
            AttackedModel,
            accuracy_under,
            attack_questions,
            question_prompts,
        )

        items, around = at.questions(self.items)
        prompts = question_prompts(items)
        if self.suite:
            return self._run_suite(at, items, prompts, around)
        frame = around.get("prefix"), around.get("suffix")
        model = AttackedModel(at.model, at.vocab, *frame, self.overflow, self.objective)

        def searched(group: Sequence[attacks.Prompt], progress: Progress) -> Summary:
            done, dropped = attack_questions(model, group, self, at.seed, progress=progress)
            return {"attacks": [one.as_row() for one in done], "dropped": dropped}

        groups = at.in_groups(prompts, searched)
        rows = [row for group in groups for row in group["attacks"]]
        done = [attacks.Attack.from_row(row) for row in rows]
        summary = accuracy_under(done)
        spelled = {} if len(rows) > 1 else {"tokens": at.spelled(rows[0]["ids"])}
        at.write_items(row | spelled for row in rows)
        overflowed = sum(group["dropped"] for group in groups)
        overflowed += sum(one.overflowed for one in done)
        of_key = {item.key: item.question for item in items}
        return {
            **summary,
            **({"overflowed": overflowed} if overflowed else {}),
            "chance": chance(items),
            **strength_of(at.vocab, [of_key[one.key] for one in done], [one.ids for one in done]),
            "precision": precision_of(at.model),
        }

    def _run_suite(
        self,
        at: Opened,
        items: Sequence[Item],
        prompts: Sequence[attacks.Prompt],
        around: JsonObject,
    ) -> Summary:
        objective = attacks.NamedObjective(
            at.model, at.vocab, ObjectiveSettings("margin"), **around
        )
        settings = {"seed": at.seed, "max_scored": self.limit}
        groups = at.in_groups(prompts, suite_search(at.vocab, objective, **settings))
        result = suite_result(groups, at.seed, self.limit)
        parts = result.parts.items()
        rows = [{"search": name, **attack.as_row()} for name, part in parts for attack in part]
        at.write_items(rows)
        broken = {row["key"] for row in rows if row["success"]}
        ids = [attack.ids for attack in result.worst]
        return {
            **share("accuracy", [item.key not in broken for item in items]),
            "n": len(items),
            "draws": 1,
            "chance": chance(items),
            **strength_of(at.vocab, [item.question for item in items], ids),
            "start_accuracy": float(np.mean([a.canonical_score <= 0 for a in result.worst])),
            "precision": precision_of(at.model),
        }

    def rows(self, row: JsonFields) -> Iterator[JsonFields]:
        (printed,) = super().rows(row)
        if self.suite:
            yield printed
            return
        items = row["items"]
        most = max(item["n_scored"] for item in items)
        reached = [item["reached_at"] for item in items]
        one = {}
        if len(items) == 1:
            names = ("ids", "success", "tokens")
            margins = attacks.Attack.from_row(items[0]).margins
            one = {"margins": margins, **{name: items[0][name] for name in names}}
        yield {
            "search": self.search,
            **printed,
            "curve": curve_of("accuracy", reached, most=most),
            **one,
        }

    def line(self, row: JsonFields) -> str:
        from robustok.attack.engine import attack_line

        text = attack_line(row)
        if "margins" in row:
            margins = " → ".join(f"{margin:+.3f}" for margin in row["margins"])
            text += f"\n{'|'.join(row['tokens'])}\nmargins {margins}"
        return text


def suite_search(
    vocab: Vocabulary, objective: Callable[[attacks.Prompt], attacks.Objective], **settings: Any
) -> Callable[[Sequence[attacks.Prompt], Progress], Summary]:
    """What runs :func:`run_suite` on a group of prompts, and gives the rows of each search."""

    def searched(group: Sequence[attacks.Prompt], progress: Progress) -> Summary:
        result = attacks.run_suite(
            vocab,
            group,
            objective,
            progress=lambda done, _: progress(done // SUITE_SEARCHES, len(group)),
            **settings,
        )
        return {name: [one.as_row() for one in part] for name, part in result.parts.items()}

    return searched


def suite_result(groups: Sequence[Summary], seed: int, limit: int) -> attacks.SuiteResult:
    """The suite on all prompts, from what :func:`suite_search` gave for each group."""
    parts = {
        name: [attacks.Attack.from_row(row) for group in groups for row in group[name]]
        for name in attacks.suite_settings()
    }
    return attacks.SuiteResult(seed, limit, parts, dict.fromkeys(parts, 0.0))
