"""robustok attack and red-team: the worst tokenization that a search finds.

`attack` is on questions, which have a right option; `red-team` on any prompts, with an objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import click

from robustok import attack as attacks
from robustok.attack.settings import GROUP, AttackSettings, ObjectiveSettings, search_named
from robustok.cli.measuring import ChatRunOptions, measure
from robustok.cli.options import folder_option, limit_option, option
from robustok.cli.printing import print_json, print_result, print_tokens
from robustok.cli.terminal import bar
from robustok.errors import RobustokError
from robustok.models import load_model, load_tokenizer
from robustok.models.load import model_fingerprint, precision_of
from robustok.runtime.display import Progress, counted
from robustok.runtime.files import JsonObject, write_rows
from robustok.runtime.records import in_groups, json_digest
from robustok.runtime.registry import function_named
from robustok.study.measurements import Attack
from robustok.study.measurements.attacks import suite_result, suite_search
from robustok.study.sections import ChatModel, QuestionsSection
from robustok.tokenizer.chat import chat_frame
from robustok.tokenizer.vocabulary import Vocabulary, start_token_ids

_CURVE = (1, 3, 10, 30, 100, 300, 1000, 3000)  # numbers of tokenizations scored
_TRANSFERRED = ("key", "ids", "canonical_score", "score", "success")  # of a printed row
_MORE: JsonObject = {"panel": "Other models and answers"}


def attack(
    models: tuple[str, ...],
    questions: Annotated[dict, QuestionsSection],
    measurement: Annotated[dict, Attack],
    options: ChatRunOptions,
) -> None:
    """Attack MODELS through the tokenization of their questions.

    One question (--text, with its options) or many (--items). A chat template and a system
    prompt stay as they are; any set of labels can be the options, a guard model's too.
    """
    measure(models, "attack", options, attacks=[measurement], questions=questions)


@dataclass(frozen=True, kw_only=True)
class RedTeamOptions(ChatModel):
    """Which prompts are attacked, how, and what is done with the attacks."""

    seed: int = option("the same seed, the same draws")
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
    out: Path | None = folder_option(
        "folder for attacks.jsonl, a row a prompt; the same command goes on there"
    )
    transfer: tuple[str, ...] = option(
        "a model to score the attacks on too", default=(), metavar="MODEL", **_MORE
    )
    generate: bool = option(
        "also the answers to the canonical and the attacked prompt, in answers.jsonl",
        default=False,
        **_MORE,
    )
    judge: str | None = option(
        "MODULE:FUNCTION of (prompt, answer)", default=None, metavar="NAME", **_MORE
    )
    as_json: bool = option("print JSON", "--json", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.text is None) == (self.prompts is None):
            raise RobustokError("give either --text or --prompts")
        if self.judge is not None and not self.generate:
            raise RobustokError("--judge judges answers: give --generate")


def red_team(
    model: str,
    objective: str = option(
        "margin, target, refusal, guard or MODULE:FUNCTION",
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
    groups = _attacked(prompts, named, search, options)
    if isinstance(search, int):
        suite = suite_result(groups, options.seed, search)
        _print_suite(suite, options.as_json)
        found = suite.worst
    else:
        found = [attacks.Attack.from_row(row) for group in groups for row in group["attacks"]]
        for one in found:
            if not options.as_json:
                print_tokens([named.vocab.tokens[i] for i in one.ids])
            print_result(one, one.as_row(), options.as_json)
    if options.out is not None:
        attacks.write_attacks(options.out / "attacks.jsonl", found)
    # Other models have a start token of their own.
    own = replace(options, start_token=None)
    for name in options.transfer:
        other = _objective(name, own, settings)
        for result in attacks.transfer(found, named.vocab, other.vocab, other):
            row = result.as_row()
            row = {"model": name, **{field: row[field] for field in _TRANSFERRED}}
            print_result(f"{name}, {result.key}: {result.outcome}", row, options.as_json)
    if options.generate:
        _generate(options, named, found)


def _objective(name: str, options: RedTeamOptions, settings: ObjectiveSettings) -> Any:
    """The objective on a loaded model, which has the vocabulary and the ids around a prompt."""
    vocab = Vocabulary.load(name)
    model = load_model(name, dtype=options.dtype)
    if options.is_chat:
        around = chat_frame(load_tokenizer(name), system=options.system)._asdict()
    else:
        start = start_token_ids(vocab, options.start_token)
        around = {"prefix": start} if start else {}
    if not options.as_json:
        click.echo(f"{name}: weights in {precision_of(model)}")
    return attacks.NamedObjective(model, vocab, settings, **around)


def _attacked(
    prompts: Sequence[Any], objective: Any, search: AttackSettings | int, options: RedTeamOptions
) -> list[JsonObject]:
    """The rows of each group of prompts, of the suite by search; finished ones are in --out."""
    vocab, seed = objective.vocab, options.seed
    if isinstance(search, int):
        run = suite_search(vocab, objective, max_scored=search, seed=seed)
    else:

        def attacked(group: Sequence[Any], progress: Progress) -> JsonObject:
            found = attacks.attack_prompts(
                vocab, group, objective, settings=search, seed=seed, progress=progress
            )
            return {"attacks": [one.as_row() for one in found]}

        run = attacked
    config = {
        "objective": asdict(objective.settings),
        "search": str(search),
        "seed": seed,
        "prompts": json_digest([prompt._asdict() for prompt in prompts]),
        "model": model_fingerprint(objective.model),
        "precision": precision_of(objective.model),
        "vocabulary": vocab.fingerprint,
        **{name: list(map(int, ids)) for name, ids in objective.frame.items()},
    }
    folder = options.out and options.out / "groups"
    with bar("attack") as progress:
        return in_groups(folder, config, prompts, run, progress, size=GROUP)


def _print_suite(result: Any, as_json: bool) -> None:
    most = max(a.n_scored for part in result.parts.values() for a in part)
    limits = sorted({n for n in _CURVE if n < most} | {most})
    table = result.table()
    if as_json:
        curves = result.curves(limits) if "success" in table[-1] else {}
        names = {"eval_scheme": result.label, "seed": result.seed}
        print_json({**names, "parts": table, "curves": curves})
        return
    for row in table:
        share = ""
        if "success" in row:
            share = f"broken {row['success']:.1%} [{row['low']:.1%}, {row['high']:.1%}], "
        before, after = (
            "excluded" if row[name] is None else f"{row[name]:+.3f}"
            for name in ("canonical_score", "score")
        )
        click.echo(
            f"{row['search']:>12}: {share}score {before} → {after}, "
            f"{counted(row['n'], 'prompt')}, {counted(row['n_scored'], 'tokenization')} scored"
        )


def _generate(options: RedTeamOptions, objective: Any, records: Sequence[Any]) -> None:
    judge = None if options.judge is None else function_named(options.judge)
    with bar("generate") as progress:
        rows = attacks.generate_answers(
            objective.model,
            objective.vocab,
            records,
            judge=judge,
            progress=progress,
        )
    if options.out is not None:
        write_rows(options.out / "answers.jsonl", [row.as_row() for row in rows])
    for row in rows:
        text = f"{row.key} canonical: {row.canonical.strip()}\n"
        text += f"{row.key} attacked:  {row.attacked.strip()}"
        print_result(text, row.as_row(), options.as_json)
    if judge is not None and not options.as_json:
        before, after = (
            sum(getattr(row, name) for row in rows) / len(rows)
            for name in ("canonical_verdict", "attacked_verdict")
        )
        click.echo(f"judge: mean {before:.3f} canonical, {after:.3f} attacked")
