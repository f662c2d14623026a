"""Items as token ids (questions, options, whole sentences, solved examples), and their margins.

An item without a question, such as a pair of BLiMP, is scored as whole drawn sentences. A policy
decides what happens to tokenizations that are longer than the model's max_length.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.checks import check_ids, check_list
from robustok.errors import RobustokError, check_choice
from robustok.models.load import OVERFLOW, config_token, max_length_of
from robustok.models.served import ServedModel
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.samplers import sampler as as_sampler
from robustok.scoring import Request
from robustok.scoring.engine import Ids
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

if TYPE_CHECKING:
    from robustok.models.served import CausalModel

HEADER = "Below are solved examples. For the final question, predict the correct option."
NO_FIT = "choose overflow left or canonical"
# Of the examples' draws. An example that is also evaluated must not repeat its draw there.
_EXAMPLES_EPOCH = 1 << 20


# Ids before a text, or a function that gives those before one.
Prefix = Ids | Callable[[str], Ids] | None


def item_key(key: str) -> int:
    """A stable 63-bit number for an item's key, so that draws don't depend on its position."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def item_keys(keys: Iterable[str]) -> np.ndarray:
    """The number of each key, int64 [keys]."""
    return np.array([item_key(key) for key in keys], np.int64)


def encode_options(vocab: Vocabulary, options: Sequence[str | Ids]) -> list[np.ndarray]:
    """Options as ids, int32: those of text that continues a question; given ids stay."""
    check_vocabulary(vocab)
    encoded = []
    for option in options:
        is_text = isinstance(option, (str, bytes))
        ids = vocab.encode_continuations([option])[0] if is_text else check_ids(option, vocab.size)
        if not len(ids):
            raise RobustokError(f"option {option!r} has no tokens: every option needs some")
        encoded.append(ids)
    return encoded


def check_options(options: Sequence[str | Ids]) -> list[str | Ids]:
    """The options as a list; raises RobustokError for one string and for fewer than two options."""
    options = check_list("options", options)
    if len(options) < 2:
        raise RobustokError(f"a question needs at least two options, not {len(options)}")
    return options


def check_keyed(kind: str, values: Iterable[object]) -> list[Any]:
    """Items or prompts as a list; raises RobustokError where they are missing or share a key.

    ``kind`` is what errors call one of them.
    """
    values = check_list(f"{kind}s", values)
    if not values:
        raise RobustokError(f"there are no {kind}s: give at least one")
    for key, count in Counter(value.key for value in values).items():
        if count > 1:
            raise RobustokError(f"two {kind}s have the key '{key}': give each its own")
    return values


def check_questions(items: Sequence[Item]) -> None:
    """Raise RobustokError if items are missing, share a key, or have no question."""
    for item in check_keyed("item", items):
        if not item.question:
            raise RobustokError(
                f"item '{item.key}' has no question, only sentences to choose from: "
                "those have no tokenization to attack or to train on, so leave it out here"
            )


def margins(log_probs: np.ndarray, label: int, scale: str = "log-probability") -> np.ndarray:
    """max over wrong options of z − z of the right one, float64 [questions].

    >>> margins(np.log([[0.5, 0.2, 0.3]]), 0, "probability").round(2).tolist()
    [-0.2]

    z is p(option | question) at ``scale`` "probability", or its logarithm (paper, equations 1, 2).
    """
    z = np.exp(log_probs) if scale == "probability" else log_probs
    wrong = np.delete(z, label, axis=1)
    return wrong.max(axis=1) - z[:, label]


def plain_ids(ids: Ids | None) -> list[int]:
    """Ids as a list for JSON; none as an empty one."""
    return [] if ids is None else check_ids(ids).tolist()


def append(rows: Ragged, suffix: Ids | None) -> Ragged:
    """The same rows, each followed by ``suffix``."""
    if suffix is None or not len(suffix):
        return rows
    end = check_ids(suffix)
    return Ragged.from_rows([np.concatenate([row, end]) for row in rows])


