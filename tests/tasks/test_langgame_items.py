from __future__ import annotations

import re
from collections import Counter

import pytest

from robustok.errors import RobustokError
from robustok.tasks import Item, frequent_words, langgame
from robustok.tasks.langgame_items import KINDS

WORDS = frequent_words(200)
ITEMS = langgame(WORDS, 2400, seed=0, format="short")
BY_LETTER = [i for i in ITEMS if i.kind not in ("longest", "shortest")]


def right_answers(item: Item) -> list[int]:
    """Solved again from the text alone, as a reader would."""
    words = [c.strip() for c in item.choices]
    quoted = re.search(r"'(\w+)'", item.question)
    x = quoted[1] if quoted else ""
    if item.kind == "longest":
        return [i for i, w in enumerate(words) if len(w) == max(map(len, words))]
    if item.kind == "shortest":
        return [i for i, w in enumerate(words) if len(w) == min(map(len, words))]
    if item.kind == "most":
        counts = [w.count(x) for w in words]
        return [i for i, c in enumerate(counts) if c == max(counts)]
    holds = {
        "contains": lambda w: x in w,
        "starts": lambda w: w.startswith(x),
        "ends": lambda w: w.endswith(x),
    }[item.kind]
    return [i for i, w in enumerate(words) if holds(w)]


def test_every_question_has_one_right_answer_and_it_is_the_label():
    for item in ITEMS:
        assert right_answers(item) == [item.label], item
        assert ",".join(item.choices) in "," + item.question.split(":")[1]
        assert item.question.endswith("Answer:")


def test_kinds_and_places_are_balanced():
    assert Counter(i.kind for i in ITEMS) == dict.fromkeys(KINDS, 400)
    assert set(Counter((i.kind, i.label) for i in ITEMS).values()) == {100}


def length(word: str) -> float:
    return len(word)


def commonness(word: str) -> float:
    return max("etaoinshrdlcumwfgypbvkjxqz"[::-1].index(c) for c in word.strip())


def rank(word: str) -> float:
    return WORDS.index(word.strip())


@pytest.mark.parametrize("measure", [length, commonness, rank])
@pytest.mark.parametrize("pick", [max, min])
def test_no_rule_on_the_options_alone_beats_chance(measure, pick):
    hits = sum(pick(i.choices, key=measure) == i.answer for i in BY_LETTER)
    share = hits / len(BY_LETTER)
    # 1,600 questions at a chance of 1/4 have a standard deviation of 1.1%.
    assert abs(share - 0.25) < 0.045
    assert all(max(i.choices, key=len) == i.answer for i in ITEMS if i.kind == "longest")


def test_train_and_test_share_no_question_whatever_the_seeds():
    def identity(item: Item) -> tuple[str, frozenset[str], str]:
        quoted = re.search(r"'(\w+)'", item.question)
        return item.kind, frozenset(item.choices), quoted[1] if quoted else ""

    words = WORDS[:12]
    train, test = (
        {identity(i) for seed in range(3) for i in langgame(
            words, count, seed=seed, split=split, format="short")}
        for split, count in (("train", 300), ("test", 120))
    )  # fmt: skip
    assert not train & test
    assert len({identity(i) for i in ITEMS}) == len(ITEMS)


def test_a_seed_gives_the_same_questions_and_a_longer_list_starts_with_the_shorter():
    items = langgame(WORDS, 100, seed=3, format="short")
    assert items == langgame(WORDS, 200, seed=3, format="short")[:100]
    assert items != langgame(WORDS, 100, seed=4, format="short")


def test_words_of_another_script():
    items = langgame(frequent_words(100, language="ru"), 60, seed=0, format="short")
    assert all(right_answers(i) == [i.label] for i in items)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": ["a", "b"]}, "give at least 4"),
        ({"words": ["up", "up", "no", "so", "go"]}, "repeats a word"),
        ({"words": ["aa", "aaa", "aaaa", "aaaaa"]}, "too few"),
        ({"kinds": ["start"]}, "did you mean 'starts'"),
        ({"kinds": []}, "at least one"),
        ({"split": "tests"}, "did you mean 'test'"),
        ({"n": 0}, "at least 1"),
    ],
)
def test_bad_input_is_one_line(change, message):
    given = {"words": WORDS, "n": 6, **change}
    with pytest.raises(RobustokError, match=message) as error:
        langgame(**given, seed=0, format="short")
    assert "\n" not in str(error.value)
