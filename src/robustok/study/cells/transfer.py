"""Transfer as a cell: each model under the attacks that a suite found on the other models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from robustok.attack_settings import suite_label
from robustok.display import Progress
from robustok.files import read_rows, write_rows
from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.questions import SEARCHES, AttackCell, margin
from robustok.study.cost import QUESTION_TOKENS, scoring_seconds


@dataclass(frozen=True)
class TransferCell(AttackCell):
    """A suite's worst tokenizations together with those found against the other models."""

    kind: ClassVar[str] = "transfer"

    own: AttackCell | None = None  # the suite against this model
    others: tuple[AttackCell, ...] = ()  # the same suite against the other models

    @cached_property
    def inputs(self) -> dict[str, Cell]:
        return super().inputs | {f"other-{i}": cell for i, cell in enumerate(self.others)}

    @property
    def fields(self) -> dict[str, Any]:
        return {"transfer": len(self.others)}

    @property
    def query(self) -> str:
        return suite_label(str(self.attack.suite), self.max_scored, len(self.others))

    @property
    def label(self) -> str:
        return f"transfer to {self.model.description}{self._suffix}"

    @property
    def work(self) -> float:
        tokens = self.attack.items * SEARCHES * len(self.others) * QUESTION_TOKENS
        return scoring_seconds(self.model.parameters, tokens) + 1

    def run(self, folder: Path, progress: Progress) -> Summary:
        from robustok.ragged import Ragged

        assert self.own is not None
        vocab, model = self.tokenizer.vocabulary(folder), self.model.load(folder)
        items, prefix = self._questions(self.attack.items, vocab, folder)
        own, others = _attacks_of([self.own], folder), _attacks_of(self.others, folder)
        rows = []
        for done, item in enumerate(items, 1):
            objective = margin(model, vocab, item, prefix)
            best = max(own[item.key], key=lambda row: row["score"])
            broken = any(row["success"] for row in own[item.key])
            worst = {"ids": best["ids"], "score": best["score"], "of_model": None}
            limit = objective.max_length
            tried = [r for r in others[item.key] if limit is None or len(r["ids"]) <= limit]
            candidates = Ragged.from_rows([np.array(r["ids"], np.int32) for r in tried])
            scores = objective(candidates).tolist() if tried else []
            for row, score in zip(tried, scores, strict=True):
                if score > worst["score"]:
                    worst = {"ids": row["ids"], "score": score, "of_model": row["of_model"]}
            rows.append({"key": item.key, **worst, "success": broken or worst["score"] > 0})
            progress(done, len(items))
        write_rows(self.path(folder) / "items.jsonl", rows)
        held = [not row["success"] for row in rows]
        ids = [np.array(row["ids"], np.int32) for row in rows]
        return self._worst(vocab, items, held, ids)


def _attacks_of(cells: Sequence[AttackCell], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The attacks of suites by the key of the question, each with the model it was found on."""
    attacks: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        for row in read_rows(cell.path(folder) / "items.jsonl"):
            model = {"of_model": cell.model.description}
            attacks.setdefault(row["key"], []).append(row | model)
    return attacks
