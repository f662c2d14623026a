"""LangGame and CUTE: questions about the letters of words, each game in two formats.

The kinds of questions are those of the paper's appendix on data sets.

LangGame. The format "paper" has the grammar and the margins of the generator of the paper's data,
StochasTok (Sims et al.). A question has a head, a predicate and a list of the options, in one of
two orders; every part has several wordings, each drawn uniformly. The right option differs from the
wrong ones by a margin: for "the most letter 'b's" it has at least two of them and the others at
most one.

    Which choice has the most letter 'b's? These are the possible option words: [ up, baby, rain,
    glad]. Answer:

The answer is a space and " baby": a lone space token and then the word with its own. The format
"short" has its own wording, for small models. It uses four options only if each could be the right
one, and then draws the right one uniformly. So no rule that looks at the options alone (the
longest, the first, the most common letter) is right more than one time in four. "Longest" and
"shortest" ask about the options themselves, so only their order is drawn.

CUTE. Wrong options form a chain of small edits with the right option at a random place, so it is
neither the longest nor most like the others. The format "paper" is spaced as the examples of the
appendix: ``Spell out the word " stood ". Answer:`` and ``s t o o d``, a space on both sides inside
the quotes and none before the answer. The appendix does not give the number of options. Here
"contains" and "orthography" have two, as in CUTE itself, and the other five kinds twelve. Guessing
is then right in 20.2%, just below the lowest accuracy that the paper prints (20.9%). With four
options it would be 32.1%, above four of its values. The format "short" has four options and no
spaces inside the quotes.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from robustok.errors import RobustokError, check_choice
from robustok.tasks.item import Item

SPLITS = ("train", "test")
FORMATS = ("paper", "short")
KINDS = ("most", "contains", "starts", "ends", "longest", "shortest")
TEST_SHARE = 0.2

_OPTIONS = 4
_TRIES = 20_000  # attempts at a new question

# The grammar of the format "paper".
PLURAL = ("options", "choices", "option words", "option strings")
SINGULAR = ("word", "", "string", "option", "choice", "option word", "option string")
ARTICLE = ("the", "the possible", "the available")
HEADS = ("Which {singular}", "What {singular}", "Which of {article} {plural}")
LISTINGS = ("{article} {plural}:", "{article} {plural} are:", "these are {article} {plural}:")
WORDINGS = (PLURAL, SINGULAR, ARTICLE, HEADS, LISTINGS, (True, False))  # the last: question first
PREDICATES = {
    "most": "has the most letter '{x}'s?",
    "contains": "contains '{x}'?",
    "starts": "starts with '{x}'?",
    "ends": "ends with '{x}'?",
    "longest": "is the longest?",
    "shortest": "is the shortest?",
}
SEPARATOR = "  "  # between "Answer:" and an option: a lone space token, and the word's own space
_LONGEST_PART = 3  # letters of a string to contain, to start or to end with
_WRONG_TRIES = 200  # words drawn for the wrong options of a question

# The wordings of the format "short".
_SHORT = {
    "most": (
        "Which word has the most '{x}'s: {words}?",
        "Pick the one with most '{x}'s: {words}.",
    ),
    "contains": ("Which word contains '{x}': {words}?", "Pick the one with '{x}' in it: {words}."),
    "starts": (
        "Which word starts with '{x}': {words}?",
        "Pick the one that begins '{x}': {words}.",
    ),
    "ends": ("Which word ends with '{x}': {words}?", "Pick the one that ends in '{x}': {words}."),
    "longest": ("Which word is the longest: {words}?", "Pick the longest word: {words}."),
    "shortest": ("Which word is the shortest: {words}?", "Pick the shortest word: {words}."),
}

_HAS_LETTERS: dict[str, Callable[[str, str], bool]] = {  # whether an option has the letters
    "contains": str.__contains__,
    "starts": str.startswith,
    "ends": str.endswith,
}

Draw = tuple[list[str], str, str]
"""Four options, the right one of them, and the letters that the question names."""


class _Format(NamedTuple):
    """What differs between the formats of LangGame."""

    draw: Callable[[Sequence[str], str, random.Random], Draw | None]  # (words, kind, rng)
    word: Callable[[Sequence[str], str, str, random.Random], str]  # (options, kind, letters, rng)
    separator: str  # between "Answer:" and an option
    stream: str  # name of the random stream
    advice: str  # where the words do not suffice


def langgame(
    words: Sequence[str],
    n: int,
    *,
    seed: int,
    split: str = "train",
    kinds: Sequence[str] = KINDS,
    format: str = "paper",
) -> list[Item]:
    """Make n distinct questions, evenly over the kinds and the places of the answer.

    >>> words = ["up", "baby", "rain", "glad"]
    >>> item = langgame(words, 1, seed=0, kinds=["starts"], format="short")[0]
    >>> item.question, item.choices, item.label
    ("Pick the one that begins 'gl': glad, rain, up, baby. Answer:", (' glad', ...), 0)
    >>> langgame(words, 1, seed=0, kinds=["starts"])[0].question
    "What string starts with 'rai'? The possible option words: [ rain, glad, baby, up]. Answer:"

    Args:
        words: the words that serve as options, as :func:`read_words` and :func:`frequent_words`
            give them.
        n: number of questions, at least 1.
        seed: any integer; the same arguments give the same questions.
        split: ``"train"`` (default) or ``"test"``. A hash of a question's kind, letter and set of
            options decides its split, so no seed puts a question in both, in any order or wording.
        kinds: kinds of questions, in turn; by default all six.
        format: ``"paper"`` (default) for the wording, the margins and the spaces of the paper's
            data, or ``"short"`` for about half as many tokens, which small models learn faster.

    Raises RobustokError for an unknown kind, split or format, and for a word list too small or
    too uniform to make that many questions.
    Source: the paper's appendix "Language Games".
    """
    check_request("LangGame", n, split, kinds, KINDS, format)
    if len(set(words)) != len(words):
        raise RobustokError("the word list repeats a word: give each once")
    if len(words) < _OPTIONS:
        raise RobustokError(f"the word list has {len(words)} words: give at least {_OPTIONS}")
    form = _FORMATS[format]
    rng = random.Random(f"{form.stream}/{seed}/{split}")
    items: list[Item] = []
    seen: set[str] = set()
    for i in range(n):
        kind = kinds[i % len(kinds)]
        for _ in range(_TRIES):
            question = form.draw(words, kind, rng)
            if question is None:
                continue
            options, answer, letters = question
            signature = "|".join([kind, letters, *sorted(options)])
            if split_of(signature) == split and signature not in seen:
                break
        else:
            raise RobustokError(
                f"{len(words)} words are too few for {n} questions: none is left for question "
                f"{i + 1}, of kind {kind!r}; give more words, ask for fewer questions"
                f"{form.advice}"
            )
        seen.add(signature)
        # The next place at each question of a kind, so that the places of every kind balance.
        label = (i % len(kinds) - i // len(kinds)) % _OPTIONS
        others = [w for w in options if w != answer]
        ordered = [*others[:label], answer, *others[label:]]
        text = form.word(ordered, kind, letters, rng)
        choices = tuple(f"{form.separator}{w}" for w in ordered)
        items.append(Item(f"langgame-{split}-{seed}-{i}", text, choices, label, kind))
    return items


def split_of(signature: str) -> str:
    """The split of a question, by a hash of its content, the same in every data set."""
    digest = hashlib.blake2b(signature.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < TEST_SHARE * 2**64 else "train"


def check_request(
    game: str, n: int, split: str, kinds: Sequence[str], valid: Sequence[str], format: str
) -> None:
    """Raise RobustokError for a number, split, kind or format that a game does not have."""
    if n < 1:
        raise RobustokError(f"{n} questions: give at least 1")
    check_choice("split", split, SPLITS)
    for kind in kinds:
        check_choice(f"{game} kind", kind, valid)
    if not kinds:
        raise RobustokError("no kind of question: give at least one")
    check_choice(f"{game} format", format, FORMATS)


class Wording(NamedTuple):
    """One choice of each part of the paper's grammar."""

    plural: str
    singular: str
    article: str
    head: str
    listing: str
    question_first: bool

    def text(self, kind: str, letters: str, options: Sequence[str]) -> str:
        """The question in this wording, up to and with ``Answer:``."""
        words = {"plural": self.plural, "singular": self.singular, "article": self.article}
        head = self.head.format(**words).rstrip()
        question = f"{head} {PREDICATES[kind].format(x=letters)}"
        listing = f"{self.listing.format(**words)} [ {', '.join(options)}]."
        sentences = (question, listing) if self.question_first else (listing, question)
        return " ".join([*(s[0].upper() + s[1:] for s in sentences), "Answer:"])


