"""The page docs/results/fidelity.md: what the paper states, what a study has, and what was run.

The paper's settings are those of `fidelity.yaml`; those of a study are read from `studies/`
at its full scale and from the `study.json` of each kept run. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.claims import RESULTS, read_claims
from experiments.index import table
from robustok.runtime.files import read_json
from robustok.study import find_study, studies

SETTINGS = Path(__file__).with_name("fidelity.yaml")
COLUMNS = {
    "model": "model", "questions": "questions", "steps": "steps × batch", "rate": "rate",
    "draws": "draws in training", "evaluation": "questions × draws", "attack": "attacked questions",
}  # fmt: skip
NONE = "–"
_GAMES = {"langgame": "LangGame", "cute": "CUTE"}
_BY_WORDING = {"paper": "the paper's wording", "short": "a shorter wording"}


def page(results: Path = RESULTS) -> str:
    """The page; raises ValueError where a study of the paper is in no group."""
    content = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    grouped = {name for group in content["groups"] for name in group["studies"]}
    if left := {name for name in studies() if find_study(name).paper} - grouped:
        raise ValueError(f"no group of fidelity.yaml has {sorted(left)}")
    runs = _runs(results)
    link = read_claims().link
    parts = [content["page"].strip()]
    for group in content["groups"]:
        head = ["study", "of", *COLUMNS.values(), "deviates in"]
        lines = [["", "the paper", *(group["paper"][name] for name in COLUMNS), ""]]
        for name in group["studies"]:
            lines += _lines(name, runs.get(name, []), link)
        parts += [f"## {group['name']}", table(head, lines)]
    points = "\n".join(f"- {one}" for one in content["inconsistencies"])
    parts += ["## Inconsistencies within the paper", points]
    return "\n\n".join(parts) + "\n"


def _runs(results: Path) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """The kept runs by the study that they are of, each with its folder."""
    runs: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for file in sorted(results.glob("*/study.json")):
        study = read_json(file)
        runs.setdefault(study["name"], []).append((file.parent.name, study))
    return runs


def _lines(
    name: str, runs: Sequence[tuple[str, dict[str, Any]]], link: Callable[[str], str]
) -> list[list[str]]:
    """The full study, and each of its runs."""
    lines, wanted = [], None
    if name in studies():
        study = find_study(name)
        wanted = settings(study.as_dict())
        where = study.paper.where if study.paper else "no figure of the paper"
        lines.append([f"`{name}`: {where}", "full study", *wanted.values(), ""])
    for folder, study in runs:
        own = settings(study)
        differs = [COLUMNS[field] for field in COLUMNS if wanted and own[field] != wanted[field]]
        first = "" if lines else f"`{name}`: no figure of the paper"
        lines.append([first, f"[run]({link(folder)})", *own.values(), ", ".join(differs)])
    return lines if runs else [*lines, ["", "not run", *[NONE] * len(COLUMNS), ""]]


def settings(study: Mapping[str, Any]) -> dict[str, str]:
    """The columns of one study, from its resolved configuration.

    Args:
        study: as in study.json.
    """
    evaluate, trainings = study["evaluate"], [study[part] for part in ("pretrain", "finetune")]
    trainings = [part for part in trainings if part]
    return {
        "model": _model(study),
        "questions": _questions(study),
        "steps": ", then ".join(f"{p['steps']:,} × {p['batch_size']}" for p in trainings) or NONE,
        "rate": ", then ".join(map(_rate, trainings)) or NONE,
        "draws": _draws(study),
        "evaluation": f"{evaluate['items']} × {evaluate['draws']}" if evaluate else NONE,
        "attack": ", ".join(dict.fromkeys(str(a["items"]) for a in study["attacks"])) or NONE,
    }


def _model(study: Mapping[str, Any]) -> str:
    model, few_shot = study["model"], study["few_shot"]
    if model["name"]:
        text = model["name"].partition("@")[0].rpartition("/")[2]
    else:
        sizes = f"{model['layers']} layers × {model['width']} ({model['architecture']})"
        text = f"{sizes}, random weights"
    if study["finetune"]:
        lora = study["finetune"]["lora"]
        text += f"; LoRA of rank {lora['rank']}" if lora else "; all weights" * bool(model["name"])
    return text + (f"; {few_shot['examples']} examples" if few_shot else "")


def _questions(study: Mapping[str, Any]) -> str:
    parts = []
    if corpus := study["corpus"]:
        parts.append((corpus["hub"] or "").partition("@")[0] or "own text")
    if task := study["task"]:
        wording = f", {_BY_WORDING[task['format']]}" if task["kind"] == "langgame" else ""
        parts.append(
            f"{task['train']:,} of {_GAMES[task['kind']]}, {task['words']:,} words{wording}"
        )
    if benchmarks := study["benchmarks"]:
        parts.append(", ".join(benchmarks["names"]))
    return "; ".join(parts) or NONE


def _rate(part: Mapping[str, Any]) -> str:
    peak = part["learning_rate"]
    return f"{peak:.2g} to {peak * part['min_lr_ratio']:.2g}"


def _draws(study: Mapping[str, Any]) -> str:
    part = study["finetune"]
    if not part:
        return "new at each step" if study["pretrain"] else NONE
    fixed = part["fixed_draws"]
    return f"{fixed} of each question" if fixed else "new at each step"
