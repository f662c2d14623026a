"""robustok perplexity: perplexity of a model on text under drawn tokenizations."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from robustok.cli.options import (
    Json,
    Limit,
    Model,
    OwnTokenizer,
    SampleBy,
    Schemes,
    Seed,
    StartToken,
    print_json,
    start_ids_of,
)
from robustok.cli.progress import bar

NAME = "perplexity"


def command(
    model: Model,
    texts: Annotated[list[Path], typer.Option("--texts", help=".txt or .jsonl, also .gz or .xz")],
    seed: Seed,
    tokenizer: OwnTokenizer = None,
    scheme: Schemes = None,
    draws: Annotated[
        int | None, typer.Option("--draws", "-n", min=1, help="[default: 1; 256 with --marginal]")
    ] = None,
    marginal: Annotated[
        bool,
        typer.Option("--marginal", help="sum over all tokenizations of a text, for short texts"),
    ] = False,
    limit: Limit = None,
    sample_by: SampleBy = "line",
    start_token: StartToken = None,
    as_json: Json = False,
) -> None:
    """Measure MODEL's perplexity on text, canonical and drawn.

    Each text is after the model's own start token, or else after --start-token.

    --marginal prints the probability of each text over all its tokenizations, estimated by
    importance sampling, and that of its canonical tokenization.
    """
    from robustok.models import load_model
    from robustok.tasks import read_texts
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer or model)
    documents = list(islice(read_texts(texts, sample_by=sample_by), limit))
    start = next(iter(start_ids_of(vocab, start_token)), None)
    loaded = load_model(model)
    if marginal:
        _marginal(loaded, vocab, documents, draws or 256, seed, start, as_json)
        return
    from robustok.evaluation import perplexity

    for spec in scheme or ["canonical", "uniform"]:
        with bar(spec) as progress:
            result = perplexity(
                loaded, vocab, documents, spec, draws=draws or 1, seed=seed, start=start,
                progress=progress,
            )  # fmt: skip
        if as_json:
            row = asdict(result)
            print_json({"model": model, "query": row.pop("eval_scheme")} | row)
        else:
            typer.echo(str(result))


def _marginal(model, vocab, documents, draws, seed, start, as_json) -> None:
    from robustok.evaluation import marginal

    with bar("marginal") as progress:
        marginals = marginal(
            model, vocab, documents, draws=draws, seed=seed, start=start, progress=progress
        )
    for text, one in zip(documents, marginals, strict=True):
        if as_json:
            # A count of any size does not fit a JSON number, and neither does infinity.
            error = one.error if math.isfinite(one.error) else None
            row = asdict(one) | {"tokenizations": str(one.tokenizations), "error": error}
            print_json({"text": text} | row)
        else:
            gain = one.log_marginal - one.log_canonical
            typer.echo(
                f"{one.log_marginal:.3f} ± {one.error:.3f} nats over {one.tokenizations:.3g} "
                f"tokenizations, {gain:.3f} above the canonical one; worth {one.effective:.1f} of "
                f"{one.draws} draws: {text[:50]!r}"
            )
