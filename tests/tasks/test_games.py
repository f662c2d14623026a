"""LangGame and CUTE in the short format: one right answer, none that the options give away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from robustok.errors import RobustokError
from robustok.tasks import Item, cute, frequent_words, langgame
from robustok.tasks.cute_items import CUTE_KINDS, levenshtein
from robustok.tasks.langgame_items import KINDS

WORDS = frequent_words(1000)
FEW_WORDS = WORDS[:200]
LANGGAME = langgame(FEW_WORDS, 2400, seed=0, format="short")
CUTE = cute(WORDS, 1400, seed=0, format="short")


def right_answers(item: Item) -> list[int]:
    """LangGame solved again from the text alone, as a reader would."""
    words = [c.strip() for c in item.choices]
    quoted = re.search(r"'(\w+)'", item.question)
    x = quoted[1] if quoted else ""
    measure: Callable[[str], float] = {
        "longest": len,
        "shortest": lambda w: -len(w),
        "most": lambda w: w.count(x),
        "contains": lambda w: x in w,
        "starts": lambda w: w.startswith(x),
        "ends": lambda w: w.endswith(x),
    }[item.kind]
    best = max(map(measure, words))
    return [i for i, w in enumerate(words) if measure(w) == best]


def solve(item: Item) -> str:
    """The right answer of CUTE, worked out again from the text alone."""
    words = re.findall(r'"([^"]+)"', item.question)
    if item.kind == "contains":
        return "Yes" if words[0] in words[1] else "No"
    if item.kind == "delete":
        return "".join(c for c in words[1] if c != words[0])
    if item.kind == "insert":
        return "".join(c + (words[0] if c == words[1] else "") for c in words[2])
    if item.kind == "substitute":
        return "".join(words[1] if c == words[0] else c for c in words[2])
    if item.kind == "orthography":
        return min(words[1:], key=lambda w: levenshtein(w, words[0]))
    if item.kind == "spell":
        return " ".join(words[0])
    return words[0].replace(" ", "")


def test_the_label_is_right_and_no_other_option_is() -> None:
    russian = langgame(frequent_words(100, language="ru"), 60, seed=0, format="short")
    for item in LANGGAME + russian:
        assert right_answers(item) == [item.label], item
        assert ",".join(item.choices) in "," + item.question.split(":")[1]
        assert item.question.endswith("Answer:")
    for item in CUTE:
        assert item.answer == " " + solve(item), item
        assert len(set(item.choices)) == len(item.choices)


@pytest.mark.parametrize(("items", "kinds"), [(LANGGAME, KINDS), (CUTE, CUTE_KINDS)])
def test_kinds_and_places_are_balanced(items: list[Item], kinds: tuple[str, ...]) -> None:
    assert Counter(i.kind for i in items) == dict.fromkeys(kinds, len(items) // len(kinds))
    for kind in kinds:
        places = Counter(i.label for i in items if i.kind == kind)
        assert len(set(places.values())) == 1, kind


def commonness(word: str) -> float:
    return max("etaoinshrdlcumwfgypbvkjxqz"[::-1].index(c) for c in word.strip())


def rank(word: str) -> float:
    return FEW_WORDS.index(word.strip())


@pytest.mark.parametrize("measure", [len, commonness, rank])
@pytest.mark.parametrize("pick", [max, min])
def test_no_rule_on_the_options_of_langgame_beats_chance(measure: Any, pick: Any) -> None:
    by_letter = [i for i in LANGGAME if i.kind not in ("longest", "shortest")]
    share = sum(pick(i.choices, key=measure) == i.answer for i in by_letter) / len(by_letter)
    # 1,600 questions at a chance of 1/4 have a standard deviation of 1.1%.
    assert abs(share - 0.25) < 0.045
    assert all(max(i.choices, key=len) == i.answer for i in LANGGAME if i.kind == "longest")


def likeness(item: Item) -> str:
    """The option most like the others: what single edits of the answer would give away."""
    return min(item.choices, key=lambda c: sum(levenshtein(c, d) for d in item.choices))


@pytest.mark.parametrize("rule", [likeness, lambda item: max(item.choices, key=len)])
def test_no_rule_on_the_options_of_cute_gives_the_answer_away(rule: Any) -> None:
    edited = [i for i in CUTE if len(i.choices) == 4]
    assert sum(rule(i) == i.answer for i in edited) / len(edited) < 0.36


@pytest.mark.parametrize(("game", "words"), [(langgame, WORDS[:12]), (cute, WORDS)])
def test_train_and_test_share_no_question_whatever_the_seeds(game: Any, words: list[str]) -> None:
    def identity(item: Item) -> tuple[Any, ...]:
        if game is cute:
            return (item.question,)
        quoted = re.search(r"'(\w+)'", item.question)
        return item.kind, frozenset(item.choices), quoted[1] if quoted else ""

    train, test = (
        [[identity(i) for i in game(words, n, seed=seed, split=split, format="short")]
         for seed in range(2)]
        for split, n in (("train", 300), ("test", 120))
    )  # fmt: skip
    assert {one for part in train for one in part}.isdisjoint(one for part in test for one in part)
    assert all(len(set(one)) == len(one) for one in train + test)


def test_a_seed_gives_the_same_questions_and_a_longer_list_starts_with_the_shorter() -> None:
    items = langgame(FEW_WORDS, 100, seed=3, format="short")
    assert items == langgame(FEW_WORDS, 200, seed=3, format="short")[:100]
    assert items != langgame(FEW_WORDS, 100, seed=4, format="short")


@pytest.mark.parametrize(
    ("game", "change", "message"),
    [
        (langgame, {"words": ["a", "b"]}, "give at least 4"),
        (langgame, {"words": ["up", "up", "no", "so", "go"]}, "repeats a word"),
        (langgame, {"words": ["aa", "aaa", "aaaa", "aaaaa"]}, "too few"),
        (langgame, {"kinds": ["start"]}, "did you mean 'starts'"),
        (langgame, {"kinds": []}, "at least one"),
        (langgame, {"split": "tests"}, "did you mean 'test'"),
        (langgame, {"n": 0}, "at least 1"),
        (langgame, {"format": "papers"}, "did you mean 'paper'"),
        (cute, {"format": "papers"}, "did you mean 'paper'"),
        (cute, {"kinds": ["spel"]}, "did you mean 'spell'"),
        (cute, {"words": []}, "word list is empty"),
        (cute, {"words": ["no", "so"], "kinds": ["spell"], "n": 50}, "give more words"),
    ],
)
def test_bad_input_is_one_line(game: Any, change: dict[str, Any], message: str) -> None:
    given = {"words": FEW_WORDS, "n": 6, "format": "short", **change}
    with pytest.raises(RobustokError, match=message) as error:
        game(**given, seed=0)
    assert "\n" not in str(error.value)
