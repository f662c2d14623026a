"""Results of evaluations: outcomes, accuracies, their paired comparison, and tables."""

from __future__ import annotations

from dataclasses import dataclass

from robustok.errors import RobustokError
from robustok.evaluation.comparison import Difference, difference
from robustok.runtime.files import JsonFields, JsonObject


@dataclass(frozen=True)
class Outcome:
    """One item's predictions, one for each draw.

    >>> from robustok.evaluation import evaluate
    >>> outcome = evaluate(model, vocab, items, "uniform", draws=3, seed=0).outcomes[1]
    >>> outcome.key, outcome.label, len(outcome.predictions)
    ('q1', 1, 3)

    Args:
        key: key of the item.
        kind: group of the item; empty for none.
        label: index of the right option, from 0.
        predictions: index of the option with the greatest log-probability, [draws].
        margins: greatest log-probability of a wrong option minus that of the right one, in nats,
            [draws]; above 0 the draw is wrong.
        norm_predictions: as ``predictions``, with each log-probability divided by the number of
            characters of the option, [draws].
    """

    key: str
    kind: str
    label: int
    predictions: tuple[int, ...]
    margins: tuple[float, ...]
    norm_predictions: tuple[int, ...]

    @property
    def correct(self) -> float:
        """Fraction of draws that got the label."""
        return sum(p == self.label for p in self.predictions) / len(self.predictions)

    @property
    def correct_norm(self) -> float:
        """Fraction of draws that got the label by ``norm_predictions``."""
        return sum(p == self.label for p in self.norm_predictions) / len(self.norm_predictions)


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Accuracy over items, drawn or attacked, and the work that it took.

    >>> from robustok.attack import attack_items
    >>> isinstance(attack_items(model, vocab, items, seed=0), Accuracy)
    True

    Args:
        accuracy: mean over items of the fraction of correct draws; over attacked items, the share
            that the attack did not break.
        low: lower 95% bound of ``accuracy``, with items as clusters.
        high: upper 95% bound.
        n: number of items.
        draws: draws of each item; 1 for an attack.
        eval_scheme: spec of the scheme that drew the questions, or the settings of the attack.
        seed: seed of the draws and of all random choices.
        seconds: wall-clock time.
        mode: scoring mode, ``"tree"`` or ``"plain"``; see
            :func:`~robustok.scoring.scoring_mode`.
        tokens_computed: positions that went through the model, padding included.
        tokens_naive: positions of one unpadded sequence for each tokenization and option.
        overflowed: number of tokenizations that did not fit the model's longest input.
    """

    accuracy: float
    low: float
    high: float
    n: int
    draws: int
    eval_scheme: str
    seed: int
    seconds: float
    mode: str
    tokens_computed: int
    tokens_naive: int
    overflowed: int = 0


def accuracy_line(row: JsonFields, details: str) -> str:
    """An accuracy on one line; ``row`` has the fields of an :class:`Accuracy`."""
    interval = "{accuracy:.3f} [{low:.3f}, {high:.3f}]".format_map(row)
    return f"{row['eval_scheme']}: accuracy {interval}, {details}{overflow_text(row)}"


def evaluation_line(row: JsonFields) -> str:
    """An evaluation on one line; ``row`` has its fields, and ``consistency`` where there is one."""
    normalized = "{acc_norm:.3f} [{acc_norm_low:.3f}, {acc_norm_high:.3f}]".format_map(row)
    same = "" if row.get("consistency") is None else f", consistency {row['consistency']:.3f}"
    details = f"acc_norm {normalized}, {row['n']} items × {row['draws']} draws{same}"
    return accuracy_line(row, details)


def overflow_text(row: JsonFields) -> str:
    """The end of a line on a result: how many tokenizations were too long, or nothing."""
    count = row.get("overflowed")
    return f", {count} longer than the model's max_length" if count else ""


@dataclass(frozen=True, kw_only=True)
class Evaluation(Accuracy):
    """Accuracy over items, each under several tokenizations of its question.

    >>> from robustok.evaluation import evaluate
    >>> result = evaluate(model, vocab, items, "uniform", draws=3, seed=0)
    >>> result.eval_scheme, result.n, result.draws, len(result.outcomes)
    ('uniform', 8, 3, 8)

    Args:
        outcomes: the predictions for each item.
        acc_norm: accuracy where each log-probability is divided by the number of characters of its
            option, without the space before it: `acc_norm` of lm-eval.
        acc_norm_low: lower 95% bound of ``acc_norm``.
        acc_norm_high: upper 95% bound.
        precision: type of the model's weights, as ``"float32"`` or ``"bfloat16"``.
        strength: how far the draws are from canonical: ``splits``, ``distance`` and
            ``length_ratio`` per canonical token, as :meth:`robustok.Strength.mean` gives them.
    """

    outcomes: tuple[Outcome, ...]
    acc_norm: float
    acc_norm_low: float
    acc_norm_high: float
    precision: str
    strength: dict[str, float]

    @property
    def consistency(self) -> float | None:
        """Share of items with one prediction in all draws; None where an item has one only.

        The other items change their answer between draws. A wrong answer counts as consistent.
        """
        if max(len(one.predictions) for one in self.outcomes) < 2:
            return None
        return sum(len(set(one.predictions)) == 1 for one in self.outcomes) / self.n

    def __str__(self) -> str:
        return evaluation_line({**vars(self), "consistency": self.consistency})

    def table(self) -> list[dict[str, object]]:
        """One plain dictionary per item, ready for JSON lines.

        ``predictions[j]`` and ``margins[j]`` are those of draw j of ``draws``.
        """
        return [
            {
                "key": o.key,
                "kind": o.kind,
                "label": o.label,
                "predictions": list(o.predictions),
                "margins": [round(m, 6) for m in o.margins],
                "correct": o.correct,
                "norm_predictions": list(o.norm_predictions),
                "correct_norm": o.correct_norm,
                "seed": self.seed,
                "draws": len(o.predictions),
            }
            for o in self.outcomes
        ]


def paired(first: Evaluation, second: Evaluation) -> Difference:
    """Compare two evaluations of the same items.

    >>> from robustok.evaluation import evaluate
    >>> result = paired(evaluate(model, vocab, items, "canonical", seed=0),
    ...                 evaluate(model, vocab, items, "uniform", seed=0))
    >>> 0 <= result.p <= 1
    True

    Args:
        first: the evaluation to compare with.
        second: the evaluation of the same items, in any order; the difference is its accuracy minus
            the first one's.

    The draws of one item are a cluster. Items are paired by their key, also where the two
    evaluations have other seeds.

    Raises RobustokError where the items differ.
    """
    if {o.key for o in first.outcomes} != {o.key for o in second.outcomes}:
        raise RobustokError(
            "the two evaluations have different items: compare evaluations of the same items"
        )
    return difference(*map(_row_of, (first, second)))


def _row_of(evaluation: Evaluation) -> JsonObject:
    """The answers of an evaluation as a row to compare, as those of one seed."""
    return {"answers": {0: {outcome.key: outcome.correct for outcome in evaluation.outcomes}}}
