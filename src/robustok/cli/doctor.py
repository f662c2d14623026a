"""robustok doctor: show versions, hardware, caches and missing packages, or check a tokenizer."""

from __future__ import annotations

import platform
from importlib.util import find_spec

import click

from robustok.cli.printing import print_json
from robustok.cli.terminal import print_table
from robustok.guard.invariants import check_invariants
from robustok.kernels.compiler.cache import cache_directory, packaged_directory
from robustok.models.load import devices
from robustok.runtime.environment import available_cores
from robustok.runtime.files import JsonObject
from robustok.runtime.hub import model_cache
from robustok.runtime.packages import EXTRAS, versions
from robustok.tokenizer.vocabulary import Vocabulary

_REASONS = 5  # why texts are refused, the commonest first


def doctor(tokenizer: str | None = None, as_json: bool = False) -> None:
    """Show versions, hardware, caches and missing packages, or check a tokenizer.

    With --tokenizer: its kind, whether the fast encoder is used, and whether its ids, draws,
    probabilities and verdicts are right on a few hundred texts. Exits with 1 where one is wrong.
    """
    if tokenizer is not None:
        _check_tokenizer(tokenizer, as_json)
        return
    findings = _findings()
    if as_json:
        print_json(findings)
        return
    facts = [
        *findings["versions"].items(),
        ("platform", findings["platform"]),
        ("kernels", findings["kernels"]),
        ("cores", findings["cores"]),
        ("devices", ", ".join(findings["devices"]) or "none (torch is not installed)"),
        *findings["caches"].items(),
    ]
    print_table(["", ""], facts)
    for entry in findings["missing"]:
        packages = ", ".join(entry["packages"])
        click.echo(f"missing {packages}, for {entry['for']}: {entry['install']}")
    if not findings["missing"]:
        click.echo("nothing is missing")


def _check_tokenizer(source: str, as_json: bool) -> None:
    vocab = Vocabulary.load(source)
    result = check_invariants(source, vocab)
    report = {
        "kind": vocab.data.family,
        "ids": vocab.size,
        "ordinary": int(vocab.ordinary.sum()),
        "special": len(vocab.special),
        "added": len(vocab.data.added),
        "fingerprint": vocab.fingerprint,
        "fast_encoder": vocab.gigatoken.reason is None,
        "fast_encoder_reason": vocab.gigatoken.reason,
        "texts": result.texts,
        "refused": dict(result.refused),
        "invariants": [vars(c) for c in result.checks],
        "ok": result.hold,
    }
    if as_json:
        print_json(report)
    else:
        shown = ("kind", "ids", "ordinary", "special", "added", "fast_encoder", "texts")
        facts = [(name.replace("_", " "), report[name]) for name in shown]
        facts += [
            (c.name, f"{c.compared - c.failed:,} of {c.compared:,} right") for c in result.checks
        ]
        print_table(["", ""], facts)
        if vocab.gigatoken.reason:
            click.echo(f"no fast encoder: {vocab.gigatoken.reason}")
        for reason, count in result.refused.most_common(_REASONS):
            click.echo(f"refused, {count} texts: {reason}")
        for check in result.checks:
            if check.example:
                click.echo(f"wrong, {check.name}: {check.example}")
    if not result.hold:
        raise click.exceptions.Exit(1)


def _findings() -> JsonObject:
    from huggingface_hub.constants import HF_HUB_CACHE

    return {
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": available_cores(),
        "devices": devices() if find_spec("torch") else [],
        "kernels": "compiled at first use" if packaged_directory() is None else "in the wheel",
        "caches": {
            "kernel cache": str(cache_directory() or "none is writable: set NUMBA_CACHE_DIR"),
            "model cache": str(model_cache()),
            "hub cache": str(HF_HUB_CACHE),
        },
        "missing": _missing(),
    }


def _missing() -> list[JsonObject]:
    """What is not installed: an entry for each extra, and for each package without one."""
    packages: dict[str, list[str]] = {}
    for name, extra in EXTRAS.items():
        if find_spec(name) is None:
            packages.setdefault(extra.install(name), []).append(name)
    return [
        {
            "packages": names,
            "for": ", ".join(dict.fromkeys(EXTRAS[name].purpose for name in names)),
            "install": install,
        }
        for install, names in packages.items()
    ]