def _word_as_paper(options: Sequence[str], kind: str, letters: str, rng: random.Random) -> str:
    """A question in a wording of which each part is uniform and independent."""
    wording = Wording(*(rng.choice(variants) for variants in WORDINGS))  # type: ignore[arg-type]
    return wording.text(kind, letters, options)


def _draw_as_paper(words: Sequence[str], kind: str, rng: random.Random) -> Draw | None:
    """The right option and three that are wrong by a margin; None where there are too few."""
    right, letters, is_wrong = _right_option(words, kind, rng)
    if not right:
        return None
    options = [right]
    for _ in range(_WRONG_TRIES):
        word = rng.choice(words)
        if is_wrong(word) and word not in options:
            options.append(word)
            if len(options) == _OPTIONS:
                return options, right, letters
    return None


def _right_option(
    words: Sequence[str], kind: str, rng: random.Random
) -> tuple[str, str, Callable[[str], bool]]:
    """The right option (empty for none), the letters, and whether a word is a wrong option."""
    if kind in _HAS_LETTERS:
        word, has_letters = rng.choice(words), _HAS_LETTERS[kind]
        size = rng.randint(1, min(_LONGEST_PART, len(word)))
        last = len(word) - size
        begin = 0 if kind == "starts" else last if kind == "ends" else rng.randint(0, last)
        substring = word[begin : begin + size]
        return word, substring, lambda other: not has_letters(other, substring)
    letter = rng.choice(sorted(set("".join(words)))) if kind == "most" else ""
    is_right, is_wrong = {
        "most": (lambda w: w.count(letter) >= 2, lambda w: w.count(letter) <= 1),
        "longest": (lambda w: len(w) >= 7, lambda w: len(w) <= 4),
        "shortest": (lambda w: len(w) <= 3, lambda w: len(w) >= 6),
    }[kind]
    candidates = [word for word in words if is_right(word)]
    return rng.choice(candidates) if candidates else "", letter, is_wrong


