"""The first sentences of a report, from the configuration that was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Part = Mapping[str, Any]

GAMES = {"langgame": "LangGame", "cute": "CUTE"}


def about(study: Part, rows: Sequence[Part]) -> str:
    """What a study ran, in a few sentences; the YAML's own text where it has no configuration.

    >>> study = {"model": {"name": "gpt2"}, "task": {"kind": "cute", "words": 9, "train": 8},
    ...          "finetune": {"schemes": ["canonical"], "steps": 5, "batch_size": 2}, "repeats": 1}
    >>> about(study, [])
    'The model is gpt2. It is fine-tuned on 8 questions of CUTE over 9 words in 5 steps of 2,
    with one scheme. There is one seed: intervals cover the choice of questions, not the training.'

    Args:
        study: the resolved configuration, as in study.json.
        rows: rows of results.jsonl.
    """
    if "model" not in study:
        return str(study.get("about", "")).strip()
    sentences = [_model(study["model"], rows), _pretraining(study), _finetuning(study)]
    sentences += [_few_shot(study), _evaluation(study), _attacks(study), _others(study)]
    sentences.append(seeds_sentence(study, rows))
    return " ".join(sentence for sentence in sentences if sentence)


def seeds_sentence(study: Part, rows: Sequence[Part]) -> str:
    """What the intervals cover, by the seeds that were measured, or else planned.

    >>> seeds_sentence({}, [{"seed": seed, "train": "a", "accuracy": 0.5} for seed in (0, 1)])
    'Intervals cover the 2 seeds, and the questions, which all seeds share.'
    """
    seeds: dict[Any, set[int]] = {}
    for row in rows:
        if "seed" in row:
            names = ("study", "pretrain", "train", "context", "task", "query")
            seeds.setdefault(tuple(row.get(name) for name in names), set()).add(row["seed"])
    counts = {len(values) for values in seeds.values()} or {study.get("repeats") or 1}
    if rows and not any("accuracy" in row or "layers" in row for row in rows):
        return "There is one seed." if max(counts) == 1 else f"There are {max(counts)} seeds."
    items = "words" if rows and all("layers" in row for row in rows) else "questions"
    trained = bool(study.get("pretrain") or study.get("finetune")) if "model" in study else True
    if max(counts) == 1:
        other = "training" if trained else "draws"
        return f"There is one seed: intervals cover the choice of {items}, not the {other}."
    of = "" if trained else ", which change the draws only"
    some = "" if min(counts) > 1 else f" Results of one seed have intervals over {items} only."
    number = f"{min(counts)} to {max(counts)}" if len(counts) > 1 and not some else max(counts)
    return f"Intervals cover the {number} seeds{of}, and the {items}, which all seeds share.{some}"


def _count(values: Sequence[Any], noun: str) -> str:
    return f"one {noun}" if len(values) == 1 else f"{len(values)} {noun}s"


def _model(model: Part, rows: Sequence[Part]) -> str:
    sizes = [row["model"]["parameters"] for row in rows if "parameters" in row.get("model", {})]
    size = f" ({sizes[0] / 1e6:.1f}M parameters)" if sizes else ""
    if name := model.get("name"):
        start = f", with the start token {model['start_token']}" if model.get("start_token") else ""
        return f"The model is {str(name).partition('@')[0]}{size}{start}."
    layers = _count(range(model["layers"]), "layer")
    return f"The model{size} has {layers} of width {model['width']} and starts from random weights."


def _pretraining(study: Part) -> str:
    part = study.get("pretrain")
    if not part:
        return ""
    on = "text" if part.get("source") == "corpus" else "the questions of the task itself"
    schemes = _count(part["schemes"], "scheme")
    return f"It is pre-trained on {on} in {part['steps']:,} steps with {schemes}."


def _finetuning(study: Part) -> str:
    part, task = study.get("finetune"), study.get("task")
    if not part or not task:
        return ""
    low_rank = " with LoRA" if part.get("lora") else ""
    if strength := study.get("strength"):
        values = ", ".join(f"{splits:g}" for splits in strength["splits"])
        strengths = (
            f", set to {values} measured splits per canonical token where they have a strength"
        )
    else:
        strengths = ""
    words = f"{task['words']:,} words" if not task.get("words_file") else "the words of a file"
    words = "words, read from a file," if task.get("data") else words
    return (
        f"It is fine-tuned{low_rank} on {task['train']:,} questions of {GAMES[task['kind']]} over "
        f"{words} in {part['steps']:,} steps of {part['batch_size']}, with "
        f"{_count(part['schemes'], 'scheme')}{strengths}."
    )


def _few_shot(study: Part) -> str:
    part = study.get("few_shot") or study.get("context")
    if not part:
        return ""
    count = part.get("examples") or part.get("shots")
    schemes = _count(part["schemes"], "scheme")
    return f"{count} solved examples stand before every question, drawn with {schemes}."


def _evaluation(study: Part) -> str:
    part = study.get("evaluate")
    if not part:
        return ""
    schemes = part.get("eval_schemes") or part.get("queries") or ()
    benchmarks = (study.get("benchmarks") or {}).get("names", ())
    tasks = [GAMES[study["task"]["kind"]]] if study.get("task") else []
    tasks += [f"{name}" for name in benchmarks]
    tokenized = f"tokenized with {_count(schemes, 'scheme')}, {part['draws']} draws of each"
    if tuple(schemes) == ("canonical",):
        tokenized = "tokenized canonically"
    return (
        f"It is evaluated on up to {part['items']:,} held-out questions of {', '.join(tasks)}, "
        f"{tokenized}."
    )


def _attacks(study: Part) -> str:
    attacks = study.get("attacks") or ()
    greedy = [attack for attack in attacks if not attack.get("suite")]
    sentences = []
    if greedy:
        searches = "one greedy search" if len(greedy) == 1 else f"{len(greedy)} greedy searches"
        verb = "attacks" if len(greedy) == 1 else "attack"
        sentences.append(f"{searches.capitalize()} {verb} {greedy[0]['items']} of the questions.")
    for attack in attacks:
        if attack.get("suite"):
            more = ", together with those that it finds against the other models"
            sentences.append(
                f"The {attack['suite']} suite of attacks takes the worst of several searches on "
                f"{attack['items']} questions{more if attack.get('transfer') else ''}."
            )
    return " ".join(sentences)


def _others(study: Part) -> str:
    sentences = []
    if part := study.get("perplexity"):
        schemes = part.get("eval_schemes") or part.get("queries") or ()
        sentences.append(
            f"Perplexity of held-out text is measured under {_count(schemes, 'scheme')}."
        )
    if part := study.get("embeddings"):
        sentences.append(
            f"Hidden states of {part['words']:,} frequent words are compared over {part['draws']} "
            "uniform draws each."
        )
    return " ".join(sentences)
