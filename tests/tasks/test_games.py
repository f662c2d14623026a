"""LangGame and CUTE: one right answer, none that the options give away; the paper's examples."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from tests.oracles.data import real

from robustok.errors import RobustokError
from robustok.tasks import Item, cute, frequent_words, langgame
from robustok.tasks.games import (
    ARTICLE,
    CUTE_KINDS,
    HEADS,
    KINDS,
    LISTINGS,
    PLURAL,
    SEPARATOR,
    SINGULAR,
    WORDINGS,
    Wording,
    levenshtein,
)

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
    words = "дом вода лес река город море друг время слово гора человек работа книга окно улица"
    russian = langgame(words.split(), 60, seed=0, format="short")
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


@pytest.mark.parametrize("format", ["paper", "short"])
@pytest.mark.parametrize("count", range(1, 7))
def test_the_place_of_the_answer_is_balanced_for_any_number_of_kinds(
    count: int, format: str
) -> None:
    items = langgame(WORDS, 8 * count, seed=0, kinds=KINDS[:count], format=format)
    places = Counter((item.kind, item.label) for item in items)
    assert places == dict.fromkeys(product(KINDS[:count], range(4)), 2)


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


# The format of the paper.
ALL_WORDINGS = [Wording(*parts) for parts in product(*WORDINGS)]
PAPER = langgame(WORDS, 2400, seed=0)

# Tokens of the appendix under Llama 3's tokenizer: question and answer, separated by |.
LANGGAME_TOKENS = [
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
CUTE_TOKENS = [
    (("spell", "stood"), 'Spell| out| the| word| "| stood| ".| Answer|:|s| t| o| o| d'),
    (("contains", "salt"), 'Is| there| a| "| e| "| in| "| salt| "?| Answer|:|No'),
    (
        ("delete", "molecule"),
        'Delete| every| instance| of| "| c| "| in| "| molecule| ".| Answer|:|m|ole|ule',
    ),
]


@pytest.mark.parametrize(("question", "tokens"), LANGGAME_TOKENS)
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


@pytest.mark.parametrize(("question", "tokens"), CUTE_TOKENS)
def test_a_cute_example_has_the_tokens_of_the_appendix(question, tokens):
    item = example(question[0], question[1], tokens.replace("|", ""))
    vocab = real("llama3")
    ids = [*vocab.encode(item.question), *vocab.encode(item.answer)]
    assert [vocab.decode([i]) for i in ids] == tokens.split("|")


def parts_of(item: Item) -> tuple[list[str], str]:
    quoted = re.search(r"(?:letter|contains|with) '(\w+)'", item.question)
    return [choice.strip() for choice in item.choices], quoted[1] if quoted else ""


def test_the_right_option_differs_from_the_wrong_ones_by_the_margin_of_the_paper():
    for item in PAPER:
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
    text = "\n".join(item.question for item in PAPER).lower()
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
    first = sum(item.question.startswith(("Which", "What")) for item in PAPER) / len(PAPER)
    assert abs(first - 0.5) < 0.05
    strings = Counter(
        len(parts_of(i)[1]) for i in PAPER if i.kind in ("contains", "starts", "ends")
    )
    assert set(strings) == {1, 2, 3}


def test_one_article_and_one_plural_stand_in_a_question():
    for item in PAPER:
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
