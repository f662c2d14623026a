"""Answers of a model to the canonical and to the attacked prompt, and their judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.attack.records import Attack
from robustok.errors import RobustokError
from robustok.evaluation.completions import generated
from robustok.evaluation.questions import Ids, plain_ids
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonObject
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Judge = Callable[[str, str], Any]


@dataclass(frozen=True)
class Answers:
    """What a model answers to a prompt, tokenized canonically and by an attack.

    >>> Answers("a", "hi", "hello", "bye").as_row()["attacked"]
    'bye'

    Args:
        key: name of the prompt.
        text: the prompt.
        canonical: answer to its canonical tokenization.
        attacked: answer to the attacked one.
        canonical_verdict: what the judge gave for ``canonical``; None without a judge.
        attacked_verdict: what it gave for ``attacked``.
        seed: seed of the attack; None where it is unknown.
    """

    key: str
    text: str
    canonical: str
    attacked: str
    canonical_verdict: float | None = None
    attacked_verdict: float | None = None
    seed: int | None = None

    def as_row(self) -> JsonObject:
        """A plain dictionary, ready for JSON."""
        return asdict(self)


def greedy_answer(
    model: PreTrainedModel,
    vocab: Vocabulary,
    ids: Ids,
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_new_tokens: int = 64,
) -> str:
    """The model's greedy answer to one tokenization.

    >>> isinstance(greedy_answer(model, vocab, vocab.encode("hello"), max_new_tokens=2), str)
    True

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        ids: the tokenization of the prompt.
        prefix: ids before it, such as those of a chat template; by default none.
        suffix: ids after it; by default none.
        max_new_tokens: greatest number of generated tokens, at least 1.

    Generation stops at the model's end tokens. Special tokens are left out of the answer.

    Raises RobustokError where prompt and answer do not fit the model's longest input.
    """
    whole = np.array([*plain_ids(prefix), *plain_ids(ids), *plain_ids(suffix)], np.int64)
    greedy = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    (answer,) = generated(model, whole, max_new_tokens, **greedy)
    kept = [i for i in answer if i < len(vocab.tokens) and i not in vocab.special]
    return vocab.decode_bytes(kept).decode("utf-8", "replace")


def generate_answers(
    model: PreTrainedModel,
    vocab: Vocabulary,
    attacks: Sequence[Attack],
    *,
    prefix: Ids | None = None,
    suffix: Ids | None = None,
    max_new_tokens: int = 64,
    judge: Judge | None = None,
    progress: Progress | None = None,
) -> list[Answers]:
    """Answers to the canonical and the attacked tokenization of each prompt.

    >>> from robustok.attack import as_objective, attack_prompt
    >>> length = as_objective(lambda rows: rows.lengths, name="length")
    >>> attacks = [attack_prompt(vocab, "hello", length, seed=0)]
    >>> judge = lambda prompt, answer: len(answer) > 3
    >>> generate_answers(model, vocab, attacks, judge=judge, max_new_tokens=2)[0].key
    'hello'

    Args:
        attacks: the attacks.
        judge: called with (prompt, answer); returns a number or a truth value. By default none.
        progress: called with (prompts done, prompts).

    ``model``, ``vocab``, ``prefix``, ``suffix`` and ``max_new_tokens`` are those of
    :func:`greedy_answer`.

    Raises RobustokError as :func:`greedy_answer`, and where the judge gives no number.
    """
    rows: list[Answers] = []
    for attack in attacks:
        canonical, attacked = (
            greedy_answer(
                model, vocab, ids, prefix=prefix, suffix=suffix, max_new_tokens=max_new_tokens
            )
            for ids in (attack.canonical_ids, attack.ids)
        )
        before, after = (_verdict(judge, attack.text, one) for one in (canonical, attacked))
        rows.append(
            Answers(attack.key, attack.text, canonical, attacked, before, after, attack.seed)
        )
        if progress is not None:
            progress(len(rows), len(attacks))
    return rows


def _verdict(judge: Judge | None, text: str, answer: str) -> float | None:
    """The number that a judge gives to an answer; None without a judge."""
    if judge is None:
        return None
    verdict = judge(text, answer)
    try:
        number = float(verdict)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RobustokError(
            f"the judge gave {verdict!r}, which is no number: return a number or True or False"
        )
    return number
