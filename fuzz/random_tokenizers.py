"""Random tokenizers and texts: what must hold for every tokenizer that a vocabulary accepts.

One call makes a tokenizer (`fuzz.made_tokenizers`) and ten texts. The vocabulary refuses it in one
line, or the checks of `fuzz.tokenizer_checks` hold, where ``ids`` are those of the library for the
text without special tokens:

1. `encode` and `encode_batch` give ``ids``, before and after the fast encoder is loaded.
2. A draw decodes to what ``ids`` decode to, by the library and by `decode_bytes`. Drawing from the
   text and from ``ids`` gives the same draw.
3. `count` is the length of `enumerate`, whose rows are those that a search over all tokens finds.
   The probabilities of an exact scheme over these rows sum to 1, that of a draw is positive, and
   that of ``ids`` too where the scheme's definition gives them one.
4. `Guard.check(ids)` is canonical; `repair` gives canonical ids of the same text, which `admit`
   accepts.

A violation is repeated with ever smaller tokenizers and texts; the `Finding` has the smallest one
as a script.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.made_tokenizers import Made, random_texts, random_tokenizer, simpler, with_tokens
from fuzz.tokenizer_checks import (
    SCHEMES,
    Refused,
    Subject,
    Violation,
    check_batches,
    check_draws,
    check_encode,
    check_guard,
    check_lattice,
    check_probabilities,
)

TEXTS = 10  # of each tokenizer
SHRINK_SECONDS = 4.0
Check = Callable[..., None]


class Finding(AssertionError):
    """A violation with the smallest tokenizer and text; the message is its kind."""

    def __init__(self, kind: str, script: str) -> None:
        super().__init__(kind)
        self.script = script


def call(seed: int, number: int) -> Counter[str]:
    """Make a tokenizer and check it: what was compared and refused, or a `Finding`."""
    rng = random.Random(f"{seed}/{number}")
    made = random_tokenizer(rng)
    texts = random_texts(rng, made, TEXTS)
    counts: Counter[str] = Counter({"tokenizers made": 1})
    try:
        subject = Subject(made)
    except Refused as e:
        counts[f"refused {e}"] += 1
        return counts
    counts["tokenizers loaded"] += 1
    checks: list[tuple[Check, tuple[Any, ...]]] = [
        (check_batches, (texts,)),
        (check_guard, (texts,)),
    ]
    checks += [(check_draws, (texts, spec)) for spec in rng.sample(SCHEMES, 7)]
    for text in texts:
        checks += [(check_encode, (text,)), (check_lattice, (text,))]
        checks.append((check_probabilities, (text, rng.choice(SCHEMES))))
    rng.shuffle(checks)  # no call may change the result of another one
    for check, arguments in checks:
        violation = violated(subject, check, arguments, counts)
        if violation is not None:
            raise Search(check, violation).smallest(made, arguments)
    return counts


def violated(
    subject: Subject, check: Check, arguments: tuple[Any, ...], counts: Counter[str]
) -> Violation | None:
    """The violation that a check raises, if any; another error than a refusal is one, too."""
    try:
        check(subject, *arguments, counts)
    except Violation as e:
        return e
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a refusal where an invariant should hold, a fault, or a panic
        frames = traceback.extract_tb(e.__traceback__)
        own = [frame for frame in frames if frame.name == check.__name__][-1]
        where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].name}"
        return Violation(
            f"{check.__name__} raises {type(e).__name__} at {where}", "no error", str(e)[:200],
            f"# {own.line} with {arguments!r}",
        )  # fmt: skip
    return None


class Search:
    """Looks for the smallest tokenizer and text that violate the same invariant."""

    def __init__(self, check: Check, violation: Violation) -> None:
        self.check, self.violation = check, violation
        self.ends = time.monotonic() + SHRINK_SECONDS

    def smallest(self, made: Made, arguments: tuple[Any, ...]) -> Finding:
        while time.monotonic() < self.ends:
            before = made, arguments
            arguments = self._shorter(made, arguments)
            made = self._simpler(made, arguments)
            made = self._with_less(made, arguments, "tokens", with_tokens)
            if "merges" in made.model:
                made = self._with_less(made, arguments, "merges", with_merges)
            if before == (made, arguments):
                break
        script = [made.script(), "v = rt.Vocabulary.load(t)", *filter(None, self.violation.lines)]
        script.append(f"# expected {self.violation.expected!r}")
        script.append(f"# robustok {self.violation.got!r}")
        return Finding(f"{self.violation.check} | {made.signature()}", "\n".join(script))

    def _fails(self, made: Made, arguments: tuple[Any, ...]) -> bool:
        """Whether these violate the invariant, too; keeps the violation."""
        if time.monotonic() > self.ends:
            return False
        try:
            violation = violated(Subject(made), self.check, arguments, Counter())
        except (Refused, Violation):
            return False
        if violation is None or violation.check != self.violation.check:
            return False
        self.violation = violation
        return True

    def _shorter(self, made: Made, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with a shorter text, or fewer texts; a scheme stays."""
        first, *rest = arguments
        one_text = isinstance(first, list) and len(first) == 1

        def joined(sequence: Any) -> tuple[Any, ...]:
            return ([sequence] if one_text else sequence, *rest)

        sequence = first[0] if one_text else first
        return joined(self._without_parts(sequence, lambda s: self._fails(made, joined(s))))

    def _simpler(self, made: Made, arguments: tuple[Any, ...]) -> Made:
        while True:
            for one in simpler(made):
                if self._fails(one, arguments):
                    made = one
                    break
            else:
                return made

    def _with_less(
        self, made: Made, arguments: tuple[Any, ...], name: str, build: Callable[[Made, Any], Made]
    ) -> Made:
        return build(made, self._without_parts(
            made.model[name], lambda some: self._fails(build(made, some), arguments)
        ))  # fmt: skip

    def _without_parts(self, sequence: Any, fails: Callable[[Any], bool]) -> Any:
        """A str or a list without the parts that the violation does not need, long ones first."""
        size = max(1, len(sequence) // 2)
        while size:
            end = len(sequence)
            while end > 0:
                begin = max(0, end - size)
                shorter = sequence[:begin] + sequence[end:]
                if fails(shorter):
                    sequence = shorter
                end = begin
            size //= 2
        return sequence


def with_merges(made: Made, merges: list[list[str]]) -> Made:
    """The tokenizer with these merges."""
    return replace(made, model={**made.model, "merges": merges})