def _word_short(options: Sequence[str], kind: str, letters: str, rng: random.Random) -> str:
    return rng.choice(_SHORT[kind]).format(x=letters, words=", ".join(options)) + " Answer:"


def _draw_short(words: Sequence[str], kind: str, rng: random.Random) -> Draw | None:
    """Options each of which could be the right one; None where these four could not."""
    options = rng.sample(words, _OPTIONS)
    if kind in ("longest", "shortest"):
        ranked = sorted(options, key=len, reverse=kind == "longest")
        return None if len(ranked[0]) == len(ranked[1]) else (options, ranked[0], "")
    letters = [_letters(kind, i, options) for i in range(_OPTIONS)]
    if not all(letters):
        return None
    answer = rng.randrange(_OPTIONS)
    return options, options[answer], rng.choice(letters[answer])


def _letters(kind: str, i: int, options: Sequence[str]) -> list[str]:
    """Letters for which option i alone is right."""
    word, others = options[i], [w for j, w in enumerate(options) if j != i]
    if kind == "most":
        return _letters_most_of(word, others)
    sizes = [size for size in (1, 2) if size < len(word)]
    substrings = {
        "contains": sorted(set(word)),
        "starts": [word[:size] for size in sizes],
        "ends": [word[-size:] for size in sizes],
    }[kind]
    has_letters = _HAS_LETTERS[kind]
    return [x for x in substrings if not any(has_letters(word, x) for word in others)]


def _letters_most_of(word: str, others: Sequence[str]) -> list[str]:
    """Letters that a word has most of; contested ones, if there are any."""
    rivals = {c: max(w.count(c) for w in others) for c in sorted(set(word))}
    won = [c for c, rival in rivals.items() if word.count(c) > rival]
    return [c for c in won if rivals[c]] or won


_FORMATS = {
    "paper": _Format(
        _draw_as_paper, _word_as_paper, SEPARATOR, "langgame-paper", " or take the format 'short'"
    ),
    "short": _Format(_draw_short, _word_short, " ", "langgame", ""),
}


CUTE_KINDS = ("contains", "delete", "insert", "substitute", "orthography", "spell", "unspell")

_CUTE_OPTIONS = {"paper": 12, "short": 4}  # of the kinds with more than two

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
    pool = Material(words, '" {} "' if is_paper else '"{}"', _CUTE_OPTIONS[format], rng)
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
        key, space = f"cute-{split}-{seed}-{len(items)}", "" if is_paper else " "
        items.append(_item(question, kind, counts[kind], key, space))
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
    return question and (question[0], " ".join(question[1]), [" ".join(w) for w in question[2]])


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
