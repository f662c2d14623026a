"""Strength of draws in units that compare across schemes: splits, distance and length ratio.

This module measures draws, and solves for the parameter of a scheme that gives a target strength
(bisection over seeded draws), so that schemes are compared at equal strength: alpha counts picks,
p drops merges, a temperature flattens. A study names schemes by this strength.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np

from robustok.checks import MAX_STRENGTH, check_ids, check_list, check_number
from robustok.errors import RobustokError
from robustok.kernels.comparison import compare_rows, first_other_text
from robustok.lattice import Lattice
from robustok.ragged import Ragged
from robustok.samplers.base import Sampler, check_order, sampler
from robustok.samplers.parameters import SearchRange, show
from robustok.samplers.spec import SCHEMES, Call, Spec, read_call, spec_string
from robustok.tokenizer.data import Text
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

MEASURES = ("splits", "distance", "length_ratio")
_STEPS = 40  # halvings at most
_TOLERANCE = 1e-3  # of the target's difference from canonical: the search ends
_MAX_ERROR = 0.1  # of this difference: the scheme does not have the strength
_TEXTS = 2_000  # least number of draws that measure a strength


@dataclass(frozen=True)
class Strength:
    """The changes of each draw to its row: int64 [draws] each.

    >>> ids = vocab.encode_batch(texts)
    >>> samples = rt.sampler("stochastok(alpha=1)", vocab).sample_batch(ids, seed=0)
    >>> result = measure(vocab, ids, samples)
    >>> result.splits, result.distance, result.tokens
    (array([1, 1]), array([2, 2]), array([3, 3]))

    ``splits`` counts boundaries that the canonical row does not have, ``distance`` tokens that it
    does not have there, ``tokens`` the row's length. :meth:`mean` gives them per canonical token.
    """

    splits: np.ndarray
    distance: np.ndarray
    tokens: np.ndarray
    canonical: np.ndarray

    @classmethod
    def joined(cls, strengths: Sequence[Strength]) -> Strength:
        """The rows of all ``strengths`` in one."""
        columns = ((s.splits, s.distance, s.tokens, s.canonical) for s in strengths)
        return cls(*map(np.concatenate, zip(*columns, strict=True)))

    def mean(self) -> dict[str, float]:
        """Splits, distance and length ratio per canonical token, over all rows together."""
        total = max(int(self.canonical.sum()), 1)
        sums = (self.splits.sum(), self.distance.sum(), self.tokens.sum())
        return {name: float(x) / total for name, x in zip(MEASURES, sums, strict=True)}


def measure(
    vocab: Vocabulary,
    canonical: Ragged | Iterable[Sequence[int] | np.ndarray],
    samples: Ragged | Iterable[Sequence[int] | np.ndarray],
) -> Strength:
    """Splits, distance and length ratio of drawn rows against their canonical ones.

    >>> ids = vocab.encode_batch(texts)
    >>> samples = rt.sampler("uniform-k(alpha=1)", vocab).sample_batch(ids, seed=0, draws=100)
    >>> measure(vocab, ids, samples).mean()["distance"]
    1.0

    Args:
        vocab: the vocabulary of the ids.
        canonical: canonical ids, a row for each text.
        samples: one row or more for each canonical row, as :meth:`Sampler.sample_batch` has them.

    Ids without bytes count no splits and no distance. Raises RobustokError for an unknown id, for
    rows that do not pair up, and for a pair that spells different bytes.
    """
    check_vocabulary(vocab)
    canonical, samples = _id_rows(vocab, canonical), _id_rows(vocab, samples)
    draws, unpaired = divmod(len(samples), max(len(canonical), 1))
    if unpaired or (len(samples) > 0) != (len(canonical) > 0):
        raise RobustokError(
            f"{len(samples)} draws do not pair with {len(canonical)} canonical rows"
        )
    rows = canonical.values, canonical.offsets, samples.values, samples.offsets
    bad_row: int = first_other_text(vocab.token_bytes, vocab.token_offsets, *rows)
    if bad_row >= 0:
        raise RobustokError(f"drawn row {bad_row} does not spell the text of its canonical row")
    splits, distance = compare_rows(vocab.token_offsets, *rows)
    return Strength(splits, distance, samples.lengths, np.repeat(canonical.lengths, draws))


def distance_shares(
    lattice: Lattice, rows: Ragged | Sequence[np.ndarray], *, least: float
) -> list[tuple[int, float, float]]:
    """(distance, exact share of all tokenizations, share of the drawn rows) by distance.

    >>> from robustok.samplers.strength import distance_shares
    >>> distance_shares(vocab.lattice("the"), [vocab.encode("the")], least=0.01)
    [(0, 0.3333333333333333, 1.0), (2, 0.3333333333333333, 0.0), (3, 0.3333333333333333, 0.0)]

    ``lattice`` is that of the text of ``rows``. Distances with both shares below ``least`` are left
    out.
    """
    n_drawn = Counter(measure(lattice.vocab, [lattice.reference], rows).distance.tolist())
    counts = lattice.counts(by="distance")
    total = sum(counts)
    shares = [(d, count / total, n_drawn[d] / len(rows)) for d, count in enumerate(counts)]
    return [share for share in shares if max(share[1:]) >= least]


def at_strength(
    scheme: str | Spec,
    vocab: Vocabulary,
    texts: Iterable[Text] | Iterable[Sequence[int]] | Ragged,
    *,
    splits: float | None = None,
    distance: float | None = None,
    length_ratio: float | None = None,
    seed: int = 0,
) -> Sampler:
    """The scheme with its strength parameter set so that its draws have a given mean strength.

    >>> at_strength("stochastok", vocab, texts, splits=0.5).spec
    'stochastok(alpha=0.5)'

    Args:
        scheme: spec of the scheme. Its strength parameter is replaced, the others stay:
            ``"bpe-dropout(rule=hf)"``.
        vocab: the vocabulary whose texts are tokenized.
        texts: strings, bytes or canonical ids, over which the strength is measured.
        splits: new boundaries for each canonical token. Give one of ``splits``, ``distance`` and
            ``length_ratio``, each from 0 to 10,000.
        distance: changed tokens for each canonical token.
        length_ratio: drawn tokens for each canonical token.
        seed: seed of the draws that are measured, any integer.

    Bisection over seeded draws, at least 2,000, brings the mean over ``texts`` within a tenth of
    the strength. The mean of a mixture with canonical follows from that of the other scheme.
    ``uniform-k`` gives every draw an exact distance. Schemes that round up per text have no small
    strengths on short texts: ``stochastok`` makes one pick or none.

    Raises RobustokError for a scheme without a strength parameter, and for a strength that it
    cannot reach on these texts; the message names strengths in reach and a mixture that has it.
    """
    values = zip(MEASURES, (splits, distance, length_ratio), strict=True)
    targets = [pair for pair in values if pair[1] is not None]
    if len(targets) != 1:
        raise RobustokError(f"at_strength: give one of {', '.join(MEASURES)}, as splits=0.5")
    quantity, target = targets[0]
    target = check_number(f"at_strength: {quantity}", target, 0.0, MAX_STRENGTH)
    check_order(scheme, vocab)
    call = read_call(str(scheme) if isinstance(scheme, Spec) else scheme)
    scheme_class = SCHEMES[call.name]
    if not scheme_class.strength:
        names = ", ".join(name for name, s in SCHEMES.items() if s.strength)
        raise RobustokError(
            f"{call.name} has no strength parameter. Mix it with canonical, as "
            f"mix(0.5 canonical, 0.5 {call.name}), or take one of {names}"
        )
    return _solve(call, vocab, _canonical_rows(vocab, texts), quantity, target, seed)


def _solve(
    call: Call, vocab: Vocabulary, rows: Ragged, quantity: str, target: float, seed: int
) -> Sampler:
    """The scheme with the strength at which the draws for ``rows`` measure the target."""
    scheme_class = SCHEMES[call.name]
    draws = -(-_TEXTS // max(len(rows), 1))

    def with_strength(value: float) -> Sampler:
        value = float(f"{value:.9g}")
        return sampler(Spec(call.name, scheme_class.with_strength(call.params, value)), vocab)

    def strength_at(value: float) -> float:
        samples = with_strength(value).sample_batch(rows, seed=seed, draws=draws)
        return measure(vocab, rows, samples).mean()[quantity]

    if scheme_class.inner:
        return _mixture(with_strength, strength_at(1.0), quantity, target)
    parameter = scheme_class.parameters.get(scheme_class.strength)
    search = getattr(parameter, "search", SearchRange(0.0, 1.0, 1.0))
    canonical = _canonical_strength(quantity)
    change = abs(target - canonical)
    trials, is_between = _bisect(strength_at, target, search, _TOLERANCE * change)
    strength, value = min(trials, key=lambda pair: (abs(pair[0] - target), pair[1]))
    if is_between and abs(strength - target) <= _MAX_ERROR * change:
        return with_strength(value)
    if is_between:
        nearest = (
            max(pair for pair in trials if pair[0] < target),
            min(pair for pair in trials if pair[0] > target),
        )
        reach = "the nearest are " + " and ".join(
            f"{x:.3g} ({with_strength(value).spec})" for x, value in nearest
        )
    else:
        reach = f"it goes from {min(trials)[0]:.3g} to {max(trials)[0]:.3g}"
    beyond = [pair for pair in trials if (pair[0] - target) * (target - canonical) > 0]
    if beyond:
        stronger, value = min(beyond, key=lambda pair: abs(pair[0] - target))
        share = float(f"{(target - canonical) / (stronger - canonical):.3g}")
        mixed = f"mix({1 - share:.9g} canonical, {share:g} {with_strength(value).spec})"
        reach += f"; {mixed} has this mean"
    raise _unreached(call.name, quantity, target, reach)


def _mixture(
    with_weight: Callable[[float], Sampler], full: float, quantity: str, target: float
) -> Sampler:
    """The mixture whose mean, linear in the weight, is the target; ``full``: that of weight 1."""
    canonical = _canonical_strength(quantity)
    weight = (target - canonical) / (full - canonical) if full != canonical else np.inf
    if target == canonical:
        return with_weight(0.0)
    if not 0 <= weight <= 1:
        low, high = sorted((canonical, full))
        raise _unreached("mix", quantity, target, f"it goes from {low:.3g} to {high:.3g}")
    return with_weight(float(weight))


def _canonical_strength(quantity: str) -> float:
    return 1.0 if quantity == "length_ratio" else 0.0


def _unreached(name: str, quantity: str, target: float, reach: str) -> RobustokError:
    return RobustokError(
        f"{name} by {quantity}: {target:g} cannot be reached on these texts; {reach}"
    )


def _bisect(
    strength_at: Callable[[float], float], target: float, search: SearchRange, tolerance: float
) -> tuple[list[tuple[float, float]], bool]:
    """Pairs of a measured strength and its parameter, and whether the target is between the ends.

    Bisection up to ``tolerance`` of the target; nothing is bisected where it is not between them.
    """
    low, high = search.low, search.high
    at_low, at_high = strength_at(low), strength_at(high)
    trials = [(at_low, low), (at_high, high)]
    # Equal ends give no direction yet.
    while (
        target != at_high and (target - at_high) * (at_high - at_low) >= 0 and high < search.highest
    ):
        low, at_low, high = high, at_high, 4 * high
        at_high = strength_at(high)
        trials.append((at_high, high))
    if not min(trials)[0] - tolerance <= target <= max(trials)[0] + tolerance:
        return trials, False
    is_rising = at_high >= at_low
    for _ in range(_STEPS):
        if any(abs(strength - target) <= tolerance for strength, _ in trials):
            break
        middle = (low * high) ** 0.5 if search.geometric else (low + high) / 2
        strength = strength_at(middle)
        trials.append((strength, middle))
        if (strength < target) == is_rising:
            low = middle
        else:
            high = middle
    return trials, True


def _canonical_rows(
    vocab: Vocabulary, texts: Iterable[Text] | Iterable[Sequence[int]] | Ragged
) -> Ragged:
    if not isinstance(texts, Ragged):
        texts = check_list("texts", texts)
        if texts and isinstance(texts[0], (str, bytes)):
            return vocab.encode_batch(texts)
    return _id_rows(vocab, texts)


def _id_rows(vocab: Vocabulary, rows: Ragged | Iterable[Any]) -> Ragged:
    """Rows of ids of the vocabulary."""
    ragged = rows if isinstance(rows, Ragged) else Ragged.from_rows(rows)
    check_ids(ragged.values, vocab.size)
    return ragged


# Names by a measured strength: `stochastok(splits=0.5)` instead of an alpha, as a study with
# ``strength: {splits: [0.5]}`` has them. The parameter that gives this strength depends on the
# tokenizer and the texts, so a cell solves for it when it runs.


def at_splits(spec: str, splits: float) -> str:
    """The name of a scheme at a measured strength.

    A scheme without a strength, and a name by a measured strength, stay unchanged.

    >>> at_splits("stochastok(alpha=1, ways=3)", 0.5), at_splits("uniform", 0.5)
    ('stochastok(ways=3, splits=0.5)', 'uniform')

    Raises RobustokError for a schedule, which has no single strength.
    """
    if splits_in(spec) is not None:
        return spec
    parsed = Spec.parse(spec)
    if parsed.strength is None:
        return str(parsed)
    if parsed.is_schedule:
        raise RobustokError(f"{parsed} is a schedule, whose strength changes: leave strength out")
    scheme_class = SCHEMES[parsed.name]
    params = {name: x for name, x in parsed.params.items() if name != scheme_class.strength}
    others = [scheme_class.parameters[name].show(name, x) for name, x in params.items()]
    return f"{parsed.name}({', '.join([*others, f'splits={show(splits)}'])})"


def splits_in(name: str) -> float | None:
    """The measured strength that a scheme is named by; None for an ordinary spec.

    >>> splits_in("stochastok(splits=0.5)"), splits_in("stochastok(alpha=0.5)")
    (0.5, None)
    """
    scheme = SCHEMES.find(name.partition("(")[0].strip())
    if scheme is None or "splits" in scheme.parameters or "splits=" not in name:
        return None
    splits = read_call(name).params.get("splits")
    return float(splits) if isinstance(splits, (int, float)) else None


def sampler_at_splits(name: str, vocab: Vocabulary, texts: Sequence[str]) -> Sampler | None:
    """The sampler of a scheme that is named by its measured strength; None for an ordinary spec.

    ``texts``, at least one, are what the scheme is drawn for; 2,000 draws of them give the
    parameter. Raises RobustokError for a strength that the scheme cannot reach on them.
    """
    splits = splits_in(name)
    if splits is None:
        return None
    call = read_call(name)
    others = {parameter: x for parameter, x in call.params.items() if parameter != "splits"}
    spec = spec_string(SCHEMES[call.name], others)
    repeated = list(islice(cycle(texts), _TEXTS))
    return at_strength(spec, vocab, repeated, splits=splits)
