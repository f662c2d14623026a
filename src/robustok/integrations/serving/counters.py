"""Counters in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter

HELP = {
    "requests": "Requests by what they held: ids, text, or other.",
    "refused": "Requests answered with an error, by reason.",
    "sequences": "Sequences of ids by verdict: canonical, repaired, refused, or logged.",
    "findings": "Sequences of ids with a finding, by its kind.",
    "ids": "Ids that were checked.",
    "deviating_ids": "Ids that are unknown or not canonical.",
    "seconds": "Seconds spent on checking ids.",
    "charged_tokens": "Tokens that responses charged, by kind.",
    "canonical_tokens": "Tokens of the canonical encoding of the charged text, by kind.",
    "overcharged": "Responses that charged more completion tokens than canonical ones and ends.",
    "unaudited": "Responses whose charged tokens could not be compared.",
}


class Counters:
    """Named sums with one label each, safe for threads.

    >>> counters = Counters()
    >>> counters.add("requests", "ids")
    >>> print(counters.text().splitlines()[2])
    robustok_guard_requests_total{kind="ids"} 1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "", amount: float = 1) -> None:
        """Add to a counter.

        Args:
            name: a key of :data:`HELP`.
            label: the value of the counter's label, empty for a counter without one.
            amount: what is added.
        """
        with self._lock:
            self._values[name, label] += amount  # type: ignore[assignment]

    def value(self, name: str, label: str = "") -> float:
        """The sum of a counter."""
        with self._lock:
            return self._values[name, label]

    def text(self) -> str:
        """All counters in Prometheus' text format, version 0.0.4."""
        with self._lock:
            values = sorted(self._values.items())
        lines: list[str] = []
        for name, help_text in HELP.items():
            full = f"robustok_guard_{name}_total"
            rows = [(label, value) for (key, label), value in values if key == name]
            if rows:
                lines += [f"# HELP {full} {help_text}", f"# TYPE {full} counter"]
            for label, value in rows:
                labels = f'{{kind="{label}"}}' if label else ""
                lines.append(f"{full}{labels} {value:.15g}")
        return "\n".join(lines) + "\n"
