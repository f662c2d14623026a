"""Several attacks, proofs, second ids, files of attacks, and generation, against naive loops."""

import json
import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests.attack.conftest import TEXT, attack_prompt, rugged_rows
from tests.oracles.lattice import distance, tokenizations
from tests.oracles.models import tiny_model

from robustok import RobustokError, Vocabulary
from robustok.attack import (
    Attack,
    AttackSettings,
    Prompt,
    as_objective,
    attack_prompts,
    generate_answers,
    greedy_answer,
    read_attacks,
    read_prompts,
    summaries,
    worst_attacks,
    write_attacks,
)
from robustok.attack.search import AttackedText
from robustok.attack.settings import unsearched_ids, unsearched_text
from robustok.tasks import read_items

PROMPTS = [Prompt("a", "happen, glad"), Prompt("b", "glad rain"), Prompt("c", "happen rain")]


SEARCHES = {
    "greedy": {"steps": 3},
    "beam": {"search": "beam", "max_scored": 60, "steps": 9},
    "random": {"search": "random", "max_scored": 60},
}


def test_the_worst_of_several_attacks_is_broken_where_one_of_them_is(vocab) -> None:
    objective = as_objective(rugged_rows, threshold=0.98)
    parts = {
        name: attack_prompts(vocab, PROMPTS, lambda _: objective, seed=0, **changes)
        for name, changes in SEARCHES.items()
    }
    worst = worst_attacks([*parts.values()])
    assert len({attack.score for attack in worst}) > 1
    for i, attack in enumerate(worst):
        assert attack.score == max(part[i].score for part in parts.values())
        assert attack.success == any(part[i].success for part in parts.values())
    *rows, last = summaries(parts)
    assert [row["eval_scheme"] for row in (*rows, last)] == [*parts, "worst of 3 attacks"]
    assert last["success"] == np.mean([bool(attack.success) for attack in worst])
    assert last["low"] <= last["success"] <= last["high"]
    assert last["n_scored"] == sum(row["n_scored"] for row in rows)
    assert summaries({"greedy": parts["greedy"]}) == rows[:1]


def tokenizations_at(vocab, text: str, distances: Any) -> set[tuple[int, ...]]:
    canonical = tuple(vocab.encode(text).tolist())
    paths = tokenizations(vocab, text.encode())
    return {path for path in paths if distance(vocab, canonical, path) in (0, *distances)}


@pytest.mark.parametrize("distances", [(1,), (2,), (1, 2, 4)])
@pytest.mark.parametrize(
    "changes",
    [{}, {"max_neighbors": 9}, {"max_scored": 12}, {"steps": 0}, {"start": "characters"},
     {"search": "random", "max_scored": 4000}],
)  # fmt: skip
def test_an_attack_is_proved_where_all_tokenizations_at_its_distances_were_scored(
    vocab, distances, changes
) -> None:
    seen: set[tuple[int, ...]] = set()

    def counted(rows: Any) -> np.ndarray:
        seen.update(tuple(row.tolist()) for row in rows)
        return rugged_rows(rows)

    for text in ("up", "glad", "glad rain", TEXT):
        wanted = tokenizations_at(vocab, text, distances)
        for threshold in (0.9, 2.0):
            seen.clear()
            settings = {"distances": distances, "seed": 3, **changes}
            attack = attack_prompt(
                vocab, text, as_objective(counted, threshold=threshold), **settings
            )
            is_right = not attack.success and wanted <= seen
            # The canonical tokenization may be scored for the record alone, after the search.
            assert attack.proved == is_right or ("start" in changes and not attack.proved)
            if not changes and threshold == 2.0:
                assert attack.proved
                assert attack.outcome.endswith("held, proved")
    assert not attack_prompt(vocab, TEXT, as_objective(counted), seed=0).proved  # no success at all


@pytest.fixture(scope="module")
def doubled(vocab) -> Vocabulary:
    """The vocabulary with a second id for some of its bytes, as byte fallback has them."""
    data = vocab.data
    twice = [i for i in data.ordinary if data.tokens[i] in (b"a", b"g", b"gl", b" ", b"happen")]
    tokens = [*data.tokens, *(data.tokens[i] for i in twice)]
    size = len(data.tokens)
    more = [*data.ordinary, *range(size, size + len(twice))]
    return Vocabulary(replace(data, tokens=tokens, ordinary=more))


