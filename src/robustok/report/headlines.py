"""The headlines of a study: a number and what it is of, each clear of chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from robustok.attack.settings import is_attack, is_suite
from robustok.report.comparison import Difference, clear_differences
from robustok.report.frame import Results, Row, change_text, percent
from robustok.report.names import one_line, short
from robustok.study.cells.models import UNTRAINED

FEW_SHOT = "few-shot examples"


@dataclass(frozen=True)
class Headline:
    """A difference in accuracy, what it is a difference of, and the color of its model.

    >>> Headline("+10.0", "points on uniform questions", "#009e73").number
    '+10.0'

    Args:
        number: the difference in points, or how many of the tasks have one.
        text: what it is a difference of, with its interval.
        color: of the model in figures.
    """

    number: str
    text: str
    color: str


def find_headlines(results: Results) -> list[Headline]:
    """The main results of a study, computed from the rows.

    >>> same = {"task": "langgame", "n": 100, "low": 0.6, "high": 0.8}
    >>> rows = [same | {"train_scheme": "canonical", "eval_scheme": scheme, "accuracy": accuracy}
    ...         for scheme, accuracy in (("canonical", 0.9), ("uniform", 0.5))]
    >>> [headline.number for headline in find_headlines(Results(rows))]
    ['−40.0']

    Args:
        results: the results.

    First the loss of canonical training, then the lead of the best other one. A difference is
    stated only where its interval excludes zero, which holds for all tasks, or for all schemes of
    which it is the best, at once (:func:`clear_differences`). Of several tasks the number is stated
    that have such a difference. Where models were pre-trained differently, canonical training is
    the first of them.
    """
    bases = _canonical_by_group(results)
    schemes = [scheme for scheme in (results.hardest, *results.attacks) if scheme]
    stated = [_loss(results, list(bases), scheme) for scheme in schemes[:1]]
    stated += [_lead(results, bases, scheme) for scheme in schemes]
    return [headline for headline in stated if headline]


def _canonical_by_group(results: Results) -> dict[str, list[str]]:
    """The first canonically trained model of each task, study and scale, with the others of it."""
    groups: dict[str, list[str]] = {}
    for name in results.names:
        groups.setdefault(_group(results, name), []).append(name)
    bases = {}
    for names in groups.values():
        canonical = [name for name in names if results.models[name]["bar"] == "canonical"]
        if canonical:
            bases[canonical[0]] = [name for name in names if name not in canonical]
    return bases


def _loss(results: Results, bases: Sequence[str], scheme: str) -> Headline | None:
    """What canonical training loses from canonical questions to others."""
    pairs = {base: results.before_and_after(base, scheme) for base in bases}
    kept = clear_differences({base: pair for base, pair in pairs.items() if pair})
    how = _canonical(results, bases)
    what = f"from canonical questions to {_questions(scheme)}" + (f", with {how}" if how else "")
    return _headline(results, bases, kept, {base: base for base in kept}, what, "change")


def _lead(results: Results, bases: Mapping[str, Sequence[str]], scheme: str) -> Headline | None:
    """The best scheme of each group where it is better than the canonical one, and its lead."""
    pairs: dict[str, tuple[Row, Row]] = {}
    for base, others in bases.items():
        for name in others:
            before, after = results.get(base, scheme), results.get(name, scheme)
            if before and after:
                pairs[name] = before, after
    kept = clear_differences(pairs)
    best: dict[str, str] = {}
    compared = 0
    for base, others in bases.items():
        measured = [name for name in others if name in pairs]
        top = max(measured, key=lambda name: pairs[name][1]["accuracy"], default=None)
        if top is not None and top in kept and kept[top].mean > 0:
            best[base], compared = top, len(measured)
    if not best:
        return None
    base, top = next(iter(best.items()))
    of = f", the best of {compared}" if compared > 1 else ""
    seeds = ", one seed" if kept[top].seeds == 1 else ""
    model = results.models[top]["bar"]
    if len(bases) > 1 and compared > 1:
        model, of = f"the best of {compared}", ""
    how = _canonical(results, list(bases)) or "canonical"
    what = f"on {_questions(scheme)}, with {model} instead of {how}{of}{seeds}"
    changes = {base: kept[top] for base, top in best.items()}
    return _headline(results, list(bases), changes, best, what, "gain")


def _headline(
    results: Results,
    bases: Sequence[str],
    changes: Mapping[str, Difference],
    models: Mapping[str, str],
    what: str,
    verb: str,
) -> Headline | None:
    """A headline from clear changes, and the models that have them, by the model of ``bases``."""
    if not changes:
        return None
    base, change = next(iter(changes.items()))
    color = results.colors[results.models[models[base]]["bar"]]
    if len(bases) == 1:
        shares = f"{percent(change.before)}% → {percent(change.after)}%"
        mean, bounds = change_text(change)
        return Headline(mean, f"points {bounds} {what} ({shares})", color)
    tasks = "tasks" if set(results.varying) <= {"task", "pretrain_scheme"} else "groups of models"
    of_each = "; ".join(
        " ".join([_group(results, base), *change_text(change)]) for base, change in changes.items()
    )
    text = f"{tasks} {verb} {what}: {of_each}"
    return Headline(f"{len(changes)} of {len(bases)}", text, color)


def _questions(scheme: str) -> str:
    """An evaluation scheme in a few words."""
    name = one_line(short(scheme))
    attacked = is_attack(scheme) or is_suite(scheme)
    return f"questions under {name}" if attacked else f"{name} questions"


def _canonical(results: Results, bases: Sequence[str]) -> str:
    """What is canonical in the models that others are compared with; empty where nothing is."""
    row = next((results.models[base] for base in bases), None)
    if row is None or row["file"]:
        return ""
    if row["few_shot_scheme"]:
        return f"canonical {FEW_SHOT}"
    if "pretrain_scheme" in results.varying:
        return "canonical pre-training and fine-tuning"
    return "" if row["training"] == UNTRAINED else f"canonical {row['training']}"


def _group(results: Results, name: str) -> str:
    """What a model shares with the models that it is compared with, such as the task."""
    names = [field for field in results.varying if field != "pretrain_scheme"]
    return ", ".join(str(results.models[name][field]) for field in names)
