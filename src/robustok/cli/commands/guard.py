"""robustok guard and audit: are id sequences canonical, and how far did rollouts drift?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import file_option, option
from robustok.cli.printing import bar, print_json, print_table
from robustok.errors import RobustokError
from robustok.guard import Audit, Guard, describe, read_rollouts, rollout_files
from robustok.guard.audit import id_columns
from robustok.report.page import drift_tables, share, write_drift
from robustok.runtime.display import counted
from robustok.runtime.files import JsonObject
from robustok.tokenizer.vocabulary import Vocabulary

SHOWN = 20  # findings


def guard(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="IDS",
            help="as 1 2 3, 1,2,3, [1, 2, 3] or an object with one list of ids; - reads one "
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
                typer.echo(f"robustok: line {number}: {error}", err=True)
            code = 2
            continue
        left = checker.check(verdict.repaired).findings if mode == "repair" else verdict.findings
        code = max(code, 1 if left else 0)
        if mode == "strict" and verdict.findings:
            where = "" if number is None else f"line {number}, "
            finding = describe(vocab, verdict.findings[0])
            typer.echo(f"robustok: {where}{finding}", err=True)
            break
        if as_json:
            print_json(({} if number is None else {"line": number}) | verdict.as_dict())
        elif mode == "repair":
            print_json(verdict.repaired.tolist())
        elif mode == "report":
            _print(vocab, verdict, number)
        sys.stdout.flush()
    if code:
        raise typer.Exit(code)


def _lines(ids: str) -> Iterator[tuple[int | None, str]]:
    """The argument, or each line of standard input with its number."""
    if ids != "-":
        yield None, ids
        return
    lines = getattr(sys.stdin, "buffer", sys.stdin)
    for number, line in enumerate(lines, 1):
        yield number, line.decode("utf8", "replace") if isinstance(line, bytes) else line


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
            f"not a sequence of ids: {text[:60].strip()!r}; write it as 1,2,3 or [1, 2, 3]"
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
    typer.echo(
        f"{line}{state}: distance {verdict.distance}, splits {verdict.splits}; "
        f"{back} from decoding and encoding"
    )
    for finding in verdict.findings[:SHOWN]:
        typer.echo(f"  {describe(vocab, finding)}")
    if verdict.findings.total > SHOWN:
        typer.echo(f"  and {verdict.findings.total - SHOWN:,} more")
    if not verdict.canonical:
        typer.echo(f"repaired: {','.join(map(str, verdict.repaired.tolist()))}")


def audit(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="files of ids or conversations (Parquet or JSON Lines), or folders",
        ),
    ],
    tokenizer: str,
    column: str | None = option(
        "the column of ids or conversations, if there are several", default=None, metavar="NAME"
    ),
    html: Path | None = file_option("also write an HTML page to this file", suffixes=(".html",)),
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
    files = [file for path in paths for file in rollout_files(path)]
    starts: list[int] = []  # number of the first sequence of each file
    rows = 0
    with bar("audit") as progress:
        for number, file in enumerate(files):
            starts.append(rows)
            for batch in read_rollouts(file, column):
                audited.add(batch.rows, batch.turns, batch.roles)
                rows += len(batch.rows)
                progress(round(1000 * (number + batch.share)), 1000 * len(files))
    names = ", ".join(map(str, paths))
    if not rows:
        raise RobustokError(f"{names}: no sequence of ids to audit")
    drift = audited.report()
    if html:
        write_drift(html, drift, vocab, names, lambda row: _place(files, starts, row))
    if as_json:
        print_json(drift.as_dict())
    else:
        _print_drift(drift, len(files))
        if html:
            typer.echo(f"The page is at {html.resolve()}")
    if drift.drifted_rows:
        raise typer.Exit(1)


def _place(files: list[Path], starts: list[int], row: int) -> str:
    number = max(i for i, start in enumerate(starts) if start <= row)
    return f"{files[number].name}, sequence {row - starts[number]}"


def _print_drift(drift: Any, files: int) -> None:
    of = f" in {files:,} files" if files > 1 else ""
    splits = counted(drift.splits, "split")
    typer.echo(
        f"{drift.drifted_rows:,} of {drift.rows:,} sequences{of} drifted "
        f"({share(drift.drifted_rows, drift.rows)}); {drift.changed_rows:,} do not come back from "
        f"decoding and encoding.\n{drift.drifted:,} of {drift.ids:,} ids do not stand "
        f"({share(drift.drifted, drift.ids)}), with {splits} that the encoder does not make."
    )
    if drift.unknown:
        typer.echo(f"{counted(drift.unknown, 'id')} not in the vocabulary.")
    for kind, rows in drift.kinds.items():
        typer.echo(f"{counted(rows, 'sequence')} with a finding of kind {kind}.")
    if not drift.drifted_rows:
        return
    for title, columns, rows in drift_tables(drift):
        typer.echo()
        left = columns.index("canonical") if "canonical" in columns else 0
        print_table((title, *columns[1:]), rows, left=left + 1)