@pytest.mark.parametrize("wanted", [0, 1, 2, 3])
def test_neighbors_with_second_ids_are_all_of_both_vocabularies(doubled, wanted: int) -> None:
    seconds = np.flatnonzero(doubled.is_second).tolist()
    assert len(seconds) > 2
    of_bytes: dict[bytes, list[int]] = {}
    for i in (*np.flatnonzero(doubled.ordinary).tolist(), *seconds):
        of_bytes.setdefault(doubled.tokens[i], []).append(i)
    text = "glad ga"
    everything = {
        made
        for path in tokenizations(doubled, text.encode())
        for made in product(*(of_bytes[doubled.tokens[i]] for i in path))
    }
    question = AttackedText(doubled, Prompt("a", text), as_objective(rugged_rows), second_ids=True)
    starts = [tuple(doubled.encode(text).tolist()), sorted(everything)[len(everything) // 2]]
    assert any(i in seconds for i in starts[1])
    for start in starts:
        at_distance = {one for one in everything if distance(doubled, start, one) == wanted}
        rows = [tuple(r.tolist()) for r in question.neighbors(np.array(start, np.int32), wanted)]
        assert len(rows) == len(set(rows))
        assert set(rows) == at_distance


def test_an_attack_with_second_ids_reaches_them_and_the_text_stays(doubled) -> None:
    second = doubled.is_second
    count = as_objective(lambda rows: [second[row].sum() for row in rows], threshold=0.5)
    plain, both = (
        attack_prompt(doubled, "glad ga", count, second_ids=s, distances=(1,), seed=0)
        for s in (False, True)
    )
    assert (plain.success, both.success) == (False, True)
    assert plain.proved and doubled.decode(both.ids) == "glad ga"
    assert unsearched_text(unsearched_ids(doubled, AttackSettings())).startswith(
        f"; {int(second.sum())} second ids are not searched"
    )
    assert not unsearched_ids(doubled, AttackSettings(second_ids=True))


QUESTIONS = {
    "copa": {"id": "c1", "query": "The sun rose.", "question": "cause", "prompt": "It rose as"},
    "hellaswag": {"id": "h1", "query": "Roofs: He is up.", "ctx": "He is up."},
    "piqa": {"id": "p1", "query": "dresser", "prompt": "Question: dresser"},
    "winogrande": {"id": "w1", "query": "Sarah knew more than Maria, so _ won."},
    "other": {"question": "Which is up?"},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_prompts_of_a_file_of_questions_are_those_of_its_items(tmp_path, name: str) -> None:
    row = QUESTIONS[name] | {"choices": ["Sarah", "Maria"], "label": 1, "target": " no"}
    path = tmp_path / f"{name}.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (item,), (prompt,) = read_items(path), read_prompts(path)
    wanted = {"choices": list(item.choices), "label": 1, "target": " no"}
    assert (prompt.key, prompt.text) == (item.key, item.question)
    assert {name: prompt.fields[name] for name in wanted} == wanted


def test_a_prompt_keeps_its_words_and_options_and_needs_a_text(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"id": 7, "prompt": "Say it.", "choices": ["a", "b"], "label": 0},
        {"query": "And now?"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    options = {"choices": ["a", "b"], "label": 0}
    assert read_prompts(path) == [Prompt("7", "Say it.", options), Prompt("1", "And now?", {})]
    assert read_prompts(path, limit=1) == read_prompts(path)[:1]
    for row in ({"target": " a"}, {"question": "", "choices": ["a", "b"], "label": 0}):
        path.write_text(json.dumps(row))
        with pytest.raises(RobustokError, match=r"prompts\.jsonl:1.*as prompt, query or question"):
            read_prompts(path)
    path.write_text("\n")
    with pytest.raises(RobustokError, match=r"prompts\.jsonl has no prompts"):
        read_prompts(path)


def test_a_damaged_file_of_attacks_names_its_line(vocab, tmp_path) -> None:
    attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows), seed=0)
    write_attacks(tmp_path / "a.jsonl", [attack])
    row = json.loads((tmp_path / "a.jsonl").read_text())
    for change in ({"ids": [-1] * len(row["ids"])}, {"steps": 1}, {"ids": []}):
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


@pytest.mark.parametrize("lowest", [-1e30, -math.inf])
def test_a_file_keeps_a_probability_of_zero_and_an_exclusion_apart(
    vocab, tmp_path, lowest: float
) -> None:
    start = vocab.encode(TEXT)
    only = as_objective(lambda rows: [-2.0 if np.array_equal(r, start) else lowest for r in rows])
    attack = attack_prompt(vocab, TEXT, only, start="characters", steps=1, seed=0)
    assert (attack.score, attack.canonical_score) == (lowest, -2.0)
    write_attacks(tmp_path / "a.jsonl", [attack])
    (again,) = read_attacks(tmp_path / "a.jsonl")
    assert (again.score, again.margins, again.canonical_score) == (lowest, attack.margins, -2.0)
    table = [summaries({"one": [one]}) for one in (attack, again)]
    assert table[0] == table[1] == json.loads(json.dumps(table[0], allow_nan=False))


def test_the_worst_attack_is_one_that_succeeded(vocab) -> None:
    held = attack_prompt(vocab, TEXT, as_objective(rugged_rows, threshold=9), seed=0)
    broken = [replace(held, success=True, score=held.score - 1)]
    assert worst_attacks([[held], broken, [held]]) == broken


def test_success_of_the_canonical_tokenization_is_no_success_of_the_attack_in_words(vocab) -> None:
    for threshold, words in (
        (9, "held, proved"),
        (0.5, "broken"),
        (-9, "canonical tokenization itself"),
    ):
        attack = attack_prompt(vocab, TEXT, as_objective(rugged_rows, threshold=threshold), seed=0)
        assert attack.outcome.endswith(words), (threshold, attack.outcome)


def test_the_answer_is_the_greedy_one(model, vocab, monkeypatch) -> None:
    for name, value in (("repetition_penalty", 5.0), ("num_beams", 3), ("no_repeat_ngram_size", 1)):
        monkeypatch.setattr(model.generation_config, name, value)
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
    for judge in (lambda *_: "yes", lambda *_: math.nan):
        with pytest.raises(RobustokError, match="which is no number: return"):
            generate_answers(llama, vocab, [attack], judge=judge, max_new_tokens=1)


def test_an_answer_that_does_not_fit_is_one_line(vocab) -> None:
    model = tiny_model("gpt2", vocab.size)
    with pytest.raises(RobustokError, match="more than the model's 256 positions"):
        greedy_answer(model, vocab, [5] * 250, max_new_tokens=10)
