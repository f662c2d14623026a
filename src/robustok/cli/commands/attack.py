"""robustok attack: the worst tokenization that a search finds, for questions or any prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok import attack as attacks
from robustok.attack.settings import (
    SCALES,
    SUITE_LIMIT,
    AttackSettings,
    ObjectiveSettings,
    objectives_reading,
)
from robustok.cli.options import QuestionOptions, file_option, option, refuse
from robustok.cli.printing import bar, print_json, print_result, print_tokens, row_of
from robustok.errors import RobustokError
from robustok.models import load_tokenizer
from robustok.report.analyses import draw_curve
from robustok.runtime.files import write_rows
from robustok.runtime.registry import function_named
from robustok.tasks import read_items

CONTROL = "random, same number scored"
_FILES = {"default": None, "metavar": "FILE"}
_MORE: dict[str, Any] = {"panel": "Suites, other models and answers"}


@dataclass(frozen=True)
class AttackOptions(QuestionOptions):
    """What else is attacked or done with the attacks, and the files that are written."""

    seed: int | None = option("the same seed, the same draws; required", default=None)
    label: int | None = option("which option is right, from 0  [default: 0]", default=None)
    prompts: str | None = option(
        "JSON Lines with prompt, and target or choices and label", **_FILES
    )
    control: bool = option("also a random search with as many tokenizations scored", default=False)
    out: Path | None = file_option(
        "a row an item, as JSON Lines; also resumes a killed attack", "--out", "-o"
    )
    curve: Path | None = file_option(
        "accuracy against tokenizations scored, .png or .svg", suffixes=(".png", ".svg")
    )
    suite: bool = option("every search, and the worst of all", default=False, **_MORE)
    transfer: tuple[str, ...] = option(
        "a model to score the attacks on too", default=(), metavar="MODEL", **_MORE
    )
    generate: Path | None = file_option(
        "answers to the canonical and the attacked prompt, as JSON Lines", **_MORE
    )
    judge: str | None = option(
        "MODULE:FUNCTION of (prompt, answer)", default=None, metavar="NAME", **_MORE
    )
    max_new_tokens: int = option("length of an answer", default=64, min=1, **_MORE)
    replay: str | None = option("attacks of an earlier --out, on this MODEL", **_FILES, **_MORE)


def attack(
    model: str,
    objective: str = option(
        "probability or log-probability of the options; or target, refusal, guard, classifier, "
        "margin or MODULE:FUNCTION",
        default="probability", metavar="NAME", panel="Objective",
    ),
    *,
    others: Annotated[dict, ObjectiveSettings],
    search: AttackSettings,
    options: AttackOptions,
) -> None:  # fmt: skip
    """Attack MODEL through the tokenization of its questions.

    One question (--text, with its options) or many (--items). A chat template and a system
    prompt stay as they are; any set of labels can be the options, a guard model's too.

    Other objectives than the options' (--objective) attack one prompt (--text) or many (--prompts).
    """
    if options.seed is None and options.replay is None:
        raise RobustokError("an attack draws at random: give --seed")
    if options.text is None and (options.choices or options.label is not None):
        raise RobustokError("--option and --label are about one --text: files have their own")
    of_options = objective in SCALES
    more = options.suite or options.prompts or options.replay
    if of_options and search.search != "annealing" and not more:
        if others:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in others)
            raise RobustokError(
                f"{names}: not read by objective {objective}: {objectives_reading(others)}"
            )
        _attack_questions(model, options, replace(search, objective=objective))
        return
    if objective == "log-probability":
        raise RobustokError("--objective log-probability is for questions by a greedy or random "
                            "search: give margin")  # fmt: skip
    named = ObjectiveSettings("margin" if of_options else objective, **others)
    _check(options, search, named)
    if options.replay is not None:
        _replay_records(model, options, named)
    else:
        _attack_prompts(model, options, search, named)


# --- questions: the margin of their options -----------------------------------------------------


def _attack_questions(model: str, options: AttackOptions, settings: AttackSettings) -> None:
    text, items = options.text, options.items
    refuse({
        "--transfer, --generate and --judge need another --objective":
            options.transfer or options.generate or options.judge,
        "give either --text with its --option's, or --items": (text is None) == (items is None),
        "--control, --out and --curve are for many questions: give --items":
            text is not None and (options.control or options.out or options.curve),
    })  # fmt: skip
    vocab = options.vocabulary(model)
    arguments: dict[str, Any] = {
        "settings": settings, "seed": options.seed, "overflow": options.overflow,
        **options.frame(model, vocab),
    }  # fmt: skip
    loaded = options.load(model)
    if items is not None:
        _attack_items(loaded, vocab, options, arguments)
        return
    result = attacks.attack(
        loaded, vocab, str(text), options.choices, options.label or 0, **arguments
    )
    if options.as_json:
        print_json({"ids": result.ids.tolist(), "margins": result.margins,
                    **row_of(result, "success", "n_scored")})  # fmt: skip
        return
    print_tokens([vocab.tokens[i] for i in result.ids])
    typer.echo("margins  " + " → ".join(f"{m:+.3f}" for m in result.margins))
    typer.echo(
        f"{'broken' if result.success else 'held'} after {result.n_scored} tokenizations scored"
    )


def _attack_items(
    model: Any, vocab: Any, options: AttackOptions, arguments: dict[str, Any]
) -> None:  # fmt: skip
    """Attack every question, with the accuracy so far beside the progress bar."""

    def attack(name: str, questions: Any, out: Path | None, **more: Any) -> Any:
        held: list[bool] = []
        with bar(name) as progress:

            def show(done: int, total: int) -> None:
                share = f" {sum(held) / len(held):.0%} held" if held else ""
                progress(done, total, f"{name}{share}")

            return attacks.attack_items(
                model, vocab, questions, resume_file=out, progress=show,
                each=lambda attack: held.append(not attack.success), **arguments, **more,
            )  # fmt: skip

    questions = read_items(str(options.items), limit=options.limit)
    search, out = arguments["settings"].search, options.out
    results = {search: attack(search, questions, out)}
    if options.control:
        scored = {a.key: a.n_scored for a in results[search].attacks}
        results[CONTROL] = attack(
            "random", [item for item in questions if item.key in scored],
            out and out.with_name(f"{out.stem}-control{out.suffix}"),
            search="random", max_scored_by_key=scored,
        )  # fmt: skip
    for name, result in results.items():
        row = {"search": name, **attack_row(result), "curve": result.curve()}
        print_result(result, row, options.as_json)
    if options.curve is not None:
        draw_curve({name: result.curve() for name, result in results.items()}, options.curve)


def attack_row(result: Any) -> dict[str, Any]:
    """The numbers of an attack on many items, as one row of JSON."""
    return row_of(
        result, "eval_scheme", "accuracy", "low", "high", "n", "start_accuracy", "start_low",
        "start_high", "n_scored", "seed", "seconds",
    )  # fmt: skip


# --- prompts: any objective, suites, replays ------------------------------------------------------


def _check(options: AttackOptions, search: AttackSettings, objective: ObjectiveSettings) -> None:
    sources = [options.text, options.items, options.prompts, options.replay]
    is_classifier = objective.name == "classifier"
    refuse({
        "give one of --text, --items, --prompts and --replay":
            sum(source is not None for source in sources) != 1,
        "--replay scores recorded attacks: leave out --out, --transfer, --suite and the settings "
        "of the search":
            options.replay is not None
            and bool(options.out or options.transfer or options.suite
                     or search != AttackSettings()),
        "--suite has its own searches: give it no setting but --max-scored":
            options.suite and search != AttackSettings(max_scored=search.max_scored),
        "--control and --overflow are for the options of questions: leave them out":
            options.control or options.overflow != "error",
        "--curve of this objective is for --suite": options.curve is not None and not options.suite,
        "--judge judges answers: give --generate FILE":
            options.judge is not None and options.generate is None,
        "a classifier has its own start token: leave --start-token out":
            is_classifier and options.start_token is not None,
        "a classifier writes no answers: leave --generate out":
            is_classifier and options.generate is not None,
    })  # fmt: skip


def _objective(
    name: str, options: AttackOptions, objective: ObjectiveSettings, records: Sequence[Any] = ()
) -> Any:  # fmt: skip
    """The objective on a loaded model, which has the vocabulary and the ids around a prompt."""
    vocab = options.vocabulary(name)
    around: dict[str, Any] = {"prefix": None, "suffix": None} | options.frame(name, vocab)
    framed = options.is_chat or options.start_token is not None
    if records and not framed and records[0].vocabulary == vocab.fingerprint:
        around = {"prefix": records[0].prefix, "suffix": records[0].suffix}
    elif objective.name == "classifier" and not framed:
        tokenizer = load_tokenizer(options.tokenizer or name)
        around = dict(zip(("prefix", "suffix"), attacks.special_frame(tokenizer), strict=True))
    load = attacks.load_classifier if objective.name == "classifier" else options.load
    return attacks.objective_by_name(load(name), vocab, objective, **around)


def _prompts(options: AttackOptions) -> list[Any]:
    if options.prompts is not None:
        return attacks.read_prompts(options.prompts, options.limit)
    if options.items is not None:
        return [*map(attacks.Prompt.of_item, read_items(options.items, limit=options.limit))]
    choices = list(options.choices)
    fields = {"choices": choices, "label": options.label or 0} if choices else {}
    return [attacks.Prompt("0", str(options.text), fields)]


def _attack_prompts(
    model: str, options: AttackOptions, search: AttackSettings, settings: ObjectiveSettings
) -> None:
    objective = _objective(model, options, settings)
    vocab = objective.vocab
    constraints = [function_named(name) for name in settings.constraints]
    given: dict[str, Any] = {"vocab": vocab, "prompts": _prompts(options), "objective": objective,
                             "seed": options.seed or 0}  # fmt: skip
    given |= {"constraints": lambda _: constraints, "resume_file": options.out}
    with bar("suite" if options.suite else "attack") as progress:
        if options.suite:
            result = attacks.run_suite(
                **given, max_scored=search.max_scored or SUITE_LIMIT,
                progress=progress,
            )  # fmt: skip
            found = result.worst
        else:
            found = attacks.attack_prompts(**given, settings=search, progress=progress)
    if options.suite:
        _show_suite(options, result)
        if options.out is not None:
            attacks.write_attacks(options.out, found)
    else:
        for one in found:
            if not options.as_json:
                print_tokens([vocab.tokens[i] for i in one.ids])
            print_result(one, one.as_row(), options.as_json)
    # Other models have a tokenizer and a start token of their own.
    own = replace(options, tokenizer=None, start_token=None)
    for name in options.transfer:
        other = _objective(name, options if name == model else own, settings)
        _replay(name, other, found, options.as_json)
    if options.generate is not None:
        _generate(options, objective, found)


def _show_suite(options: AttackOptions, result: Any) -> None:
    most = max(a.n_scored for part in result.parts.values() for a in part)
    limits = sorted({n for n in (1, 3, 10, 30, 100, 300, 1000, 3000) if n < most} | {most})
    measured = "success" in result.table()[-1]
    curves = result.curves(limits) if measured else {}
    if options.as_json:
        print_json({"eval_scheme": result.label, "seed": result.seed, "parts": result.table(),
                    "curves": curves})  # fmt: skip
    else:
        for row in result.table():
            share = ""
            if measured:
                share = f"broken {row['success']:.1%} [{row['low']:.1%}, {row['high']:.1%}], "
            typer.echo(
                f"{row['search']:>12}: {share}score {row['canonical_score']:+.3f} → "
                f"{row['score']:+.3f}, {row['n']} prompts, {row['n_scored']} tokenizations scored"
            )
    if options.curve is not None:
        if not measured:
            raise RobustokError("the objective has no threshold: --curve needs --threshold")
        held = {
            name: [
                {"n_scored": row["n_scored"], "accuracy": 1 - row["success"],
                 "low": 1 - row["high"], "high": 1 - row["low"]}
                for row in rows
            ]
            for name, rows in curves.items()
        }  # fmt: skip
        draw_curve(held, options.curve)


def _replay_records(model: str, options: AttackOptions, settings: ObjectiveSettings) -> None:
    """Score recorded attacks on the model, by default with their own objective."""
    records = attacks.read_attacks(str(options.replay))[: options.limit]
    name = records[0].objective.split(" ")[0].partition("(")[0]
    if settings.name == "margin" and name in ("target", "refusal", "guard", "classifier"):
        settings = replace(settings, name=name)
    objective = _objective(model, options, settings, records)
    results = _replay(model, objective, records, options.as_json)
    if options.generate is not None:
        _generate(options, objective, results)


def _replay(name: str, objective: Any, records: Sequence[Any], as_json: bool) -> Any:
    results = attacks.replay(records, objective.vocab, objective)
    for result in results:
        row = result.as_row()
        outcome = {True: ", broken", False: ", held", None: ""}[result.success]
        scores = f"{result.canonical_score:+.3f} → {result.score:+.3f}"
        names = ("key", "ids", "canonical_score", "score", "success")
        row = {"model": name, **{field: row[field] for field in names}}
        print_result(f"{name}, {result.key}: {scores}{outcome}", row, as_json)
    return results


def _generate(options: AttackOptions, objective: Any, records: Sequence[Any]) -> None:
    judge = None if options.judge is None else function_named(options.judge)
    with bar("generate") as progress:
        rows = attacks.generate_answers(
            objective.model, objective.vocab, records, **objective.frame, judge=judge,
            max_new_tokens=options.max_new_tokens, progress=progress,
        )  # fmt: skip
    assert options.generate is not None
    write_rows(options.generate, [row.as_row() for row in rows])
    for row in rows:
        text = (f"{row.key} canonical: {row.canonical.strip()}\n"
                f"{row.key} attacked:  {row.attacked.strip()}")  # fmt: skip
        print_result(text, row.as_row(), options.as_json)
    if judge is not None and not options.as_json:
        before, after = (sum(getattr(row, name) for row in rows) / len(rows)
                         for name in ("canonical_verdict", "attacked_verdict"))  # fmt: skip
        typer.echo(f"judge: mean {before:.3f} canonical, {after:.3f} attacked")
