"""Simulate evaluations and studies: how often intervals hold the true value and tests are right.

    python benchmarks/intervals.py [accuracy] [seeds] [difference] [ratio] [--trials 4000]

`accuracy`: the interval of one accuracy (`clustered`) in cells of 4 to 500 questions, 1 to 10 draws
and distributions of the questions' chances of a right answer: equal chances, beta distributions,
and a share of questions that are always wrong or always right, among others. `former` is Wilson's
interval for the effective number from the variance of the answers as it is.

`seeds`: two schemes are trained with S seeds each and answer the same questions. The logit of the
chance of a right answer is a mean, plus an effect of the question (SD 1.5, shared by the schemes),
of the scheme's question (SD 0.5) and of the trained model (the SD in the table, on the logit scale:
0.3 moves an accuracy of 60% by 6 points). Both schemes have the same mean, so that every
difference that is called clear is a false alarm.

`difference`: false alarms of the paired test of two schemes with one seed. With one draw they are
exact, a sum over all results, at the worst of a grid of shares of changed questions; `McNemar` is
the exact conditional test. With several draws they are simulated.

`ratio`: the interval of bits per byte (`ratio_of_sums`) of 2 to 200 texts. The logarithm of a
text's length has the standard deviation in the table. Its own bits per byte are normal (mean 1.2,
SD 0.25) or log-normal (SD 0.4 of the logarithm), and do not depend on its length. `former` is the
linearized error with a normal quantile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.stats import binomtest, multinomial

from common import options_of, print_heads, print_row
from robustok.evaluation.intervals import (
    LEVEL,
    Z95,
    clustered,
    compare_answers,
    over_seeds,
    ratio_of_sums,
    wilson,
)

COUNTS = (4, 10, 20, 50, 100, 500)  # questions
DRAWS = (1, 3, 10)
SHARES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.75, 0.9, 0.97, 0.99)
Cell = tuple[str, float, float, float, float]
POPULATION = 200_000  # questions that the true accuracy of a study is taken over


def former(fractions: np.ndarray, draws: int) -> tuple[float, float, float]:
    """The interval without added answers: Wilson's for the plain effective number."""
    n, mean = len(fractions), float(fractions.mean())
    worth = float(n)
    if draws > 1 and n > 1 and 0 < mean < 1:
        variance = float(fractions.var(ddof=1)) / n
        worth = mean * (1 - mean) / variance if variance else float(n * draws)
        worth = min(max(worth, float(n)), float(n * draws))
    return mean, *wilson(min(mean * worth, worth), worth)


def distributions(n: int) -> Iterator[Cell]:
    """Name, share of questions always wrong, share always right, and a beta (mean, icc) else."""
    for mean in SHARES:
        yield "equal", 0.0, 0.0, mean, 0.0
        for icc in (0.2, 0.5, 0.9):
            yield "beta", 0.0, 0.0, mean, icc
    for few in (0.5 / n, 1 / n, 2 / n):
        for mean in (0.9, 0.97, 0.99):
            yield "few always wrong", min(few, 0.5), 0.0, mean, 0.0
        for mean in (0.01, 0.03, 0.1):
            yield "few always right", 0.0, min(few, 0.5), mean, 0.0


def chances_of(rng: np.random.Generator, cell: Cell, shape: tuple[int, int]) -> np.ndarray:
    """The chance of a right answer of each question of one cell, float64 [trials, questions]."""
    _, wrong, right, mean, icc = cell
    chances = np.full(shape, mean)
    if icc:
        chances = rng.beta(mean * (1 - icc) / icc, (1 - mean) * (1 - icc) / icc, shape)
    kind = rng.random(shape)
    return np.where(kind < wrong, 0.0, np.where(kind > 1 - right, 1.0, chances))


