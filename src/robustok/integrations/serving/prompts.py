"""The policy for prompts of token ids, which refuses, repairs or logs, and its counters."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, nearest
from robustok.guard import SPECIAL_ID, UNKNOWN_ID, Guard, Verdict, describe
from robustok.guard.check import blocks_of, flatten
from robustok.integrations.serving.bodies import (
    MAX_NAME,
    MAX_VALUES,
    Refused,
    RequestBody,
    read_body,
)
from robustok.kernels.json_ids import LARGEST
from robustok.ragged import Ragged
from robustok.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
POLICIES = ("reject", "repair", "log", "strict")
MAX_LENGTH = 1 << 17  # ids of a prompt
MAX_PROMPTS = 1024  # of a request
_PREFIX = "ROBUSTOK_GUARD_"
HELP = {
    "requests": "Requests by what they held: ids, text, or other.",
    "refused": "Requests answered with an error, by reason.",
    "sequences": "Sequences of ids by verdict: canonical, repaired, refused, or logged.",
    "findings": "Sequences of ids with a finding, by its kind.",
    "ids": "Ids that were checked.",
    "deviating_ids": "Ids that are unknown or not canonical.",
    "seconds": "Seconds spent on checking ids.",
}


class Counters:
    """Named sums with one label each, in the text format of Prometheus; safe for threads.

    >>> counters = Counters()
    >>> counters.add("requests", "ids")
    >>> print(counters.text().splitlines()[2])
    robustok_guard_requests_total{kind="ids"} 1

    Args:
        names: the counters, each with its help text.
    """

    def __init__(self, names: dict[str, str] = HELP) -> None:
        self._names = names
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, label: str = "", amount: float = 1) -> None:
        """Add to a counter.

        Args:
            name: the counter's name.
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
        for name, help_text in self._names.items():
            full = f"robustok_guard_{name}_total"
            rows = [(label, value) for (key, label), value in values if key == name]
            if rows:
                lines += [f"# HELP {full} {help_text}", f"# TYPE {full} counter"]
            for label, value in rows:
                labels = f'{{kind="{label}"}}' if label else ""
                lines.append(f"{full}{labels} {value:.15g}")
        return "\n".join(lines) + "\n"


