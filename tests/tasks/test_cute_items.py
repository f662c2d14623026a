from __future__ import annotations

import re
from collections import Counter

import pytest

from robustok.errors import RobustokError
from robustok.tasks import Item, cute, frequent_words
from robustok.tasks.cute_items import CUTE_KINDS, levenshtein

WORDS = frequent_words(1000)
ITEMS = cute(WORDS, 1400, seed=0, format="short")


def solve(item: Item) -> str:
    """The right answer, worked out again from the text alone."""
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


def test_the_label_is_right_and_no_other_option_is():
    for item in ITEMS:
        assert item.answer == " " + solve(item), item
        assert len(set(item.choices)) == len(item.choices)


def test_kinds_and_places_are_balanced():
    assert Counter(i.kind for i in ITEMS) == dict.fromkeys(CUTE_KINDS, 200)
    for kind in CUTE_KINDS:
        places = Counter(i.label for i in ITEMS if i.kind == kind)
        assert len(set(places.values())) == 1, kind


def likeness(item: Item) -> str:
    """The option most like the others: what single edits of the answer would give away."""
    return min(item.choices, key=lambda c: sum(levenshtein(c, d) for d in item.choices))


def longest(item: Item) -> str:
    return max(item.choices, key=len)


@pytest.mark.parametrize("rule", [likeness, longest])
def test_no_rule_on_the_options_alone_gives_the_answer_away(rule):
    edited = [i for i in ITEMS if len(i.choices) == 4]
    share = sum(rule(i) == i.answer for i in edited) / len(edited)
    assert share < 0.36


def test_train_and_test_share_no_question():
    train = {i.question for i in cute(WORDS, 350, seed=1, format="short")}
    test = {i.question for i in cute(WORDS, 140, seed=1, split="test", format="short")}
    assert len(train) == 350
    assert not train & test


def test_too_few_words_are_one_line():
    with pytest.raises(RobustokError, match="give more words"):
        cute(["no", "so"], 50, seed=0, kinds=["spell"], format="short")
    with pytest.raises(RobustokError, match="did you mean 'spell'"):
        cute(WORDS, 5, seed=0, kinds=["spel"], format="short")
    with pytest.raises(RobustokError, match="word list is empty"):
        cute([], 5, seed=0, format="short")
