"""What certifying gives back: a certificate for each question and distance, and their counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VERDICTS = ("same", "open", "flips", "attacked")


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is known of one question's answer under all tokenizations within ``distance``.

    >>> from robustok.evaluation import certify
    >>> item = items[0]
    >>> certify(model, vocab, item.question, item.choices, distance=2, seed=0).method
    'enumeration'

    The set is that of the ``tokenizations`` at distance 0 to ``distance`` from the canonical one,
    itself included (``distance`` None: all tokenizations). ``answer`` is the option that the
    canonical one gets. By ``method`` "enumeration" the whole set was scored and ``upper`` is the
    exact share of it with another answer; by "sampling" ``n_scored`` uniform draws from it were,
    with replacement, and the share is at most ``upper`` at ``confidence``. ``margin`` is the
    greatest log-probability of another option minus that of the answer among those scored.
    ``attacked`` says that the greedy attack within the set changes the answer (None: not tried),
    after scoring ``attack_n_scored`` tokenizations. ``witness`` holds the ids of a tokenization in
    the set with another answer, ``witness_distance`` its distance, both None if none is known.
    """

    key: str
    distance: int | None
    answer: int
    tokenizations: int
    method: str
    n_scored: int
    flips: int
    upper: float
    confidence: float
    margin: float
    attacked: bool | None
    attack_n_scored: int
    witness: tuple[int, ...] | None
    witness_distance: int | None

    @property
    def verdict(self) -> str:
        """What it comes down to, one of ``VERDICTS``.

        "same": certified. "open": no other answer is found, there is only the bound. "flips": one
        is found, though not by the attack. "attacked": the attack finds one.
        """
        if self.attacked:
            return "attacked"
        if self.witness is not None:
            return "flips"
        return "same" if self.method == "enumeration" else "open"

    def __str__(self) -> str:
        where = "" if self.distance is None else f" within distance {self.distance}"
        said = {
            "same": f"certified: the same answer under all {self.count} tokenizations{where}",
            "open": f"open: no other answer in {self.n_scored:,} uniform draws from the "
            f"{self.count} tokenizations{where}",
            "flips": f"broken{where}: another answer is there, the attack missed it",
            "attacked": f"broken{where}: the attack finds another answer",
        }[self.verdict]
        if self.verdict == "same":
            return said
        share = f"{self.upper:.2%} of {self.count} have another"
        if self.method == "sampling":
            share = f"at most {share}, at {self.confidence:.0%} confidence"
        if self.witness is None:
            return f"{said}; {share}"
        return f"{said} (at distance {self.witness_distance}); {share}"

    @property
    def count(self) -> str:
        """The number of tokenizations, to be read: its size alone where it is large."""
        exact = self.tokenizations < 10**9
        return f"{self.tokenizations:,}" if exact else f"10^{len(str(self.tokenizations)) - 1}"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON, the exact count as a string; :meth:`from_json` takes it."""
        return asdict(self) | {"tokenizations": str(self.tokenizations), "verdict": self.verdict}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Certificate:
        """What :meth:`to_json` gave, also after a trip through a file."""
        values = {name: row[name] for name in cls.__dataclass_fields__}
        values["tokenizations"] = int(values["tokenizations"])
        values["witness"] = None if values["witness"] is None else tuple(values["witness"])
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Certification:
    """The certificates of a task: for each of ``n`` items one for each distance, in that order.

    >>> from robustok.evaluation import certify_items
    >>> found = certify_items(model, vocab, items, distances=(2, 4), seed=0)
    >>> found.n, len(found.certificates)
    (8, 16)

    ``overflowed`` counts the tokenizations that did not fit the model.
    """

    certificates: tuple[Certificate, ...]
    distances: tuple[int | None, ...]
    n: int
    limit: int
    draws: int
    confidence: float
    seed: int
    seconds: float
    overflowed: int = 0

    def gap(self) -> list[dict[str, Any]]:
        """A row for each distance: the number of items of every verdict.

        >>> from robustok.evaluation import certify_items
        >>> certification = certify_items(model, vocab, items, distances=(2,), seed=0)
        >>> list(certification.gap()[0])
        ['distance', 'n', 'same', 'open', 'flips', 'attacked', 'open_upper', 'confidence', 'seed']

        What the attack leaves standing is same + open + flips; what is proven, same alone.
        ``open_upper`` is the greatest of the open items' bounds.
        """
        rows = []
        for at in self.distances:
            mine = [c for c in self.certificates if c.distance == at]
            told: dict[str, Any] = {"distance": "all" if at is None else at, "n": len(mine)}
            for verdict in VERDICTS:
                told[verdict] = sum(c.verdict == verdict for c in mine)
            bounds = [c.upper for c in mine if c.verdict == "open"]
            told["open_upper"] = max(bounds) if bounds else None
            rows.append(told | {"confidence": self.confidence, "seed": self.seed})
        return rows

    def __str__(self) -> str:
        return "\n".join(
            f"distance {row['distance']}: {row['same']} certified, {row['open']} open"
            + (f" (each ≤ {row['open_upper']:.2%})" if row["open"] else "")
            + f", {row['flips']} broken that the attack missed, {row['attacked']} broken by it,"
            + f" of {row['n']}"
            for row in self.gap()
        ) + (f"\n{self.overflowed} longer than the model's max_length" if self.overflowed else "")
