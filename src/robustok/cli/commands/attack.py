"""robustok attack: the worst tokenization that a search finds, for one question or many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.attack_settings import OBJECTIVES, AttackSettings
from robustok.cli.options import (
    Json,
    Limit,
    Model,
    Overflow,
    OwnTokenizer,
    StartToken,
    print_json,
    start_ids_of,
)
from robustok.cli.outputs import output_file
from robustok.cli.paint import print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError

NAME = "attack"
PAPER = AttackSettings()  # the defaults
CONTROL = "random, same number scored"


def command(
    model: Model,
    seed: Annotated[
        int | None, typer.Option("--seed", help="the same seed gives the same draws; required")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="one question to attack")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="an answer, its leading space included; give two or more"),
    ] = None,
    label: Annotated[
        int | None, typer.Option("--label", help="which option is right, from 0 [0]")
    ] = None,
    items: Annotated[
        str | None, typer.Option("--items", help="or JSON Lines with query, choices and label")
    ] = None,
    tokenizer: OwnTokenizer = None,
    distance: Annotated[
        list[int] | None,
        typer.Option("--distance", help="of the neighbors of a step; may be given twice [2]"),
    ] = None,
    start: Annotated[str, typer.Option("--start", help="canonical, or a scheme")] = PAPER.start,
    steps: Annotated[int, typer.Option("--steps", min=1)] = PAPER.steps,
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="probability or log-probability of the options; or target, refusal, guard, "
            "classifier, margin or MODULE:FUNCTION",
        ),
    ] = PAPER.objective,
    search: Annotated[
        str, typer.Option("--search", help="greedy or random; annealing for other objectives")
    ] = PAPER.search,
    max_neighbors: Annotated[
        int | None, typer.Option("--max-neighbors", min=1, help="scored a step, at random")
    ] = None,
    beam: Annotated[int, typer.Option("--beam", min=1)] = PAPER.beam,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, help="from uniform draws")
    ] = PAPER.restarts,
    max_scored: Annotated[
        int | None, typer.Option("--max-scored", min=1, help="tokenizations scored an item")
    ] = None,
    stop_when_wrong: Annotated[
        bool,
        typer.Option("--stop-when-wrong", help="end at the first wrong answer: same accuracy"),
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="the question is the user's turn of the chat template")
    ] = False,
    system: Annotated[str | None, typer.Option("--system", help="with --chat")] = None,
    start_token: StartToken = None,
    overflow: Overflow = "error",
    control: Annotated[
        bool,
        typer.Option("--control", help="also a random search with as many tokenizations scored"),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            callback=output_file(),
            help="a row an item, as JSON Lines; also resumes a killed attack",
        ),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(
            "--curve",
            metavar="FILE",
            callback=output_file(".png", ".svg"),
            help="accuracy against tokenizations scored, .png or .svg",
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option("--prompts", help="JSON Lines with prompt, and target or choices and label"),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="response that objective target makes likely")
    ] = None,
    wanted: Annotated[
        list[str] | None, typer.Option("--wanted", help="opening of an answer, or safe verdict")
    ] = None,
    unwanted: Annotated[
        list[str] | None, typer.Option("--unwanted", help="opening of a refusal, or unsafe verdict")
    ] = None,
    flagged: Annotated[
        list[str] | None, typer.Option("--flagged", help="label that the classifier must not give")
    ] = None,
    flag_probability: Annotated[
        float, typer.Option("--flag-probability", help="at which a guard or classifier flags")
    ] = 0.5,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="score above which the attack succeeds")
    ] = None,
    perplexity_quantile: Annotated[
        float | None,
        typer.Option("--perplexity-quantile", help="stay within this quantile of uniform draws"),
    ] = None,
    suite: Annotated[
        str | None, typer.Option("--suite", help="standard: every search, and the worst of all")
    ] = None,
    jointly: Annotated[
        bool, typer.Option("--jointly", help="one table of splits for all prompts")
    ] = False,
    transfer: Annotated[
        list[str] | None, typer.Option("--transfer", help="a model to score the attacks on too")
    ] = None,
    generate: Annotated[
        Path | None,
        typer.Option(
            "--generate",
            metavar="FILE",
            callback=output_file(),
            help="answers to the canonical and the attacked prompt, as JSON Lines",
        ),
    ] = None,
    judge: Annotated[
        str | None, typer.Option("--judge", help="MODULE:FUNCTION of (prompt, answer)")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1)] = 64,
    replay: Annotated[
        str | None, typer.Option("--replay", help="attacks of an earlier --out, on this MODEL")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", help="with --replay: URL of an OpenAI-compatible API of MODEL"),
    ] = None,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Attack MODEL through the tokenization of its questions.

    One question (--text, with its options) or many (--items). A chat template and a system
    prompt stay as they are; any set of labels can be the options, a guard model's too.

    Other objectives than the options' (--objective) attack one prompt (--text) or many (--prompts).
    """
    from robustok.models import load_model
    from robustok.vocabulary import Vocabulary

    if seed is None and replay is None:
        raise RobustokError("an attack draws at random: give --seed")
    if start_token is not None and (chat or system is not None):
        raise RobustokError("a chat template has its own start token: leave --start-token out")
    chosen: dict[str, Any] = {
        "distances": tuple(distance or PAPER.distances),
        "start": start,
        "steps": steps,
        "max_neighbors": max_neighbors,
        "beam": beam,
        "restarts": restarts,
        "search": search,
        "max_scored": max_scored,
        "stop_when_wrong": stop_when_wrong,
    }
    other = objective not in OBJECTIVES or search == "annealing"
    if other or suite or prompts or replay or jointly:
        from robustok.cli import redteam

        named = "margin" if objective in OBJECTIVES else objective
        redteam.command(
            redteam.Arguments(
                model=model,
                seed=seed or 0,
                tokenizer=tokenizer,
                text=text,
                items=items,
                prompts=prompts,
                option=option or [],
                label=label,
                objective=named,
                target=target,
                wanted=wanted or [],
                unwanted=unwanted or [],
                flagged=flagged or [],
                flag_probability=flag_probability,
                threshold=threshold,
                perplexity_quantile=perplexity_quantile,
                suite=suite,
                jointly=jointly,
                transfer=transfer or [],
                generate=generate,
                judge=judge,
                max_new_tokens=max_new_tokens,
                replay=replay,
                server=server,
                chat=chat or system is not None,
                system=system,
                out=out,
                curve=curve,
                limit=limit,
                as_json=as_json,
                start_token=start_token,
            ),
            AttackSettings(**chosen),
        )
        return
    if transfer or generate or judge or server:
        raise RobustokError("--transfer, --generate, --judge and --server need another --objective")
    if (text is None) == (items is None):
        raise RobustokError("give either --text with its --option's, or --items")
    if text is not None and (control or out or curve):
        raise RobustokError("--control, --out and --curve are for many questions: give --items")
    if items is not None and (option or label is not None):
        raise RobustokError("--option and --label are about one --text: the items have their own")
    vocab = Vocabulary.load(tokenizer or model)
    settings = AttackSettings(**chosen, objective=objective)
    arguments: dict[str, Any] = {"settings": settings, "seed": seed, "overflow": overflow}
    if chat or system:
        arguments |= _chat(tokenizer or model, system)
    elif start_token is not None:
        arguments["prefix"] = start_ids_of(vocab, start_token)
    loaded = load_model(model)
    if text is not None:
        _attack_one(loaded, vocab, text, option or [], label or 0, arguments, as_json)
    elif items is not None:
        _attack_many(loaded, vocab, items, limit, arguments, control, out, curve, as_json)


