"""robustok guard and audit: are ids those of the tokenizer, and how far did rollouts drift?"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import numpy as np

from robustok.cli.options import Argument, option
from robustok.cli.printing import print_json
from robustok.cli.terminal import bar, print_table
from robustok.errors import RobustokError
from robustok.evaluation.comparison import difference
from robustok.evaluation.intervals import effective_answers, wilson
from robustok.guard import Audit, Drift, DriftPart, Guard, Verdict, describe, read_rollouts
from robustok.guard.check import MAX_LENGTH
from robustok.guard.findings import KINDS
from robustok.integrations.bodies import ANY, Refused
from robustok.integrations.serving import PromptGuard
from robustok.runtime.inputs import MARK, find_inputs, named
from robustok.tokenizer.vocabulary import Vocabulary

SHOWN = 20  # findings
# Fields of recorded requests besides those that a server takes.
_RECORDED = ("prompt_token_ids", "token_ids", "input_ids", "ids")


def guard(
    ids: Annotated[
        tuple[str, ...],
        Argument(
            "IDS",
            "as 1 2 3, 1,2,3, [1, 2, 3] or the JSON body of a request; - reads one sequence or "
            "body per line of standard input",
        ),
    ],
    tokenizer: str,
    mode: str = option(
        "report findings, or print repaired ids and bodies",
        default="report",
        choices=("report", "repair"),
        metavar="report|repair",
    ),
    allow_special: bool = option("do not report special ids", default=False),
    max_length: int = option("greatest number of ids in a sequence", default=MAX_LENGTH, min=1),
    as_json: bool = False,
) -> None:
    """Compare IDS with the canonical encoding of their text.

    A body is read as the middleware for servers reads it, in the fields of all known paths. With -
    every line is answered by a line as soon as it is read; a line that is neither ids nor a body
    gets an error, and the next ones are still judged. Exit code 0: no findings (in repair mode:
    none that remain after it). 1: findings. 2: not ids, or no line at all.
    """
    settings: dict[str, Any] = {"allow_special": allow_special, "max_length": max_length}
    vocab = Vocabulary.load(tokenizer)
    checker = Guard(vocab, **settings)
    prompts = PromptGuard(vocab, policy="repair", fields=_RECORDED, **settings)

    def answer(label: dict[str, int], line: bytes) -> int:
        """Print the answer to a line; 1 for findings, in repair mode for those that remain."""
        if mode == "repair" and not as_json:
            repaired, has_findings = _repaired(checker, prompts, line)
            click.echo(repaired)
            return int(has_findings)
        verdicts = _verdicts(checker, prompts, line)
        if as_json:
            print_json(label | _as_record(verdicts))
        else:
            _print_verdicts(vocab, "".join(f"line {n}" for n in label.values()), verdicts)
        if mode == "repair":
            return int(any(_remain(checker, verdict) for _, verdict in verdicts))
        return int(any(v.findings for _, v in verdicts))

    code = 0
    for number, line in _lines(" ".join(ids)):
        label = {} if number is None else {"line": number}
        try:
            code = max(code, answer(label, line))
        except RobustokError as error:
            is_finding = isinstance(error, Refused) and error.reason in KINDS
            if number is None and not is_finding:
                raise
            if number is None:
                click.echo(f"robustok: {error}", err=True)
            elif as_json or mode == "repair":
                print_json(label | {"error": str(error)})
            else:
                click.echo(f"line {number}: {error}")
            code = max(code, 1 if is_finding else 2)
        sys.stdout.flush()
    if code:
        raise click.exceptions.Exit(code)


def _lines(ids: str) -> Iterator[tuple[int | None, bytes]]:
    """The argument, or each line of standard input with its number."""
    if ids != "-":
        yield None, ids.encode("utf8", "replace")
        return
    number = 0
    try:
        for number, line in enumerate(getattr(sys.stdin, "buffer", sys.stdin), 1):
            raw = line.encode() if isinstance(line, str) else line
            yield number, raw.removeprefix(MARK) if number == 1 else raw
    except OSError as error:
        raise RobustokError(f"standard input cannot be read ({error.strerror})") from None
    if not number:
        raise RobustokError("standard input has no line: give ids or bodies, one a line")


def _verdicts(checker: Guard, prompts: PromptGuard, line: bytes) -> list[tuple[str, Verdict]]:
    """The verdict on each prompt of a line, with its field; the field of bare ids is empty."""
    if not line.lstrip().startswith(b"{"):
        return [("", checker.check(_ids_of(line)))]
    body = prompts.read(line, ANY)
    prompts.check_existing(body)
    return [(body.name(n), checker.check(row)) for n, row in enumerate(body.rows)]


def _repaired(checker: Guard, prompts: PromptGuard, line: bytes) -> tuple[str, bool]:
    """A line with its canonical ids, and whether findings are left."""
    if line.lstrip().startswith(b"{"):
        changed = prompts.admit_body(line, ANY)
        return (changed or line).decode("utf8", "replace").rstrip("\r\n"), False
    verdict = checker.check(_ids_of(line))
    return json.dumps(verdict.repaired.tolist()), _remain(checker, verdict)


def _remain(checker: Guard, verdict: Verdict) -> bool:
    """Whether repairing leaves findings, or deletes text."""
    return verdict.findings.deletes_text or bool(checker.check(verdict.repaired).findings)


def _ids_of(line: bytes) -> Any:
    """The value of a line that is no body: ids between commas or spaces, or JSON."""
    text = line.decode("utf8", "replace").strip()
    if not text.strip(" ,"):
        raise RobustokError("no ids, as from an empty variable; an empty sequence is []")
    try:
        if text.startswith("["):
            return json.loads(text)
        parts = re.split(r"\s*,\s*|\s+", text.strip(" ,"))
        if all(re.fullmatch(r"-?[0-9]+", part) for part in parts):  # int also reads 1_0
            return [int(part) for part in parts]
    except (ValueError, RecursionError):
        pass
    raise RobustokError(
        f"not a sequence of ids: {text[:60]!r}; write it as 1,2,3 or [1, 2, 3], and for a file "
        "robustok guard - < FILE"
    )


def _as_record(verdicts: list[tuple[str, Verdict]]) -> dict[str, Any]:
    """For JSON: one verdict alone, with the field of a body, or a list of them."""
    records = [{"field": name} | v.as_dict() if name else v.as_dict() for name, v in verdicts]
    return records[0] if len(records) == 1 else {"prompts": records}


def _print_verdicts(vocab: Vocabulary, label: str, verdicts: list[tuple[str, Verdict]]) -> None:
    if not verdicts:
        click.echo(f"{label}: no ids" if label else "no ids")
    for name, verdict in verdicts:
        state = "canonical" if verdict.canonical else "not canonical"
        back = "comes back" if verdict.round_trip else "does not come back"
        where = ", ".join(part for part in (label, name) if part)
        click.echo(
            f"{where}{': ' if where else ''}{state}: distance {verdict.distance}, splits "
            f"{verdict.splits}; {back} from decoding and encoding"
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
        Argument("PATH...", "files of rollouts (Parquet or JSON Lines), or folders"),
    ],
    tokenizer: str,
    layout: str | None = option(
        "the layout of the files (trl, verl, prime-rl, …) or the column of ids, by default that "
        "of the columns",
        default=None,
        metavar="NAME",
    ),
    against: Path | None = option(
        "rollouts of another checkpoint on the same prompts, to compare with", default=None
    ),
    as_json: bool = False,
) -> None:
    """Report how far the sampled ids in PATHS drifted from the encoding of their text.

    One table: all ids, the first 256, 1,024 and 4,096 sampled ones, each role, each kind of event,
    the most frequent exchanges. The interval of the share of rollouts is clustered by prompt.
    Special ids are taken as they are. Exit code 0: all canonical. 1: some drifted. 2: bad input,
    or no ids.
    """
    vocab = Vocabulary.load(tokenizer)
    audited = _audited(vocab, paths, layout)
    other = _audited(vocab, (against,), layout) if against is not None else None
    drift = audited.report()
    record = drift.as_dict() | {"interval": _interval(audited)}
    compared = _compared(audited, other) if other is not None else {}
    if as_json:
        print_json(record | compared)
    else:
        _print_drift(drift, audited)
        if other is not None:
            _print_drift(other.report(), other)
            low, high = compared["difference_interval"]
            click.echo(
                f"\nOn {compared['prompts']:,} prompts of both, the second has "
                f"{100 * compared['difference']:+.1f} points of rollouts with drift "
                f"(95% interval {100 * low:+.1f} to {100 * high:+.1f})."
            )
    if drift.drifted_rows:
        raise click.exceptions.Exit(1)


def _audited(vocab: Vocabulary, paths: tuple[Path, ...], layout: str | None) -> Audit:
    audited = Audit(vocab)
    files, unread, _ = find_inputs(paths)
    if unread:
        click.echo(f"robustok: not read: {named(unread)}", err=True)
    with bar("audit") as progress:
        for number, file in enumerate(files, 1):
            audited.add_rollouts(read_rollouts(file.path, layout))
            progress(number, len(files))
    if not audited.by_prompt:
        raise RobustokError(f"{', '.join(map(str, paths))}: no sequence of ids to audit")
    return audited


def _interval(audited: Audit) -> tuple[float, float]:
    """Of the share of rollouts with an event: Wilson's, for the effective number of rollouts."""
    counts = np.array(list(audited.by_prompt.values()), np.float64)
    events, rollouts = counts.sum(axis=0)
    draws = max(round(rollouts / len(counts)), 1)
    n = effective_answers(counts[:, 0] / counts[:, 1], draws)
    return wilson(events / rollouts * n, n)


