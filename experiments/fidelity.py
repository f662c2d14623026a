"""The page docs/results/fidelity.md: what the paper states, what a study has, and what was run.

The paper's settings are those of `fidelity.yaml`; those of a study are read from `studies/` at its
full scale and from the `study.json` and the rows of each kept run. Nothing is measured here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.claims import RESULTS, read_claims
from experiments.index import short_spec, table
from robustok.attack.settings import is_attack
from robustok.runtime.files import read_json
from robustok.runtime.inputs import read_rows
from robustok.study import find_study, studies

SETTINGS = Path(__file__).with_name("fidelity.yaml")
NAMES = {
    "model": "model", "weights": "start weights", "vocabulary": "vocabulary",
    "questions": "questions", "words": "word list", "trained": "schemes trained",
    "examples": "few-shot examples", "steps": "steps × batch", "rate": "rate", "warmup": "warm-up",
    "draws": "draws in training", "asked": "schemes asked", "evaluation": "questions × draws",
    "attack": "attacks", "embeddings": "embeddings, words × draws", "seeds": "seeds",
}  # fmt: skip
OF_MODEL = ("weights", "vocabulary", "questions", "words", "rate", "warmup", "draws")
NONE = "–"
_GAMES = {"langgame": "LangGame", "cute": "CUTE"}
_BY_WORDING = {"paper": "the paper's wording", "short": "a shorter wording"}
_Run = tuple[str, dict[str, str]]  # the folder of a kept run and its settings


def page(results: Path = RESULTS) -> str:
    """The page; raises ValueError where a study of the paper is in no group."""
    content = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    grouped = {name for group in content["groups"] for name in group["studies"]}
    if left := {name for name in studies() if find_study(name).paper} - grouped:
        raise ValueError(f"no group of fidelity.yaml has {sorted(left)}")
    runs: dict[str, list[_Run]] = {}
    for file in sorted(results.glob("*/study.json")):
        study = read_json(file)
        own = settings(study, content["models"]) | _asked(file.parent)
        runs.setdefault(study["name"], []).append((file.parent.name, own))
    link = read_claims().link
    usual = _usual([own for of_study in runs.values() for _, own in of_study])
    models = [[name, *(own[field] for field in OF_MODEL)] for name, own in sorted(usual.items())]
    parts = [content["page"].strip()]
    parts += [table(("models of the runs", *(NAMES[field] for field in OF_MODEL)), models)]
    for group in content["groups"]:
        full = {
            name: settings(find_study(name).as_dict(), content["models"])
            for name in group["studies"]
            if name in studies()
        }
        parts += [f"## {group['name']}", _group_table(group["paper"], full)]
        kept = [(name, run) for name in group["studies"] for run in runs.get(name, [])]
        parts.append(_run_table(kept, usual, link))
        if left := [name for name in group["studies"] if name not in runs]:
            parts.append(f"Not run: {', '.join(map(_title, left))}.")
    points = "\n".join(f"- {one}" for one in content["inconsistencies"])
    parts += ["## Inconsistencies within the paper", points]
    return "\n\n".join(parts) + "\n"


def _group_table(paper: Mapping[str, str], full: Mapping[str, Mapping[str, str]]) -> str:
    """What the paper states beside what our studies have at their full scale."""
    lines = []
    for field, name in NAMES.items():
        values = dict.fromkeys(own[field] for own in full.values() if own[field] != NONE)
        ours = "; ".join(values) if len(values) <= 3 else f"{len(values)} settings, by study"
        if field in paper or values:
            lines.append([name, paper.get(field, NONE), ours or NONE])
    return table(("setting", "the paper", "our studies at full scale"), lines)


def _usual(runs: Sequence[Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The most frequent value of each setting of `OF_MODEL`, by the model of the runs."""
    of_model: dict[str, list[Mapping[str, str]]] = {}
    for own in runs:
        of_model.setdefault(own["model"], []).append(own)
    return {
        model: {
            field: Counter(one[field] for one in own).most_common(1)[0][0] for field in OF_MODEL
        }
        for model, own in of_model.items()
    }


def _title(name: str) -> str:
    paper = find_study(name).paper if name in studies() else None
    return f"`{name}` ({paper.where if paper else 'no figure of the paper'})"


def _run_table(
    runs: Sequence[tuple[str, _Run]],
    usual: Mapping[str, Mapping[str, str]],
    link: Callable[[str], str],
) -> str:
    """A line for each kept run; its last cell has what is not usual for its model."""
    fields = [
        field
        for field in NAMES
        if field not in OF_MODEL and any(own[field] != NONE for _, (_, own) in runs)
    ]
    lines = []
    for name, (folder, own) in runs:
        others = [
            f"{NAMES[field]}: {own[field]}"
            for field, value in usual[own["model"]].items()
            if own[field] != value
        ]
        study = "" if folder == name else f" of `{name}`"
        run = f"[{folder}]({link(folder)}){study}"
        lines.append([run, *(own[field] for field in fields), "; ".join(others)])
    return table(("run", *(NAMES[field] for field in fields), "other"), lines)


