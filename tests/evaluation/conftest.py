from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import items as items
from tests.attack.conftest import vocab as vocab
from tests.oracles.models import tiny_model

from robustok import Ragged, Vocabulary, sampler
from robustok.evaluation.comparison import Evaluation, Outcome
from robustok.evaluation.questions import item_key
from robustok.tasks import Item


def draws_of(vocab: Vocabulary, item: Item, draws: int, seed: int) -> Ragged:
    """The draws of an item's question by `uniform`."""
    uniform, keys = sampler("uniform", vocab), [item_key(item.key)]
    return uniform.sample_batch([item.question], seed=seed, draws=draws, keys=keys)


def evaluation_of(answers: np.ndarray, scheme: str = "uniform") -> Evaluation:
    """Answers [items, draws], right or wrong, as an evaluation."""
    outcomes = tuple(
        Outcome(Item(str(i), "", ("a", "b"), 1), own, (0.0,) * len(own), own)
        for i, own in enumerate(map(tuple, answers.astype(int).tolist()))
    )
    accuracy = float(answers.mean())
    return Evaluation(
        accuracy=accuracy, low=0, high=1, acc_norm=accuracy, acc_norm_low=0, acc_norm_high=1,
        n=len(outcomes), draws=answers.shape[1], eval_scheme=scheme, seed=0, seconds=0.0,
        outcomes=outcomes, mode="tree", tokens_computed=0, tokens_naive=0,
        precision="float32", strength={},
    )  # fmt: skip


@pytest.fixture(scope="session")
def model(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)
