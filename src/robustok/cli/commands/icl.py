"""robustok icl: few-shot accuracy of a model, with solved examples before every question."""

from __future__ import annotations

from typing import Annotated

import typer

from robustok.cli.commands.attack import attack_row
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
    print_json,
    start_ids_of,
)
from robustok.cli.progress import bar
from robustok.cli.tasks import Per, Table, Tasks, read_tasks, run_tasks
from robustok.errors import RobustokError

NAME = "icl"


def command(
    model: Model,
    items: Tasks,
    seed: Seed,
    num_fewshot: Annotated[
        int, typer.Option("--num-fewshot", "-k", min=1, help="solved examples before each question")
    ] = 10,
    example_scheme: Annotated[
        str, typer.Option("--example-scheme", help="scheme of the examples' questions")
    ] = "canonical",
    attack: Annotated[
        bool, typer.Option("--attack/--no-attack", help="also the greedy attack on every question")
    ] = False,
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
    """Measure MODEL with few-shot examples before every question.

    The last items of a task are the examples, and are not evaluated. Their questions are drawn with
    --example-scheme; their answers stay canonical.
    """
    from robustok.evaluation import FewShot
    from robustok.evaluation.questions import check_questions
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer or model)
    tasks = read_tasks(items, limit + num_fewshot if limit else None)
    for name, questions in tasks.items():
        if len(questions) <= num_fewshot:
            raise RobustokError(
                f"'{name}' has {len(questions)} items: too few for {num_fewshot} examples"
            )
        if attack:
            check_questions(questions)
    few_shot = FewShot(num_fewshot, example_scheme)
    start = start_ids_of(vocab, start_token)
    run_tasks(
        model, vocab, tasks, scheme, draws=draws, seed=seed, few_shot=few_shot, start=start,
        overflow=overflow, out=out, table=table, as_json=as_json,
    )  # fmt: skip
    if attack:
        for name, questions in tasks.items():
            _attack(model, vocab, name, questions, few_shot, start, seed, overflow, as_json)


def _attack(model, vocab, name, questions, few_shot, start, seed, overflow, as_json) -> None:
    from robustok.evaluation import attack_items, solved_examples
    from robustok.models import load_model

    solved, rest = questions[-few_shot.count :], questions[: -few_shot.count]
    prefix = solved_examples(vocab, solved, few_shot.scheme, seed=seed, start=start)
    with bar(f"attack {name}") as progress:
        result = attack_items(
            load_model(model), vocab, rest, seed=seed, prefix=prefix, overflow=overflow,
            progress=progress,
        )  # fmt: skip
    if as_json:
        print_json({"model": model, "task": name} | attack_row(result))
    else:
        typer.echo(str(result))
