"""robustok attack and red-team: the worst tokenization that a search finds.

`attack` is on questions, which have a right option; `red-team` on any prompts, with an objective.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok import attack as attacks
from robustok.attack.settings import AttackSettings, ObjectiveSettings, search_named
from robustok.cli.measuring import ChatRunOptions, measure
from robustok.cli.options import FrameOptions, file_option, limit_option, option
from robustok.cli.printing import bar, print_json, print_result, print_tokens
from robustok.errors import RobustokError
from robustok.models import load_tokenizer
from robustok.models.load import model_fingerprint
from robustok.runtime.display import part_of_progress
from robustok.runtime.files import write_rows
from robustok.runtime.registry import function_named
from robustok.runtime.resume import RowFile
from robustok.study.measurements import Attack
from robustok.study.measurements.base import GROUP
from robustok.study.sections import QuestionsSection

_CURVE = (1, 3, 10, 30, 100, 300, 1000, 3000)  # numbers of tokenizations scored
_MORE: dict[str, Any] = {"panel": "Other models and answers"}


def attack(
    models: list[str],
    questions: Annotated[dict, QuestionsSection],
    measurement: Annotated[dict, Attack],
    options: ChatRunOptions,
) -> None:
    """Attack MODELS through the tokenization of their questions.

    One question (--text, with its options) or many (--items). A chat template and a system
    prompt stay as they are; any set of labels can be the options, a guard model's too.
    """
    measure(models, "attack", options, attacks=[measurement], questions=questions)


@dataclass(frozen=True)
class RedTeamOptions(FrameOptions):
    """Which prompts are attacked, how, and what is done with the attacks."""

    seed: int | None = option("the same seed, the same draws; required", default=None)
    text: str | None = option("one prompt", default=None)
    prompts: str | None = option(
        "or many: JSON Lines with prompt, and target or choices and label",
        default=None,
        metavar="FILE",
    )
    limit: int | None = limit_option()
    search: str = option(
        "an attack with its settings, or standard-suite(max_scored=N): six searches and the worst",
        default=str(AttackSettings()),
        metavar="ATTACK",
    )
    out: Path | None = file_option(
        "a row a prompt, as JSON Lines; also resumes a killed attack", "--out", "-o"
    )
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed is None:
            raise RobustokError("an attack draws at random: give --seed")
        if (self.text is None) == (self.prompts is None):
            raise RobustokError("give either --text or --prompts")
        if self.judge is not None and self.generate is None:
            raise RobustokError("--judge judges answers: give --generate FILE")


def red_team(
    model: str,
    objective: str = option(
        "margin, target, refusal, guard, classifier or MODULE:FUNCTION",
        metavar="NAME",
        panel="Objective",
    ),
    *,
    others: Annotated[dict, ObjectiveSettings],
    options: RedTeamOptions,
) -> None:
    """Attack prompts through their tokenization: answers, refusals or the verdict of a guard.

    Searches the tokenizations of one prompt (--text) or many (--prompts) for the highest score of
    an objective. A chat template and a system prompt stay as they are.
    """
    settings, search = ObjectiveSettings(objective, **others), search_named(options.search)
    named = _objective(model, options, settings)
    prompts = [attacks.Prompt("0", str(options.text))]
    if options.prompts is not None:
        prompts = attacks.read_prompts(options.prompts, options.limit)
    if isinstance(search, int):
        suite = _suite(prompts, named, search, options)
        _print_suite(suite, options.as_json)
        found = suite.worst
        if options.out is not None:
            attacks.write_attacks(options.out, found)
    else:
        found = _attacked(prompts, named, search, options, options.out)
        for one in found:
            if not options.as_json:
                print_tokens([named.vocab.tokens[i] for i in one.ids])
            print_result(one, one.as_row(), options.as_json)
    # Other models have a tokenizer and a start token of their own.
    own = replace(options, tokenizer=None, start_token=None)
    for name in options.transfer:
        _transfer(
            name,
            _objective(name, options if name == model else own, settings),
            found,
            options.as_json,
        )
    if options.generate is not None:
        _generate(options, options.generate, named, found)


def _objective(name: str, options: RedTeamOptions, settings: ObjectiveSettings) -> Any:
    """The objective on a loaded model, which has the vocabulary and the ids around a prompt."""
    vocab = options.vocabulary(name)
    if settings.name != "classifier":
        around = options.frame(name, vocab)
        return attacks.objective_by_name(options.load(name), vocab, settings, **around)
    if options.start_token is not None or options.generate is not None:
        raise RobustokError(
            "a classifier has its own start token and writes no answers: leave "
            "--start-token and --generate out"
        )
    frame: Any = options.frame(name, vocab)
    if not options.is_chat:
        tokenizer = load_tokenizer(options.tokenizer or name)
        frame = dict(zip(("prefix", "suffix"), attacks.special_frame(tokenizer), strict=True))
    return attacks.objective_by_name(attacks.load_classifier(name), vocab, settings, **frame)


def _attacked(
    prompts: Sequence[Any],
    objective: Any,
    search: AttackSettings,
    options: RedTeamOptions,
    file: Path | None,
) -> list[Any]:
    """The attack on each prompt; finished groups of prompts are read from the file."""
    constraints = [function_named(name) for name in objective.settings.constraints]
    config = {
        "objective": asdict(objective.settings),
        "search": str(search),
        "seed": options.seed,
        "model": model_fingerprint(objective.model),
        "vocabulary": objective.vocab.fingerprint,
        **{name: list(map(int, ids)) for name, ids in objective.frame.items()},
    }
    with RowFile(file, config, prompts, holds="attacks") as kept, bar("attack") as progress:
        for begin in range(0, len(prompts), GROUP):
            group = prompts[begin : begin + GROUP]
            if all(prompt.key in kept.rows for prompt in group):
                continue
            found = attacks.attack_prompts(
                objective.vocab,
                group,
                objective,
                constraints=lambda _: constraints,
                settings=search,
                seed=options.seed or 0,
                progress=part_of_progress(progress, begin, len(prompts)),
            )
            for one in found:
                if one.key not in kept.rows:
                    kept.add_row(one.as_row())
        return [attacks.Attack.from_row(kept.rows[prompt.key]) for prompt in prompts]


def _suite(prompts: Sequence[Any], objective: Any, limit: int, options: RedTeamOptions) -> Any:
    """The attacks of each search of the suite, which have a file each beside --out."""
    parts, seconds, out = {}, {}, options.out
    for name, search in attacks.suite_settings(limit).items():
        began = time.perf_counter()
        file = out and out.with_name(f"{out.stem}-{name}{out.suffix}")
        parts[name] = _attacked(prompts, objective, search, options, file)
        seconds[name] = time.perf_counter() - began
    return attacks.SuiteResult(options.seed or 0, limit, parts, seconds)


def _print_suite(result: Any, as_json: bool) -> None:
    most = max(a.n_scored for part in result.parts.values() for a in part)
    limits = sorted({n for n in _CURVE if n < most} | {most})
    measured = "success" in result.table()[-1]
    if as_json:
        print_json(
            {
                "eval_scheme": result.label,
                "seed": result.seed,
                "parts": result.table(),
                "curves": result.curves(limits) if measured else {},
            }
        )
        return
    for row in result.table():
        share = ""
        if measured:
            share = f"broken {row['success']:.1%} [{row['low']:.1%}, {row['high']:.1%}], "
        typer.echo(
            f"{row['search']:>12}: {share}score {row['canonical_score']:+.3f} → "
            f"{row['score']:+.3f}, {row['n']} prompts, {row['n_scored']} tokenizations scored"
        )


def _transfer(name: str, objective: Any, records: Sequence[Any], as_json: bool) -> None:
    for result in attacks.replay(records, objective.vocab, objective):
        row = result.as_row()
        outcome = {True: ", broken", False: ", held", None: ""}[result.success]
        scores = f"{result.canonical_score:+.3f} → {result.score:+.3f}"
        names = ("key", "ids", "canonical_score", "score", "success")
        row = {"model": name, **{field: row[field] for field in names}}
        print_result(f"{name}, {result.key}: {scores}{outcome}", row, as_json)


def _generate(options: RedTeamOptions, file: Path, objective: Any, records: Sequence[Any]) -> None:
    judge = None if options.judge is None else function_named(options.judge)
    with bar("generate") as progress:
        rows = attacks.generate_answers(
            objective.model,
            objective.vocab,
            records,
            **objective.frame,
            judge=judge,
            max_new_tokens=options.max_new_tokens,
            progress=progress,
        )
    write_rows(file, [row.as_row() for row in rows])
    for row in rows:
        text = (
            f"{row.key} canonical: {row.canonical.strip()}\n"
            f"{row.key} attacked:  {row.attacked.strip()}"
        )
        print_result(text, row.as_row(), options.as_json)
    if judge is not None and not options.as_json:
        before, after = (
            sum(getattr(row, name) for row in rows) / len(rows)
            for name in ("canonical_verdict", "attacked_verdict")
        )
        typer.echo(f"judge: mean {before:.3f} canonical, {after:.3f} attacked")
