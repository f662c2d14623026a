"""robustok evaluate: accuracy of a model under drawn tokenizations of the questions."""

from __future__ import annotations

from robustok.cli.options import (
    Draws,
    Json,
    Limit,
    Model,
    Overflow,
    OwnTokenizer,
    Schemes,
    Seed,
    StartToken,
    start_ids_of,
)
from robustok.cli.tasks import Per, Table, Tasks, read_tasks, run_tasks

NAME = "evaluate"


def command(
    model: Model,
    items: Tasks,
    seed: Seed,
    tokenizer: OwnTokenizer = None,
    scheme: Schemes = None,
    draws: Draws = 10,
    limit: Limit = None,
    start_token: StartToken = None,
    overflow: Overflow = "error",
    out: Per = None,
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Measure MODEL under drawn tokenizations.

    Prints its accuracy on multiple-choice questions with a 95% interval, and a paired test of each
    scheme against the first one. Items without a question, such as BLiMP's, are scored as whole
    sentences.
    """
    from robustok.vocabulary import Vocabulary

    tasks = read_tasks(items, limit)
    vocab = Vocabulary.load(tokenizer or model)
    run_tasks(
        model,
        vocab,
        tasks,
        scheme,
        draws=draws,
        seed=seed,
        start=start_ids_of(vocab, start_token),
        overflow=overflow,
        out=out,
        table=table,
        as_json=as_json,
    )
