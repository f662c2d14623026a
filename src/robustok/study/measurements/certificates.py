"""Certificates of answers under retokenization."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from robustok import attack as attacks
from robustok.attack.settings import CertifySettings
from robustok.checks import option
from robustok.evaluation.comparison import overflow_text
from robustok.models.load import Overflow, overflow_option, precision_of
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields
from robustok.study.cells.base import Summary
from robustok.study.measurements.base import (
    MeasuredCell,
    OnQuestions,
    Opened,
)
from robustok.tasks import Item


def _distance(value: object) -> Any:
    """A distance as YAML and the command line have it, where `all` stands for None."""
    if value == "all":
        return None
    if isinstance(value, str) and not value.isdecimal():
        raise ValueError(f"{value!r} is no distance: give a whole number, or all")
    return value


Distance = Annotated[int | None, BeforeValidator(_distance)]


@dataclass(frozen=True, kw_only=True)
class Certify(CertifySettings, OnQuestions):
    """Whether an answer is the same under every tokenization within a distance."""

    kind: ClassVar[str] = "certify"
    on_benchmarks: ClassVar[bool] = False
    reads_chat: ClassVar[bool] = True

    distances: tuple[Distance, ...] = option(
        "whole number or 'all'", "--distance", default=(2, 4, 6), metavar="N"
    )
    overflow: Overflow = overflow_option()

    @property
    def eval_scheme(self) -> str:
        return "certificates"

    def tokens_read(self, cell: MeasuredCell) -> float:
        tokens = self.question_tokens(cell) / 3  # neighbors share most of their tokens
        return tokens * len(self.distances) * min(self.limit, self.draws)

    def run(self, at: Opened) -> Summary:
        items, around = at.questions(self.items)

        def certified(group: Sequence[Item], progress: Progress) -> Summary:
            done = attacks.certify_items(
                at.model,
                at.vocab,
                group,
                settings=self,
                seed=at.seed,
                overflow=self.overflow,
                progress=progress,
                **around,
            )
            certificates = [one.as_row() for one in done.certificates]
            return {"certificates": certificates, "overflowed": done.overflowed}

        groups = at.in_groups(items, certified)
        rows = [row for group in groups for row in group["certificates"]]
        certificates = tuple(map(attacks.Certificate.from_row, rows))
        gap = attacks.Certification(certificates, self, at.seed).table()
        choices = {item.key: item.choices for item in items}
        by_key: dict[str, list[Summary]] = {}
        for row in rows:
            answer = choices[row["key"]][row["answer"]]
            shown = {"option": answer, "tokens": at.spelled(row["witness"] or ())}
            by_key.setdefault(row["key"], []).append(row | shown)
        at.write_items({"key": key, "certificates": own} for key, own in by_key.items())
        overflowed = sum(group["overflowed"] for group in groups)
        return {
            "n": len(by_key),
            "draws": self.draws,
            "gap": [{"model": at.cell.model.name_in_figure, **row} for row in gap],
            **({"overflowed": overflowed} if overflowed else {}),
            "precision": precision_of(at.model),
        }

    def rows(self, row: JsonFields) -> Iterator[JsonFields]:
        """The certificates of one question; of several, their number by distance and verdict."""
        if row["n"] == 1:
            yield from row["items"][0]["certificates"]
            return
        names = ("task", "overflowed", "precision")
        shared = {name: row[name] for name in names if name in row}
        for within in row["gap"]:
            yield {**within, "model": row["model"], **shared}

    def line(self, row: JsonFields) -> str:
        if "verdict" in row:
            text = f"answer {row['option']!r}, {attacks.Certificate.from_row(row)}"
            return text + (f"\n{'|'.join(row['tokens'])}" if row["tokens"] else "")
        bound = f" (each ≤ {row['open_upper']:.2%})" if row["open"] else ""
        return (
            f"{row['model']}, distance {row['distance']}: {row['same']} certified, {row['open']} "
            f"open{bound}, {row['flips']} broken that the attack missed, {row['attacked']} broken "
            f"by it, of {row['n']}{overflow_text(row)}"
        )
