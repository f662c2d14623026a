"""The policy for prompts of token ids: refuse, repair, or log what is not canonical."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustok.checks import check_integer
from robustok.errors import RobustokError, nearest
from robustok.guard import SPECIAL_ID, UNKNOWN_ID, Guard, Verdict, describe
from robustok.integrations.serving.counters import Counters
from robustok.vocabulary import Vocabulary

_log = logging.getLogger(__name__)
POLICIES = ("reject", "repair", "log")
MAX_LENGTH = 1 << 17  # ids of a prompt
MAX_PROMPTS = 1024  # of a request
_PREFIX = "ROBUSTOK_GUARD_"


class Refused(RobustokError):
    """A request that is not answered: one line for the client, and a short ``reason``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


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
            unless the policy is ``log``.
        allow_special: whether special ids may occur anywhere, as in prompts that a client rendered
            by a chat template.
        max_length: greatest number of ids of a prompt, for each policy.
        max_prompts: greatest number of prompts of a request, for each policy.
        counters: where to count; new ones by default.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        *,
        policy: str = "reject",
        allow_special: bool = False,
        max_length: int = MAX_LENGTH,
        max_prompts: int = MAX_PROMPTS,
        counters: Counters | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise RobustokError(f"unknown policy '{policy}': {nearest(policy, POLICIES)}")
        self.max_length = check_integer("max_length", max_length, 1)
        self.max_prompts = check_integer("max_prompts", max_prompts, 1)
        self.guard = Guard(vocab, allow_special=allow_special, max_length=None)
        self.policy = policy
        self.counters = counters or Counters()
        self.guard.check_batch([vocab.encode("a")])  # compiles kernels before the first request

    @classmethod
    def from_environment(cls) -> PromptGuard:
        """The guard that variables of the environment describe.

        ``ROBUSTOK_GUARD_TOKENIZER`` is required; ``_POLICY``, ``_ALLOW_SPECIAL`` (0 or 1),
        ``_MAX_LENGTH`` and ``_MAX_PROMPTS`` are the arguments of the same name. Raises
        RobustokError for a missing or wrong value.
        """
        tokenizer = os.environ.get(f"{_PREFIX}TOKENIZER")
        if not tokenizer:
            raise RobustokError(
                f"set {_PREFIX}TOKENIZER to the tokenizer of the served model: a tokenizer.json, a "
                "folder with one, or a hub name"
            )
        return cls(
            Vocabulary.load(tokenizer),
            policy=os.environ.get(f"{_PREFIX}POLICY", "reject"),
            allow_special=bool(_number("ALLOW_SPECIAL", 0)),
            max_length=_number("MAX_LENGTH", MAX_LENGTH),
            max_prompts=_number("MAX_PROMPTS", MAX_PROMPTS),
        )

    def judge(self, prompts: Sequence[Any]) -> list[list[int]]:
        """The prompts for the model, the same or repaired; raises :class:`Refused`.

        Args:
            prompts: sequences of integers.
        """
        if len(prompts) > self.max_prompts:
            raise self._refused(
                "too-many-prompts",
                f"{len(prompts)} prompts, at most {self.max_prompts} are allowed",
            )
        for number, prompt in enumerate(prompts):
            if len(prompt) > self.max_length:
                raise self._refused(
                    "too-long",
                    f"prompt {number} has {len(prompt)} ids, at most {self.max_length} are allowed",
                )
        started = time.perf_counter()
        try:
            verdicts = self.guard.check_batch(prompts)
            self.counters.add("ids", amount=len(verdicts.given))
            self.counters.add("deviating_ids", amount=int(verdicts.deviates.sum()))
            return [
                self._one(number, list(prompt), verdicts[number])
                for number, prompt in enumerate(prompts)
            ]
        except Refused:
            raise
        except RobustokError as error:  # not a sequence of integers
            raise self._refused("not-ids", str(error)) from error
        finally:
            self.counters.add("seconds", amount=time.perf_counter() - started)

    def _one(self, number: int, prompt: list[int], verdict: Verdict) -> list[int]:
        kinds = verdict.findings.kinds
        for kind in kinds:
            self.counters.add("findings", kind)
        wrong = bool(kinds & {UNKNOWN_ID, SPECIAL_ID}) or not verdict.canonical
        if not wrong:
            self.counters.add("sequences", "canonical")
            return prompt
        if self.policy == "log":
            first = verdict.findings[0]
            _log.warning(
                "prompt %d has findings of kind %s, the first one at id %d",
                number, ", ".join(sorted(kinds)), first.begin,
            )  # fmt: skip
            self.counters.add("sequences", "logged")
            return prompt
        if self.policy == "repair" and not kinds & {UNKNOWN_ID, SPECIAL_ID}:
            repaired = verdict.repaired
            if self.guard.check(repaired).canonical:
                self.counters.add("sequences", "repaired")
                return repaired.tolist()
        self.counters.add("sequences", "refused")
        finding = next(
            (f for f in verdict.findings if f.kind in (UNKNOWN_ID, SPECIAL_ID)),
            verdict.findings[0],
        )
        line = describe(self.guard.vocab, finding)
        raise self._refused(
            finding.kind, f"prompt {number}: {line}; send text, or the tokenizer's own ids of it"
        )

    def _refused(self, reason: str, message: str) -> Refused:
        self.counters.add("refused", reason)
        return Refused(reason, message)


def as_ids(value: Any) -> list[Any] | None:
    """A list that holds a number, None for any other value."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and any(isinstance(i, (int, float)) for i in value):
        return list(value)
    return None


def _number(name: str, default: int) -> int:
    text = os.environ.get(f"{_PREFIX}{name}", str(default))
    try:
        return int(text)
    except ValueError:
        raise RobustokError(f"{_PREFIX}{name} must be an integer, not '{text[:40]}'") from None
