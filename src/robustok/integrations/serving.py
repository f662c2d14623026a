"""The policy for prompts of ids, which refuses, repairs or logs; its counters; request bodies.

`PromptGuard.read` finds which lists of integers of a JSON body are prompts. The integers never
become Python objects: `kernels.json_ids` finds the lists of integers and shortens strings, and
``json`` reads the rest, whose size is limited. Fields are looked up by name at any depth, so that
the routes of vLLM, SGLang and other servers are covered without a list of routes. A body is refused
where another reader could see other ids in it: doubled keys, and what pydantic's lax mode turns
into integers (``"83"``, ``83.0``, ``true``).
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, check_choice
from robustok.guard import SPECIAL_ID, TEXT_CHANGES, UNKNOWN_ID, Guard, Verdict, describe
from robustok.guard.check import blocks_of, flatten
from robustok.kernels.json_ids import LARGEST, LONG_KEY, SCANNED, TOO_DEEP, find_lists
from robustok.ragged import Ragged
from robustok.tokenizer.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
POLICIES = ("reject", "repair", "log", "strict")
MAX_LENGTH = 1 << 17  # ids of a prompt
MAX_PROMPTS = 1024  # of a request
MAX_VALUES = 1 << 15  # of a body, beside integers in lists
MAX_NAME = LONG_KEY // 6 - 2  # characters of a field's name, each of which may be an escape of six
_MAX_DEPTH = 100  # open brackets; a parser of Python's gives up at about 1,000

# Fields that hold a prompt. `TEXT`: vLLM's and SGLang's request models take texts as well, so a
# list of digit strings is a list of texts. `IDS`: another server may take integers only.
IDS, TEXT, OTHER = "ids", "text", "other"
FIELDS: dict[str, str] = {
    **dict.fromkeys((
        "prompt", "input", "text", "texts", "content", "query", "queries", "document",
        "documents", "items", "text_1", "text_2", "data_1", "data_2",
    ), TEXT),
    **dict.fromkeys((
        "prompt_token_ids", "prompt_ids", "prompt_tokens", "prompts", "input_ids", "input_tokens",
        "inputs", "token_ids", "tokens", "suffix", "suffix_ids", "suffix_token_ids", "prefix",
        "prefix_ids", "prefix_token_ids", "context", "context_ids", "context_token_ids",
        "encoder_prompt", "encoder_prompt_token_ids", "decoder_prompt", "decoder_prompt_token_ids",
        "decoder_input_ids", "instruction", "instruct",
    ), IDS),
    # Integers of these are no prompt; they matter only where unknown lists are refused.
    **dict.fromkeys((
        "stop_token_ids", "allowed_token_ids", "bad_words_ids", "logprob_token_ids",
        "token_ids_logprob", "label_token_ids", "logprob_start_len", "top_logprobs_num",
        "return_logprob", "return_sampling_mask", "return_hidden_states", "bootstrap_port",
        "bootstrap_room", "decode_tp_size", "multi_item_delimiter_indices", "bytes", "enum",
    ), OTHER),
}  # fmt: skip
# All that `int` or pydantic's lax mode reads as an integer, which pydantic does even of "000-1".
_DIGITS = re.compile(r"[\s+\-_.]*\d[\s\d+\-_.]*")
_NUMBERS = {int, float, bool}
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
        self.policy = check_choice("policy", policy, POLICIES)
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
        self.fields = tuple(fields)
        self.counters = Counters()
        self.read(b"[]")  # compiles kernels before the first request
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
        """The prompts of ids in a JSON body.

        >>> PromptGuard(vocab).read(b'{"prompt": [[83, 258], "the"], "seed": 0}').rows[0]
        array([ 83, 258], dtype=int32)

        Takes time linear in the length of the body and releases the interpreter lock while it reads
        ids. Raises Refused for a body that is not JSON in UTF-8, is too large or too deep, has a
        key twice, or has a prompt that is neither text nor integers.
        """
        if not json.detect_encoding(raw).startswith("utf-8"):
            raise Refused("not-json", "the body is not JSON in UTF-8")
        lists = find_lists(raw, self.max_values, _MAX_DEPTH)
        if lists.state == TOO_DEEP:
            raise Refused(
                "too-deep", f"the body has more than {_MAX_DEPTH} open brackets", is_limit=True
            )
        if lists.state != SCANNED:
            raise Refused(
                "too-many-values",
                f"the body has more than {self.max_values} values beside ids; send fewer of them "
                "at a time",
                status=413, is_limit=True,
            )  # fmt: skip
        try:
            value = json.loads(lists.skeleton, object_pairs_hook=_unique)
        except Refused:
            raise
        except (ValueError, RecursionError):
            raise Refused("not-json", "the body is not JSON") from None
        known = {**FIELDS, **dict.fromkeys(self.fields, IDS)}
        numbers = sorted(_prompts(value, known, self.policy == "strict", lists.offsets))
        rows = Ragged(lists.values, lists.offsets)
        if len(numbers) < len(rows):
            rows = Ragged.from_rows([rows[i] for i in numbers])
        return RequestBody(raw, rows, lists.spans[numbers].reshape(-1, 2))

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
        """Other ids for the prompts that need them, by their number; raises :class:`Refused`."""
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
                repaired |= self._repairs_of_block(rows.between(first, last), first)
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
        forbidden = kinds & {UNKNOWN_ID, SPECIAL_ID}
        for kind in kinds:
            self.counters.add("findings", kind)
        if verdict.canonical and not forbidden:
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
        # A repair may change a text as the tokenizer does, but not delete it.
        lost = [f for f in verdict.findings if f.kind == TEXT_CHANGES and not f.canonical]
        repairable = self.policy == "repair" and not forbidden and not lost
        if repairable and self.guard.check(verdict.repaired).canonical:
            self.counters.add("sequences", "repaired")
            return verdict.repaired
        self.counters.add("sequences", "refused")
        worst = [*(f for f in verdict.findings if f.kind in forbidden), *lost, verdict.findings[0]]
        finding = worst[0]
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


class Refused(RobustokError):
    """A request that is not answered: one line for the client, and a short ``reason``.

    ``status`` is that of the response. ``is_limit``: also refused by the policy ``log``.
    """

    def __init__(
        self, reason: str, message: str, *, status: int = 400, is_limit: bool = False
    ) -> None:
        super().__init__(message)
        self.reason, self.status, self.is_limit = reason, status, is_limit


@dataclass(frozen=True)
class RequestBody:
    """A body and its prompts of ids: ``rows[i]`` is the list ``raw[begin:end]`` of ``spans[i]``."""

    raw: bytes | bytearray
    rows: Ragged
    spans: np.ndarray  # int64 [rows, 2]

    def replaced(self, rows: dict[int, np.ndarray]) -> bytes:
        """The body with other ids in some rows; every other byte stays as it is.

        >>> body = PromptGuard(vocab).read(b'{"prompt": [83, 258], "n":1}')
        >>> body.replaced({0: np.array([266])})
        b'{"prompt": [266], "n":1}'

        Args:
            rows: ids by the number of the row, each int [n].
        """
        order = sorted(rows, key=lambda row: int(self.spans[row, 0]))
        parts, at = [], 0
        for row in order:
            begin, end = self.spans[row].tolist()
            parts += [bytes(self.raw[at:begin]), json.dumps(rows[row].tolist()).encode()]
            at = end
        return b"".join([*parts, bytes(self.raw[at:])])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of ``pairs``; servers disagree on which of two equal keys counts."""
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused("duplicate-key", f"the body has the key '{key[:60]}' twice")
            seen.add(key)
    return value