def settings(study: Mapping[str, Any], models: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The settings of one study, from its resolved configuration.

    Args:
        study: as in study.json.
        models: vocabulary and weights of the models that have a name, by it.
    """
    evaluate, few_shot = study["evaluate"], study["few_shot"]
    trainings = [study[part] for part in ("pretrain", "finetune") if study[part]]
    known = models.get(_short_name(study["model"]["name"] or ""), {})
    size = (study["tokenizer"] or {}).get("size")
    if name := (study["tokenizer"] or {}).get("name"):
        known = {**models.get(_short_name(name), {}), "weights": NONE}
    own = {
        "model": _model(study),
        "weights": known.get("weights", NONE),
        "vocabulary": f"{size:,}, trained for it" if size else known.get("vocabulary", NONE),
        "questions": _questions(study),
        "words": _words(study),
        "trained": ", then ".join(_specs(part["schemes"]) for part in trainings),
        "examples": f"{few_shot['examples']}, {_specs(few_shot['schemes'])}" if few_shot else "",
        "steps": ", then ".join(f"{p['steps']:,} × {p['batch_size']}" for p in trainings),
        "rate": ", then ".join(map(_rate, trainings)),
        "warmup": ", then ".join(map(_warmup, trainings)),
        "draws": _draws(study),
        "asked": _specs(evaluate["eval_schemes"]) if evaluate else "",
        "evaluation": f"{evaluate['items']} × {evaluate['draws']}" if evaluate else "",
        "attack": "; ".join(map(_attack, study["attacks"])),
        "embeddings": _embeddings(study),
        "seeds": str(study["repeats"]),
    }
    return {field: text or NONE for field, text in own.items()}


def _asked(folder: Path) -> dict[str, str]:
    """What was trained, asked and repeated in a kept run, by its rows: less than planned, or more.

    A scheme with fewer seeds than another one says how many.
    """
    rows = read_rows(folder / "results.jsonl")
    seeds = {row["seed"] for row in rows}
    asked = dict.fromkeys(
        row["eval_scheme"]
        for row in rows
        if "accuracy" in row and not is_attack(row["eval_scheme"])
    )
    found = {"seeds": str(len(seeds))} | ({"asked": _specs([*asked])} if asked else {})
    trained: dict[str, set[int]] = {}
    for row in rows:
        if row["training"] == "fine-tuning":
            trained.setdefault(row["train_scheme"], set()).add(row["seed"])
    if trained and not any(row.get("pretrain_scheme") != "canonical" for row in rows):
        names = [
            short_spec(spec) + (f" (seeds: {len(own)})" if len(own) < len(seeds) else "")
            for spec, own in trained.items()
        ]
        pretrained = any(row["training"] == "pre-training" for row in rows)
        found["trained"] = "`canonical`, then " * pretrained + ", ".join(names)
    return found


def _specs(specs: Sequence[str]) -> str:
    return ", ".join(map(short_spec, specs))


def _short_name(name: str) -> str:
    return name.partition("@")[0].rpartition("/")[2]


def _model(study: Mapping[str, Any]) -> str:
    model = study["model"]
    if model["name"]:
        text = _short_name(model["name"])
    else:
        sizes = f"{model['layers']} layers × {model['width']} ({model['architecture']})"
        text = f"{sizes}, random weights"
    if study["finetune"]:
        lora = study["finetune"]["lora"]
        text += f"; LoRA of rank {lora['rank']}" if lora else "; all weights" * bool(model["name"])
    return text


def _questions(study: Mapping[str, Any]) -> str:
    parts = []
    if corpus := study["corpus"]:
        parts.append((corpus["hub"] or "").partition("@")[0] or "own text")
    if task := study["task"]:
        wording = f", {_BY_WORDING[task['format']]}" if task["kind"] == "langgame" else ""
        parts.append(f"{task['train']:,} of {_GAMES[task['kind']]}{wording}")
    if benchmarks := study["benchmarks"]:
        parts.append(", ".join(benchmarks["names"]))
    return "; ".join(parts)


def _words(study: Mapping[str, Any]) -> str:
    """The list that the words of generated questions come from."""
    task = study["task"]
    if not task:
        return ""
    file = (task["words_file"] or "").rpartition("/")[2]
    return f"{task['words']:,} of {file or 'wordfreq'}"


def _rate(part: Mapping[str, Any]) -> str:
    peak = part["learning_rate"]
    return f"{peak:.2g} to {peak * part['min_lr_ratio']:.2g}"


def _warmup(part: Mapping[str, Any]) -> str:
    return f"{part['warmup_steps']:,} steps"


def _draws(study: Mapping[str, Any]) -> str:
    part = study["finetune"]
    if not part:
        return "new at each step" if study["pretrain"] else ""
    fixed = part["fixed_draws"]
    return f"{fixed} of each question" if fixed else "new at each step"


def _attack(attack: Mapping[str, Any]) -> str:
    """An attack in a few words: questions, distances, and what is not usual of it."""
    if attack.get("suite"):
        return f"{attack['items']}, the suite"
    start = "" if attack["start"] == "canonical" else f" from {attack['start']}"
    steps = "" if attack["steps"] == 10 else f", {attack['steps']} steps"
    text = f"{attack['items']} at d = {' and '.join(map(str, attack['distances']))}{start}{steps}"
    return text + (", until wrong" if attack["stop_when_wrong"] else "")


def _embeddings(study: Mapping[str, Any]) -> str:
    part = study["embeddings"]
    return f"{part['words']:,} × {part['draws']}" if part else ""
