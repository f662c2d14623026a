"""The policy for prompts of ids, which refuses, repairs or logs.

`integrations.bodies` finds the prompts of a request; `PromptGuard` judges them in chunks, with a
pause between two of them, so that an event loop in the same process is not kept waiting. What
happens is counted in the registry of ``prometheus_client``, where that is installed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, check_choice
from robustok.guard import SPECIAL_ID, TEXT_CHANGES, UNKNOWN_ID, Guard, Verdicts, describe
from robustok.guard.findings import KINDS
from robustok.integrations.bodies import (
    ANY,
    Limits,
    Refused,
    RequestBody,
    fields_of,
    known_path,
    pause,
    read_body,
)
from robustok.runtime.display import counted
from robustok.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
POLICIES = ("reject", "repair", "log", "strict")
MAX_LENGTH = 1 << 17  # ids of a prompt
MAX_PROMPTS = 1024  # of a request
MAX_VALUES = 1 << 15  # lists, objects and keys of a body
MAX_ITEMS = (1 << 17) + (1 << 15)  # of all lists and objects of a body, ids included
_CHUNK_IDS, _CHUNK_ROWS = 1 << 14, 512  # that are judged between two pauses, one prompt at least
_COUNTERS = {
    "requests": "Requests by what they held: ids, text, or other.",
    "refused": "Requests answered with an error, by reason.",
    "unknown_fields": "Lists with integers in fields that are not known, which pass unjudged.",
    "sequences": "Sequences of ids by verdict: canonical, repaired, refused, or logged.",
    "findings": "Sequences of ids with a finding, by its kind.",
    "ids": "Ids that were checked.",
    "deviating_ids": "Ids that are unknown or not canonical.",
    "seconds": "Seconds spent on checking ids.",
}
_BY_KIND = ("requests", "refused", "sequences", "findings")


@cache
def _counters() -> dict[str, Any]:
    """The counters of this process by their names; none without prometheus_client."""
    try:
        from prometheus_client import Counter
    except ImportError:
        return {}
    return {
        name: Counter(f"robustok_guard_{name}", text, ["kind"] if name in _BY_KIND else [])
        for name, text in _COUNTERS.items()
    }


def count(name: str, kind: str = "", amount: float = 1) -> None:
    """Add to ``robustok_guard_NAME_total``, by its label ``kind``, where there are counters."""
    counter = _counters().get(name)
    if counter is not None:
        (counter.labels(kind) if kind else counter).inc(amount)


class PromptGuard:
    """Judges the prompts of a request by one policy, and counts.

    >>> prompts = PromptGuard(vocab, policy="repair")
    >>> prompts.repairs([[*vocab.encode("t"), *vocab.encode("he")]])
    {0: array([266], dtype=int32)}

    Args:
        vocab: the vocabulary of the served model.
        policy: ``reject`` raises :class:`Refused` for a prompt that is not canonical; ``repair``
            gives the canonical ids of the same text; ``log`` changes and refuses nothing, and logs
            kinds and positions of findings, never ids or text. Unknown and special ids are refused
            unless the policy is ``log``. ``strict`` is ``reject`` that also refuses integers, and
            strings of digits, in lists of fields that are not known for their path.
        allow_special: whether special ids may occur anywhere, as in prompts that a client rendered
            by a chat template.
        fields: further fields of a body that hold ids, for every path, by the names from its top
            joined by dots.
        max_length: greatest number of ids of a prompt, for each policy.
        max_prompts: greatest number of prompts of a request, for each policy.
        max_values: greatest number of lists, objects and keys of a body, for each policy.
        max_items: greatest number of values that all lists and objects of a body hold together, ids
            included, for each policy.
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
        max_items: int = MAX_ITEMS,
    ) -> None:
        self.policy = check_choice("policy", policy, POLICIES)
        if isinstance(fields, str) or not all(isinstance(name, str) and name for name in fields):
            raise RobustokError(f"fields are a list of names, not {fields!r}")
        self.max_length = check_integer("max_length", max_length, 1)
        self.max_prompts = check_integer("max_prompts", max_prompts, 1)
        self.limits = Limits(
            check_integer("max_values", max_values, 1), check_integer("max_items", max_items, 1)
        )
        self.guard = Guard(vocab, allow_special=allow_special, max_length=None)
        self.fields = tuple(fields)
        self.guard.check_batch([[0]])  # compiles kernels before the first request

    def read(self, raw: bytes | bytearray, path: str = "") -> RequestBody:
        """The prompts of ids in a JSON body.

        >>> raw = b'{"prompt": [[83, 258], "the"], "seed": 0}'
        >>> PromptGuard(vocab).read(raw, "/v1/completions").rows
        [[83, 258]]

        Args:
            raw: the bytes of the body.
            path: the path of the request's URL, or ``any`` for the fields of all known paths.

        Raises Refused as :func:`read_body` does.
        """
        fields = fields_of(path if path == ANY else known_path(path), self.fields)
        body = read_body(raw, fields, self.limits, strict=self.policy == "strict")
        if body.unknown:
            count("unknown_fields", amount=body.unknown)
        return body

    def admit_body(self, raw: bytes | bytearray, path: str) -> bytes | None:
        """A body with the ids that the server may see, None where it stays as it is.

        >>> raw = b'{"prompt": [84, 257], "seed": 0}'
        >>> PromptGuard(vocab, policy="repair").admit_body(raw, "/v1/completions")
        b'{"prompt": [266], "seed": 0}'

        Args:
            raw: the bytes of the body.
            path: as for :meth:`read`.

        Raises Refused by the policy, and for ids outside the vocabulary in fields that are no
        prompt.
        """
        body = self.read(raw, path)
        count("requests", "ids" if body.prompts else "text")
        repaired = self.repairs(body.rows, body.name)
        self.check_existing(body)
        return body.replaced(repaired) if repaired else None

    def check_existing(self, body: RequestBody) -> None:
        """Raise Refused for an id that is no prompt and outside the vocabulary."""
        size = self.guard.vocab.size
        for ids, place, *_ in body.existing:
            for i in ids:
                if not 0 <= i < size:
                    line = f"{place}: {i} is not in the vocabulary (0 to {size - 1})"
                    raise Refused(UNKNOWN_ID, line, field=str(place))

    def repairs(
        self, rows: Sequence[list[int]], name: Callable[[int], str] = "prompt {}".format
    ) -> dict[int, np.ndarray]:
        """Other ids for the prompts that need them, by their number; raises :class:`Refused`.

        Args:
            rows: the ids of each prompt.
            name: gives the name of a prompt by its number, for errors.
        """
        if len(rows) > self.max_prompts:
            raise Refused(
                "too-many-prompts",
                f"{len(rows)} prompts, at most {self.max_prompts} are allowed",
                is_limit=True,
            )
        for number, row in enumerate(rows):
            if len(row) > self.max_length:
                raise Refused(
                    "too-long",
                    f"{name(number)} has {len(row)} ids, at most {self.max_length} are allowed",
                    field=name(number),
                    is_limit=True,
                )
        started = time.perf_counter()
        repaired: dict[int, np.ndarray] = {}
        try:
            for first, last in _chunks(rows):
                if first:
                    pause()
                repaired |= self._repairs_of_chunk(rows, first, last, name)
            return repaired
        finally:
            count("seconds", amount=time.perf_counter() - started)

    def _repairs_of_chunk(
        self, rows: Sequence[list[int]], first: int, last: int, name: Callable[[int], str]
    ) -> dict[int, np.ndarray]:
        """:meth:`repairs` of the rows ``first`` to ``last``, the last one not included."""
        try:
            verdicts = self.guard.check_batch(rows[first:last])
        except RobustokError as error:
            raise Refused("not-ids", str(error)) from error
        count("ids", amount=len(verdicts.given))
        count("deviating_ids", amount=int(verdicts.deviates.sum()))
        for kind in KINDS:
            count("findings", kind, int(verdicts.has(kind).sum()))
        forbidden = verdicts.has(UNKNOWN_ID) | verdicts.has(SPECIAL_ID)
        passes = verdicts.canonical & ~forbidden
        count("sequences", "canonical", int(passes.sum()))
        wrong = np.flatnonzero(~passes)
        if not len(wrong):
            return {}
        if self.policy == "log":
            kinds = sorted(kind for kind in KINDS if verdicts.has(kind)[wrong].any())
            _log.warning(
                "findings of kind %s in %s, the first one at id %d of %s",
                ", ".join(kinds),
                counted(len(wrong), "prompt"),
                verdicts[wrong[0]].findings[0].begin,
                name(first + int(wrong[0])),
            )
            count("sequences", "logged", len(wrong))
            return {}
        lost = np.zeros(len(verdicts), np.bool_)
        lost[verdicts.finding_rows[verdicts.table.deletes]] = True
        repairable = ~forbidden & ~lost if self.policy == "repair" else passes
        refused = wrong[~(repairable & self._settles(verdicts))[wrong]]
        if len(refused):
            count("sequences", "refused")
            number = int(refused[0])
            raise self._refusal(verdicts, number, rows[first + number], name(first + number))
        count("sequences", "repaired", len(wrong))
        return {first + row: verdicts.repaired[row] for row in wrong.tolist()}

    def _settles(self, verdicts: Verdicts) -> np.ndarray:
        """Whether the repaired ids of each row are canonical, bool [rows].

        Those of an unchanged text are: encoding it again gives them again. A text that the
        tokenizer changes may be changed again.
        """
        settles = ~verdicts.has(TEXT_CHANGES)
        changed = np.flatnonzero(~settles)
        if self.policy == "repair" and len(changed):
            repaired = [verdicts.repaired[row] for row in changed.tolist()]
            settles[changed] = self.guard.check_batch(repaired).canonical
        return settles

    def _refusal(self, verdicts: Verdicts, number: int, row: list[int], name: str) -> Refused:
        findings = verdicts[number].findings
        forbidden = [f for f in findings if f.kind in (UNKNOWN_ID, SPECIAL_ID)]
        lost = [f for f in findings if f.kind == TEXT_CHANGES and not f.canonical]
        finding = [*forbidden, *lost, findings[0]][0]
        # As it was sent: the guard knows 64 bits of an id.
        sent = replace(finding, ids=tuple(row[finding.begin : finding.end]))
        line = describe(self.guard.vocab, sent)
        return Refused(
            finding.kind, f"{name}: {line}; send text, or the tokenizer's own ids of it", field=name
        )


def _chunks(rows: Sequence[list[int]]) -> Iterator[tuple[int, int]]:
    """First and last row of each chunk, the last one not included."""
    first = size = 0
    for number, row in enumerate(rows):
        size += len(row)
        if number > first and (size > _CHUNK_IDS or number - first >= _CHUNK_ROWS):
            yield first, number
            first, size = number, len(row)
    if first < len(rows):
        yield first, len(rows)
