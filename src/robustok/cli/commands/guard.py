"""robustok guard and audit: are id sequences canonical, and how far did rollouts drift?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import click

from robustok.cli.options import Argument, option
from robustok.cli.printing import print_json
from robustok.cli.terminal import bar, print_table
from robustok.errors import RobustokError
from robustok.guard import Audit, Drift, Guard, describe, read_rollouts
from robustok.guard.audit import GroupDrift, id_columns
from robustok.runtime.display import counted
from robustok.runtime.files import JsonObject
from robustok.runtime.inputs import find_inputs, named
from robustok.tokenizer.vocabulary import Vocabulary

SHOWN = 20  # findings


def guard(
    ids: Annotated[
        tuple[str, ...],
        Argument(
            "IDS",
            "as 1 2 3, 1,2,3, [1, 2, 3] or an object with one list of ids; - reads one "
            "sequence per line of standard input",
        ),
    ],
    tokenizer: str,
    mode: str = option(
        "report all, stop at the first finding, or print repaired ids",
        default="report",
        choices=("report", "strict", "repair"),
        metavar="report|strict|repair",
    ),
    allow_special: bool = option("do not report special ids", default=False),
    max_length: int = option("greatest number of ids in a sequence", default=1 << 20, min=1),
    as_json: bool = False,
) -> None:
    """Compare IDS with the canonical encoding of their text.

    With - every line is answered as soon as it is read, by its number; a line that is not a
    sequence of ids gets an error, and the next ones are still judged.
    Exit code 0: no findings (in repair mode: none that remain after it). 1: findings.
    2: not a sequence of ids.
    """
    vocab = Vocabulary.load(tokenizer)
    checker = Guard(vocab, allow_special=allow_special, max_length=max_length)
    code = 0
    for number, line in _lines(" ".join(ids)):
        try:
            verdict = checker.check(_parsed(line))
        except RobustokError as error:
            if number is None:
                raise
            if as_json:
                print_json({"line": number, "error": str(error)})
                sys.stdout.flush()
            else:
                click.echo(f"robustok: line {number}: {error}", err=True)
            code = 2
            continue
        left = checker.check(verdict.repaired).findings if mode == "repair" else verdict.findings
        code = max(code, 1 if left else 0)
        if mode == "strict" and verdict.findings:
            where = "" if number is None else f"line {number}, "
            finding = describe(vocab, verdict.findings[0])
            click.echo(f"robustok: {where}{finding}", err=True)
            break
        if as_json:
            print_json(({} if number is None else {"line": number}) | verdict.as_dict())
        elif mode == "repair":
            print_json(verdict.repaired.tolist())
        elif mode == "report":
            _print(vocab, verdict, number)
        sys.stdout.flush()
    if code:
        raise click.exceptions.Exit(code)


def _lines(ids: str) -> Iterator[tuple[int | None, str]]:
    """The argument, or each line of standard input with its number."""
    if ids != "-":
        yield None, ids
        return
    lines = getattr(sys.stdin, "buffer", sys.stdin)
    for number, line in enumerate(lines, 1):
        text = line.decode("utf8", "replace") if isinstance(line, bytes) else line
        yield number, text.removeprefix("\ufeff") if number == 1 else text  # a byte order mark


def _parsed(text: str) -> Any:
    try:
        if text.lstrip().startswith(("[", "{")):
            value = json.loads(text, object_pairs_hook=_without_repeats)
        else:
            parts = re.split(r"\s*,\s*|\s+", text.strip(" \t\r\n,"))
            value = [_integer(part) for part in parts] if parts != [""] else []
    except RobustokError:
        raise
    except (ValueError, RecursionError):
        raise RobustokError(
            f"not a sequence of ids: {text[:60].strip()!r}; write it as 1,2,3 or [1, 2, 3], and "
            "for a file robustok guard - < FILE"
        ) from None
    if value == [] and not text.lstrip().startswith("["):
        raise RobustokError("no ids, as from an empty variable; an empty sequence is []")
    return _ids_in(value) if isinstance(value, dict) else value


def _integer(part: str) -> int:
    """The value of decimal digits; ``int`` also reads those of other scripts, and 1_0."""
    if not re.fullmatch(r"-?[0-9]+", part):
        raise ValueError(part)
    return int(part)


def _without_repeats(pairs: list[tuple[str, object]]) -> JsonObject:
    """An object; raises RobustokError for a repeated name, of which servers read either value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise RobustokError("an object repeats a name, of which servers read one or the other")
    return value


def _ids_in(value: JsonObject) -> list[int]:
    """The ids of an object, such as a recorded request with ``prompt_token_ids``."""
    names = id_columns(value)
    if len(names) != 1:
        several = f"several lists of ids ({', '.join(names)})" if names else "no list of ids"
        raise RobustokError(f'the object has {several}: keep one, as {{"prompt_token_ids": [1]}}')
    return value[names[0]]


