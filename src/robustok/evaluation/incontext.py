"""In-context learning: solved examples, perturbed or not, before every question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from robustok.checks import check_list
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, as_sampler, item_key

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.tasks.item import Item
    from robustok.vocabulary import Vocabulary

HEADER = "Below are solved examples. For the final question, predict the correct option."


def solved_examples(
    vocab: Vocabulary,
    examples: Sequence[Item],
    sampler: str | Sampler = "canonical",
    *,
    seed: int,
    start: Ids = (),
) -> np.ndarray:
    """Ids of a few-shot prefix of K solved examples, for an evaluation or an attack.

    >>> from robustok.evaluation import evaluate
    >>> ids = solved_examples(vocab, items[:2], "stochastok(alpha=1)", seed=0)
    >>> evaluate(model, vocab, items[2:], "canonical", seed=0, prefix=ids).n
    6

    Args:
        vocab: the model's vocabulary.
        examples: the items to show solved, in this order; at least one.
        sampler: a spec or a sampler for their questions, by default canonical. Header, answers and
            the empty lines between them are canonical.
        seed: any integer. A draw depends on it and the item's key.
        start: ids before everything, such as a start token; by default none.

    Returns int32 [n].

    Raises RobustokError without examples.
    Source: the paper's section "Does In-context Learning Improve Robustness?" and the example
    prompt of its appendix, which the header is from.
    """
    examples = check_list("examples", examples)
    if not examples:
        raise RobustokError("there are no solved examples: give at least one")
    sampler = as_sampler(sampler, vocab)
    keys = np.array([item_key(e.key) for e in examples], np.int64)
    # Not the epoch of the evaluation: an example that is also evaluated must not repeat its draw.
    questions = sampler.sample_batch(
        [e.question for e in examples], seed=seed, keys=keys, epoch=_CONTEXT_EPOCH
    )
    between = vocab.encode("\n\n")
    parts = [np.asarray(start, np.int32), vocab.encode(HEADER), between]
    for example, question in zip(examples, questions, strict=True):
        parts += [question, vocab.encode(example.answer), between]
    return np.concatenate(parts).astype(np.int32)


_CONTEXT_EPOCH = 1 << 20
