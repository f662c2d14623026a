"""Tokenizations longer than the model's max_length: the overflow policies, for RoPE and GPT-2."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.evaluation.conftest import draws_of
from tests.oracles.scoring import score_naively

from robustok import RobustokError, Vocabulary
from robustok.attack import attack, attack_items
from robustok.cli.app import run
from robustok.evaluation import after_prefix, evaluate
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import Item, write_items

MAX_LENGTH = 64


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def short(request: pytest.FixtureRequest, vocab: Vocabulary) -> Any:
    shape = Shape(1, 16, 2, 2, 32, MAX_LENGTH, architecture=request.param)
    return small_model(vocab.size, shape, seed=0).eval()


@pytest.fixture(scope="module")
def questions(vocab: Vocabulary, items: list[Item]) -> list[Item]:
    """One question that fits canonically but not as characters, and one that always fits."""
    long = replace(items[0], key="long", question="happen, glad " * 9)
    assert len(vocab.encode(long.question)) + 8 < MAX_LENGTH < len(long.question)
    return [long, replace(items[1], key="fits", question="glad")]


def measured(model: Any, vocab: Vocabulary, items: list[Item], overflow: str) -> Any:
    return evaluate(model, vocab, items, "uniform", draws=3, seed=0, overflow=overflow)


def test_the_default_is_one_line(short, vocab, questions) -> None:
    with pytest.raises(RobustokError, match=r"'long' has .* max_length of 64: choose overflow"):
        evaluate(short, vocab, questions, "uniform", draws=3, seed=0)
    with pytest.raises(RobustokError, match="did you mean 'left'"):
        measured(short, vocab, questions, "lef")


def test_drop_leaves_the_item_out_and_counts_its_draws(short, vocab, questions) -> None:
    result = measured(short, vocab, questions, "drop")
    assert [o.item.key for o in result.outcomes] == ["fits"]
    assert (result.n, result.overflowed) == (1, 3)
    assert result.strength == measured(short, vocab, questions[1:], "error").strength
    with pytest.raises(RobustokError, match="no item fits"):
        measured(short, vocab, questions[:1], "drop")
    assert evaluate(short, vocab, questions, "canonical", seed=0, overflow="drop").n == 2


def test_canonical_stands_in(short, vocab, questions) -> None:
    result = measured(short, vocab, questions, "canonical")
    canonical = evaluate(short, vocab, questions, "canonical", seed=0)
    assert result.overflowed == 3
    assert measured(short, vocab, questions[:1], "canonical").strength == canonical.strength
    assert result.outcomes[0].margins == pytest.approx(canonical.outcomes[0].margins * 3, abs=1e-4)


def test_long_sentences_are_dropped_and_never_canonical(short, vocab) -> None:
    words = "the rain is over this street and house again, happen to be there"
    long = Item("long", "", (f" a {words}", f" b {words}"), 0)
    fits = Item("fits", "", (" a", " b"), 0)
    settings: Any = {"seed": 0, "prefix": [1]}
    assert evaluate(short, vocab, [long], "canonical", **settings).n == 1
    with pytest.raises(RobustokError, match="its sentences stay as they are drawn; choose overfl"):
        evaluate(short, vocab, [long], "characters", overflow="canonical", **settings)
    dropped = evaluate(short, vocab, [long, fits], "characters", overflow="drop", **settings)
    assert dropped.n == 1


def test_left_cuts_the_start_of_the_prompt(short, vocab, questions) -> None:
    long = questions[0]
    result = measured(short, vocab, [long], "left")
    options = [vocab.encode(choice) for choice in long.choices]
    room = MAX_LENGTH - max(map(len, options))
    scores = score_naively(short, [row[-room:] for row in draws_of(vocab, long, 3, 0)], options)
    assert result.outcomes[0].predictions == tuple(np.argmax(scores, axis=1).tolist())
    prefix = vocab.encode("rain " * 60)
    cut = evaluate(short, vocab, [long], "canonical", seed=0, prefix=prefix, overflow="left")
    assert cut.overflowed == 1


@pytest.fixture(scope="module")
def edge(vocab: Vocabulary, items: list[Item]) -> list[Item]:
    """One question whose neighbors do not fit, one whose canonical tokens do not, one that fits."""
    text = "happen, glad " * 30
    size = MAX_LENGTH - 1  # the answers have one token
    ids = vocab.encode(text)[:size]
    full = replace(
        items[0], key="full", question=vocab.decode(ids), choices=(" up", " rain"), label=0
    )
    assert len(vocab.encode(full.question)) == size
    long = replace(full, key="long", question=text)
    return [full, long, replace(full, key="fits", question="glad")]


def test_an_attack_is_refused_by_default(short, vocab, edge) -> None:
    for item in edge[:2]:
        with pytest.raises(RobustokError, match=f"'{item.key}' has .* choose overflow"):
            attack_items(short, vocab, [item], seed=0, steps=1)
        with pytest.raises(RobustokError, match="max_length of 64"):
            attack(short, vocab, item.question, item.choices, item.label, steps=1)


def test_an_attack_leaves_out_neighbors_that_do_not_fit(short, vocab, edge) -> None:
    full, long, fits = edge
    # One token shorter: neighbors at distance 2 have one token more and fit, those at 4 do not.
    ids = vocab.encode(full.question)[:-1]
    full = replace(full, question=vocab.decode(ids))
    lattice = vocab.lattice(full.question)
    sizes = np.concatenate([lattice.neighbors(ids, distance=d).lengths for d in (2, 4)])
    fitting = int((sizes < MAX_LENGTH).sum())
    assert 0 < fitting < len(sizes)
    arguments: dict[str, Any] = {"seed": 0, "steps": 1, "distances": (2, 4)}
    for policy in ("canonical", "drop"):
        result = attack_items(short, vocab, [full, fits], overflow=policy, **arguments)
        assert result.attacks[0].n_scored == 1 + fitting
        assert result.attacks[0].overflowed == result.overflowed == len(sizes) - fitting
        assert all(len(a.ids) < MAX_LENGTH for a in result.attacks)
    with pytest.raises(RobustokError, match="canonical tokens do not fit either"):
        attack_items(short, vocab, [full, long], overflow="canonical", **arguments)


def test_drop_leaves_items_out_of_an_attack(short, vocab, edge) -> None:
    arguments: dict[str, Any] = {"seed": 0, "steps": 1, "overflow": "drop"}
    whole = attack_items(short, vocab, edge, **arguments)
    assert [a.key for a in whole.attacks] == ["full", "fits"]
    assert (whole.n, whole.overflowed > 0) == (2, True)
    with pytest.raises(RobustokError, match="no item fits"):
        attack_items(short, vocab, edge[1:2], **arguments)
    with pytest.raises(RobustokError, match="does not fit"):
        attack(short, vocab, edge[1].question, edge[1].choices, 0, overflow="drop")


def test_a_token_across_the_end_of_the_prefix_leaves_room_for_the_attack(short, vocab) -> None:
    item = Item("joined", "pen, glad?", (" up", " rain"), 0)
    end = vocab.encode("glad hap")
    before, ids = after_prefix(vocab, end, item.question)
    assert len(before) < len(end) and max(len(vocab.encode(choice)) for choice in item.choices) == 1
    padding = [1] * (MAX_LENGTH - 1 - len(before) - len(ids))  # so that all positions are filled
    for policy in ("drop", "canonical"):
        settings: Any = {"seed": 0, "prefix": [*padding, *end.tolist()], "overflow": policy}
        assert evaluate(short, vocab, [item], "canonical", **settings).n == 1
        result = attack_items(short, vocab, [item], steps=1, **settings)
        assert result.attacks[0].n_scored == 1 and result.overflowed > 0


def test_a_start_that_does_not_fit_is_canonical(short, vocab, questions) -> None:
    result = attack_items(
        short, vocab, questions, seed=0, steps=1, start="uniform", overflow="canonical"
    )
    assert result.attacks[0].start.tolist() == vocab.encode(questions[0].question).tolist()
    assert result.overflowed > 0
    random = attack_items(
        short, vocab, questions, seed=0, search="random", max_scored=5, overflow="canonical"
    )
    long, short_one = random.attacks
    assert long.n_scored == 1 < short_one.n_scored <= 5


def test_left_attacks_the_end_of_a_long_question(short, vocab, edge) -> None:
    result = attack_items(short, vocab, edge, seed=0, steps=1, max_neighbors=3, overflow="left")
    assert result.n == 3
    assert vocab.decode(result.attacks[1].ids) == edge[1].question
    assert result.overflowed >= 4


def test_commands_take_the_policy(
    items: list[Item], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = train_tokenizer(["happen, glad", *(item.question for item in items)], 330)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    small_model(size, Shape(1, 16, 2, 2, 32, 512), seed=0).save_pretrained(tmp_path)
    file = tmp_path / "q.jsonl"
    long = replace(items[0], question="happen, glad " * 600)
    write_items(file, [long, *(replace(items[1], key=f"k{i}", question="glad") for i in range(2))])
    for options in (
        ("-s", "uniform", "--draws", "3"),
        ("--few-shot", "1", "-s", "adversarial", "-s", "canonical"),
    ):
        call = ["evaluate", str(tmp_path), "--items", str(file), "--seed", "0", "--json", *options]
        assert run(call) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len([line for line in lines if "robustok: compiling " not in line]) == 1
        assert "choose overflow" in lines[-1]
        assert run([*call, "--overflow", "drop"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert all(row["n"] == (1 if "--few-shot" in options else 2) for row in rows)
        assert all(row["overflowed"] == rows[0]["overflowed"] >= 1 for row in rows)