def start_ids(model: CausalModel) -> list[int]:
    """The id that a text begins with, for the probability of its first token.

    Raises RobustokError where the model names none.
    """
    if isinstance(model, ServedModel):
        raise RobustokError(
            "a server does not say which token begins a text, so whole sentences cannot be scored: "
            "give the start token"
        )
    first = config_token(model, "bos_token_id", "eos_token_id")
    if first is None:
        raise RobustokError(
            "the model names no token that begins a text (bos_token_id), so whole sentences cannot "
            "be scored: set one in its config"
        )
    return [first]


def after_prefix(vocab: Vocabulary, prefix: Prefix, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The ids before a text, and its own canonical ids, int32: those in the middle of a text.

    >>> before, ids = after_prefix(vocab, vocab.encode("hello"), " world")
    >>> np.array_equal(np.concatenate([before, ids]), vocab.encode("hello world"))
    True

    Args:
        vocab: the vocabulary.
        prefix: ids before the text, or a function that gives those before one; None for none.
        text: the text. After ordinary ids it continues their text; after none, or after a special
            token, it is a text of its own.

    A token that holds the end of the prefix and the beginning of the text belongs to the text, and
    the prefix returned ends before it.
    """
    given = prefix(text) if callable(prefix) else prefix
    before = check_ids([] if given is None else given, vocab.size).astype(np.int32)
    fixed = np.flatnonzero(~vocab.ordinary[before])
    begin = int(fixed[-1]) + 1 if len(fixed) else 0
    spelled = vocab.decode_bytes(before[begin:])
    if not spelled:
        return before, vocab.encode(text)
    (alone,) = vocab.encode_continuations([text])
    (whole,) = vocab.encode_continuations([spelled + text.encode()])
    if vocab.decode_bytes(whole) == spelled + vocab.decode_bytes(alone):
        starts = _starts(vocab, whole)
        first = int(np.searchsorted(starts, len(spelled) + 1)) - 1
        if first == len(whole):  # an empty text
            return before, alone
        kept = np.flatnonzero(_starts(vocab, before[begin:]) == starts[first])
        if len(kept):
            return before[: begin + int(kept[0])], whole[first:]
    return before, alone


def _starts(vocab: Vocabulary, ids: np.ndarray) -> np.ndarray:
    """Where each token starts, in bytes, and the end of the last one, int64 [ids + 1]."""
    lengths = np.fromiter((len(vocab.tokens[i]) for i in ids.tolist()), np.int64, len(ids))
    return np.concatenate([[0], np.cumsum(lengths)])


def solved_examples(
    vocab: Vocabulary,
    examples: Sequence[Item],
    sampler: str | Sampler = "canonical",
    *,
    seed: int,
    question: str | None = None,
    start: Ids = (),
) -> np.ndarray:
    """Ids of a few-shot prefix of K solved examples, for an evaluation or an attack.

    >>> from robustok.evaluation import evaluate
    >>> def prefix(question):
    ...     solved = items[:2]
    ...     return solved_examples(vocab, solved, "uniform", seed=0, question=question)
    >>> evaluate(model, vocab, items[2:], "canonical", seed=0, prefix=prefix).n
    6

    Args:
        vocab: the model's vocabulary.
        examples: the items to show solved, in this order; at least one.
        sampler: a spec or a sampler for their questions, by default canonical. Header, answers and
            the empty lines between them are canonical.
        seed: any integer. A draw depends on it and the item's key.
        question: the text that follows, which decides about the tokens of the last empty line; by
            default the question of the first example stands for it.
        start: ids before everything, such as a start token; by default none.

    Returns int32 [n]. Ids that are not drawn are those of the tokenizer for the whole prompt, so
    with the canonical scheme and :func:`after_prefix` all are.

    Raises RobustokError without examples.
    Source: the paper's section "Does In-context Learning Improve Robustness?" and the example
    prompt of its appendix, which the header is from.
    """
    examples = check_list("examples", examples)
    if not examples:
        raise RobustokError("there are no solved examples: give at least one")
    sampler = as_sampler(sampler, vocab)
    following = question or examples[0].question or examples[0].answer
    parts = [f"{HEADER}\n\n"]
    for example in examples:
        parts += [example.question, f"{example.answer}\n\n"]
    cut = _encode_parts(vocab, parts, following)
    cut[1::2] = sampler.sample_batch(
        Ragged.from_rows(cut[1::2]),
        seed=seed,
        keys=item_keys(e.key for e in examples),
        epoch=_EXAMPLES_EPOCH,
    )
    return np.concatenate([check_ids(start), *cut]).astype(np.int32)


def _encode_parts(vocab: Vocabulary, parts: Sequence[str], following: str) -> list[np.ndarray]:
    """The canonical ids of a text before another one, cut where its parts begin, int32 each.

    A token that holds a border belongs to the part of an even number beside it. Where one holds
    the end of the text, what it holds of the text is encoded alone, and where the tokenizer changes
    the text around a border, every part is.
    """
    head, *rest = parts
    alone = [vocab.encode(head), *vocab.encode_continuations(rest)]
    spelled = [vocab.decode_bytes(ids) for ids in alone]
    text, borders = b"".join(spelled), np.cumsum([len(part) for part in spelled])
    whole = vocab.encode("".join(parts) + following)
    if not vocab.decode_bytes(whole).startswith(text):
        return alone
    starts = _starts(vocab, whole)
    last = int(np.searchsorted(starts, len(text), "right")) - 1
    whole = whole[:last]
    if starts[last] < len(text):
        (end,) = vocab.encode_continuations([text[starts[last] :]])
        whole = np.concatenate([whole, end])
    starts, inner = _starts(vocab, whole), borders[:-1]
    cuts = np.searchsorted(starts, inner)  # an even part ends behind the token that holds its end
    cuts[1::2] = np.searchsorted(starts, inner[1::2], "right") - 1
    return np.split(whole, np.maximum.accumulate(cuts))


class Window:
    """The model's longest input and what happens to longer ones; the policies of fine-tuning.

    ``error`` raises. ``left`` cuts off the start: of the prefix first, then of the question.
    ``canonical`` puts the canonical question in place of a longer one. ``drop`` leaves the whole
    item out. ``overflowed`` counts the tokenizations that did not fit.
    """

    def __init__(self, model: CausalModel, overflow: str = "error") -> None:
        check_choice("overflow policy", overflow, OVERFLOW)
        self.max_length = max_length_of(model)
        self.overflow, self.overflowed = overflow, 0

    def fit(self, request: Request, key: str, canonical: Ids) -> Request | None:
        """The request with every row in the window; None where its item is dropped.

        ``canonical`` are the canonical ids of the question with the suffix that stays behind it.

        Raises RobustokError where the policy is to raise, or cannot help.
        """
        if self.max_length is None:
            return request
        prefix = np.asarray([] if request.prefix is None else request.prefix, np.int32)
        rows = request.questions
        answer = max(len(option) for option in request.options)
        longest = self.max_length - answer
        long = rows.lengths + len(prefix) > longest
        if not long.any():
            return request
        self.overflowed += int(long.sum())
        if self.overflow == "drop":
            return None
        if self.overflow == "left" and longest > 0:
            whole = [np.concatenate([prefix, row])[-longest:] for row in rows]
            return replace(request, questions=Ragged.from_rows(whole), prefix=None)
        if self.overflow == "canonical" and len(prefix) + len(canonical) <= longest:
            fitting = [
                np.asarray(canonical, np.int32) if far else row
                for row, far in zip(rows, long, strict=True)
            ]
            return replace(request, questions=Ragged.from_rows(fitting))
        advice = {
            "error": "choose overflow drop, left or canonical",
            "canonical": "its canonical tokens do not fit either; choose overflow drop or left",
        }.get(self.overflow, "its answer alone does not fit; leave it out")
        raise RobustokError(
            f"item '{key}' has {int(rows.lengths.max()) + len(prefix)} tokens before an answer of "
            f"up to {answer}, more than the model's max_length of {self.max_length}: {advice}"
        )


def check_candidate_length(name: str, length: int, limit: int | None) -> None:
    """Raise RobustokError for a text of more tokens than the model's longest input leaves to it."""
    if limit is not None and length > limit:
        raise RobustokError(
            f"{name} has {length} tokens, and the model's longest input leaves {limit} to it: "
            "shorten it"
        )