class PromptGuard:
    """Judges the prompts of a request by one policy, and counts.

    >>> prompts = PromptGuard(vocab, policy="repair")
    >>> prompts.judge([[*vocab.encode("t"), *vocab.encode("he")]])
    [[266]]

    Args:
        vocab: the vocabulary of the served model.
        policy: ``reject`` raises :class:`Refused` for a prompt that is not canonical; ``repair``
            gives the canonical ids of the same text; ``log`` changes and refuses nothing, and logs
            kinds and positions of findings, never ids or text. Unknown and special ids are refused
            unless the policy is ``log``. ``strict`` is ``reject`` that also refuses integers, and
            strings of digits, in lists of any field that it does not know.
        allow_special: whether special ids may occur anywhere, as in prompts that a client rendered
            by a chat template.
        fields: names of further fields of a request's body that hold ids.
        max_length: greatest number of ids of a prompt, for each policy.
        max_prompts: greatest number of prompts of a request, for each policy.
        max_values: greatest number of values in a body beside ids, for each policy.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        policy: str = "reject",
        allow_special: bool = False,
        fields: Sequence[str] = (),
        max_length: int = MAX_LENGTH,
        max_prompts: int = MAX_PROMPTS,
        max_values: int = MAX_VALUES,
    ) -> None:
        if policy not in POLICIES:
            raise RobustokError(f"unknown policy '{policy}': {nearest(policy, POLICIES)}")
        if isinstance(fields, str) or not all(isinstance(name, str) and name for name in fields):
            raise RobustokError(f"fields are a list of names, not {fields!r}")
        for name in fields:
            if len(name.encode("utf-16-le", "surrogatepass")) > 2 * MAX_NAME:
                raise RobustokError(
                    f"the name of a field has at most {MAX_NAME} characters: {name}"
                )
        self.max_length = check_integer("max_length", max_length, 1)
        self.max_prompts = check_integer("max_prompts", max_prompts, 1)
        self.max_values = check_integer("max_values", max_values, 1)
        self.guard = Guard(vocab, allow_special=allow_special, max_length=None)
        self.policy = policy
        self.fields = tuple(fields)
        self.counters = Counters()
        read_body(b"[]")  # compiles kernels before the first request
        self.guard.check_batch([[0]])

    @classmethod
    def from_environment(cls) -> PromptGuard:
        """The guard that variables of the environment describe.

        ``ROBUSTOK_GUARD_TOKENIZER`` is required; ``_POLICY``, ``_ALLOW_SPECIAL`` (0 or 1),
        ``_FIELDS`` (names with commas between them), ``_MAX_LENGTH``, ``_MAX_PROMPTS`` and
        ``_MAX_VALUES`` are the arguments of the same name. Raises RobustokError for a missing or
        wrong value.
        """
        tokenizer = os.environ.get(f"{_PREFIX}TOKENIZER")
        if not tokenizer:
            raise RobustokError(
                f"set {_PREFIX}TOKENIZER to the tokenizer of the served model: a tokenizer.json, a "
                "folder with one, or a hub name"
            )
        names = os.environ.get(f"{_PREFIX}FIELDS", "").split(",")
        return cls(
            Vocabulary.load(tokenizer),
            policy=os.environ.get(f"{_PREFIX}POLICY", "reject"),
            allow_special=bool(_number("ALLOW_SPECIAL", 0)),
            fields=[name.strip() for name in names if name.strip()],
            max_length=_number("MAX_LENGTH", MAX_LENGTH),
            max_prompts=_number("MAX_PROMPTS", MAX_PROMPTS),
            max_values=_number("MAX_VALUES", MAX_VALUES),
        )

    def read(self, raw: bytes | bytearray) -> RequestBody:
        """The prompts of a JSON body, see `bodies.read_body`; raises :class:`Refused`.

        Args:
            raw: the body.
        """
        return read_body(
            raw, fields=self.fields, strict=self.policy == "strict", max_values=self.max_values
        )

    def judge(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The prompts for the model, the same or repaired; raises :class:`Refused`.

        Args:
            prompts: sequences of integers.
        """
        try:
            values, offsets = flatten(prompts, None)
        except RobustokError as error:
            raise Refused("not-ids", str(error)) from error
        values = values.clip(-LARGEST, LARGEST).astype(np.int32)
        repaired = self.repairs(Ragged(values, offsets))
        return [
            np.asarray(repaired.get(number, prompt)).tolist()
            for number, prompt in enumerate(prompts)
        ]

    def repairs(self, rows: Ragged) -> dict[int, np.ndarray]:
        """Other ids for the prompts that need them, by their number; raises :class:`Refused`.

        Args:
            rows: one prompt a row.
        """
        if len(rows) > self.max_prompts:
            raise Refused(
                "too-many-prompts",
                f"{len(rows)} prompts, at most {self.max_prompts} are allowed",
                is_limit=True,
            )
        too_long = np.flatnonzero(rows.lengths > self.max_length)
        if len(too_long):
            raise Refused(
                "too-long",
                f"prompt {too_long[0]} has {rows.lengths[too_long[0]]} ids, at most "
                f"{self.max_length} are allowed",
                is_limit=True,
            )
        started = time.perf_counter()
        repaired: dict[int, np.ndarray] = {}
        try:
            for first, last in blocks_of(rows.offsets):  # verdicts of one block are kept at a time
                begin, end = rows.offsets[[first, last]]
                block = Ragged(rows.values[begin:end], rows.offsets[first : last + 1] - begin)
                repaired |= self._repairs_of_block(block, first)
            return repaired
        finally:
            self.counters.add("seconds", amount=time.perf_counter() - started)

    def _repairs_of_block(self, rows: Ragged, first: int) -> dict[int, np.ndarray]:
        """:meth:`repairs` of some rows; the first one is number ``first`` of the request."""
        verdicts = self.guard.check_batch(rows)
        self.counters.add("ids", amount=len(verdicts.given))
        self.counters.add("deviating_ids", amount=int(verdicts.deviates.sum()))
        clean = verdicts.clean & verdicts.canonical
        if clean.any():
            self.counters.add("sequences", "canonical", int(clean.sum()))
        repaired = {}
        for row in np.flatnonzero(~clean).tolist():
            other = self._one(first + row, verdicts[row])
            if other is not None:
                repaired[first + row] = other
        return repaired

    def _one(self, number: int, verdict: Verdict) -> np.ndarray | None:
        """The ids that replace those of prompt ``number``; None where they stay."""
        kinds = verdict.findings.kinds
        for kind in kinds:
            self.counters.add("findings", kind)
        wrong = bool(kinds & {UNKNOWN_ID, SPECIAL_ID}) or not verdict.canonical
        if not wrong:
            self.counters.add("sequences", "canonical")
            return None
        if self.policy == "log":
            first = verdict.findings[0]
            _log.warning(
                "prompt %d has findings of kind %s, the first one at id %d",
                number, ", ".join(sorted(kinds)), first.begin,
            )  # fmt: skip
            self.counters.add("sequences", "logged")
            return None
        repairable = self.policy == "repair" and not kinds & {UNKNOWN_ID, SPECIAL_ID}
        if repairable and self.guard.check(verdict.repaired).canonical:
            self.counters.add("sequences", "repaired")
            return verdict.repaired
        self.counters.add("sequences", "refused")
        finding = next(
            (f for f in verdict.findings if f.kind in (UNKNOWN_ID, SPECIAL_ID)),
            verdict.findings[0],
        )
        line = describe(self.guard.vocab, finding)
        raise Refused(
            finding.kind, f"prompt {number}: {line}; send text, or the tokenizer's own ids of it"
        )


def _number(name: str, default: int) -> int:
    text = os.environ.get(f"{_PREFIX}{name}", str(default))
    try:
        return int(text)
    except ValueError:
        raise RobustokError(f"{_PREFIX}{name} must be an integer, not '{text[:40]}'") from None
