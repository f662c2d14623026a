"""The suite, replay, and generation, against naive loops."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.attack.conftest import TEXT, WORDS, rugged_rows
from tests.oracles.models import tiny_model

from robustok import RobustokError, Vocabulary
from robustok.attack import (
    Attack,
    ObjectiveSettings,
    Prompt,
    TargetLikelihood,
    as_objective,
    attack_prompt,
    attack_prompts,
    generate_answers,
    greedy_answer,
    ids_in,
    objective_by_name,
    read_attacks,
    replay,
    run_suite,
    suite_settings,
    write_attacks,
)
from robustok.models import train_tokenizer
from robustok.tasks import Item

PROMPTS = [Prompt("a", "happen, glad"), Prompt("b", "glad rain"), Prompt("c", "happen rain")]


def test_a_suite_is_the_worst_of_its_searches(vocab) -> None:
    objective = as_objective(rugged_rows, threshold=0.98)
    result = run_suite(vocab, PROMPTS, lambda _: objective, max_scored=60, seed=0)
    assert list(result.parts) == list(suite_settings())
    for name, settings in suite_settings(max_scored=60).items():
        alone = attack_prompt(vocab, PROMPTS[0].text, objective, settings=settings, seed=0)
        assert result.parts[name][0].ids.tolist() == alone.ids.tolist()
    for i, worst in enumerate(result.worst):
        assert worst.score == max(attacks[i].score for attacks in result.parts.values())
    *parts, last = result.table()
    broken = [any(a[i].success for a in result.parts.values()) for i in range(len(PROMPTS))]
    assert last["success"] == pytest.approx(np.mean(broken))
    assert last["low"] <= last["success"] <= last["high"]
    assert last["n_scored"] == sum(part["n_scored"] for part in parts)
    curves = result.curves([1, 10, 60])
    for i, row in enumerate(curves["worst of all"]):
        assert row["success"] >= max(curves[name][i]["success"] for name in result.parts)


def test_a_replay_on_the_attacked_model_gives_its_scores(model, vocab, tmp_path) -> None:
    objective = TargetLikelihood(model, vocab, " rain", threshold=-9.0, prefix=[3], suffix=[4])
    attacks = attack_prompts(vocab, PROMPTS, lambda _: objective, seed=0, steps=2)
    write_attacks(tmp_path / "a.jsonl", attacks)
    records = read_attacks(tmp_path / "a.jsonl")
    assert (records[0].prefix, records[0].suffix) == ([3], [4])
    for attack, again in zip(attacks, replay(records, vocab, lambda _: objective), strict=True):
        assert again.ids.tolist() == attack.ids.tolist()
        assert again.score == pytest.approx(attack.score, abs=1e-4)
        assert again.canonical_score == pytest.approx(attack.canonical_score, abs=1e-4)
        assert again.success == attack.success


@pytest.mark.filterwarnings("ignore:all options have probability 0")
def test_a_replay_counts_a_success_as_the_attack_does(vocab, llama) -> None:
    """The probabilities of such long answers are 0 as floats, but their logarithms differ."""
    item = Item("a", TEXT, (" up" * 200, " baby" * 200), 0)
    objective = objective_by_name(llama, vocab, ObjectiveSettings("margin"), prefix=[3])
    for label in (0, 1):
        prompt = Prompt.of_item(replace(item, label=label))
        (attack,) = attack_prompts(vocab, [prompt], objective, steps=0, seed=0)
        (again,) = replay([attack], vocab, objective)
        assert attack.score == 0.0
        assert again.success == attack.success
        (framed,) = replay([replace(attack, prefix=[], suffix=[9])], vocab, objective)
        assert (framed.prefix, framed.suffix) == ([3], [])


def test_an_attack_is_carried_to_another_vocabulary_by_its_cuts(vocab) -> None:
    other = Vocabulary.load(train_tokenizer(["happy gladness rainy"] * 3 + [" ".join(WORDS)], 300))
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    ids = ids_in(attack, other)
    assert other.decode(ids) == TEXT
    cuts = np.cumsum(attack.lengths).tolist()
    assert set(cuts) <= set(np.cumsum([len(other.tokens[i]) for i in ids]).tolist())


def test_a_damaged_file_of_attacks_names_its_line(vocab, tmp_path) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    write_attacks(tmp_path / "a.jsonl", [attack])
    row = json.loads((tmp_path / "a.jsonl").read_text())
    for change in ({"lengths": [1]}, {"ids": [-1] * len(row["ids"])}, {"steps": 1}, {"ids": []}):
        (tmp_path / "b.jsonl").write_text(json.dumps(row | change) + "\n")
        with pytest.raises(RobustokError, match=r"b\.jsonl:1: not an attack"):
            read_attacks(tmp_path / "b.jsonl")
    step = row["steps"][0]
    assert len(Attack.from_row(row | {"steps": [step | {"note": "of another release"}]}).steps) == 1
    for field in step:
        without = {name: value for name, value in step.items() if name != field}
        with pytest.raises(RobustokError, match=f"^it has no field '{field}'$"):
            Attack.from_row(row | {"steps": [without]})
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RobustokError, match="has no attacks"):
        read_attacks(tmp_path / "empty.jsonl")


def test_the_answer_is_the_greedy_one(model, vocab) -> None:
    ids, prefix, suffix = vocab.encode(TEXT), [5, 9], [7]
    whole = [*prefix, *ids.tolist(), *suffix]
    answer: list[int] = []
    while len(answer) < 6 and 0 not in answer:  # the end token
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*whole, *answer]])).logits[0, -1]
        answer.append(int(logits.argmax()))
    wanted = vocab.decode_bytes([i for i in answer if i not in vocab.special])
    got = greedy_answer(model, vocab, ids, prefix=prefix, suffix=suffix, max_new_tokens=6)
    assert got == wanted.decode("utf-8", "replace")


def test_answers_are_judged_and_a_bad_judge_is_one_line(vocab, llama) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    (row,) = generate_answers(
        llama, vocab, [attack], max_new_tokens=3, judge=lambda prompt, answer: prompt == TEXT
    )
    assert (row.canonical_verdict, row.attacked_verdict) == (1.0, 1.0)
    with pytest.raises(RobustokError, match="no number"):
        generate_answers(llama, vocab, [attack], judge=lambda p, a: "yes", max_new_tokens=1)


def test_an_answer_that_does_not_fit_is_one_line(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)
    with pytest.raises(RobustokError, match="more than the model's 256 positions"):
        greedy_answer(model, vocab, [5] * 250, max_new_tokens=10)
