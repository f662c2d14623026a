"""Drift counted by hand beside drift counted by the audit."""

import numpy as np
import pytest
from tests.guard.tokenizers_of import TEXT, metaspace

import robustok as rt
from robustok.guard import Audit, Drift, DriftPart, Rollout
from robustok.guard.layouts import Part


def drift_of(vocab: rt.Vocabulary, rows: list[np.ndarray], size: int) -> Drift:
    audit = Audit(vocab)
    for at in range(0, len(rows), size):
        audit.add(rows[at : at + size])
    return audit.report(top=1000)


def parts_of(drift: Drift, group: str) -> dict[str, DriftPart]:
    return {part.name: part for part in drift.parts if part.group == group}


@pytest.fixture(scope="module")
def rows(gpt2_like: rt.Vocabulary) -> list[np.ndarray]:
    canonical = gpt2_like.encode_batch([line.replace("<|", "<") for line in TEXT])
    drawn = rt.sampler("stochastok(alpha=0.3)", gpt2_like).sample_batch(canonical, seed=0)
    rows = [row for pair in zip(canonical, drawn, strict=True) for row in pair]
    return [*rows, np.array([*canonical[0].tolist(), 0, 9999])]


def test_counts_are_those_of_the_rows(gpt2_like: rt.Vocabulary, rows: list[np.ndarray]) -> None:
    drift = Audit(gpt2_like).report()
    assert (drift.rows, drift.drifted_rows, drift.sequences) == (0, 0, 0)
    drift = drift_of(gpt2_like, rows, 100)
    assert drift_of(gpt2_like, rows, 1) == drift_of(gpt2_like, rows, 3) == drift
    assert (drift.rows, drift.drifted_rows, drift.first_rows) == (9, 5, (1, 3, 5, 7, 8))
    assert (drift.sequences, drift.changed_sequences) == (9, 5)
    every = parts_of(drift, "all")[""]
    assert (every.rows, every.drifted_rows, every.ids) == (9, 5, sum(map(len, rows)))
    off = [rt.distance(gpt2_like, rows[i - 1], rows[i]) for i in (1, 3, 5, 7)]
    assert every.drifted == sum(off) + 1
    for name, part in parts_of(drift, "first").items():
        first = int(name.replace(",", ""))
        assert part.ids == sum(min(len(row), first) for row in rows)
    kinds = parts_of(drift, "kind")
    assert sum(part.events for part in kinds.values()) == every.events
    assert kinds["id outside"].drifted_rows == kinds["id outside"].events == 1
    exchanges = parts_of(drift, "exchange")
    assert sum(part.events for part in exchanges.values()) == every.events
    assert sum(part.ids for part in exchanges.values()) == every.drifted
    (role,) = parts_of(drift, "role").values()
    assert (role.name, role.ids) == ("completion", every.ids)


def test_the_kind_of_an_event(gpt2_like: rt.Vocabulary) -> None:
    t, he, the, dot = (gpt2_like.tokens.index(x) for x in (b"t", b"he", b"the", b"."))
    kind_of = Audit(gpt2_like)._kind_of
    assert kind_of((t, he), (the,)) == "split"
    assert kind_of((the,), (t, he)) == "merge"
    assert kind_of((the, dot), (t, he)) == "boundary"
    byte = gpt2_like.tokens.index(b"\xf0")
    assert kind_of((t, byte), (the,)) == "byte fragment"
    assert kind_of((byte, 10**6), ()) == "id outside"
    audit = Audit(gpt2_like)
    audit.add([[t, he, dot]])
    assert list(parts_of(audit.report(), "kind")) == ["split"]


def rollout(ids: list[int], *parts: tuple[int, str, bool], prompt: bytes | None = None) -> Rollout:
    begin, found = 0, []
    for size, role, is_sampled in parts:
        found.append(Part(begin, begin + size, role, is_sampled))
        begin += size
    return Rollout([(np.array(ids, np.int32), found)], prompt)


