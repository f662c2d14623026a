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

A violation is a `Finding` with a script that makes the tokenizer, and what was expected and given.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

from fuzz.made_tokenizers import random_texts, random_tokenizer
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
Check = Callable[..., None]


class Finding(AssertionError):
    """A violation; ``script`` makes its tokenizer and says what was expected and given."""

    def __init__(self, subject: Subject, arguments: tuple[Any, ...], violation: Violation) -> None:
        super().__init__(violation.check)
        self.script = "\n".join([
            "import robustok as rt", "from tokenizers import Tokenizer",
            f"t = Tokenizer.from_str({subject.library.to_str()!r})", "v = rt.Vocabulary.load(t)",
            f"# {violation.check} of {arguments!r}", f"# of {violation.of!r}",
            f"# expected {violation.expected!r}", f"# robustok {violation.got!r}",
        ])  # fmt: skip


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
            raise Finding(subject, arguments, violation)
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
        where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].name}"
        return Violation(
            f"{check.__name__} raises {type(e).__name__} at {where}", "no error", str(e)[:200]
        )
    return None
