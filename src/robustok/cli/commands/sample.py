"""robustok sample: draw tokenizations of a text."""

from __future__ import annotations

from typing import Annotated

import typer

from robustok.cli.options import (
    Json,
    Scheme,
    Seed,
    Tokenizer,
    lines_of_stdin,
    print_json,
    text_of,
)
from robustok.cli.paint import print_tokens
from robustok.cli.progress import compiling

NAME = "sample"


def command(
    text: Annotated[
        str, typer.Argument(help="a text; - reads one text per line of standard input")
    ],
    tokenizer: Tokenizer,
    scheme: Scheme,
    seed: Seed,
    draws: Annotated[int, typer.Option("--draws", "-n", min=1, help="draws for each text")] = 1,
    as_json: Json = False,
) -> None:
    """Draw tokenizations of TEXT.

    --json prints one object for each text, with its ids and tokens.
    """
    from robustok.samplers import sampler
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    draw = sampler(scheme, vocab)
    texts = lines_of_stdin() if text == "-" else [text_of(text)]
    with compiling():
        rows = draw.sample_batch(texts, seed=seed, draws=draws)
    for number, source in enumerate(texts):
        ids = [rows[number * draws + i].tolist() for i in range(draws)]
        if as_json:
            shown = source if isinstance(source, str) else source.decode(errors="replace")
            print_json({
                "text": shown,
                "scheme": draw.spec,
                "seed": seed,
                "ids": ids,
                "tokens": [
                    [vocab.tokens[i].decode(errors="backslashreplace") for i in row] for row in ids
                ],
            })  # fmt: skip
        else:
            for row in ids:
                print_tokens([vocab.tokens[i] for i in row])
