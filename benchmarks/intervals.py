"""Simulate evaluations and studies: how often intervals hold the true value and tests are right.

    python benchmarks/intervals.py [accuracy] [seeds] [difference] [margin] [ratio] [--trials 4000]

`accuracy`: the interval of one accuracy (`clustered`) in cells of 4 to 500 questions, 1 to 10 draws
and distributions of the questions' chances of a right answer: equal chances, beta distributions,
and a share of questions that are always wrong or always right, among others.

`seeds`: two schemes are trained with S seeds each and answer the same questions. The logit of the
chance of a right answer is a mean (accuracies of about 58%, 90% and 3%), plus an effect of the
question (SD 1.5, shared by the schemes), of the scheme's question (SD 0.5), of question and seed
(SD 0.5), and of the trained model (SD up to 1: 0.3 moves an accuracy of 60% by 6 points).
The table has every form of interval that was tried: the most false alarms where both schemes have
the same mean, meant to be 5% and 0.5%, and the mean power where the second one's logit is higher by
0.25 plus the SD of the models. `crossed` is the form of `compare_answers`, `former` the one before
it. Questions of 2,000 have three eighths of the trials.

`difference`: false alarms of the paired test of two schemes with one seed. With one draw they are
exact, a sum over all results, at the worst of a grid of shares of changed questions. With several
draws they are simulated.

`margin`: how often the 90% interval excludes a loss of X where the true loss is X (5% are meant).
Of one seed and one draw, exact, at the worst of X from 1% to 20% and shares of won questions from 0
to 5%. Of several seeds, a quarter of the trials of `seeds`, where the second scheme
is lower by 5 points, at the worst of its accuracies of 58% and 90%, of 1 and 10 draws, and of
models with an SD of 0, 0.2 and 0.6.

`ratio`: the interval of bits per byte (`ratio_of_sums`) of 2 to 200 texts. The logarithm of a
text's length has the standard deviation in the table. Its own bits per byte are normal (mean 1.2,
SD 0.25) or log-normal (SD 0.4 of the logarithm), and do not depend on its length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from scipy.optimize import brentq
from scipy.special import expit, stdtrit
from scipy.stats import binom, chi2, multinomial, norm

from common import options_of, print_heads, print_row
from robustok.evaluation.intervals import (
    LEVEL,
    clustered,
    compare_answers,
    ratio_of_sums,
)

COUNTS = (4, 10, 20, 50, 100, 500)  # questions
DRAWS = (1, 3, 10)
SHARES = (0.01, 0.03, 0.1, 0.3, 0.5, 0.75, 0.9, 0.97, 0.99)
Cell = tuple[str, float, float, float, float]


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
    print_heads("questions", "draws", "cells", "least coverage, %", "cells < 93%", texts=0)
    every = []
    for n in COUNTS:
        for draws in DRAWS:
            cells = []
            for number, cell in enumerate(distributions(n)):
                rng = np.random.default_rng([n, draws, number])
                _, wrong, right, mean, _ = cell
                truth = right + (1 - wrong - right) * mean
                covered = 0
                for row in rng.binomial(draws, chances_of(rng, cell, (trials, n))) / draws:
                    _, low, high = clustered(row, draws)
                    covered += low - 1e-12 <= truth <= high + 1e-12
                cells.append(100 * covered / trials)
            every += cells
            _print_cells(n, draws, cells)
    _print_cells("all", "all", every)


def _print_cells(n: int | str, draws: int | str, covered: list[float]) -> None:
    few = sum(share < 93 for share in covered)
    print_row(n, draws, len(covered), f"{min(covered):.1f}", few)


@njit
def _random(state):  # xorshift64*
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@njit
def _sums(values, into):
    """The mean, and the sum of squares of the questions, the variances from seeds and from both."""
    seeds, n = values.shape
    mean, of_seeds, of_questions, of_all = values.mean(), 0.0, 0.0, 0.0
    for row in values:
        of_seeds += row.mean() ** 2
        of_all += (row**2).sum()
    for i in range(n):
        of_questions += values[:, i].mean() ** 2
    both = of_all - seeds * of_questions - n * of_seeds + seeds * n * mean**2
    into[0], into[1] = mean, of_questions
    into[2] = max((of_seeds - seeds * mean**2) / (seeds - 1) / seeds, 0.0)
    into[3] = max(both / (seeds - 1) / (n - 1) / seeds / n, 0.0)


@njit
def _study(seed, shape, means, spread, tables, out):
    """Simulate the changes of each trial; see `_sums`."""
    (seeds, n, draws), (normal, chance) = shape, tables
    state = np.array([seed], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state += np.uint64(88172645463325252)
    for _ in range(20):
        _random(state)
    answers, effects = np.zeros((2, seeds, n)), np.zeros((2, seeds))
    last = np.uint64(65535)
    for trial in range(len(out)):
        for s in range(seeds):
            x = _random(state)
            effects[0, s] = means[0] + spread * normal[x >> np.uint64(48)]
            effects[1, s] = means[1] + spread * normal[(x >> np.uint64(32)) & last]
        for i in range(n):
            x = _random(state)
            question = 1.5 * normal[x >> np.uint64(48)]
            own = (question + 0.5 * normal[(x >> np.uint64(32)) & last],
                   question + 0.5 * normal[(x >> np.uint64(16)) & last])  # fmt: skip
            for s in range(seeds):
                y = _random(state)
                for j in range(2):
                    logit = (
                        effects[j, s] + own[j] + 0.5 * normal[(y >> np.uint64(48 - 16 * j)) & last]
                    )
                    right, limit = 0, chance[max(0, min(8192, int((logit + 16) * 256)))]
                    for k in range((draws + 1) // 2):
                        u = _random(state)
                        right += np.float64(u >> np.uint64(32)) < limit
                        if 2 * k + 1 < draws:
                            right += np.float64(u & np.uint64(0xFFFFFFFF)) < limit
                    answers[j, s, i] = right / draws
        _sums(answers[1] - answers[0], out[trial])


NORMAL = norm.ppf((np.arange(65536) + 0.5) / 65536).astype(np.float32)
CHANCE = 2**32 / (1 + np.exp(-np.linspace(-16, 16, 8193)))
TABLES = NORMAL, CHANCE
SEEDS, SPREADS, MEANS = (2, 3, 4, 5, 8), (0.0, 0.1, 0.2, 0.3, 0.6, 1.0), (0.5, 3.0, -4.5)


def quantile(degrees: np.ndarray | float, level: float) -> np.ndarray:
    return -stdtrit(degrees, level / 2)


def squared_half_widths(
    sums: np.ndarray, seeds: int, n: int, level: float
) -> dict[str, np.ndarray]:
    """By form of interval, its half-width to the power of two in each trial: it excludes zero where
    the square of the mean is greater."""
    mean, squares, s, r = sums[:, 0] * n / (n + 2), *sums[:, 1:].T
    q = ((squares + 2) / (n + 2) - mean**2) / (n + 2)
    z, t, both = (quantile(one, level) for one in (n - 1, seeds - 1, (n - 1) * (seeds - 1)))
    of_questions, least = np.maximum(q - r, 1e-12), 2 / (n + 2) ** 2

    def satterthwaite(variance: np.ndarray, most: float) -> np.ndarray:
        degrees = variance**2 / (q**2 / (n - 1) + s**2 / (seeds - 1)
                                 + r**2 / (n - 1) / (seeds - 1))  # fmt: skip
        return variance * quantile(np.clip(degrees, 1, most), level) ** 2

    truncated = np.maximum(q + s - r, np.maximum(q, s))
    upper = [((df / chi2.ppf(level, df) - 1) * v) ** 2 for v, df in ((q, n - 1), (s, seeds - 1))]
    lower = ((1 - (n - 1) * (seeds - 1) / chi2.ppf(1 - level, (n - 1) * (seeds - 1))) * r) ** 2
    normal = norm.isf(level / 2) ** 2
    apart = z**2 * of_questions + t**2 * s
    return {
        "former: q + s, each with its t": z**2 * q + t**2 * s,
        "q + s − r, Satterthwaite": satterthwaite(np.maximum(q + s - r, 1e-9), np.inf),
        "… at least q and s": satterthwaite(truncated, np.inf),
        "… and at most 3 (S − 1) degrees": satterthwaite(truncated, 3.0 * (seeds - 1)),
        "q − r, s − r, r, each with its t":
            z**2 * of_questions + t**2 * np.maximum(s - r, 0) + both**2 * r,
        "q − r, s, each with its t": z**2 * np.maximum(q - r, least) + t**2 * s,
        "crossed: the same, at least q": np.maximum(z**2 * q, apart),
        "… with s − r / 4":
            np.maximum(z**2 * q, z**2 * of_questions + t**2 * np.maximum(s - r / 4, 0)),
        "… Cochran and Cox": np.maximum(
            z**2 * q, (z * of_questions + t * s) ** 2 / (of_questions + s)),
        "upper bound of the variance (MLS)":
            normal * (q + s - r + np.sqrt(upper[0] + upper[1] + lower)),
        "bootstrap of seeds and questions": normal * (q + s * (seeds - 1) / seeds + r),
        "likelihood ratio": _likelihood_ratio(mean, of_questions, s, r, seeds - 1, normal),
        "prior on the seeds, SD 6 points": _with_prior(mean, of_questions, s, r, seeds, level),
    }  # fmt: skip


GRID = np.geomspace(1e-6, 0.3, 50)  # variances of the mean from the seeds


def _likelihood_ratio(mean, own, s, r, degrees, normal):
    of_seeds = np.maximum(r, 1e-9)[:, None] + np.append(0, GRID)
    deviance = degrees * (np.log(of_seeds) + s[:, None] / of_seeds) + np.log(
        own[:, None] + of_seeds
    )
    null = deviance + mean[:, None] ** 2 / (own[:, None] + of_seeds)
    return np.where(null.min(1) - deviance.min(1) > normal, -1, np.inf)


def _with_prior(mean, own, s, r, seeds, level):
    of_seeds = np.maximum(r, 1e-9)[:, None] + GRID
    log = -(seeds - 1) / 2 * (np.log(of_seeds) + s[:, None] / of_seeds)
    log += -GRID * seeds / 2 / 0.06**2 + np.log(GRID) / 2
    weights = np.exp(log - log.max(1, keepdims=True))
    tails = 2 * norm.cdf(-np.abs(mean)[:, None] / np.sqrt(own[:, None] + of_seeds))
    p = (weights * tails).sum(1) / weights.sum(1)
    return np.where(p < level, -1, np.inf)


def true_accuracy(mean: float, spread: float) -> float:
    """Expected accuracy over questions and trained models."""
    x, weights = np.polynomial.hermite_e.hermegauss(81)
    logit = mean + math.sqrt(1.5**2 + 0.5**2 + 0.5**2 + spread**2) * x
    return float((weights / (1 + np.exp(-logit))).sum() / weights.sum())


def seeds(trials: int) -> None:
    rates: dict[str, list[tuple[int, float, float, float]]] = {}
    grid = itertools.product(SEEDS, (30, 100, 300, 500, 2000), (1, 10), SPREADS, MEANS)
    for number, (count, n, draws, spread, mean) in enumerate(grid, 1):
        shape, higher = (count, n, draws), (mean, mean + 0.25 + spread)
        equal = np.empty((trials if n <= 500 else 3 * trials // 8, 4))
        other = np.empty((len(equal) // 4, 4))
        _study(number * 7919 + count, shape, (mean, mean), spread, TABLES, equal)
        _study(number * 104729 + count, shape, higher, spread, TABLES, other)
        at_5, at_half = (squared_half_widths(equal, count, n, x) for x in (LEVEL, LEVEL / 10))
        powers = squared_half_widths(other, count, n, LEVEL)
        own, moved = ((sums[:, 0] * n / (n + 2)) ** 2 for sums in (equal, other))
        for name in at_5:
            false = own > at_5[name], own > at_half[name]
            shares = (100 * float(np.mean(x)) for x in (*false, moved > powers[name]))
            rates.setdefault(name, []).append((count, *shares))  # type: ignore[arg-type]
    print_heads("form", "most at 5%", "at 0.5%", *(f"{count} seeds" for count in SEEDS),
                "power", *(f"{count} seeds" for count in SEEDS))  # fmt: skip
    for name, cells in rates.items():
        _, most, at_half, power = np.array(cells).T
        by_seeds = [np.array([one for one in cells if one[0] == count]) for count in SEEDS]
        print_row(name, f"{most.max():.1f}", f"{at_half.max():.2f}",
                  *(f"{own[:, 1].max():.1f}" for own in by_seeds), f"{power.mean():.1f}",
                  *(f"{own[:, 3].mean():.1f}" for own in by_seeds))  # fmt: skip


def difference(trials: int) -> None:
    print_heads("questions", "draws", "false alarms, %", texts=0)
    for n in (10, 20, 50, 100, 200, 500):
        most = min(n, 120)
        lost, won = np.array([(i, j) for i in range(most + 1) for j in range(most + 1 - i)]).T
        clear = np.array([_is_clear(n, *pair) for pair in zip(lost, won, strict=True)])
        alarms = []
        for share in np.linspace(0.005, min(0.9, 70 / n), 80):
            chances = multinomial.pmf(
                np.stack([lost, won, n - lost - won], 1), n, [share / 2, share / 2, 1 - share]
            )
            alarms.append(chances[clear].sum())
        print_row(n, 1, f"{100 * max(alarms):.1f}")
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
            print_row(n, draws, f"{worst:.1f}")


def margin(trials: int) -> None:
    print_heads("questions", "false, %", texts=0)
    for n in (30, 50, 100, 300):
        most_lost, most_won = min(n, 90), min(n, 40)
        lows = np.full((most_lost + 1, most_won + 1), -1.0)
        for lost, won in itertools.product(range(most_lost + 1), range(most_won + 1)):
            if lost + won <= n:
                change = np.repeat([-1.0, 1.0, 0.0], [lost, won, n - lost - won])[None]
                lows[lost, won] = compare_answers(0 * change, change, level=0.1)[0]
        false = []
        for loss, won in itertools.product((0.01, 0.02, 0.03, 0.05, 0.1, 0.2),
                                           (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)):  # fmt: skip
            if n * (loss + won) <= 60:
                chances = binom.pmf(np.arange(most_lost + 1), n, loss + won)[:, None] * binom.pmf(
                    np.arange(most_won + 1), n - np.arange(most_lost + 1)[:, None],
                    won / (1 - loss - won))  # fmt: skip
                false.append(chances[lows > -loss].sum())
        print_row(n, f"{100 * max(false):.1f}")
    print()
    print_heads("seeds", "questions", "most false, %", "mean, %", texts=0)
    for count, n in itertools.product((2, 3, 5), (100, 500)):
        cells = itertools.product(MEANS[:2], (0.0, 0.2, 0.6), (1, 10))
        false = [100 * _false_no_loss(count, n, *cell, trials // 4) for cell in cells]
        print_row(count, n, f"{max(false):.1f}", f"{np.mean(false):.1f}")


def _false_no_loss(
    count: int, n: int, mean: float, spread: float, draws: int, trials: int, loss: float = 0.05
) -> float:
    """The share of studies whose 90% interval excludes a loss that is the true one."""
    rng = np.random.default_rng([count, n, round(10 * mean), round(10 * spread), draws])
    right = true_accuracy(mean, spread)
    lower: Any = brentq(lambda x: true_accuracy(x, spread) - right + loss, mean - 2, mean)
    claimed = 0
    for _ in range(trials):
        question = rng.normal(0, 1.5, n)
        before, after = (
            rng.binomial(draws, expit(
                level + rng.normal(0, spread, (count, 1)) + question + rng.normal(0, 0.5, n)
                + rng.normal(0, 0.5, (count, n)))) / draws
            for level in (mean, lower)
        )  # fmt: skip
        claimed += compare_answers(before, after, level=0.1)[0] > -loss
    return claimed / trials


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
    print_heads("texts", "SD of the lengths", "least covered, %", texts=0)
    for count in (2, 3, 5, 10, 20, 50, 200):
        for spread in (0.0, 0.5, 1.0, 2.0):
            cells = []
            for is_normal in (True, False):
                rng = np.random.default_rng([count, round(10 * spread), is_normal])
                covered = 0
                for _ in range(trials):
                    wholes = np.exp(rng.normal(6, spread, count))
                    rates = rng.normal(1.2, 0.25, count)
                    if not is_normal:
                        rates = 1.2 * np.exp(rng.normal(-0.08, 0.4, count))
                    _, low, high = ratio_of_sums(rates * wholes, wholes)
                    covered += low <= 1.2 <= high
                cells.append(100 * covered / trials)
            print_row(count, spread, f"{min(cells):.1f}")


PARTS = {
    "accuracy": accuracy,
    "seeds": seeds,
    "difference": difference,
    "margin": margin,
    "ratio": ratio,
}


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
