"""Drift counted by hand beside drift counted by the audit; files in, sequences out."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.guard.tokenizers_of import TEXT

import robustok as rt
from robustok.guard import Audit, Drift, read_rollouts

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def drift_of(vocab: rt.Vocabulary, rows: list[np.ndarray], size: int) -> Drift:
    audit = Audit(vocab)
    for at in range(0, len(rows), size):
        audit.add(rows[at : at + size])
    return audit.report(top=1000)


@pytest.fixture(scope="module")
def rows(gpt2_like: rt.Vocabulary) -> list[np.ndarray]:
    canonical = gpt2_like.encode_batch([line.replace("<|", "<") for line in TEXT])
    drawn = rt.sampler("stochastok(alpha=0.3)", gpt2_like).sample_batch(canonical, seed=0)
    rows = [row for pair in zip(canonical, drawn, strict=True) for row in pair]
    return [*rows, np.array([*canonical[0].tolist(), 0, 9999])]


def test_counts_are_those_of_the_rows(gpt2_like: rt.Vocabulary, rows: list[np.ndarray]) -> None:
    drift = drift_of(gpt2_like, rows, 100)
    assert drift_of(gpt2_like, rows, 1) == drift_of(gpt2_like, rows, 3) == drift
    assert (drift.rows, drift.drifted_rows, drift.first_rows) == (9, 5, (1, 3, 5, 7, 8))
    assert (drift.changed_rows, drift.unknown) == (5, 1)
    assert drift.ids == sum(map(len, rows))
    off = [rt.distance(gpt2_like, rows[i - 1], rows[i]) for i in (1, 3, 5, 7)]
    assert drift.drifted == sum(off) + 1

    assert sum(p.ids for p in drift.by_position) == drift.ids
    assert sum(p.drifted for p in drift.by_position) == drift.drifted
    for p in drift.by_position:
        assert p.ids == sum(max(min(len(r), p.end) - p.begin, 0) for r in rows)
    assert [(p.begin, p.end) for p in drift.by_position[:3]] == [(0, 16), (16, 32), (32, 64)]

    seen = Counter(int(i) for row in rows for i in row)
    assert sum(t.drifted for t in drift.by_token) == drift.drifted - drift.unknown
    assert all(t.ids == seen[t.id] and 0 < t.drifted <= t.ids for t in drift.by_token)
    marks = [t.drifted for t in drift.by_token]
    assert marks == sorted(marks, reverse=True)

    for e in drift.exchanges:
        assert gpt2_like.decode_bytes(e.ids) == gpt2_like.decode_bytes(e.canonical)
    assert sum(len(e.ids) * e.times for e in drift.exchanges) == drift.drifted - drift.unknown


def test_nothing_to_report(gpt2_like: rt.Vocabulary) -> None:
    drift = Audit(gpt2_like).report()
    assert (drift.rows, drift.ids, drift.by_position, drift.exchanges) == (0, 0, (), ())


def in_file(path: Path, rows: list[list[int]]) -> Path:
    lines = "".join(json.dumps({"ids": row, "n": 1}) + "\n" for row in rows)
    if path.suffix == ".parquet":
        table = pa.table({"ids": pa.array(rows, pa.list_(pa.int64())), "n": [1] * len(rows)})
        pq.write_table(table, path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif path.suffix == ".xz":
        path.write_bytes(lzma.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.xz"])
def test_all_files_are_read_alike(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.guard.audit.ROWS", 2)
    rows = [[1, 2], [], [3], [2**31, -5], [4, 5, 6]]
    batches = list(read_rollouts(in_file(tmp_path / name, rows)))
    expected = [[1, 2], [], [3], [-1, -1], [4, 5, 6]]
    assert [row.tolist() for batch in batches for row in batch.rows] == expected
    assert [(batch.turns, batch.roles) for batch in batches] == [(None, None)] * 3
    shares = [batch.share for batch in batches]
    assert len(shares) == 3 and shares == sorted(shares) and shares[-1] == 1.0


def test_bare_lists_and_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("[1, 2]\n\n[]\n")
    assert [row.tolist() for b in read_rollouts(path) for row in b.rows] == [[1, 2], []]
    path.write_text('{"a": [1], "b": [2]}\n{"b": [3], "a": [4]}\n')
    assert [row.tolist() for b in read_rollouts(path, "b") for row in b.rows] == [[2], [3]]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ('{"a": [1], "b": [2]}\n', None, r"several columns of ids \(a, b\): name one"),
        ('{"a": 1}\n', None, "has no column of ids"),
        ('{"ids": [1]}\n', "idz", "no column of ids 'idz': did you mean 'ids'"),
        ('{"a": [1]}\n{"a": [1.5]}\n', None, "line 2: expected a list of token ids"),
        ('{"a": [1]}\n{"a": null}\n', None, "line 2: expected a list of token ids"),
        ('[1, 2]\n["x"]\n', None, "line 2: expected a list of token ids"),
        ('[1, 2]\n{"a": [1]}\n', None, "line 2: expected a list of token ids, got {'a'"),
        ("[1, 2\n", None, ":1 is not JSON"),
        ('{"a": [{"ids": [1]}], "b": [{"ids": [1]}]}', None, r"several columns of ids \(a, b\)"),
        ('{"a": [{"ids": [1]}]}\n{"b": 1}', None, "line 2: no conversation in 'a'"),
        ('{"a": [{"ids": [1]}]}\n{"a": ["x"]}', None, "line 2, turn 0: expected an object"),
        ('{"a": [{"ids": [1], "mask": [1]}]}', None, "turn 0 has several lists of integers"),
    ],
)
def test_what_is_no_sequence_is_an_error(
    tmp_path: Path, text: str, column: str | None, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(rt.RobustokError, match=message):
        list(read_rollouts(path, column))


def test_other_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    (tmp_path / "a.parquet").write_text("1")
    pq.write_table(pa.table({"ids": [[1], None]}), tmp_path / "nulls.parquet")
    for name, message in (
        ("a.jsonl", "no such file"), ("a.csv", r"a\.csv is not read: give \.parquet, \.jsonl"),
        ("a.parquet", "not a Parquet file"), ("nulls.parquet", "row 1: expected a list"),
    ):  # fmt: skip
        with pytest.raises(rt.RobustokError, match=message):
            list(read_rollouts(tmp_path / name))


def test_parquet_with_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ids": [[i, i + 1] for i in range(3000)]}), path)
    raw = bytearray(path.read_bytes())
    raw[40:80] = bytes(40)
    path.write_bytes(raw)
    with pytest.raises(rt.RobustokError, match=r"a\.parquet: damaged after 0 rows \("):
        list(read_rollouts(path))


TURNS = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "ids": [70, 71], "name": None},
    {"role": "tool", "name": "search", "ids": [72]},
]


def conversations_in(path: Path, conversations: list[list[dict[str, object]]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"turns": conversations, "n": range(len(conversations))}), path)
    else:
        lines = [json.dumps({"turns": turns, "n": 1}) for turns in conversations]
        path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_conversations_are_read_turn_by_turn(tmp_path: Path, name: str) -> None:
    path = conversations_in(tmp_path / name, [TURNS, TURNS[1:]])
    batches = list(read_rollouts(path))
    assert [row.tolist() for b in batches for row in b.rows] == [[70, 71], [72], [70, 71], [72]]
    assert [turn for b in batches for turn in b.turns or []] == [1, 2, 0, 1]
    assert [r for b in batches for r in b.roles or []] == ["assistant", "tool:search"] * 2
    assert batches[-1].share == 1.0


@pytest.mark.parametrize("first", [[], TURNS[:1]])
def test_a_first_conversation_without_ids_hides_no_later_one(tmp_path: Path, first: list) -> None:
    path = conversations_in(tmp_path / "a.jsonl", [first, TURNS])
    for column in (None, "turns"):
        rows = [row.tolist() for b in read_rollouts(path, column=column) for row in b.rows]
        assert rows == [[70, 71], [72]]


def test_turns_and_roles_are_counted_apart(
    gpt2_like: rt.Vocabulary, rows: list[np.ndarray]
) -> None:
    turns = [n % 3 for n in range(len(rows))]
    roles = ["tool:search" if n % 2 else "assistant" for n in range(len(rows))]
    audit = Audit(gpt2_like)
    audit.add(rows[:4], turns[:4], roles[:4])
    audit.add(rows[4:], turns[4:], roles[4:])
    drift = audit.report()
    for groups, names in ((drift.by_turn, map(str, turns)), (drift.by_role, roles)):
        alone = {name: Audit(gpt2_like) for name in {g.name for g in groups}}
        for row, name in zip(rows, names, strict=True):
            alone[name].add([row])
        assert alone
        for group in groups:
            one = alone[group.name].report()
            assert (group.rows, group.drifted_rows) == (one.rows, one.drifted_rows)
            assert (group.ids, group.drifted) == (one.ids, one.drifted)
    with pytest.raises(rt.RobustokError, match="1 turns for 2 rows"):
        audit.add(rows[:2], turns[:1])


@pytest.mark.parametrize("unknown", [99_999, -1, -7, 2**40])
def test_an_unknown_id_inside_a_drifted_run_is_shown_as_its_number(
    gpt2_like: rt.Vocabulary, unknown: int
) -> None:
    t, he = (int(gpt2_like.encode(text)[0]) for text in ("t", "he"))
    audit = Audit(gpt2_like)
    audit.add([[t, unknown, he]] * 3)
    drift = audit.report()
    (exchange,) = drift.exchanges
    assert (exchange.ids, exchange.times, drift.unknown) == ((t, unknown, he), 3, 3)
    assert exchange.given == f"t|<{unknown}?>|he"
    assert [entry.id for entry in drift.by_token] == sorted([t, he])


def drifted(vocab: rt.Vocabulary, times: int) -> list[int]:
    """A row with ``times`` runs of `t|he`."""
    run = [int(vocab.encode(text)[0]) for text in ("t", "he", ".")]
    return run * times


def test_every_exchange_is_counted_however_many_a_row_has(gpt2_like: rt.Vocabulary) -> None:
    audit = Audit(gpt2_like)
    audit.add([drifted(gpt2_like, 3000)])
    for _ in range(2):
        audit.add([drifted(gpt2_like, 30_000)] * 2)
    drift = audit.report()
    (exchange,) = drift.exchanges
    assert (exchange.given, exchange.becomes, exchange.times) == ("t|he", "the", 123_000)
    assert 2 * exchange.times == drift.drifted


def test_rare_exchanges_are_forgotten_where_they_are_too_many(
    gpt2_like: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.guard.audit._MOST_HELD", 100 * 300)
    run, dot = drifted(gpt2_like, 1)[:2], drifted(gpt2_like, 1)[2]
    audit = Audit(gpt2_like)
    for unknown in range(10_000, 10_400):
        audit.add([[run[0], unknown, run[1], dot, *run, dot]])
    audit.add([[*run, dot]] * 9)
    drift = audit.report(top=1000)
    assert (drift.exchanges[0].given, drift.exchanges[0].times) == ("t|he", 409)
    assert len(drift.exchanges) <= 100


@pytest.mark.parametrize(
    ("turns", "roles"),
    [(None, ["a", "b"]), ([0, 1], None), ([0], ["a", "b"]), ([0], [["a"]]), (["x"], None)],
)
def test_nothing_is_added_with_names_that_are_not_one_for_each_row(
    gpt2_like: rt.Vocabulary, turns, roles
) -> None:
    audit = Audit(gpt2_like)
    with pytest.raises(rt.RobustokError, match=r"turns|roles"):
        audit.add([drifted(gpt2_like, 2)], turns=turns, roles=roles)
    assert audit.report() == Audit(gpt2_like).report()
    audit.add([drifted(gpt2_like, 2)], turns=np.array([3]), roles=["user"])
    assert [group.name for group in (*audit.report().by_turn, *audit.report().by_role)] == [
        "3", "user",
    ]  # fmt: skip