def _chat(tokenizer: str, system: str | None) -> dict[str, Any]:
    """The kept ids around the user's turn."""
    from robustok.evaluation import chat_frame
    from robustok.models import load_tokenizer

    return chat_frame(load_tokenizer(tokenizer), system=system)._asdict()


def _attack_one(
    model: Any,
    vocab: Any,
    text: str,
    options: list[str],
    label: int,
    arguments: dict[str, Any],
    as_json: bool,
) -> None:
    from robustok.evaluation import attack

    result = attack(model, vocab, text, options, label, **arguments)
    ids = [int(i) for i in result.ids]
    if as_json:
        print_json({
            "ids": ids, "margins": list(result.margins), "success": bool(result.success),
            "n_scored": result.n_scored,
            **({"overflowed": result.overflowed} if result.overflowed else {}),
        })  # fmt: skip
        return
    print_tokens([vocab.tokens[i] for i in ids])
    typer.echo("margins  " + " → ".join(f"{m:+.3f}" for m in result.margins))
    typer.echo(
        f"{'broken' if result.success else 'held'} after {result.n_scored} tokenizations scored"
    )


def _attack_many(
    model: Any,
    vocab: Any,
    items: str,
    limit: int | None,
    arguments: dict[str, Any],
    control: bool,
    out: Path | None,
    curve: Path | None,
    as_json: bool,
) -> None:
    from robustok.tasks import read_items

    questions = read_items(items, limit=limit)
    search = arguments["settings"].search
    results = {search: _search(model, vocab, questions, search, arguments, out)}
    if control:
        scored = {a.key: a.n_scored for a in results[search].attacks}
        random = arguments | {"search": "random", "max_scored_by_key": scored}
        beside = out.with_name(f"{out.stem}-control{out.suffix}") if out else None
        kept = [item for item in questions if item.key in scored]
        results[CONTROL] = _search(model, vocab, kept, "random", random, beside)
    for name, result in results.items():
        if as_json:
            print_json({"search": name, **attack_row(result), "curve": result.curve()})
        else:
            typer.echo(str(result))
    if curve is not None:
        from robustok.report.curve import draw_curve

        draw_curve({name: result.curve() for name, result in results.items()}, curve)


def attack_row(result: Any) -> dict[str, Any]:
    """The numbers of an attack on many items, as one row of JSON."""
    fields = ("accuracy", "low", "high", "n", "start_accuracy", "n_scored", "seed", "seconds")
    row = {"query": result.eval_scheme} | {field: getattr(result, field) for field in fields}
    return row | ({"overflowed": result.overflowed} if result.overflowed else {})


def _search(
    model: Any,
    vocab: Any,
    questions: Any,
    search: str,
    arguments: dict[str, Any],
    out: Path | None,
) -> Any:
    """Attack every question, with the accuracy so far beside the progress bar."""
    from robustok.evaluation import attack_items

    held: list[bool] = []
    with bar(search) as progress:

        def show(done: int, total: int) -> None:
            share = f" {sum(held) / len(held):.0%} held" if held else ""
            progress(done, total, f"{search}{share}")

        return attack_items(
            model,
            vocab,
            questions,
            resume_file=out,
            progress=show,
            each=lambda attack: held.append(not attack.success),
            **arguments,
        )
