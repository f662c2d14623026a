"""robustok sample, count, inspect and play: the tokenizations of a text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Annotated

import click

from robustok.cli.options import (
    Argument,
    by_name,
    draws_option,
    option,
    scheme_option,
)
from robustok.cli.printing import as_str, print_heading, print_json, print_tokens, text_of, texts_of
from robustok.errors import RobustokError
from robustok.models import load_model
from robustok.runtime.display import counted, power_text
from robustok.runtime.files import JsonObject
from robustok.samplers import BUILT_IN, UniformK, measure, sampler
from robustok.samplers.strength import distance_shares
from robustok.samplers.uniform import ONLY_CANONICAL
from robustok.tokenizer.vocabulary import Vocabulary

OWN = "demo"  # the tokenizer that comes with the package
SAMPLES = 5_000  # uniform draws for a histogram
LONGEST = 400  # bytes; the exact distances of a longer text take too long
Text = Annotated[
    str,
    Argument("TEXT", "a text; - reads one text per line of standard input"),
]
_LONG = 10**30  # a count that is also printed by its power of ten


def _vocabulary(tokenizer: str, texts: Sequence[str | bytes]) -> Vocabulary:
    """The vocabulary; a line where the tokenizer of the package has no words of a text."""
    if tokenizer == OWN and not all(text.isascii() for text in texts):
        line = f"robustok: {OWN} knows English only; give another tokenizer with --tokenizer"
        click.echo(line, err=True)
    return Vocabulary.load(tokenizer)


def sample(
    text: Text,
    scheme: str,
    seed: int,
    tokenizer: str = OWN,
    draws: int = draws_option("draws of each text", 1),
    as_json: bool = False,
) -> None:
    """Draw tokenizations of TEXT.

    --json prints one object for each text, with its ids and tokens.
    """
    texts = texts_of(text)
    vocab = _vocabulary(tokenizer, texts)
    draw = sampler(scheme, vocab)
    rows = draw.sample_batch(texts, seed=seed, draws=draws)
    for number, source in enumerate(texts):
        ids = [rows[number * draws + i].tolist() for i in range(draws)]
        tokens = [[vocab.tokens[i] for i in row] for row in ids]
        if as_json:
            readable = [[t.decode(errors="backslashreplace") for t in row] for row in tokens]
            row = {"text": as_str(source), "scheme": draw.spec, "seed": seed}
            print_json({**row, "ids": ids, "tokens": readable})
        else:
            for row in tokens:
                print_tokens(row)
    if isinstance(draw, UniformK):
        canonical = vocab.encode_batch(texts)
        distances = measure(vocab, canonical, rows).distance[::draws]
        if only := int(((distances == 0) & (canonical.lengths > 0)).sum()):
            line = f"only canonical: {only} of {len(texts)} texts, with {ONLY_CANONICAL}"
            click.echo(line, err=True)


def count(
    text: Text,
    tokenizer: str = OWN,
    by: str | None = option(
        "also count by distance from the canonical tokenization, or by segments",
        default=None,
        choices=("distance", "segments"),
        noun="unit",
        metavar="distance|segments",
    ),
    most: int | None = option(
        "greatest distance or number of segments in the table of --by",
        "--max",
        default=None,
        min=0,
        max=1_000_000,
    ),
    as_json: bool = False,
) -> None:
    """Count the tokenizations of TEXT, exactly.

    JSON output has the counts as strings, since they exceed the range of JSON numbers.
    """
    if most is not None and by is None:
        raise RobustokError("--max limits a table: give --by too")
    texts = texts_of(text)
    vocab = _vocabulary(tokenizer, texts)
    for source in texts:
        lattice = vocab.lattice(source)
        total = lattice.count()
        counts = lattice.counts(by=by, most=most) if by else []
        counts += [0] * ((most or 0) + 1 - len(counts))  # up to --max, whatever the text
        # Python refuses to print an int of more than 4,300 digits, and a Decimal has no limit.
        total, counts = Decimal(total), [Decimal(count) for count in counts]
        if as_json:
            record: JsonObject = {"text": as_str(source)} if text == "-" else {}
            record["total"] = str(total)
            print_json(record | ({f"by_{by}": [str(count) for count in counts]} if by else {}))
            continue
        click.echo(f"{total:,}" if total < _LONG else f"{total:,}  {power_text(total)}")
        for value, number in enumerate(counts):
            if number:
                click.echo(f"{by} {value:>4}  {number:,}")


def inspect(
    text: Annotated[str, Argument("TEXT", "a text")],
    tokenizer: str = OWN,
    scheme: tuple[str, ...] = scheme_option(
        "a scheme to draw  [default: every random one that fits]"
    ),
    seed: int = option("the same seed, the same draws", default=0),
    draws: int = draws_option("draws shown for each scheme", 3),
) -> None:
    """Show the tokenizations of TEXT.

    Prints its canonical tokens, draws of each scheme, and a histogram of the distance from the
    canonical tokenization: the exact share of tokenizations beside the share of uniform draws.
    """
    source = text_of(text)
    vocab = _vocabulary(tokenizer, [source])
    lattice = vocab.lattice(source)
    if len(lattice.text) > LONGEST:
        raise RobustokError(f"only a text of at most {LONGEST} bytes is shown; give a shorter one")
    # By default the random schemes with a color of their own that every tokenizer fits.
    default = [
        scheme.example
        for scheme in BUILT_IN
        if scheme.color and not scheme.needs and not scheme.deterministic
    ]
    samplers = [sampler(spec, vocab) for spec in ("canonical", *(scheme or default))]
    # Everything is drawn before anything is printed: a first draw compiles kernels, and says so.
    drawn_rows = [
        draw.sample_batch([source], seed=seed, draws=draws if number else 1)
        for number, draw in enumerate(samplers)
    ]
    uniform = sampler("uniform", vocab).sample_batch([source], seed=seed, draws=SAMPLES)
    bars = distance_shares(lattice, uniform, least=0.001)
    click.echo(counted(lattice.count(), "tokenization"))
    for draw, rows in zip(samplers, drawn_rows, strict=True):
        print_heading(draw.spec)
        for row in rows:
            tokens = [vocab.tokens[i] for i in row]
            print_tokens(tokens, f"{len(tokens):>4}  ")
    print_heading("distance from canonical", f"   exact █  {SAMPLES:,} uniform draws ░")
    tallest = max((max(exact, drawn) for _, exact, drawn in bars), default=1.0)
    for at, exact, drawn in bars:
        click.echo(f"{at:>4}  {'█' * round(40 * exact / tallest):<41}{100 * exact:6.2f}%")
        click.echo(f"      {'░' * round(40 * drawn / tallest):<41}{100 * drawn:6.2f}%")


def play(
    tokenizer: tuple[str, ...] = option(
        "tokenizer to offer  [default: those of the models, or else demo]",
        "--tokenizer",
        "-t",
        default=(),
        metavar="PATH",
    ),
    model: tuple[str, ...] = option(
        "folder or hub name of a model to question and to attack", default=(), metavar="MODEL"
    ),
    port: int = option("port to serve at", default=8765, min=1, max=65535),
    host: str = option(
        "address or name of this machine to serve at; 0.0.0.0: all of them, as in a container",
        default="127.0.0.1",
    ),
) -> None:
    """Serve an interactive page about the tokenizations of a text.

    Type a text and see its tokens, draws of any scheme, and how far they lie; with --model, how an
    answer's probability moves, and the attack step by step. Two schemes, tokenizers or models are
    shown beside each other.
    """
    from robustok.play import application, serve

    named = by_name(dict.fromkeys([*model, *tokenizer] or [OWN]), "tokenizer")
    vocabularies = {name: Vocabulary.load(source) for name, source in named.items()}
    models = {name: load_model(path) for name, path in by_name(dict.fromkeys(model)).items()}
    app = application(vocabularies, models, host=host)
    click.echo(f"http://{host}:{port} (stop with Ctrl-C)", err=True)
    # Without KeyboardInterrupt where SIGINT was ignored at the start, as in the background.
    with suppress(KeyboardInterrupt):
        serve(app, port=port, host=host)
    click.echo("robustok: stopped", err=True)
    os._exit(130)  # a draw or a forward pass cannot be interrupted, and an exit would wait
