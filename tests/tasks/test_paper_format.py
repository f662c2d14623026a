"""LangGame and CUTE in the paper's format, held against the examples of its appendix."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import pytest
from tests.oracles.data import real

from robustok.errors import RobustokError
from robustok.tasks import Item, cute, frequent_words, langgame
from robustok.tasks.langgame_items import (
    ARTICLE,
    HEADS,
    LISTINGS,
    PLURAL,
    SEPARATOR,
    SINGULAR,
    WORDINGS,
    Wording,
)

WORDS = frequent_words(1000)
ALL_WORDINGS = [Wording(*parts) for parts in product(*WORDINGS)]
ITEMS = langgame(WORDS, 2400, seed=0)

# Tokens of the appendix under Llama 3's tokenizer: question and answer, separated by |.
LANGGAME = [
    (
        ("most", "b", ["up", "baby", "rain", "glad"], "baby"),
        "Which| choice| has| the| most| letter| '|b|'s|?| These| are| the| possible| option| words"
        "|:| [| up|,| baby|,| rain|,| glad|].| Answer|:| | baby",
    ),
    (
        ("ends", "o", ["no", "hard", "by", "happen"], "no"),
        "Which| option| ends| with| 'o'|?| The| possible| option| strings|:| [| no|,| hard|,| by|,"
        "| happen|].| Answer|:| | no",
    ),
    (
        ("shortest", "", ["row", "suffix", "gather", "energy"], "row"),
        "What| word| is| the| shortest|?| The| available| option| strings| are|:| [| row|,| suffix"
        "|,| gather|,| energy|].| Answer|:| | row",
    ),
]
CUTE = [
    (
        ("spell", "stood"),
        'Spell| out| the| word| "| stood| ".| Answer|:|s| t| o| o| d',
    ),
    (
        ("contains", "salt"),
        'Is| there| a| "| e| "| in| "| salt| "?| Answer|:|No',
    ),
    (
        ("delete", "molecule"),
        'Delete| every| instance| of| "| c| "| in| "| molecule| ".| Answer|:|m|ole|ule',
    ),
]


@pytest.mark.parametrize(("question", "tokens"), LANGGAME)
def test_a_langgame_example_has_the_tokens_of_the_appendix(question, tokens):
    kind, letters, options, answer = question
    texts = {wording.text(kind, letters, options) for wording in ALL_WORDINGS}
    (text,) = (one for one in texts if one + SEPARATOR + answer == tokens.replace("|", ""))
    vocab = real("llama3")
    ids = [*vocab.encode(text), *vocab.encode(SEPARATOR + answer)]
    # The appendix prints " 'o'" as one token, which Llama 3 does not have.
    assert b" 'o'" not in vocab.tokens
    printed = tokens.replace(" 'o'|?", " '|o|'?").split("|")
    assert [vocab.decode([i]) for i in ids] == printed


def example(kind: str, word: str, text: str) -> Item:
    """The first generated question about a word that has this text."""
    words, n = ([word, "e"], 2) if kind == "contains" else ([word], 1)
    for seed, split in product(range(200), ("train", "test")):
        try:
            items = cute(words, n, seed=seed, kinds=[kind], split=split)
        except RobustokError:  # the questions of one word may all be in the other split
            continue
        for item in items:
            if text == item.question + item.answer:
                return item
    raise AssertionError(f"no seed gives {text!r}")


@pytest.mark.parametrize(("question", "tokens"), CUTE)
def test_a_cute_example_has_the_tokens_of_the_appendix(question, tokens):
    item = example(question[0], question[1], tokens.replace("|", ""))
    vocab = real("llama3")
    ids = [*vocab.encode(item.question), *vocab.encode(item.answer)]
    assert [vocab.decode([i]) for i in ids] == tokens.split("|")


def parts_of(item: Item) -> tuple[list[str], str]:
    quoted = re.search(r"(?:letter|contains|with) '(\w+)'", item.question)
    return [choice.strip() for choice in item.choices], quoted[1] if quoted else ""


def test_the_right_option_differs_from_the_wrong_ones_by_the_margin_of_the_paper():
    for item in ITEMS:
        words, x = parts_of(item)
        right, wrong = words[item.label], words[: item.label] + words[item.label + 1 :]
        holds = {
            "most": lambda w, x=x: (w.count(x) >= 2, w.count(x) <= 1),
            "contains": lambda w, x=x: (x in w, x not in w),
            "starts": lambda w, x=x: (w.startswith(x), not w.startswith(x)),
            "ends": lambda w, x=x: (w.endswith(x), not w.endswith(x)),
            "longest": lambda w: (len(w) >= 7, len(w) <= 4),
            "shortest": lambda w: (len(w) <= 3, len(w) >= 6),
        }[item.kind]
        assert holds(right)[0], item
        assert all(holds(w)[1] for w in wrong), item
        assert len(set(words)) == 4


def test_every_choice_of_the_grammar_is_drawn():
    text = "\n".join(item.question for item in ITEMS).lower()
    for plural in PLURAL:
        assert f"{plural}:" in text
    for singular in SINGULAR:
        assert (
            f"which {singular} contains" in text
            or f"what {singular} contains" in text
            or (not singular and re.search("(which|what) contains", text))
        )
    for article in ARTICLE:
        assert f"which of {article} " in text
    assert len(HEADS) == len(LISTINGS) == 3
    first = sum(item.question.startswith(("Which", "What")) for item in ITEMS) / len(ITEMS)
    assert abs(first - 0.5) < 0.05
    strings = Counter(
        len(parts_of(i)[1]) for i in ITEMS if i.kind in ("contains", "starts", "ends")
    )
    assert set(strings) == {1, 2, 3}


def test_one_article_and_one_plural_stand_in_a_question():
    for item in ITEMS:
        text = item.question.lower()
        both = re.search(r"which of (the possible|the available|the) ([a-z ]+?) "
                         "(?:has the|contains|starts|ends|is the)",
                         text)  # fmt: skip
        if both:
            assert f"{both[1]} {both[2]}:" in text or f"{both[1]} {both[2]} are:" in text, item


def test_guessing_on_cute_is_below_the_lowest_accuracy_of_the_paper():
    items = cute(WORDS, 700, seed=0)
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    assert 0.19 < chance < 0.209
    for item in items:
        assert len(set(item.choices)) == len(item.choices)
        assert len(item.choices) == (2 if item.kind in ("contains", "orthography") else 12)
        assert not item.answer.startswith(" ")


def common_letters(choices: tuple[str, ...]) -> str:
    """The answer whose letters the answers share most."""
    letters = Counter("".join(choices))
    return max(choices, key=lambda choice: sum(letters[c] for c in choice) / len(choice))


@pytest.mark.parametrize("game", [langgame, cute])
def test_the_answers_alone_do_not_give_the_right_one_away(game):
    items = game(frequent_words(300), 420, seed=0, split="test")
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    longest, shortest = (lambda choices, pick=pick: pick(choices, key=len) for pick in (max, min))
    for rule in (longest, shortest, common_letters, lambda c: c[0], lambda c: c[-1]):
        share = sum(rule(item.choices) == item.answer for item in items) / len(items)
        # A sixth of LangGame asks for the longest and a sixth for the shortest: 0.33 is theirs.
        # Beyond that, three standard errors of 420 questions.
        assert abs(share - chance) < 0.085 + 0.06
