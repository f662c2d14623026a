"""Result of an evaluation: accuracy, interval, and the outcome of every item."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    key: str
    kind: str
    label: int
    predictions: tuple[int, ...]
    margins: tuple[float, ...]

    @property
    def correct(self) -> float:
        """Fraction of draws that got the label."""
        return sum(p == self.label for p in self.predictions) / len(self.predictions)


@dataclass(frozen=True)
class Evaluation:
    """Accuracy over items, each under several tokenizations of its question.

    >>> from robustok.evaluation import evaluate
    >>> result = evaluate(model, vocab, items, "uniform", draws=3, seed=0)
    >>> result.eval_scheme, result.n, result.draws, len(result.outcomes)
    ('uniform', 8, 3, 8)

    Args:
        accuracy: mean over items of the fraction of correct draws.
        low: lower 95% bound of ``accuracy``, with items as clusters.
        high: upper 95% bound.
        n: number of items.
        draws: draws of each item.
        eval_scheme: spec of the scheme that drew the questions.
        seed: seed of the draws.
        seconds: wall-clock time.
        outcomes: the predictions for each item.
        mode: scoring mode: ``"tree"``, ``"cache"`` or ``"plain"``; see
            :func:`~robustok.scoring.scoring_mode`.
        tokens_computed: positions that went through the model, padding included.
        tokens_naive: positions of one unpadded sequence for each question and option.
        overflowed: number of draws that did not fit the model's longest input.
    """

    accuracy: float
    low: float
    high: float
    n: int
    draws: int
    eval_scheme: str
    seed: int
    seconds: float
    outcomes: tuple[Outcome, ...]
    mode: str
    tokens_computed: int
    tokens_naive: int
    overflowed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.eval_scheme}: accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], "
            f"{self.n} items × {self.draws} draws"
            + (f", {self.overflowed} longer than the model's max_length" if self.overflowed else "")
        )

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
                "seed": self.seed,
                "draws": len(o.predictions),
            }
            for o in self.outcomes
        ]
