"""LangGame: six kinds of questions about the letters of words, in two formats.

The kinds are those of the paper's appendix on data sets. The format "paper" has the grammar and the
margins of the paper's generator (:mod:`.langgame_paper`). The format "short" has a wording of its
own, for small models: a set of four options is used only if each of the four could be the right
one, and which of them is asked for is drawn evenly afterwards. So no rule that looks at the options
alone (the longest, the first, the one with the commonest letter) is right more often than one time
in four. "Longest" and "shortest" ask about the options themselves: there, only their order is
drawn.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence

from robustok.errors import RobustokError, nearest
from robustok.tasks.item import Item
from robustok.tasks.langgame_paper import SEPARATOR, draw_options, draw_wording

FORMATS = ("paper", "short")
KINDS = ("most", "contains", "starts", "ends", "longest", "shortest")
SPLITS = ("train", "test")
TEST_SHARE = 0.2

_OPTIONS = 4
_TRIES = 20_000

_QUESTIONS = {
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
    _check(words, n, split, kinds)
    if format not in FORMATS:
        raise RobustokError(f"unknown LangGame format '{format}': {nearest(format, FORMATS)}")
    paper = format == "paper"
    rng = random.Random(f"langgame{'-paper' if paper else ''}/{seed}/{split}")
    items: list[Item] = []
    seen: set[str] = set()
    for i in range(n):
        kind = kinds[i % len(kinds)]
        for _ in range(_TRIES):
            question = (draw_options if paper else _draw)(words, kind, rng)
            if question is None:
                continue
            options, answer, letter = question
            signature = "|".join([kind, letter, *sorted(options)])
            if split_of(signature) == split and signature not in seen:
                break
        else:
            raise RobustokError(
                f"{len(words)} words are too few for {n} questions: none is left for question "
                f"{i + 1}, of kind {kind!r}; give more words, ask for fewer questions"
                + (" or take the format 'short'" if paper else "")
            )
        seen.add(signature)
        # Rounds of four carry each place once, so the places balance for every kind.
        label = (i // len(kinds) + i) % _OPTIONS
        others = [w for w in options if w != answer]
        ordered = [*others[:label], answer, *others[label:]]
        text = _text(ordered, kind, letter, rng, paper)
        choices = tuple(f"{SEPARATOR if paper else ' '}{w}" for w in ordered)
        items.append(Item(f"langgame-{split}-{seed}-{i}", text, choices, label, kind))
    return items


def _text(options: Sequence[str], kind: str, letter: str, rng: random.Random, paper: bool) -> str:
    if paper:
        return draw_wording(rng).text(kind, letter, options)
    return rng.choice(_QUESTIONS[kind]).format(x=letter, words=", ".join(options)) + " Answer:"


def split_of(signature: str) -> str:
    """The split of a question, by a hash of its content, the same in every data set."""
    digest = hashlib.blake2b(signature.encode(), digest_size=8).digest()
    return "test" if int.from_bytes(digest, "big") < TEST_SHARE * 2**64 else "train"


def _check(words: Sequence[str], n: int, split: str, kinds: Sequence[str]) -> None:
    if n < 1:
        raise RobustokError(f"{n} questions: give at least 1")
    if split not in SPLITS:
        raise RobustokError(f"unknown split '{split}': {nearest(split, SPLITS)}")
    for kind in kinds:
        if kind not in KINDS:
            raise RobustokError(f"unknown LangGame kind '{kind}': {nearest(kind, KINDS)}")
    if not kinds:
        raise RobustokError("no kind of question: give at least one")
    if len(set(words)) != len(words):
        raise RobustokError("the word list repeats a word: give each once")
    if len(words) < _OPTIONS:
        raise RobustokError(f"the word list has {len(words)} words: give at least {_OPTIONS}")


def _draw(words: Sequence[str], kind: str, rng: random.Random) -> tuple[list[str], str, str] | None:
    """Four options in random order, the answer, and the letters in question; or None."""
    options = rng.sample(words, _OPTIONS)
    if kind in ("longest", "shortest"):
        ranked = sorted(options, key=len, reverse=kind == "longest")
        return None if len(ranked[0]) == len(ranked[1]) else (options, ranked[0], "")
    askable = _ASKABLE[kind]
    letters = [askable(i, options) for i in range(_OPTIONS)]
    if not all(letters):
        return None
    answer = rng.randrange(_OPTIONS)
    return options, options[answer], rng.choice(letters[answer])


def _others(i: int, options: Sequence[str]) -> list[str]:
    return [w for j, w in enumerate(options) if j != i]


def _most(i: int, options: Sequence[str]) -> list[str]:
    """Letters of which option i has strictly the most; contested ones, if there are any."""
    rivals = {c: max(w.count(c) for w in _others(i, options)) for c in sorted(set(options[i]))}
    won = [c for c, rival in rivals.items() if options[i].count(c) > rival]
    return [c for c in won if rivals[c]] or won


def _contains(i: int, options: Sequence[str]) -> list[str]:
    rest = "".join(_others(i, options))
    return [c for c in sorted(set(options[i])) if c not in rest]


def _starts(i: int, options: Sequence[str]) -> list[str]:
    ends = [options[i][:size] for size in (1, 2) if size < len(options[i])]
    return [p for p in ends if not any(w.startswith(p) for w in _others(i, options))]


def _ends(i: int, options: Sequence[str]) -> list[str]:
    ends = [options[i][-size:] for size in (1, 2) if size < len(options[i])]
    return [p for p in ends if not any(w.endswith(p) for w in _others(i, options))]


_ASKABLE: dict[str, Callable[[int, Sequence[str]], list[str]]] = {
    "most": _most,
    "contains": _contains,
    "starts": _starts,
    "ends": _ends,
}
