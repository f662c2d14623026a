"""What `robustok attack` does for objectives beyond the answer options, suites and replays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from robustok.attack_settings import AttackSettings
from robustok.cli.options import print_json, start_ids_of
from robustok.cli.paint import print_tokens
from robustok.cli.progress import bar
from robustok.errors import RobustokError

SUITE_LIMIT = 500  # tokenizations scored by each search of a suite, for a prompt


@dataclass(frozen=True)
class Arguments:
    """The options of the command that concern these attacks."""

    model: str
    seed: int
    tokenizer: str | None
    text: str | None
    items: str | None
    prompts: str | None
    option: list[str]
    label: int | None
    objective: str
    target: str | None
    wanted: list[str]
    unwanted: list[str]
    flagged: list[str]
    flag_probability: float
    threshold: float | None
    perplexity_quantile: float | None
    suite: str | None
    jointly: bool
    transfer: list[str]
    generate: Path | None
    judge: str | None
    max_new_tokens: int
    replay: str | None
    server: str | None
    chat: bool
    system: str | None
    out: Path | None
    curve: Path | None
    limit: int | None
    as_json: bool
    start_token: str | None


def command(given: Arguments, settings: AttackSettings) -> None:
    """Run what the options ask for, and print it."""
    _check(given)
    if given.server is not None:
        _replay_on_server(given)
        return
    if given.replay is not None:
        records = _records(given)
        given = replace(given, objective=_objective_of(given, records))
        _replay(given, _Loaded.of(given, given.model, records), records)
        return
    loaded = _Loaded.of(given, given.model)
    prompts = _prompts(given)
    if given.jointly:
        _attack_jointly(given, settings, loaded, prompts)
        return
    attacks = _attack(given, settings, loaded, prompts)
    if given.out is not None:
        from robustok.redteam import write_attacks

        write_attacks(
            given.out, loaded.vocab, attacks, prompts=prompts, prefix=loaded.prefix,
            suffix=loaded.suffix,
        )  # fmt: skip
    if given.transfer:
        from robustok.redteam import as_records

        records = as_records(
            loaded.vocab, attacks, prompts=prompts, prefix=loaded.prefix, suffix=loaded.suffix
        )
        for name in given.transfer:
            _replay(given, _Loaded.of(given, name), records, name)
    if given.generate is not None:
        _generate(given, loaded, attacks)


def _check(given: Arguments) -> None:
    sources = [given.text, given.items, given.prompts, given.replay]
    if sum(source is not None for source in sources) != 1:
        raise RobustokError("give one of --text, --items, --prompts and --replay")
    if given.server is not None and given.replay is None:
        raise RobustokError("--server is for --replay: attack a model at hand first")
    if given.suite and given.jointly:
        raise RobustokError("--suite attacks each prompt on its own: leave --jointly out")
    if given.jointly and (given.transfer or given.generate or given.out):
        raise RobustokError("--jointly gives a table of splits: leave the output files out")
    if given.curve is not None and not given.suite:
        raise RobustokError("--curve of this objective is for --suite")
    if given.judge is not None and given.generate is None:
        raise RobustokError("--judge judges answers: give --generate FILE")
    if given.start_token is not None and given.objective == "classifier":
        raise RobustokError("a classifier has its own start token: leave --start-token out")
    if given.generate is not None and given.objective == "classifier":
        raise RobustokError("a classifier writes no answers: leave --generate out")


@dataclass(frozen=True)
class _Loaded:
    """A model, its vocabulary, the ids around a prompt, and the objective of a prompt."""

    model: Any
    vocab: Any
    prefix: Any
    suffix: Any
    objective: Any

    @classmethod
    def of(cls, given: Arguments, name: str, records: Sequence[Any] = ()) -> _Loaded:
        from robustok.models import load_model
        from robustok.redteam import ObjectiveOptions, load_classifier, objective_by_name
        from robustok.vocabulary import Vocabulary

        own = name == given.model
        tokenizer = (given.tokenizer or name) if own else name
        vocab = Vocabulary.load(tokenizer)
        is_classifier = given.objective == "classifier"
        prefix, suffix = _around(given, tokenizer, is_classifier)
        if own and given.start_token is not None:
            prefix = np.array(start_ids_of(vocab, given.start_token), np.int32)
        framed = given.chat or given.start_token is not None
        if records and not framed and records[0].vocabulary == vocab.fingerprint:
            prefix, suffix = records[0].prefix, records[0].suffix  # those of the attack
        model = (load_classifier if is_classifier else load_model)(name)
        options = ObjectiveOptions(
            given.objective, given.target, tuple(given.wanted), tuple(given.unwanted),
            tuple(given.flagged), given.flag_probability, given.threshold,
            given.perplexity_quantile, given.seed,
        )  # fmt: skip
        objective = objective_by_name(model, vocab, options, prefix=prefix, suffix=suffix)
        return cls(model, vocab, prefix, suffix, objective)


def _around(given: Arguments, tokenizer: str, is_classifier: bool) -> tuple[Any, Any]:
    from robustok.evaluation import chat_frame
    from robustok.models import load_tokenizer
    from robustok.redteam import special_frame

    if given.chat:
        frame = chat_frame(load_tokenizer(tokenizer), system=given.system)
        return frame.prefix, frame.suffix
    if is_classifier:
        return special_frame(load_tokenizer(tokenizer))
    return None, None


def _prompts(given: Arguments) -> list[Any]:
    from robustok.redteam import Prompt, read_prompts

    if given.prompts is not None:
        return read_prompts(given.prompts, given.limit)
    if given.items is not None:
        from robustok.tasks import read_items

        items = read_items(given.items, limit=given.limit)
        return [
            Prompt(item.key, item.question, {"choices": list(item.choices), "label": item.label})
            for item in items
        ]
    fields = {"choices": given.option, "label": given.label or 0} if given.option else {}
    return [Prompt("0", str(given.text), fields)]


def _attack(
    given: Arguments, settings: AttackSettings, loaded: _Loaded, prompts: list[Any]
) -> list[Any]:
    from robustok.redteam import attack_prompts, run_suite

    if given.suite:
        with bar("suite") as progress:
            result = run_suite(
                loaded.vocab, prompts, loaded.objective, suite=given.suite, seed=given.seed,
                max_scored=settings.max_scored or SUITE_LIMIT, progress=progress,
            )  # fmt: skip
        _show_suite(given, result)
        return result.worst
    with bar("attack") as progress:
        attacks = attack_prompts(
            loaded.vocab, prompts, loaded.objective, settings=settings, seed=given.seed,
            progress=progress,
        )  # fmt: skip
    for attack in attacks:
        if given.as_json:
            print_json(attack.as_row())
            continue
        print_tokens([loaded.vocab.tokens[i] for i in attack.ids])
        typer.echo(str(attack))
    return attacks


def _show_suite(given: Arguments, result: Any) -> None:
    most = max(a.n_scored for attacks in result.parts.values() for a in attacks)
    limits = sorted({n for n in (1, 3, 10, 30, 100, 300, 1000, 3000) if n < most} | {most})
    measured = "success" in result.table()[-1]
    curves = result.curves(limits) if measured else {}
    if given.as_json:
        print_json({"query": result.label, "seed": result.seed, "parts": result.table(),
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
    if given.curve is not None:
        if not measured:
            raise RobustokError("the objective has no threshold: --curve needs --threshold")
        from robustok.report.curve import draw_curve

        held = {
            name: [
                {"n_scored": row["n_scored"], "accuracy": 1 - row["success"],
                 "low": 1 - row["high"], "high": 1 - row["low"]}
                for row in rows
            ]
            for name, rows in curves.items()
        }  # fmt: skip
        draw_curve(held, given.curve)


def _attack_jointly(
    given: Arguments, settings: AttackSettings, loaded: _Loaded, prompts: list[Any]
) -> None:
    from robustok.redteam import attack_jointly

    result = attack_jointly(
        loaded.vocab, prompts, loaded.objective, steps=max(1, settings.steps),
        max_rules=settings.max_neighbors, seed=given.seed,
    )  # fmt: skip
    if given.as_json:
        print_json({"rules": result.rules, "scores": result.scores, "n": result.n,
                    "n_scored": result.n_scored})  # fmt: skip
        return
    for token, ids in result.rules.items():
        print_tokens([loaded.vocab.tokens[i] for i in (token, *ids)])
    scores = " → ".join(f"{score:+.3f}" for score in result.scores)
    typer.echo(f"mean score {scores}, {result.n} prompts, {result.n_scored} tokenizations scored")


def _records(given: Arguments) -> list[Any]:
    from robustok.redteam import read_attacks

    return read_attacks(str(given.replay))[: given.limit]


def _objective_of(given: Arguments, records: Sequence[Any]) -> str:
    """The objective given, or by default that of the attacks."""
    names = {
        "target-likelihood": "target", "refusal-suppression": "refusal",
        "guard-probability": "guard", "classifier-logit": "classifier",
    }  # fmt: skip
    recorded = records[0].objective.removesuffix(" within perplexity")
    return names.get(recorded, "margin") if given.objective == "margin" else given.objective


def _replay(given: Arguments, loaded: _Loaded, records: list[Any], name: str | None = None) -> None:
    from robustok.redteam import replay

    results = replay(records, loaded.vocab, loaded.objective)
    for result in results:
        if given.as_json:
            print_json({"model": name or given.model, **vars(result)})
        else:
            outcome = {True: ", broken", False: ", held", None: ""}[result.success]
            scores = f"{result.canonical_score:+.3f} → {result.score:+.3f}"
            typer.echo(f"{name or given.model}, {result.key}: {scores}{outcome}")
    if given.replay is not None and given.generate is not None:
        ids = {result.key: result.ids for result in results}
        _generate(given, loaded, [replace(r, ids=ids[r.key]) for r in records])


def _replay_on_server(given: Arguments) -> None:
    from robustok.redteam import complete_on_server
    from robustok.redteam.generation import Answers, judged
    from robustok.redteam.prompts import function_named

    judge = None if given.judge is None else function_named(given.judge)
    rows = []
    for record in _records(given):
        if not record.canonical_ids:
            raise RobustokError(f"attack '{record.key}' has no canonical ids: attack it again")
        canonical, attacked = (
            complete_on_server(
                str(given.server), given.model, [*record.prefix, *ids, *record.suffix],
                max_tokens=given.max_new_tokens, api_key=os.environ.get("OPENAI_API_KEY"),
            )
            for ids in (record.canonical_ids, record.ids)
        )  # fmt: skip
        before, after = (judged(judge, record.text, answer) for answer in (canonical, attacked))
        rows.append(
            Answers(record.key, record.text, canonical, attacked, before, after, record.seed)
        )
    _show_answers(given, rows)


def _generate(given: Arguments, loaded: _Loaded, attacks: Sequence[Any]) -> None:
    from robustok.redteam import generate_answers
    from robustok.redteam.prompts import function_named

    judge = None if given.judge is None else function_named(given.judge)
    with bar("generate") as progress:
        rows = generate_answers(
            loaded.model, loaded.vocab, attacks, prefix=loaded.prefix, suffix=loaded.suffix,
            max_new_tokens=given.max_new_tokens, judge=judge, progress=progress,
        )  # fmt: skip
    _show_answers(given, rows)


def _show_answers(given: Arguments, rows: Sequence[Any]) -> None:
    from robustok.files import write_rows

    if given.generate is not None:
        write_rows(given.generate, [row.as_row() for row in rows])
    for row in rows:
        if given.as_json:
            print_json(row.as_row())
        else:
            typer.echo(f"{row.key} canonical: {row.canonical.strip()}")
            typer.echo(f"{row.key} attacked:  {row.attacked.strip()}")
    if rows and rows[0].attacked_verdict is not None:
        means = [sum(getattr(row, name) for row in rows) / len(rows)
                 for name in ("canonical_verdict", "attacked_verdict")]  # fmt: skip
        if not given.as_json:
            typer.echo(f"judge: mean {means[0]:.3f} canonical, {means[1]:.3f} attacked")
