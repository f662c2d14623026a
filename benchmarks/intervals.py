"""Simulate studies, and count how often their intervals and starred tests are right.

    python benchmarks/intervals.py [--studies 4000]

Two schemes are trained with S seeds each and answer the same 300 questions. The logit of the
chance of a right answer is a mean, plus an effect of the question (SD 1.5, shared by the schemes),
of the scheme's question (SD 0.5) and of the trained model (the SD in the table, on the logit scale:
0.3 moves an accuracy of 60% by 6 points). Both schemes have the same mean, so that every
difference that is called clear is a false alarm. `Satterthwaite` is the interval that was used
before: one quantile of Student's t for the sum of both variances.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import t

from common import options_of, print_heads, print_row
from robustok.evaluation.intervals import LEVEL, clustered, compare_answers, interval

QUESTIONS = 300
POPULATION = 20_000  # questions that the true accuracy is taken over


def satterthwaite(parts: list[tuple[float, float]]) -> float:
    """Half-width by one quantile, with degrees of freedom for the sum of the variances."""
    variance = math.fsum(part for part, _ in parts)
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in parts if part)
    return float(t.isf(LEVEL / 2, freedom)) * math.sqrt(variance)


def answers(rng: np.random.Generator, seeds: int, spread: float, draws: int) -> np.ndarray:
    """Shares of right answers, float64 [2, seeds, questions]."""
    question = rng.normal(0, 1.5, QUESTIONS)
    own = rng.normal(0, 0.5, (2, 1, QUESTIONS))
    logit = 0.5 + question + own + rng.normal(0, spread, (2, seeds, 1))
    return rng.binomial(draws, 1 / (1 + np.exp(-logit))) / draws


def true_accuracy(rng: np.random.Generator, spread: float) -> float:
    """Expected accuracy over questions and trained models."""
    logit = 0.5 + rng.normal(0, math.sqrt(1.5**2 + 0.5**2 + spread**2), POPULATION * 10)
    return float((1 / (1 + np.exp(-logit))).mean())


def simulate(rng: np.random.Generator, seeds: int, spread: float, studies: int) -> list[float]:
    """Shares of studies: accuracy covered; false alarms now, before; median half-widths in points.

    An accuracy is that of one scheme, as a table of a report shows it.
    """
    truth = true_accuracy(rng, spread)
    covered, alarms, former, widths, former_widths = 0, 0, 0, [], []
    for _ in range(studies):
        first, second = answers(rng, seeds, spread, draws=3)
        means = first.mean(1)
        bounds = [clustered(row, draws=3) for row in first]
        shared = float(np.mean([((high - low) / 2 / 1.96) ** 2 for _, low, high in bounds]))
        between = float(means.var(ddof=1)) / seeds
        low, high, _ = interval(
            float(means.mean()), [(between, seeds - 1), (shared, QUESTIONS - 1)]
        )
        covered += low <= truth <= high
        low, high, _ = compare_answers(first, second)
        alarms += low > 0 or high < 0
        widths.append((high - low) / 2)
        changes = second - first
        parts = [
            (float(changes.mean(0).var(ddof=1)) / QUESTIONS, QUESTIONS - 1.0),
            (float(changes.mean(1).var(ddof=1)) / seeds, seeds - 1.0),
        ]
        half = satterthwaite(parts)
        former += abs(float(changes.mean())) > half
        former_widths.append(half)
    shares = [100 * count / studies for count in (covered, alarms, former)]
    return [*shares, *(100 * float(np.median(w)) for w in (widths, former_widths))]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--studies", type=int, default=4000)
    studies = parser.parse_args().studies
    print_heads("seeds", "SD of the models", "accuracy covered, %", "false alarms, %",
                "Satterthwaite, %", "half-width, points", "Satterthwaite", texts=0)  # fmt: skip
    for seeds in (2, 3, 5):
        for spread in (0.0, 0.1, 0.3, 0.6):
            rng = np.random.default_rng([seeds, round(10 * spread)])
            shares = simulate(rng, seeds, spread, studies)
            print_row(seeds, spread, *(f"{share:.1f}" for share in shares))


if __name__ == "__main__":
    main()
