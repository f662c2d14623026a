"""Names of models and schemes in a few words, for tables and figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from robustok.attack.settings import AttackSettings, is_attack, is_suite
from robustok.report.style import family
from robustok.samplers.parameters import Number, show
from robustok.samplers.spec import SCHEMES, Spec, read_call
from robustok.samplers.strength import splits_in

_LONGEST = 16  # characters of a name on one line


def short(spec: str) -> str:
    """A spec in a few short lines, for the head of a column.

    >>> short("stochastok(alpha=0.5)")
    'stochastok\\n0.5'
    >>> short('bpe-dropout(p=0.1, rule="sentencepiece")')
    'bpe-dropout\\n0.1\\nsentencepiece'
    >>> short("adversarial(distances=(2), start=canonical, steps=10)")
    'attack\\nd = 2'
    >>> short("stochastok(ways=3, splits=0.5)")  # at a measured strength
    'stochastok\\n3 ways\\n0.5 splits'
    >>> short("standard-suite(max_scored=500)")
    'worst attack'
    >>> short("ensemble(uniform, draws=8)")
    'uniform\\n8 draws at once'
    >>> short("stochastok(alpha=0.1) → canonical")  # fine-tuned after pre-training
    'stochastok\\n0.1 →\\ncanonical'
    """
    if " → " in spec:
        return " →\n".join(short(part) for part in spec.split(" → "))
    name = family(spec)
    if name == "ensemble":
        scheme, _, draws = spec[len("ensemble(") : -1].rpartition(", draws=")
        return f"{short(scheme)}\n{draws} draws at once"
    if is_suite(spec):
        return "worst attack"
    if is_attack(spec):
        attack = AttackSettings.parse(spec)
        start = "" if attack.start == "canonical" else f"\nfrom {attack.start}"
        kind = "attack" if attack.search == "greedy" else f"{attack.search} attack"
        return f"{kind}\nd = {', '.join(map(str, attack.distances))}{start}"
    title = name if len(name) <= _LONGEST else name.replace("-", "-\n", 1)
    return "\n".join([title, *_settings(spec)])


def _settings(spec: str, *, strength: bool = True) -> list[str]:
    """The numbers and words of a spec: the strength first, any other number with its name."""
    scheme = SCHEMES.find(family(spec))
    if scheme is None:
        return []
    named = splits_in(spec) is not None  # by its measured strength, which is no parameter
    params = read_call(spec).params if named else Spec.parse(spec).params
    values = []
    for name, value in params.items():
        if name in (scheme.strength, "splits" if named else "") and not strength:
            continue
        if isinstance(value, str):
            values.append(value)
        elif named and name == "splits":
            values.append(f"{show(value)} splits")
        elif isinstance(scheme.parameters[name], Number):
            plain = name == scheme.strength or len(params) == 1
            values.append(show(value) if plain else f"{show(value)} {name}")
    return values


def last_parts(names: Sequence[str]) -> list[str]:
    """Models by as many of the last parts of their names as tell different ones apart.

    >>> last_parts(["runs/a/model", "runs/b/model"]), last_parts(["org/gpt2@1a2b", "org/gpt2@1a2b"])
    (['a/model', 'b/model'], ['gpt2', 'gpt2'])

    Hub names lose their revision where the rest differs.
    """
    parts = [Path(name.partition("@")[0]).parts for name in names]
    for count in range(1, max(map(len, parts), default=0) + 1):
        short = ["/".join(part[-count:]) for part in parts]
        if len(set(short)) == len(set(names)):
            return short
    return list(names)


def one_line(text: str) -> str:
    """
    >>> one_line("stochastok-\\nuniform\\n0.5")
    'stochastok-uniform 0.5'
    """
    return text.replace("-\n", "-").replace("\n", " ")


def panel_title(panel: str, *more: str) -> str:
    """Schemes are how models were pre-trained; anything else, such as a task, names itself.

    >>> panel_title("stochastok(alpha=0.1)"), panel_title("copa", "attack"), panel_title("", "")
    ('stochastok 0.1 pre-training', 'copa\\nattack', '')

    ``panel`` is what its models share; empty lines are left out.
    """
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", panel)]
    names = [one_line(short(part)) for part in parts]
    pretrained = len(parts) == 1 and SCHEMES.find(family(parts[0]))
    title = f"{names[0]} pre-training" if pretrained else ", ".join(names)
    return "\n".join(line for line in (title, *more) if line)


def scheme_and_strength(spec: str) -> tuple[str, str]:
    """A scheme without its strength, and the strength, empty for none.

    >>> scheme_and_strength("stochastok(alpha=1, ways=3)"), scheme_and_strength("uniform")
    (('stochastok, 3 ways', '1'), ('uniform', ''))
    >>> scheme_and_strength("stochastok(ways=3, splits=0.5)")
    ('stochastok, 3 ways', '0.5')
    """
    scheme, value = SCHEMES.find(family(spec)), splits_in(spec)
    if scheme is not None and value is None:
        value = Spec.parse(spec).params.get(scheme.strength)
    if not isinstance(value, (int, float)):
        return spec, ""
    return ", ".join([family(spec), *_settings(spec, strength=False)]), f"{value:g}"