def accuracy(trials: int) -> None:
    print_heads("questions", "draws", "cells", "least coverage, %", "cells < 93%",
                "former least, %", "former < 93%", "width / former", texts=0)  # fmt: skip
    every = []
    for n in COUNTS:
        for draws in DRAWS:
            cells = []
            for number, cell in enumerate(distributions(n)):
                rng = np.random.default_rng([n, draws, number])
                _, wrong, right, mean, _ = cell
                truth = right + (1 - wrong - right) * mean
                covered, widths = np.zeros(2), np.zeros(2)
                for row in rng.binomial(draws, chances_of(rng, cell, (trials, n))) / draws:
                    for i, method in enumerate((clustered, former)):
                        _, low, high = method(row, draws)
                        covered[i] += low - 1e-12 <= truth <= high + 1e-12
                        widths[i] += high - low
                cells.append((*(100 * covered / trials), widths[0] / widths[1]))
            every += cells
            _print_cells(n, draws, cells)
    _print_cells("all", "all", every)


def _print_cells(n: int | str, draws: int | str, cells: list[tuple[float, ...]]) -> None:
    now, before, width = np.array(cells).T
    print_row(n, draws, len(cells), f"{now.min():.1f}", int((now < 93).sum()),
              f"{before.min():.1f}", int((before < 93).sum()), f"{width.mean():.2f}")  # fmt: skip


def study_answers(
    rng: np.random.Generator, seeds: int, n: int, draws: int, mean: float, spread: float
) -> np.ndarray:
    """Shares of right answers, float64 [2, seeds, questions]."""
    question = rng.normal(0, 1.5, n)
    own = rng.normal(0, 0.5, (2, 1, n))
    logit = mean + question + own + rng.normal(0, spread, (2, seeds, 1))
    return rng.binomial(draws, 1 / (1 + np.exp(-logit))) / draws


def true_accuracy(rng: np.random.Generator, mean: float, spread: float) -> float:
    """Expected accuracy over questions and trained models."""
    logit = mean + rng.normal(0, math.sqrt(1.5**2 + 0.5**2 + spread**2), POPULATION)
    return float((1 / (1 + np.exp(-logit))).mean())


def seeds(trials: int) -> None:
    print_heads("seeds", "SD of the models", "least covered, %", "most false alarms, %",
                "half-width, points", "half-width of a difference", texts=0)  # fmt: skip
    for count in (2, 3, 5):
        for spread in (0.0, 0.1, 0.3, 0.6, 1.0, 1.5):
            cells = []
            for n, draws in ((300, 3), (100, 1)):
                for mean in (0.5, 3.0, 4.5, -6.0):  # accuracies of about 58%, 90%, 97%, 1%
                    rng = np.random.default_rng([count, round(10 * spread), n, int(10 * mean + 99)])
                    truth = true_accuracy(rng, mean, spread)
                    covered, alarms, widths = 0, 0, []
                    for _ in range(trials):
                        first, second = study_answers(rng, count, n, draws, mean, spread)
                        _, low, high = over_seeds(first, draws)
                        covered += low <= truth <= high
                        lower, upper, _ = compare_answers(first, second)
                        alarms += lower > 0 or upper < 0
                        widths.append((50 * (high - low), 50 * (upper - lower)))
                    own, other = np.median(widths, axis=0)
                    cells.append((100 * covered / trials, 100 * alarms / trials, own, other))
            covers, false, _, _ = np.array(cells).T
            _, _, own, other = cells[0]  # about 60%, 300 questions, three draws
            print_row(count, spread, f"{covers.min():.1f}", f"{false.max():.1f}", f"{own:.1f}",
                      f"{other:.1f}")  # fmt: skip


