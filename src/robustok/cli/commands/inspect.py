"""robustok inspect: show the tokenizations of a text, on the terminal and as HTML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from robustok.cli.commands.count import counts_by
from robustok.cli.options import Schemes, Tokenizer, text_of
from robustok.cli.paint import print_tokens

NAME = "inspect"
LONGEST = 400  # bytes; the exact distances of a longer text take too long


def command(
    text: Annotated[str, typer.Argument(help="a text")],
    tokenizer: Tokenizer,
    scheme: Schemes = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    draws: Annotated[
        int, typer.Option("--draws", "-n", min=1, help="draws shown for each scheme")
    ] = 3,
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="uniform draws for the histogram")
    ] = 5000,
    html: Annotated[
        Path | None, typer.Option("--html", help="also write an HTML page to this file")
    ] = None,
) -> None:
    """Show the tokenizations of TEXT.

    Prints its canonical tokens, draws of each scheme, and a histogram of the distance from the
    canonical tokenization: the exact share of tokenizations beside the share of uniform draws.
    """
    from robustok.errors import RobustokError
    from robustok.samplers import sampler
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    given = text_of(text)
    canonical = vocab.encode(given)
    lattice = vocab.lattice(given)
    if len(vocab.decode_bytes(canonical)) > LONGEST:
        raise RobustokError(f"only a text of at most {LONGEST} bytes is shown; give a shorter one")
    total = lattice.count()
    shown: list[dict[str, Any]] = [{"scheme": "canonical", "draws": [_tokens_of(vocab, canonical)]}]
    for spec in scheme or _default_schemes():
        draw = sampler(spec, vocab)
        rows = draw.sample_batch([given], seed=seed, draws=draws)
        shown.append({"scheme": draw.spec, "draws": [_tokens_of(vocab, row) for row in rows]})
    bars = _histogram(vocab, given, canonical, lattice, total, samples, seed)
    _print(total, shown, bars, samples, _encoder(vocab))
    if html:
        from robustok.report.page import write_inspection

        write_inspection(html, text, total, shown, bars, samples)
        typer.echo(f"The page is at {html.resolve()}")


def _default_schemes() -> list[str]:
    """The random schemes with a color of their own that every tokenizer fits, as their examples."""
    from robustok.samplers.registry import BUILT_IN

    return [
        scheme.example
        for scheme in BUILT_IN
        if scheme.color and not scheme.needs and not scheme.deterministic
    ]


def _tokens_of(vocab: Any, ids: Any) -> list[bytes]:
    return [vocab.tokens[i] for i in ids]


def _histogram(
    vocab: Any, text: Any, canonical: Any, lattice: Any, total: int, samples: int, seed: int
) -> list[tuple[int, float, float]]:
    """(distance, exact share, share of the draws), where either share is at least 0.001."""
    from robustok import distance
    from robustok.samplers import sampler

    exact = counts_by(lattice, "distance", total, None)
    rows = sampler("uniform", vocab).sample_batch([text], seed=seed, draws=samples)
    seen = Counter(distance(vocab, canonical, row) for row in rows)
    shares = [(at, count / total, seen[at] / samples) for at, count in enumerate(exact)]
    return [bar for bar in shares if max(bar[1:]) >= 0.001]


def _encoder(vocab: Any) -> str:
    """Which library computes canonical ids, and why not the faster one."""
    vocab.gigatoken.load()
    reason = vocab.gigatoken.reason
    return "gigatoken" if reason is None else f"the tokenizer itself ({reason})"


def _print(
    total: int, shown: list[dict[str, Any]], bars: list[tuple[int, float, float]], samples: int,
    encoder: str,
) -> None:  # fmt: skip
    console = Console(highlight=False, soft_wrap=True)
    noun = "tokenization" if total == 1 else "tokenizations"
    console.print(f"{total:,} {noun}")
    for entry in shown:
        console.print(f"\n[bold]{entry['scheme']}[/bold]")
        for tokens in entry["draws"]:
            print_tokens(tokens, console, f"{len(tokens):>4}  ")
    console.print(f"\n[bold]distance from canonical[/bold]   exact █  {samples:,} uniform draws ░")
    tallest = max((max(exact, drawn) for _, exact, drawn in bars), default=1.0)
    for at, exact, drawn in bars:
        console.print(f"{at:>4}  {'█' * round(40 * exact / tallest):<41}{100 * exact:6.2f}%")
        console.print(f"      {'░' * round(40 * drawn / tallest):<41}{100 * drawn:6.2f}%")
    console.print(f"\ncanonical ids are computed by {encoder}", markup=False)
