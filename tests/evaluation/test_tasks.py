"""Several tasks at once: the same numbers as one by one, resumed, with examples held apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from robustok import RobustokError
from robustok.evaluation import (
    FewShot,
    compare_models,
    evaluate,
    evaluate_tasks,
    paired,
    solved_examples,
)
from robustok.evaluation.results import item_rows, model_table, table
from robustok.models import Shape, small_model


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
    assert against.difference == pytest.approx(accuracies[1] - accuracies[0])
    assert len(item_rows(results)) == 2 * len(items)


def test_examples_are_the_last_items_and_not_evaluated(model, vocab, items) -> None:
    (result,) = evaluate_tasks(
        model, vocab, {"one": items}, ["canonical"], seed=0, few_shot=FewShot(3, "uniform")
    )
    prefix = solved_examples(vocab, items[-3:], "uniform", seed=0)
    alone = evaluate(model, vocab, items[:-3], "canonical", seed=0, prefix=prefix)
    assert result.evaluation.outcomes == alone.outcomes


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


def test_the_table_has_the_papers_form(model, vocab, items) -> None:
    tasks = {"one": items[:5], "two": items[5:]}
    results = evaluate_tasks(model, vocab, tasks, ["canonical", "uniform"], draws=2, seed=0)
    lines = table(results).splitlines()
    assert lines[0] == "| task | n | canonical | uniform |"
    assert lines[2].startswith("| one | 5 | ")
    assert lines[-1].startswith("| mean |")
    assert "p = " in lines[2] or "p < " in lines[2]


def test_there_is_at_least_one_example() -> None:
    with pytest.raises(RobustokError, match="count must be 1 or more"):
        FewShot(-1)


def test_a_start_token_stands_before_questions_and_examples(model, vocab, items) -> None:
    plain = evaluate_tasks(model, vocab, {"a": items}, ["canonical"], seed=0, start=[0])
    wanted = evaluate(model, vocab, items, "canonical", seed=0, prefix=[0])
    assert plain[0].evaluation.outcomes == wanted.outcomes
    few_shot = FewShot(2)
    shown = evaluate_tasks(
        model, vocab, {"a": items}, ["canonical"], seed=0, few_shot=few_shot, start=[0]
    )
    prefix = solved_examples(vocab, items[-2:], seed=0, start=[0])
    wanted = evaluate(model, vocab, items[:-2], "canonical", seed=0, prefix=prefix)
    assert shown[0].evaluation.outcomes == wanted.outcomes


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