def difference(trials: int) -> None:
    print_heads("questions", "draws", "false alarms, %", "McNemar, %", texts=0)
    for n in (10, 20, 50, 100, 200, 500):
        most = min(n, 120)
        lost, won = np.array([(i, j) for i in range(most + 1) for j in range(most + 1 - i)]).T
        clear = np.array([_is_clear(n, *pair) for pair in zip(lost, won, strict=True)])
        mcnemar = np.array([i + j > 0 and binomtest(int(i), int(i + j)).pvalue < LEVEL
                            for i, j in zip(lost, won, strict=True)])  # fmt: skip
        alarms = []
        for share in np.linspace(0.005, min(0.9, 70 / n), 80):
            chances = multinomial.pmf(
                np.stack([lost, won, n - lost - won], 1), n, [share / 2, share / 2, 1 - share]
            )
            alarms.append((chances[clear].sum(), chances[mcnemar].sum()))
        print_row(n, 1, *(f"{100 * x:.1f}" for x in np.max(alarms, axis=0)))
    for n in (10, 20, 50, 100, 500):
        for draws in (3, 10):
            worst = 0.0
            for number, cell in enumerate(_FEW):
                rng = np.random.default_rng([n, draws, number, 7])
                chances = chances_of(rng, cell, (trials, n))
                # The schemes differ on a tenth of the questions, by as much in both directions.
                other = np.where(rng.random((trials, n)) < 0.1, 1 - chances, chances)
                order = rng.random((trials, n)) < 0.5
                pair = np.where(order, chances, other), np.where(order, other, chances)
                before, after = (rng.binomial(draws, own) / draws for own in pair)
                clear = sum(map(_excludes_zero, before[:, None], after[:, None]))
                worst = max(worst, 100 * clear / trials)
            print_row(n, draws, f"{worst:.1f}", "")


# Cells of `difference` with several draws.
_FEW = (
    ("equal", 0.0, 0.0, 0.5, 0.0), ("equal", 0.0, 0.0, 0.9, 0.0), ("equal", 0.0, 0.0, 0.99, 0.0),
    ("beta", 0.0, 0.0, 0.75, 0.5), ("beta", 0.0, 0.0, 0.97, 0.5), ("beta", 0.0, 0.0, 0.75, 0.9),
    ("few always wrong", 0.02, 0.0, 0.97, 0.0), ("few always wrong", 0.02, 0.0, 0.99, 0.0),
)  # fmt: skip


def _is_clear(n: int, lost: int, won: int) -> bool:
    change = np.repeat([-1.0, 1.0, 0.0], [lost, won, n - lost - won])[None]
    return _excludes_zero(np.zeros_like(change), change)


def _excludes_zero(before: np.ndarray, after: np.ndarray) -> bool:
    low, high, _ = compare_answers(before, after)
    return low > 0 or high < 0


def ratio(trials: int) -> None:
    print_heads("texts", "SD of the lengths", "least covered, %", "former, %", "width / former",
                texts=0)  # fmt: skip
    for count in (2, 3, 5, 10, 20, 50, 200):
        for spread in (0.0, 0.5, 1.0, 2.0):
            cells = []
            for is_normal in (True, False):
                rng = np.random.default_rng([count, round(10 * spread), is_normal])
                covered, widths = np.zeros(2), []
                for _ in range(trials):
                    wholes = np.exp(rng.normal(6, spread, count))
                    rates = rng.normal(1.2, 0.25, count)
                    if not is_normal:
                        rates = 1.2 * np.exp(rng.normal(-0.08, 0.4, count))
                    of_all, low, high = ratio_of_sums(rates * wholes, wholes)
                    squares = float((((rates - of_all) * wholes) ** 2).sum())
                    half = Z95 * math.sqrt(squares * count / (count - 1)) / float(wholes.sum())
                    covered += (low <= 1.2 <= high, abs(of_all - 1.2) <= half)
                    widths.append((high - low) / (2 * half))
                cells.append((*(100 * covered / trials), float(np.median(widths))))
            now, before, width = np.array(cells).T
            print_row(count, spread, f"{now.min():.1f}", f"{before.min():.1f}",
                      f"{width.max():.2f}")  # fmt: skip


PARTS = {"accuracy": accuracy, "seeds": seeds, "difference": difference, "ratio": ratio}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--trials", type=int, default=4000)
    options = parser.parse_args()
    for part in options.parts or PARTS:
        print(f"\n{part}")
        PARTS[part](options.trials)


if __name__ == "__main__":
    main()
