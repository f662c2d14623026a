"""CUTE: seven kinds of questions about spelling, as multiple choice, in two formats.

The kinds are those of the paper's appendix on data sets. Wrong options form a chain of small edits
with the right option at a random place, so it is neither the longest nor most like the others.

The format "paper" is spaced as the examples of the appendix: ``Spell out the word " stood ".
Answer:`` and ``s t o o d``, a space on both sides inside the quotes and none before the answer. The
appendix does not give the number of options. Here "contains" and "orthography" have two,
as in CUTE itself, and the other five kinds twelve. Guessing is then right in 20.2%, just below the
lowest accuracy that the paper prints (20.9%). With four options it would be 32.1%, above four of
its values. The format "short" has four options and no spaces inside the quotes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from robustok.errors import RobustokError
from robustok.tasks.item import Item
from robustok.tasks.langgame_items import check_request, split_of

CUTE_KINDS = ("contains", "delete", "insert", "substitute", "orthography", "spell", "unspell")

_OPTIONS = {"paper": 12, "short": 4}  # of the kinds with more than two
_TRIES = 20_000

Question = tuple[str, str, list[str]]
"""The text, the right answer and the wrong answers."""


class Material(NamedTuple):
    """What questions are made from: the words, the quotes and the number of options."""

    words: Sequence[str]
    quotes: str  # around a word or a letter, with {} in their middle
    options: int
    rng: random.Random

    def quoted(self, text: str) -> str:
        return self.quotes.format(text)


def cute(
    words: Sequence[str],
    n: int,
    *,
    seed: int,
    split: str = "train",
    kinds: Sequence[str] = CUTE_KINDS,
    format: str = "paper",
) -> list[Item]:
    """Make n distinct questions, evenly over the kinds and the places of the answer.

    >>> item = cute(["stood", "salt"], 1, seed=0, kinds=["spell"], format="short")[0]
    >>> item.question, item.answer
    ('Spell out the word "salt". Answer:', ' s a l t')
    >>> item = cute(["stood", "salt"], 1, seed=0, kinds=["spell"])[0]
    >>> item.question, item.answer
    ('Spell out the word " stood ". Answer:', 's t o o d')

    Args:
        words: the words to ask about. A letter to insert or to look for comes from them too.
        kinds: kinds of questions, in turn; by default all seven. A word can be spelled out once
            only, so a kind without new questions ends and the others continue.
        format: ``"paper"`` (default) for the spaces of the paper's examples and twelve options, or
            ``"short"`` for four. ``contains`` ("Yes", "No") and ``orthography`` always have two.

    ``n``, ``seed`` and ``split`` are as in :func:`langgame`. A question of ``orthography`` with its
    two words in the other order is another.

    Raises RobustokError for an unknown kind, split or format, and for a word list too small to
    make that many questions.
    Source: the paper's appendix "Data Sets", after Edman et al. 2024.
    """
    check_request("CUTE", n, split, kinds, CUTE_KINDS, format)
    if not words:
        raise RobustokError("the word list is empty: give some words")
    is_paper = format == "paper"
    rng = random.Random(f"cute{'-paper' if is_paper else ''}/{seed}/{split}")
    pool = Material(words, '" {} "' if is_paper else '"{}"', _OPTIONS[format], rng)
    items: list[Item] = []
    seen: set[str] = set()
    kinds_left, counts = list(kinds), dict.fromkeys(kinds, 0)
    position = 0  # of the next kind in kinds_left
    while len(items) < n:
        if not kinds_left:
            raise RobustokError(
                f"{len(words)} words make {len(items)} CUTE questions of these kinds, not {n}: "
                "give more words or ask for fewer questions"
            )
        kind = kinds_left[position % len(kinds_left)]
        question = _new_question(pool, kind, counts[kind], split, seen)
        if question is None:
            position %= len(kinds_left)
            kinds_left.remove(kind)
            continue
        item_key = f"cute-{split}-{seed}-{len(items)}"
        items.append(_item(question, kind, counts[kind], item_key, "" if is_paper else " "))
        seen.add(question[0])
        counts[kind] += 1
        position += 1
    return items


def _new_question(
    pool: Material, kind: str, turn: int, split: str, seen: set[str]
) -> Question | None:
    """A new question of the split; None after too many attempts."""
    for _ in range(_TRIES):
        question = _MAKERS[kind](pool, pool.rng.choice(pool.words), turn)
        if question and split_of(question[0]) == split and question[0] not in seen:
            return question
    return None


def _item(question: Question, kind: str, turn: int, key: str, space: str) -> Item:
    text, right, wrong = question
    if kind == "contains":
        choices = ["Yes", "No"]
    else:
        label = turn % (len(wrong) + 1)
        choices = [*wrong[:label], right, *wrong[label:]]
    texts = tuple(f"{space}{c}" for c in choices)
    return Item(key, f"{text} Answer:", texts, choices.index(right), kind)


def _contains(pool: Material, word: str, turn: int) -> Question | None:
    is_yes = turn % 2 == 0
    letters = sorted(set(word) if is_yes else set("".join(pool.words)) - set(word))
    if not letters:
        return None
    text = f"Is there a {pool.quoted(pool.rng.choice(letters))} in {pool.quoted(word)}?"
    return text, "Yes" if is_yes else "No", ["No" if is_yes else "Yes"]


def _delete(pool: Material, word: str, turn: int) -> Question | None:
    letter = pool.rng.choice(word)
    text = f"Delete every instance of {pool.quoted(letter)} in {pool.quoted(word)}."
    return _with_edits(text, word.replace(letter, ""), pool)


def _insert(pool: Material, word: str, turn: int) -> Question | None:
    new, letter = pool.rng.choice("".join(pool.words)), pool.rng.choice(word)
    text = f"Add {pool.quoted(new)} after every {pool.quoted(letter)} in {pool.quoted(word)}."
    return _with_edits(text, word.replace(letter, letter + new), pool)


def _substitute(pool: Material, word: str, turn: int) -> Question | None:
    new, letter = pool.rng.choice("".join(pool.words)), pool.rng.choice(word)
    if new == letter:
        return None
    text = f"Substitute {pool.quoted(letter)} with {pool.quoted(new)} in {pool.quoted(word)}."
    return _with_edits(text, word.replace(letter, new), pool)


def _orthography(pool: Material, word: str, turn: int) -> Question | None:
    others = pool.rng.sample(pool.words, min(len(pool.words), 60))
    near = [w for w in others if 0 < levenshtein(w, word) <= 2]
    if not near:
        return None
    right = pool.rng.choice(near)
    # The wrong word must be as long as the right one, or length would tell them apart.
    far = [w for w in others if levenshtein(w, word) >= 4 and len(w) == len(right)]
    far = far or [w for w in others if levenshtein(w, word) >= 3 and len(w) == len(right)]
    if not far:
        return None
    wrong = pool.rng.choice(far)
    text = "Which word is closer in Levenshtein distance to {}: {} or {}?"
    pair = sorted([right, wrong], key=lambda w: w == right, reverse=turn % 2 == 0)
    return text.format(*map(pool.quoted, (word, *pair))), right, [wrong]


def _spell(pool: Material, word: str, turn: int) -> Question | None:
    question = _with_edits(f"Spell out the word {pool.quoted(word)}.", word, pool)
    if question is None:
        return None
    text, right, wrong = question
    return text, " ".join(right), [" ".join(w) for w in wrong]


def _unspell(pool: Material, word: str, turn: int) -> Question | None:
    return _with_edits(f"Write the word that is spelled {pool.quoted(' '.join(word))}.", word, pool)


def _with_edits(text: str, right: str, pool: Material) -> Question | None:
    """The wrong answers: a chain of single edits through the right one."""
    words, rng = pool.words, pool.rng
    if not right:
        return None
    n_before = rng.randrange(pool.options)
    chain = [right]
    for step in range(pool.options - 1):
        start = chain[0] if step < n_before else chain[-1]
        edited = _edit(start, words, rng)
        if not edited or edited in chain:
            return None
        chain = [edited, *chain] if step < n_before else [*chain, edited]
    wrong = [w for w in chain if w != right]
    rng.shuffle(wrong)
    return text, right, wrong


def _edit(word: str, words: Sequence[str], rng: random.Random) -> str:
    """One letter dropped, doubled, replaced, or swapped with the next."""
    i = rng.randrange(len(word))
    edit = rng.randrange(4)
    if edit == 0:
        return word[:i] + word[i + 1 :]
    if edit == 1:
        return word[:i] + word[i] + word[i:]
    if edit == 2:
        return word[:i] + rng.choice(rng.choice(words)) + word[i + 1 :]
    return word[:i] + word[i : i + 2][::-1] + word[i + 2 :]


def levenshtein(a: str, b: str) -> int:
    """Fewest insertions, deletions and substitutions from a to b.

    >>> levenshtein("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


_MAKERS: dict[str, Callable[[Material, str, int], Question | None]] = {
    "contains": _contains,
    "delete": _delete,
    "insert": _insert,
    "substitute": _substitute,
    "orthography": _orthography,
    "spell": _spell,
    "unspell": _unspell,
}
