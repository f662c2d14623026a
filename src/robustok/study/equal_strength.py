"""Schemes of a study at a measured strength: `stochastok(splits=0.5)` instead of an alpha.

A study with ``strength: {splits: [0.5]}`` names each scheme by the splits per canonical token that
its draws have on average. The parameter that gives this strength depends on the tokenizer and the
texts, so that the cell solves for it when it runs (:func:`robustok.at_strength`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice

from robustok.errors import RobustokError
from robustok.samplers import Sampler, at_strength
from robustok.samplers.parameters import show
from robustok.samplers.spec import Spec, find_scheme, read_call, scheme_class, spec_string
from robustok.tokenizer.vocabulary import Vocabulary

TEXTS = 2_000  # drawn to measure the strength: the first of the questions, or fewer repeated


def at_splits(spec: str, splits: float) -> str:
    """The name of a scheme at a measured strength; a scheme without a strength stays as it is.

    >>> at_splits("stochastok(alpha=1, ways=3)", 0.5), at_splits("uniform", 0.5)
    ('stochastok(ways=3, splits=0.5)', 'uniform')

    Raises RobustokError for a schedule, which has no single strength.
    """
    parsed = Spec.parse(spec)
    if parsed.strength is None:
        return str(parsed)
    if parsed.is_schedule:
        raise RobustokError(f"{parsed} is a schedule, whose strength changes: leave strength out")
    kind = scheme_class(parsed.name)
    params = {name: x for name, x in parsed.params.items() if name != kind.strength}
    others = [kind.parameters[name].show(name, x) for name, x in params.items()]
    return f"{parsed.name}({', '.join([*others, f'splits={show(splits)}'])})"


def splits_in(name: str) -> float | None:
    """The measured strength that a scheme is named by; None for an ordinary spec.

    >>> splits_in("stochastok(splits=0.5)"), splits_in("exactly(uniform, splits=0.5)")
    (0.5, None)
    """
    scheme = find_scheme(name.partition("(")[0].strip())
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
    others = {key: x for key, x in call.params.items() if key != "splits"}
    spec = spec_string(scheme_class(call.name), others)
    drawn = list(islice(cycle(texts), TEXTS))
    return at_strength(spec, vocab, drawn, splits=splits)
