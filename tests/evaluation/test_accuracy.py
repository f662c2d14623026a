from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.evaluation.conftest import draws_of
from tests.oracles.scoring import score_naively

from robustok import RobustokError
from robustok.evaluation import (
    FewShot,
    compare_models,
    drawn_strength,
    evaluate,
    evaluate_tasks,
    paired,
    solved_examples,
)
from robustok.evaluation.results import item_rows, model_table, table
from robustok.models import Shape, small_model
from robustok.tasks import Item


@pytest.mark.parametrize("prefix", [None, [0, 7, 9]])
def test_accuracy_is_that_of_scoring_every_draw_alone(model, vocab, items, prefix) -> None:
    result = evaluate(model, vocab, items, "uniform", draws=3, seed=5, prefix=prefix)
    right = []
    for item, outcome in zip(items, result.outcomes, strict=True):
        options = [vocab.encode(c).tolist() for c in item.choices]
        wanted = score_naively(model, list(draws_of(vocab, item, 3, 5)), options, prefix or ())
        assert list(outcome.predictions) == wanted.argmax(axis=1).tolist()
        others = np.delete(wanted, item.label, axis=1).max(axis=1)
        assert outcome.margins == pytest.approx(others - wanted[:, item.label], abs=1e-3)
        right.append((wanted.argmax(axis=1) == item.label).mean())
    assert result.accuracy == pytest.approx(np.mean(right))
    assert result.low < result.accuracy < result.high
    assert (result.n, result.draws, result.seed, result.eval_scheme) == (12, 3, 5, "uniform")
    assert result.mode == "tree"
    assert 0 < result.tokens_computed < result.tokens_naive


def test_the_strength_is_that_of_the_draws_that_are_scored(vocab, items) -> None:
    splits, tokens = 0, 0
    for item in items:
        canonical = vocab.encode(item.question)
        ends = set(np.cumsum([len(vocab.decode_bytes([i])) for i in canonical]))
        for row in draws_of(vocab, item, 3, 5):
            splits += len(set(np.cumsum([len(vocab.decode_bytes([i])) for i in row])) - ends)
            tokens += len(canonical)
    strength = drawn_strength(vocab, items, "uniform", draws=3, seed=5)
    assert strength["splits"] == pytest.approx(splits / tokens)
    assert strength["length_ratio"] > 1
    none = drawn_strength(vocab, items, "canonical", seed=0)
    assert none == {"splits": 0.0, "distance": 0.0, "length_ratio": 1.0}


def test_the_strength_of_sentences_is_measured_over_both(vocab) -> None:
    pair = Item("pair", "", ("the cat sits here", "the cat sit here"), 0)
    distance = drawn_strength(vocab, [pair], "uniform-k(k=2)", draws=4, seed=0)["distance"]
    tokens = sum(len(vocab.encode(sentence)) for sentence in pair.choices)
    assert distance == pytest.approx((2 + 2) / tokens)


def test_a_draw_depends_on_seed_and_key_alone(model, vocab, items) -> None:
    calls = []
    whole = evaluate(
        model, vocab, items, "uniform", draws=3, seed=5, progress=lambda *d: calls.append(d)
    )
    assert calls[-1] == (12, 12)
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert [row["correct"] for row in whole.table()] == [o.correct for o in whole.outcomes]
    part = evaluate(model, vocab, items[::-3], "uniform", draws=3, seed=5)
    of_key = {o.key: o for o in whole.outcomes}
    for outcome in part.outcomes:
        assert outcome.margins == pytest.approx(of_key[outcome.key].margins, abs=1e-4)
    other = evaluate(model, vocab, items, "uniform", draws=3, seed=6)
    assert other.outcomes[0].margins != pytest.approx(whole.outcomes[0].margins, abs=1e-4)


def test_mistakes_are_errors(model, vocab, items) -> None:
    with pytest.raises(RobustokError, match="no items"):
        evaluate(model, vocab, [], "uniform", seed=0)
    with pytest.raises(RobustokError, match="1 or more"):
        evaluate(model, vocab, items, "uniform", draws=0, seed=0)
    with pytest.raises(RobustokError, match="have the key"):
        evaluate(model, vocab, [items[0], items[0]], "uniform", seed=0)
    with pytest.raises(RobustokError, match="examples: give a list"):
        solved_examples(vocab, "glad", seed=0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RobustokError, match="count must be 1 or more"):
        FewShot(-1)


def test_solved_examples_spell_the_prompt(vocab, items) -> None:
    plain = solved_examples(vocab, items[:3], seed=0, start=[0])
    text = vocab.decode_bytes(plain[1:]).decode()
    assert plain[0] == 0
    assert text.startswith("Below are solved examples.")
    assert text.endswith(f"{items[2].question}{items[2].answer}\n\n")
    assert text.count("Answer:") == 3
    perturbed = solved_examples(vocab, items[:3], "uniform", seed=0)
    assert vocab.decode_bytes(perturbed).decode() == text
    assert len(perturbed) > len(plain)
    # What is asked must not be drawn as it stands among the examples.
    question = draws_of(vocab, items[0], 1, 0)[0]
    assert question.tobytes() not in perturbed.tobytes()


def test_consistency_counts_questions_with_one_answer_in_all_draws(model, vocab, items) -> None:
    result = evaluate(model, vocab, items, "uniform", draws=4, seed=5)
    same = [len(set(one.predictions)) == 1 for one in result.outcomes]
    assert 0 < sum(same) < len(same)
    assert result.consistency == pytest.approx(np.mean(same))
    assert f"consistency {result.consistency:.3f}" in str(result)
    for one_answer in (
        evaluate(model, vocab, items, "canonical", draws=4, seed=5),
        evaluate(model, vocab, items, "uniform", draws=4, seed=5, ensemble="mean"),
    ):
        assert one_answer.consistency is None
        assert all(len(o.predictions) == 1 for o in one_answer.outcomes)
        assert "consistency" not in str(one_answer)