def _print(vocab: Vocabulary, verdict: Any, number: int | None) -> None:
    state = "canonical" if verdict.canonical else "not canonical"
    back = "comes back" if verdict.round_trip else "does not come back"
    line = "" if number is None else f"line {number}: "
    click.echo(
        f"{line}{state}: distance {verdict.distance}, splits {verdict.splits}; "
        f"{back} from decoding and encoding"
    )
    for finding in verdict.findings[:SHOWN]:
        click.echo(f"  {describe(vocab, finding)}")
    if verdict.findings.total > SHOWN:
        click.echo(f"  and {verdict.findings.total - SHOWN:,} more")
    if not verdict.canonical:
        click.echo(f"repaired: {','.join(map(str, verdict.repaired.tolist()))}")


def audit(
    paths: Annotated[
        tuple[Path, ...],
        Argument("PATH...", "files of ids or conversations (Parquet or JSON Lines), or folders"),
    ],
    tokenizer: str,
    column: str | None = option(
        "the column of ids or conversations, if there are several", default=None, metavar="NAME"
    ),
    as_json: bool = False,
) -> None:
    """Report how far id sequences in PATHS drifted.

    Drift is from the canonical encoding of their text. It is shown by position in the sequence, by
    token, and which ids stand for which; for conversations (lists of turns with a role and ids)
    also by turn and by role or tool. Special ids are taken as they are. Exit code 0: all canonical.
    1: some drifted. 2: bad input, or no sequence at all.
    """
    vocab = Vocabulary.load(tokenizer)
    audited = Audit(vocab)
    files, unread = find_inputs(paths)
    if unread:
        click.echo(f"robustok: not read: {named(unread)}", err=True)
    with bar("audit") as progress:
        for number, file in enumerate(files):
            for batch in read_rollouts(file.path, column):
                audited.add(batch.rows, batch.turns, batch.roles)
                progress(round(1000 * (number + batch.share)), 1000 * len(files))
    drift = audited.report()
    if not drift.rows:
        raise RobustokError(f"{', '.join(map(str, paths))}: no sequence of ids to audit")
    if as_json:
        print_json(drift.as_dict())
    else:
        _print_drift(drift, len(files))
    if drift.drifted_rows:
        raise click.exceptions.Exit(1)


def _print_drift(drift: Drift, files: int) -> None:
    of = f" in {files:,} files" if files > 1 else ""
    splits = counted(drift.splits, "split")
    click.echo(
        f"{drift.drifted_rows:,} of {drift.rows:,} sequences{of} drifted "
        f"({share(drift.drifted_rows, drift.rows)}); {drift.changed_rows:,} do not come back from "
        f"decoding and encoding.\n{drift.drifted:,} of {drift.ids:,} ids are not canonical "
        f"({share(drift.drifted, drift.ids)}), with {splits} that the encoder does not make."
    )
    if drift.unknown:
        click.echo(f"{counted(drift.unknown, 'id')} not in the vocabulary.")
    for kind, rows in drift.kinds.items():
        click.echo(f"{counted(rows, 'sequence')} with a finding of kind {kind}.")
    if not drift.drifted_rows:
        return
    counts = ("ids", "drifted", "share")
    grouped = ("sequences", "with drift", *counts)
    counted_by = (
        ("turn", grouped, [(one.name, one) for one in drift.by_turn]),
        ("role", grouped, [(one.name, one) for one in drift.by_role]),
        ("position", counts, [(f"{p.begin} to {p.end - 1}", p) for p in drift.by_position]),
        ("token", counts, [(repr(one.token), one) for one in drift.by_token]),
    )
    for name, columns, entries in counted_by:
        rows = [(first, *_drift_counts(one)) for first, one in entries]
        _print_drift_table((f"by {name}", *columns), rows, left=1)
    exchanges = [(repr(e.given), repr(e.becomes), f"{e.times:,}") for e in drift.exchanges]
    _print_drift_table(("given", "canonical", "times"), exchanges, left=2)


def _print_drift_table(titles: Sequence[str], rows: Sequence[tuple[str, ...]], left: int) -> None:
    if rows:
        click.echo()
        print_table(titles, rows, left=left)


def _drift_counts(one: Any) -> tuple[str, ...]:
    """The columns of one part of the drift, of a group with its sequences."""
    numbers = [one.ids, one.drifted]
    if isinstance(one, GroupDrift):
        numbers = [one.rows, one.drifted_rows, *numbers]
    return (*(f"{number:,}" for number in numbers), share(one.drifted, one.ids))


def share(part: int, whole: int) -> str:
    """A share in percent: two significant digits, no exponent, 100% only where it is all.

    >>> share(1, 800), share(799, 800), share(800, 800), share(996, 1000)
    ('0.12%', '99.9%', '100%', '99.6%')
    """
    if not part or part == whole:
        return "100%" if part else "0%"
    percent = 100 * part / whole
    if percent < 10:
        return f"{percent:.2g}%" if percent >= 0.0001 else "<0.0001%"
    return f"{min(percent, 99.9):.1f}%" if percent > 99 else f"{percent:.0f}%"