def test_parts_and_first_tokens_are_counted_by_where_an_event_begins(
    gpt2_like: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.guard.audit.FIRST", (2, 5))
    the, split = gpt2_like.encode("the").tolist(), drifted(gpt2_like, 1)[:2]
    audit = Audit(gpt2_like)
    clean = [*the, gpt2_like.encode(".")[0]] * 2
    audit.add_rollouts([
        rollout([*split, clean[1], *clean], (3, "prompt", False), (4, "completion", True)),
        rollout([*clean, *split, clean[1]], (1, "prompt", False), (6, "completion", True)),
    ])  # fmt: skip
    drift = audit.report()
    roles, first = parts_of(drift, "role"), parts_of(drift, "first")
    assert (roles["prompt"].events, roles["prompt"].ids, roles["prompt"].drifted_rows) == (1, 4, 1)
    assert (roles["completion"].events, roles["completion"].ids) == (1, 10)
    assert (first["2"].events, first["2"].ids, first["2"].drifted_rows) == (0, 4, 0)
    assert (first["5"].events, first["5"].ids, first["5"].drifted_rows) == (1, 9, 1)
    assert drift.drifted_rows == 2


def test_rollouts_are_grouped_by_their_prompt(gpt2_like: rt.Vocabulary) -> None:
    split, clean = drifted(gpt2_like, 1), gpt2_like.encode("the").tolist()
    audit = Audit(gpt2_like)
    audit.add_rollouts(
        rollout(ids, (len(ids), "completion", True), prompt=key)
        for ids, key in ((split, b"a"), (clean, b"a"), (split, b"b"), (clean, None))
    )
    assert audit.by_prompt == {b"a": (1, 2), b"b": (1, 1), 3: (0, 1)}


@pytest.mark.parametrize("answer", ["Hello there.", "the rest", " the", "t"])
def test_completions_are_judged_in_mid_text(answer: str) -> None:
    """A tokenizer that puts a space before a text gives an answer in mid-text without it."""
    vocab = metaspace(prefix=True)
    ids = vocab.encode_continuations_unchecked([answer.encode()])[0]
    audit = Audit(vocab)
    verdicts = audit.add([ids])
    assert audit.report().drifted_rows == 0
    assert verdicts.round_trip.all()
    # As are the ids of a text of its own.
    assert audit.add([vocab.encode(answer)]).canonical.all()


@pytest.mark.parametrize("unknown", [99_999, -1, -7, 2**40])
def test_an_unknown_id_inside_a_drifted_run_is_shown_as_its_number(
    gpt2_like: rt.Vocabulary, unknown: int
) -> None:
    t, he = (int(gpt2_like.encode(text)[0]) for text in ("t", "he"))
    audit = Audit(gpt2_like)
    audit.add([[t, unknown, he]] * 3)
    drift = audit.report()
    ((name, exchange),) = parts_of(drift, "exchange").items()
    assert name == f"t|<{unknown}?>|he for the"
    assert (exchange.events, exchange.ids, exchange.drifted_rows) == (3, 9, 3)
    assert parts_of(drift, "kind").keys() == {"id outside"}


def drifted(vocab: rt.Vocabulary, times: int) -> list[int]:
    """A row with ``times`` runs of `t|he`."""
    run = [int(vocab.encode(text)[0]) for text in ("t", "he", ".")]
    return run * times


def test_rare_exchanges_are_forgotten_where_they_are_too_many(
    gpt2_like: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.guard.audit._MOST_EXCHANGES", 100)
    run, dot = drifted(gpt2_like, 1)[:2], drifted(gpt2_like, 1)[2]
    audit = Audit(gpt2_like)
    for unknown in range(10_000, 10_400):
        audit.add([[run[0], unknown, run[1], dot, *run, dot]])
    audit.add([[*run, dot]] * 9)
    exchanges = parts_of(audit.report(top=1000), "exchange")
    assert exchanges["t|he for the"].events == 409
    assert len(exchanges) <= 100
