"""The first lines of a report: what its accuracies say, made from its rows.

A report on trainings compares all of them with the canonical one; a report on models that exist has
the accuracies of each. Differences are paired, as in the tables below the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robustok.attack.settings import is_attack, is_worst
from robustok.evaluation.comparison import Difference, clear_differences, difference
from robustok.report.frame import (
    LEAST_SEEDS,
    SOURCES,
    Results,
    Row,
    percent,
    points_text,
)
from robustok.report.style import one_line, panel_title, short

_MOST_PANELS = 4  # tasks or pre-trainings, or models; of more, the tables alone are shown
_FEW = 3  # names in a sentence


def answer_lines(results: Results) -> list[str]:
    """The sentences that answer a report's title; none for results that they do not fit.

    A difference of trainings is undecided where Holm's method does not keep it among those of its
    sentence, and where it is over fewer than three seeds; that of a model that exists, where its
    interval includes zero.
    """
    if results.frame.empty:
        return []
    if results.exist:
        lines = [_of_model(results, name) for name in results.names]
        return lines if len(lines) <= _MOST_PANELS else []
    panels = {p: {row["spec"]: row["name"] for row in own} for p, own in results.panels.items()}
    panels = {p: names for p, names in panels.items() if len(names) > 1 and "canonical" in names}
    if not panels or len(panels) > _MOST_PANELS or {*SOURCES[:2]} & {*results.varying}:
        return []
    lines = [_head(results, max(map(len, panels.values())) - 1)]
    for panel, names in panels.items():
        lines += _of_panel(results, panel, names)
    return lines


def _head(results: Results, most: int) -> str:
    """What the sentences on trainings compare; ``most`` is the number of the other schemes."""
    few_shot = any(row["few_shot_scheme"] for row in results.rows)
    kind = "few-shot examples" if few_shot else "training"
    several = f" ({most} schemes)" if most > 1 else ""
    return (
        f"Accuracy with canonical {kind} → with other {kind}{several}, and in points the paired "
        "differences with 95% intervals. One is undecided unless it is over three seeds or more "
        "and Holm's correction keeps it among those of its line."
    )


def shown_schemes(results: Results) -> list[str]:
    """The most perturbed questions, the attack (the worst of several), and canonical questions."""
    known = (results.hardest or "", *results.attacks[-1:], "canonical")
    return [scheme for scheme in known if scheme in results.eval_schemes]


def _of_panel(results: Results, panel: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """A sentence for each kind of questions, on the models of one pre-training or task."""
    start = f"{panel_title(panel)}: " if panel else ""
    lines = []
    for scheme in shown_schemes(results):
        rows = {spec: row for spec, name in names.items() if (row := results.get(name, scheme))}
        base = rows.pop("canonical", None)
        if base and rows:
            questions = where(scheme) if panel else where(scheme).capitalize()
            lines.append(f"{start}{questions} {_comparison(base, rows)}.")
    return lines


def _comparison(base: Row, others: Mapping[str, Row]) -> str:
    """The accuracies, the smallest and the greatest difference, and what is undecided."""
    pairs = {spec: (base, row) for spec, row in others.items()}
    changes = {spec: difference(*pair) for spec, pair in pairs.items()}
    shares = sorted(row["accuracy"] for row in others.values())
    accuracies = " to ".join(dict.fromkeys(percent(share) for share in (shares[0], shares[-1])))
    ends = sorted(changes, key=lambda spec: changes[spec].mean)
    named = len(changes) > 1
    texts = [
        " ".join(points_text(changes[spec])) + f" ({one_line(short(spec))})" * named
        for spec in dict.fromkeys((ends[0], ends[-1]))
    ]
    text = f"{percent(base['accuracy'])}% → {accuracies}%: {' to '.join(texts)} points"
    if any(change.seeds < len(base["seeds"]) for change in changes.values()):
        text += " over the seeds that both have"
    return text + _undecided(changes, [*clear_differences(pairs)])


def _undecided(changes: Mapping[str, Difference], kept: Sequence[str]) -> str:
    """The end of a sentence: which of its differences are undecided, or nothing."""
    names = [s for s, change in changes.items() if s not in kept or change.seeds < LEAST_SEEDS]
    if len(names) == len(changes):
        return "; all are undecided" if len(names) > 1 else "; undecided"
    if len(names) > _FEW:
        return f"; {len(names)} of {len(changes)} are undecided"
    return f"; undecided: {', '.join(one_line(short(name)) for name in names)}" if names else ""


def _of_model(results: Results, name: str) -> str:
    """The accuracies of a model that exists, from canonical questions to attacked ones."""
    parts = []
    for scheme in sorted(shown_schemes(results), key=lambda scheme: scheme != "canonical"):
        row = results.get(name, scheme)
        if row is None:
            continue
        text = f"{percent(row['accuracy'])}% {where(scheme)}"
        change = results.change(name, scheme) if scheme != "canonical" else None
        if change is not None:
            asked = results.get(name, "canonical")
            own = asked is not None and percent(change.before) != percent(asked["accuracy"])
            before = f"from {percent(change.before)} on the same questions: " if own else ""
            undecided = "" if change.is_clear else ", undecided"
            text += f" ({before}{' '.join(points_text(change))} points{undecided})"
        parts.append(text)
    return f"{name}: {' → '.join(parts)}."


def where(scheme: str) -> str:
    """The questions of an evaluation scheme, in a sentence: `under uniform draws`."""
    if scheme == "canonical":
        return "on canonical questions"
    name = one_line(short(scheme))
    if is_worst(scheme):
        return f"under the {name}"
    return f"under {name}" if is_attack(scheme) else f"under {name} draws"
