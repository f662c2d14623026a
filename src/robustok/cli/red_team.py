"""robustok red-team: the tokenization of a prompt with the highest score of an objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import click

from robustok import attack as attacks
from robustok.attack.settings import (
    GROUP,
    AttackSettings,
    ObjectiveSettings,
    check_on_prompts,
    unsearched_ids,
    unsearched_text,
)
from robustok.cli.options import (
    Argument,
    figure_folder,
    folder_option,
    option,
    served_tokenizer_option,
)
from robustok.cli.printing import print_json, print_model, print_tokens, print_written
from robustok.cli.terminal import bar, print_table
from robustok.errors import RobustokError
from robustok.models import load_tokenizer, open_model
from robustok.runtime.display import Progress, visible
from robustok.runtime.files import JsonObject, write_rows
from robustok.runtime.records import check_unused, in_groups, json_digest
from robustok.runtime.registry import function_named
from robustok.study.measurements import Attack
from robustok.study.sections import ChatModel
from robustok.tokenizer.chat import chat_frame
from robustok.tokenizer.vocabulary import Vocabulary, start_token_ids


def _own_folder(path: Path | None) -> Path | None:
    """As ``figure_folder``; also raises for a folder of something else than attacks."""
    folder = figure_folder(path)
    if folder is not None and not any(folder.glob("groups/*/*.json")):
        check_unused(folder, sorted(one for one in folder.glob("[!.]*") if one.name != "groups"))
    return folder


@dataclass(frozen=True, kw_only=True)
class RedTeamOptions(ChatModel):
    """Which prompts are attacked, how, and what is done with the attacks."""

    seed: int = option("the same seed, the same draws", default=0)
    text: str | None = option("one prompt", default=None)
    tokenizer: str | None = served_tokenizer_option()
    prompts: str | None = option(
        "or many: JSON Lines with prompt, and target or choices and label",
        default=None,
        metavar="FILE",
    )
    limit: int | None = option("number of items to read", default=None, min=1)
    schemes: tuple[str, ...] = option(
        "an attack with its settings; of several the worst of each prompt is reported",
        "--scheme",
        "-s",
        default=(str(AttackSettings()),),
        metavar="ATTACK",
    )
    out: Path | None = folder_option(
        "folder for attacks.jsonl, a row for each prompt; the same command goes on there",
        check=_own_folder,
    )
    generate: bool = option(
        "also the answers to the canonical and the attacked prompt, in answers.jsonl",
        default=False,
        panel="Answers",
    )
    judge: str | None = option(
        "MODULE:FUNCTION of (prompt, answer)", default=None, metavar="NAME", panel="Answers"
    )
    as_json: bool = option("print JSON", "--json", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.text) == (self.prompts is not None):
            raise RobustokError("give either --text or --prompts")
        if self.judge is not None and not self.generate:
            raise RobustokError("--judge judges answers: give --generate")


def red_team(
    model: Annotated[str, Argument("MODEL", "folder, hub name or address of a server")],
    objective: str = option(
        "margin, target, refusal, guard or MODULE:FUNCTION",
        metavar="NAME",
        panel="Objective",
    ),
    *,
    others: Annotated[dict, ObjectiveSettings],
    given: Annotated[dict, RedTeamOptions],
) -> None:
    """Attack prompts through their tokenization: answers, refusals or the verdict of a guard.

    Searches the tokenizations of one prompt (--text) or many (--prompts) for the highest score of
    an objective. A chat template and a system prompt stay as they are.
    """
    from robustok.attack.objectives import objective_maker  # imports torch

    options = RedTeamOptions(**given)
    settings = ObjectiveSettings(objective, **others)
    objective_maker(settings)  # everything is checked before the model is loaded
    searches = [Attack.parse(scheme) for scheme in options.schemes]
    for search in searches:
        check_on_prompts(search)
    if options.judge is not None:
        function_named(options.judge)
    prompts = [attacks.Prompt("0", str(options.text))]
    if options.prompts is not None:
        prompts = attacks.read_prompts(options.prompts, options.limit)
    named = _objective(model, options, settings)
    for prompt in prompts:
        named(prompt)  # raises where the prompt has not what the objective needs
    parts = [_attacked(prompts, named, search, options) for search in searches]
    worst = attacks.worst_attacks(parts)
    by_search = dict(zip(map(str, searches), parts, strict=True))
    if not options.as_json:
        print_model(model, named.scored.precision, options.seed)
    _print(worst, by_search, named.vocab, options.as_json)
    unsearched = unsearched_text(unsearched_ids(named.vocab, searches[0])).removeprefix("; ")
    if unsearched and not options.as_json:
        click.echo(unsearched)
    if options.out is not None:
        attacks.write_attacks(options.out / "attacks.jsonl", worst)
    answers = _generate(options, named, worst) if options.generate else []
    if options.out is not None:
        page = _page_of(model, named, by_search, worst, answers, options.out)
        print_written([page], options.as_json)


def _print(worst: Sequence[Any], parts: JsonObject, vocab: Vocabulary, as_json: bool) -> None:
    """Print the attacks of one search, or the summary of each of several."""
    if len(parts) > 1 and as_json:
        for row in attacks.summaries(parts):
            print_json(row)
        return
    if len(parts) > 1:
        from robustok.report.attacked import summary_table

        table = summary_table(attacks.summaries(parts))
        print_table(table.head, table.lines, left=1)
        return
    for one in worst:
        if as_json:
            print_json(one.as_row())
            continue
        print_tokens([vocab.tokens[i] for i in one.ids])
        click.echo(str(one))


def _objective(name: str, options: RedTeamOptions, settings: ObjectiveSettings) -> Any:
    """The objective on a loaded model, which has the vocabulary and the ids around a prompt."""
    tokenizer = options.tokenizer or name
    vocab = Vocabulary.load(tokenizer)
    model = open_model(name, dtype=options.dtype)
    if options.is_chat:
        around = chat_frame(load_tokenizer(tokenizer), system=options.system)._asdict()
    else:
        start = start_token_ids(vocab, options.start_token)
        around = {"prefix": start} if start else {}
    return attacks.NamedObjective(model, vocab, settings, **around)


def _attacked(
    prompts: Sequence[Any], objective: Any, search: Attack, options: RedTeamOptions
) -> list[Any]:
    """The attacks on all prompts; the rows of finished groups are in --out."""
    vocab, seed = objective.vocab, options.seed

    def attacked(group: Sequence[Any], progress: Progress) -> JsonObject:
        done = attacks.attack_prompts(
            vocab, group, objective, seed=seed, progress=progress, **search.settings
        )
        return {"attacks": [one.as_row() for one in done]}

    config = {
        "objective": asdict(objective.settings),
        "search": str(search),
        "seed": seed,
        "prompts": json_digest([prompt._asdict() for prompt in prompts]),
        "model": objective.scored.fingerprint(),
        "precision": objective.scored.precision,
        "vocabulary": vocab.fingerprint,
        **{name: list(map(int, ids)) for name, ids in objective.frame.items()},
    }
    folder = options.out and options.out / "groups" / json_digest(config["search"])[:16]
    with bar(str(search)) as progress:
        groups = in_groups(folder, config, prompts, attacked, progress, size=GROUP)
    return [attacks.Attack.from_row(row) for group in groups for row in group["attacks"]]


def _page_of(
    model: str,
    named: Any,
    parts: JsonObject,
    worst: Sequence[Any],
    answers: Sequence[Any],
    out: Path,
) -> Path:
    """Write the page of the attacks."""
    from robustok.report.attacked import write_red_team_page

    def spelled(one: Any) -> JsonObject:
        tokens = ([visible(named.vocab.tokens[i]) for i in x] for x in (one.ids, one.canonical_ids))
        return one.as_row() | dict(zip(("tokens", "canonical_tokens"), tokens, strict=True))

    rows = {name: [one.as_row() for one in part] for name, part in parts.items()}
    shown = [spelled(one) for one in worst]
    generated = {one.key: (one.canonical, one.attacked) for one in answers}
    objective, table = named.settings.name, attacks.summaries(parts)
    return write_red_team_page(out, model, objective, rows, table, shown, generated)


def _generate(options: RedTeamOptions, objective: Any, records: Sequence[Any]) -> list[Any]:
    """The answers to each prompt, which are printed and written."""
    judge = None if options.judge is None else function_named(options.judge)
    with bar("generate") as progress:
        rows = attacks.generate_answers(
            objective.model, objective.vocab, records, judge=judge, progress=progress
        )
    if options.out is not None:
        write_rows(options.out / "answers.jsonl", [row.as_row() for row in rows])
    for row in rows:
        if options.as_json:
            print_json(row.as_row())
            continue
        click.echo(f"{row.key} canonical: {row.canonical.strip()}")
        click.echo(f"{row.key} attacked:  {row.attacked.strip()}")
    if judge is not None and not options.as_json:
        before, after = (
            sum(getattr(row, name) for row in rows) / len(rows)
            for name in ("canonical_verdict", "attacked_verdict")
        )
        click.echo(f"judge: mean {before:.3f} canonical, {after:.3f} attacked")
    return rows