def test_each_is_what_evaluate_gives(model, vocab, items) -> None:
    tasks = {"one": items[:5], "two": items[5:]}
    results = evaluate_tasks(model, vocab, tasks, ["canonical", "uniform"], draws=2, seed=0)
    assert [(r.task, r.evaluation.eval_scheme) for r in results] == [
        ("one", "canonical"), ("one", "uniform"), ("two", "canonical"), ("two", "uniform"),
    ]  # fmt: skip
    alone = evaluate(model, vocab, items[5:], "uniform", draws=2, seed=0)
    assert results[3].evaluation.outcomes == alone.outcomes
    against = results[3].against
    assert results[2].against is None and against is not None
    accuracies = [results[i].evaluation.accuracy for i in (2, 3)]
    assert against.mean == pytest.approx(accuracies[1] - accuracies[0])
    assert len(item_rows(results)) == 2 * len(items)
    lines = table(results).splitlines()
    assert lines[0] == "| task | n | canonical | uniform |"
    assert lines[2].startswith("| one | 5 | ")
    assert lines[-1].startswith("| mean |")
    assert "p = " in lines[2] or "p < " in lines[2]
    twice = evaluate_tasks(model, vocab, tasks, ["canonical", *["uniform"] * 2], draws=2, seed=0)
    assert table(twice).splitlines() == lines


def test_a_stopped_run_goes_on(model, vocab, items, tmp_path) -> None:
    tasks = {"one": items[:4], "two": items[4:]}
    kept, labels = tmp_path / "part.jsonl", []

    def run(stop: int = -1):
        def progress(done: int, total: int, what: str) -> None:
            labels.append(what)
            assert total == 2 * len(items)
            if done == stop:
                raise KeyboardInterrupt

        return evaluate_tasks(
            model, vocab, tasks, ["canonical", "uniform"], draws=2, seed=0, resume_file=kept,
            progress=progress,
        )  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        run(stop=8 + len(items[4:]))
    labels.clear()
    results = run()
    assert labels == ["two canonical", "two uniform"]
    whole = evaluate_tasks(model, vocab, tasks, ["canonical", "uniform"], draws=2, seed=0)
    assert [r.evaluation.outcomes for r in results] == [r.evaluation.outcomes for r in whole]
    number: Any = np.int64(2)  # is written as a plain one
    evaluate_tasks(
        model, vocab, {"one": items[:2]}, ["canonical"], draws=number, seed=number,
        resume_file=tmp_path / "numpy.jsonl",
    )  # fmt: skip
    reworded = {**tasks, "two": [replace(items[4], question="What else?"), *items[5:]]}
    for change, message in (
        ({"draws": 3}, "draws"),
        ({"model": small_model(vocab.size, seed=5)}, "model"),
        ({"tasks": reworded}, "items"),
        ({"schemes": ["canonical"]}, "schemes"),
    ):
        call: dict[str, Any] = {"model": model, "tasks": tasks, "draws": 2}
        call |= {"schemes": ["canonical", "uniform"]} | change
        with pytest.raises(RobustokError, match=f"other {message}:"):
            evaluate_tasks(vocab=vocab, seed=0, resume_file=kept, **call)


@pytest.mark.parametrize("start", [(), [0]])
def test_a_start_token_and_the_last_items_stand_before_the_others(
    model, vocab, items, start
) -> None:
    settings: dict[str, Any] = {"seed": 0, "start": start}
    (plain,) = evaluate_tasks(model, vocab, {"a": items}, ["canonical"], **settings)
    wanted = evaluate(model, vocab, items, "canonical", seed=0, prefix=start or None)
    assert plain.evaluation.outcomes == wanted.outcomes
    few_shot = FewShot(3, "uniform")
    (shown,) = evaluate_tasks(
        model, vocab, {"a": items}, ["canonical"], few_shot=few_shot, **settings
    )
    prefix = solved_examples(vocab, items[-3:], "uniform", **settings)
    wanted = evaluate(model, vocab, items[:-3], "canonical", seed=0, prefix=prefix)
    assert shown.evaluation.outcomes == wanted.outcomes


def test_models_are_compared_item_by_item(model, vocab, items) -> None:
    other = small_model(vocab.size, Shape(1, 16, 2, 2, 32, 256), seed=1, end_id=0)
    results = {
        name: evaluate_tasks(one, vocab, {"odd": items}, ["canonical", "uniform"], draws=2, seed=0)
        for name, one in [("a", model), ("b", other)]
    }
    differences = compare_models(results)
    assert [(d.model, d.against, d.eval_scheme) for d in differences] == [
        ("b", "a", "canonical"), ("b", "a", "uniform"),
    ]  # fmt: skip
    for difference, before, after in zip(differences, results["a"], results["b"], strict=True):
        assert difference.paired == paired(before.evaluation, after.evaluation)
    head, _, first, second = model_table(results).splitlines()
    assert [cell.strip() for cell in head.split("|")[1:-1]] == ["task", "scheme", "n", "a", "b"]
    assert " p = " in first and " p = " in second
    for others in (results["b"][::-1], results["b"][:1]):
        with pytest.raises(RobustokError, match="different tasks or schemes"):
            compare_models({"a": results["a"], "b": others})
