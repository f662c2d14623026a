"""Results of certification: a certificate for each question and distance, and their counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VERDICTS = ("same", "open", "flips", "attacked")


@dataclass(frozen=True, eq=False)
class Certificate:
    """Result for one question's answer under all tokenizations within a distance.

    >>> from robustok.evaluation import certify
    >>> item = items[0]
    >>> certify(model, vocab, item.question, item.choices, distance=2, seed=0).method
    'enumeration'

    Args:
        key: key of the item, or the text itself.
        distance: greatest distance from the canonical tokenization; None for all tokenizations.
        answer: index of the option that the canonical tokenization gets, from 0.
        tokenizations: exact number of tokenizations at distance 0 to ``distance``, the canonical
            one included.
        method: ``"enumeration"`` if all of them were scored, ``"sampling"`` for uniform draws with
            replacement.
        n_scored: number of tokenizations scored.
        flips: number of those with another answer.
        upper: greatest share of the set with another answer: exact for "enumeration", a
            Clopper-Pearson upper bound at ``confidence`` for "sampling".
        confidence: probability that the bound holds, between 0 and 1.
        margin: greatest log-probability of another option minus that of the answer among those
            scored, in nats.
        attacked: whether the greedy attack within the set changes the answer; None if it was not
            run.
        attack_n_scored: number of tokenizations that the attack scored.
        witness: ids of a tokenization in the set with another answer, None if none is known.
        witness_distance: distance of the witness from the canonical tokenization, None without one.
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
        """One of ``VERDICTS``.

        "same": certified. "open": no other answer was drawn; ``upper`` bounds their share.
        "flips": another answer exists, but the attack did not reach it. "attacked": the attack
        reached another answer.
        """
        if self.attacked:
            return "attacked"
        if self.witness is not None:
            return "flips"
        return "same" if self.method == "enumeration" else "open"

    def __str__(self) -> str:
        where = "" if self.distance is None else f" within distance {self.distance}"
        summary = {
            "same": f"certified: the same answer under all {self.count} tokenizations{where}",
            "open": f"open: no other answer in {self.n_scored:,} uniform draws from the "
            f"{self.count} tokenizations{where}",
            "flips": f"broken{where}: another answer is there, the attack missed it",
            "attacked": f"broken{where}: the attack finds another answer",
        }[self.verdict]
        if self.verdict == "same":
            return summary
        share = f"{self.upper:.2%} of {self.count} have another"
        if self.method == "sampling":
            share = f"at most {share}, at {self.confidence:.0%} confidence"
        if self.witness is None:
            return f"{summary}; {share}"
        return f"{summary} (at distance {self.witness_distance}); {share}"

    @property
    def count(self) -> str:
        """The number of tokenizations as text; a large one by its order of magnitude."""
        exact = self.tokenizations < 10**9
        return f"{self.tokenizations:,}" if exact else f"10^{len(str(self.tokenizations)) - 1}"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON, the exact count as a string; :meth:`from_json` takes it."""
        return asdict(self) | {"tokenizations": str(self.tokenizations), "verdict": self.verdict}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Certificate:
        """The certificate that :meth:`to_json` wrote, also after being read from a file.

        Args:
            row: the dictionary.
        """
        values = {name: row[name] for name in cls.__dataclass_fields__}
        values["tokenizations"] = int(values["tokenizations"])
        values["witness"] = None if values["witness"] is None else tuple(values["witness"])
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Certification:
    """The certificates of a task: for each item one for each distance, in that order.

    >>> from robustok.evaluation import certify_items
    >>> result = certify_items(model, vocab, items, distances=(2, 4), seed=0)
    >>> result.n, len(result.certificates)
    (8, 16)

    Args:
        certificates: the certificates, [items · distances].
        distances: the distances in ascending order; None, for all tokenizations, is last.
        n: number of items.
        limit: greatest number of tokenizations of a question that were enumerated.
        draws: uniform draws from a larger set.
        confidence: probability that each bound of a sampled set holds, between 0 and 1.
        seed: seed of the draws.
        seconds: wall-clock time.
        overflowed: number of tokenizations that did not fit the model.
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

        The attack fails on same + open + flips items; only same is proven. ``open_upper`` is the
        largest bound of the open items.
        """
        rows = []
        for at in self.distances:
            certificates = [c for c in self.certificates if c.distance == at]
            row: dict[str, Any] = {"distance": "all" if at is None else at, "n": len(certificates)}
            for verdict in VERDICTS:
                row[verdict] = sum(c.verdict == verdict for c in certificates)
            bounds = [c.upper for c in certificates if c.verdict == "open"]
            row["open_upper"] = max(bounds) if bounds else None
            rows.append(row | {"confidence": self.confidence, "seed": self.seed})
        return rows

    def __str__(self) -> str:
        return "\n".join(
            f"distance {row['distance']}: {row['same']} certified, {row['open']} open"
            + (f" (each ≤ {row['open_upper']:.2%})" if row["open"] else "")
            + f", {row['flips']} broken that the attack missed, {row['attacked']} broken by it,"
            + f" of {row['n']}"
            for row in self.gap()
        ) + (f"\n{self.overflowed} longer than the model's max_length" if self.overflowed else "")
