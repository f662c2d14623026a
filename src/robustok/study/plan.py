"""From a study to its cells: what is done, in which order, and what each piece depends on.

A cell is content-addressed: its key is a hash of all that decides its result. The same cell is
therefore done once, and changing one field changes the keys of what depends on it and no others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from robustok.study.config import Study, Training
from robustok.tasks.words import read_words

FORMAT = 1  # raise it when the same fields come to mean another result


@dataclass(frozen=True)
class Cell:
    """One piece of work with a result that is kept.

    `fields` and the keys of `inputs` decide the result; `work` is a rough number of seconds on one
    core, for the progress bars.
    """

    kind: str
    fields: Mapping[str, Any]
    inputs: Mapping[str, Cell] = field(default_factory=dict)
    work: float = 1.0

    @cached_property
    def key(self) -> str:
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "fields": dict(self.fields),
            "inputs": {role: cell.key for role, cell in self.inputs.items()},
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def label(self) -> str:
        """What people are shown.

        >>> Cell("evaluate", {"query": "uniform"}, {"model": Cell("finetune",
        ...     {"scheme": "canonical"})}).label
        'evaluate canonical on uniform'
        """
        match self.kind:
            case "finetune" | "pretrain":
                return f"{self.kind} {self.fields['scheme']}"
            case "evaluate":
                return f"evaluate {self.inputs['model'].fields['scheme']} on {self.fields['query']}"
            case "attack":
                return f"attack {self.inputs['model'].fields['scheme']}"
        return self.kind


def plan(study: Study) -> tuple[Cell, ...]:
    """The cells of a study, each after all that it depends on.

    Models are evaluated as soon as they are trained, so that a run that is cut short has whole
    rows to show.
    """
    data = Cell("data", _task_fields(study), work=1)
    tokenizer = Cell("tokenizer", {"size": study.tokenizer.size}, {"data": data}, work=1)
    made = {"data": data, "tokenizer": tokenizer}
    cells = [data, tokenizer]
    if study.examples:
        cells.append(
            Cell(
                "examples",
                study.examples.model_dump()
                | {"schemes": study.finetune.schemes, "seed": study.seed},
                {"tokenizer": tokenizer},
                1,
            )
        )
    base = Cell(
        "pretrain",
        {"model": study.model.model_dump(), "seed": study.seed} | study.pretrain.model_dump(),
        made,
        _training_work(study, study.pretrain, study.pretrain.scheme),
    )
    cells.append(base)
    recipe = study.finetune.model_dump(exclude={"schemes"}) | {"seed": study.seed}
    for scheme in study.finetune.schemes:
        model = Cell(
            "finetune",
            {"scheme": scheme} | recipe,
            made | {"model": base},
            _training_work(study, study.finetune, scheme),
        )
        cells += [model, *_measurements(study, made | {"model": model})]
    return tuple({cell.key: cell for cell in cells}.values())


def _measurements(study: Study, inputs: Mapping[str, Cell]) -> list[Cell]:
    cells = []
    for query in study.evaluate.queries:
        draws = 1 if query == "canonical" else study.evaluate.draws
        fields = {"query": query, "items": study.evaluate.items, "draws": draws, "seed": study.seed}
        cells.append(Cell("evaluate", fields, inputs, 0.001 * study.evaluate.items * draws))
    if study.attack:
        fields = study.attack.model_dump() | {"seed": study.seed}
        cells.append(Cell("attack", fields, inputs, 0.06 * study.attack.items))
    return cells


def _training_work(study: Study, training: Training, scheme: str) -> float:
    """Rough seconds on one core, from 2 layers of width 128 at batch 64.

    Drawn tokenizations are about twice as long as the canonical ones.
    """
    size = study.model.layers / 2 * (study.model.width / 128) ** 2
    step = 0.05 if scheme == "canonical" else 0.095
    return training.steps * training.batch_size / 64 * step * max(size, 0.25)


def _task_fields(study: Study) -> dict[str, Any]:
    """The task's fields. A word file stands here as its words: its place does not matter."""
    fields = study.task.model_dump(exclude={"words_file"}) | {"seed": study.seed}
    if study.task.words_file is not None:
        fields["words"] = read_words(study.task.words_file)
    return fields