def _prompts(body: Any, known: dict[str, str], strict: bool, offsets: np.ndarray) -> list[int]:
    """The numbers of the lists that are prompts.

    In ``body`` a list of integers is ``[its number]``, and a text is "0" where an integer could be
    read from it, else "": see `kernels.json_ids`.
    """
    prompts = []
    open_values: list[tuple[Any, str | None, str, bool]] = [(body, IDS, "the body", False)]
    while open_values:
        value, kind, name, nested = open_values.pop()
        if isinstance(value, dict):
            open_values += [(v, known.get(k), f"'{k[:60]}'", False) for k, v in value.items()
                            if isinstance(v, (dict, list))]  # fmt: skip
            continue
        if not isinstance(value, list):
            continue
        types = set(map(type, value))
        if types == {int}:
            (number,) = value
            if offsets[number] < offsets[number + 1]:
                if kind in (IDS, TEXT):
                    prompts.append(number)
                elif strict and kind is None:
                    raise _unknown(name)
            continue
        if kind in (IDS, TEXT) and types & _NUMBERS:
            raise Refused("not-ids", f"{name} must be a text, a list of integers, or lists of them")
        if kind != OTHER and _can_be_integers(value):
            if kind is None and strict:
                raise _unknown(name)
            if kind == IDS or (kind == TEXT and (nested or strict)):
                raise Refused("not-ids", f"{name} holds digits in strings: send integers or a text")
        open_values += [(v, kind, name, True) for v in value if isinstance(v, (dict, list))]
    return prompts


def _unknown(name: str) -> Refused:
    return Refused(
        "unknown-field",
        f"{name} holds integers, and is no field that is known: leave it out, or name it as a "
        "field with ids",
    )


def _can_be_integers(values: list[Any]) -> bool:
    """Whether a lax reader could take all values as integers, of which there is one at least."""
    some = False
    for value in values:
        if value is None:
            continue
        some = True
        if isinstance(value, str):
            if not _DIGITS.fullmatch(value):
                return False
        elif type(value) not in _NUMBERS or (isinstance(value, float) and value % 1 != 0):
            return False
    return some
