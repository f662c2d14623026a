"""Items as token ids (questions, options, whole sentences, solved examples), and their margins.

An item without a question, such as a pair of BLiMP, is scored as whole drawn sentences. A policy
decides what happens to tokenizations that are longer than the model's max_length.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robustok.checks import check_ids, check_list
from robustok.errors import RobustokError, check_choice
from robustok.models.load import OVERFLOW
from robustok.models.scored import CausalModel, Ids
from robustok.ragged import Ragged
from robustok.samplers import Sampler
from robustok.samplers import sampler as as_sampler
from robustok.scoring import Request
from robustok.scoring.engine import scored_model
from robustok.tasks import Item
from robustok.tokenizer.chat import token_starts
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

HEADER = "Below are solved examples. For the final question, predict the correct option."
NO_FIT = "choose overflow left or canonical"
# Epoch of the examples' draws, so that an evaluated example has another draw as an example.
_EXAMPLES_EPOCH = 1 << 20


def item_key(key: str) -> int:
    """A stable 63-bit number for an item's key, so that draws don't depend on its position."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1


def item_keys(keys: Iterable[str]) -> np.ndarray:
    """The number of each key, int64 [keys]."""
    return np.array([item_key(key) for key in keys], np.int64)


def encode_options(vocab: Vocabulary, options: Sequence[str | Ids]) -> list[np.ndarray]:
    """Options as ids, int32; strings are encoded as the continuation of a question."""
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
    """Items or prompts as a list; raises RobustokError where they are missing or share a key."""
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
    """Ids as a list for JSON; an empty list for None."""
    return [] if ids is None else check_ids(ids).tolist()


def append(rows: Ragged, suffix: Ids | None) -> Ragged:
    """The same rows, each followed by ``suffix``."""
    if suffix is None or not len(suffix):
        return rows
    end = check_ids(suffix)
    return Ragged.from_rows([np.concatenate([row, end]) for row in rows])


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
        question: the text that follows, on which the tokens of the last empty line depend; by
            default the question of the first example.
        start: ids before everything, such as a start token; by default none.

    Returns int32 [n]. Ids that are not drawn are the tokenizer's ids of the whole prompt; with the
    canonical scheme and :func:`after_prefix` all ids are. Where the tokenizer changes the text
    around a border, as NFC does with an answer that begins with a combining mark, each part is
    encoded alone.

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
    encoded = _encode_parts(vocab, parts, following)
    encoded[1::2] = sampler.sample_batch(
        Ragged.from_rows(encoded[1::2]),
        seed=seed,
        keys=item_keys(e.key for e in examples),
        epoch=_EXAMPLES_EPOCH,
    )
    return np.concatenate([check_ids(start), *encoded]).astype(np.int32)


def _encode_parts(vocab: Vocabulary, parts: Sequence[str], following: str) -> list[np.ndarray]:
    """The canonical ids of ``parts`` before the text ``following``, int32 for each part.

    A token across a border belongs to the adjacent part of an even number. Where the tokenizer
    changes the text around a border, every part is encoded alone.
    """
    head, *rest = parts
    separate = [vocab.encode(head), *vocab.encode_continuations(rest)]
    texts = [vocab.decode_bytes(ids) for ids in separate]
    text, borders = b"".join(texts), np.cumsum([len(text_) for text_ in texts])
    joint = vocab.encode("".join(parts) + following)
    if not vocab.decode_bytes(joint).startswith(text):
        return separate
    starts = token_starts(vocab, joint)
    last = int(np.searchsorted(starts, len(text), "right")) - 1
    joint = joint[:last]
    if starts[last] < len(text):
        (end,) = vocab.encode_continuations([text[starts[last] :]])
        joint = np.concatenate([joint, end])
    starts, inner_borders = token_starts(vocab, joint), borders[:-1]
    # An even part ends after the token across its end.
    cuts = np.searchsorted(starts, inner_borders)
    cuts[1::2] = np.searchsorted(starts, inner_borders[1::2], "right") - 1
    return np.split(joint, np.maximum.accumulate(cuts))


class Window:
    """The model's longest input and the policy for longer ones, as in fine-tuning.

    ``error`` raises. ``left`` cuts off the start: of the prefix first, then of the question.
    ``canonical`` puts the canonical question in place of a longer one. ``drop`` leaves the whole
    item out. ``overflowed`` counts the tokenizations that did not fit.
    """

    def __init__(self, model: CausalModel, overflow: str = "error") -> None:
        check_choice("overflow policy", overflow, OVERFLOW)
        self.max_length = scored_model(model).max_length
        self.overflow, self.overflowed = overflow, 0

    def fit(self, request: Request, key: str, canonical: Ids) -> Request | None:
        """The request with every row in the window; None where its item is dropped.

        ``canonical`` are the canonical ids of the question with its suffix.
        """
        if self.max_length is None:
            return request
        prefix = np.asarray([] if request.prefix is None else request.prefix, np.int32)
        rows = request.questions
        answer = max(len(option) for option in request.options)
        max_prompt = self.max_length - answer
        is_long = rows.lengths + len(prefix) > max_prompt
        if not is_long.any():
            return request
        self.overflowed += int(is_long.sum())
        if self.overflow == "drop":
            return None
        if self.overflow == "left" and max_prompt > 0:
            cut_rows = [np.concatenate([prefix, row])[-max_prompt:] for row in rows]
            return replace(request, questions=Ragged.from_rows(cut_rows), prefix=None)
        has_question = len(rows.values) > 0  # else the options are drawn sentences
        if (
            self.overflow == "canonical"
            and has_question
            and len(prefix) + len(canonical) <= max_prompt
        ):
            fitting = [
                np.asarray(canonical, np.int32) if is_too_long else row
                for row, is_too_long in zip(rows, is_long, strict=True)
            ]
            return replace(request, questions=Ragged.from_rows(fitting))
        advice = {
            "error": "choose overflow drop, left or canonical",
            "canonical": "its canonical tokens do not fit either; choose overflow drop or left"
            if has_question
            else "its sentences stay as they are drawn; choose overflow drop or left",
        }.get(self.overflow, "its answer alone does not fit; leave it out")
        raise RobustokError(
            f"item '{key}' has {int(rows.lengths.max()) + len(prefix)} tokens before an answer of "
            f"up to {answer}, more than the model's max_length of {self.max_length}: {advice}"
        )