def _compared(first: Audit, second: Audit) -> dict[str, Any]:
    """The difference of both shares over the prompts of both, with its 95% interval."""
    one, other = (
        {key: events / rollouts for key, (events, rollouts) in audited.by_prompt.items()
         if isinstance(key, bytes)}
        for audited in (first, second)
    )  # fmt: skip
    if not one.keys() & other.keys():
        raise RobustokError("no prompt is in both, so they cannot be compared: give ids of prompts")
    change = difference({"answers": {0: one}}, {"answers": {0: other}})
    interval = (change.low, change.high)
    return {"prompts": change.n, "difference": change.mean, "difference_interval": interval}


def _print_drift(drift: Drift, audited: Audit) -> None:
    low, high = _interval(audited)
    click.echo(
        f"{drift.drifted_rows:,} of {drift.rows:,} rollouts drifted "
        f"({drift.drifted_rows / max(drift.rows, 1):.2%}, 95% interval {100 * low:.1f} to "
        f"{100 * high:.1f}%); {drift.changed_sequences:,} of {drift.sequences:,} sequences do not "
        "come back from decoding and encoding."
    )
    if drift.drifted_rows:
        click.echo()
        titles = ("", "rollouts", "with drift", "ids", "drifted", "share", "events")
        print_table(titles, [_table_row(part) for part in drift.parts], left=1)


def _table_row(part: DriftPart) -> tuple[str, ...]:
    titles: dict[str, str] = {
        "all": "all ids", "first": f"first {part.name} sampled", "exchange": repr(part.name)
    }  # fmt: skip
    counts = (f"{n:,}" for n in (part.rows, part.drifted_rows, part.ids, part.drifted))
    share = f"{part.drifted / max(part.ids, 1):.2%}"
    return (titles.get(part.group, part.name), *counts, share, f"{part.events:,}")
