from typing import Any

import numpy as np
import pytest
from tests.oracles.lattice import Path, tokenizations
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively

from robustok import Vocabulary
from robustok.attack import Attack, Prompt, attack_prompts
from robustok.models import train_tokenizer
from robustok.tasks import Item
from robustok.tasks.games import langgame

TEXT = "happen, glad"
OPTIONS = [" up", " baby", " rain"]
WORDS = ["up", "baby", "rain", "glad", "carry", "half", "garden", "happen", "differ", "straight"]


def rugged(ids: Any) -> float:
    """A number from the ids, which jumps from one tokenization to the next and costs nothing."""
    ids = np.asarray(ids, float)
    return float(np.sin((ids * np.arange(7, 7 + len(ids))).sum()))


def rugged_rows(rows: Any) -> np.ndarray:
    return np.array([rugged(row) for row in rows])


def attack_prompt(vocab: Vocabulary, text: str, objective: Any, **options: Any) -> Attack:
    """The attack on a single prompt."""
    (attack,) = attack_prompts(vocab, [Prompt(text, text)], lambda _: objective, **options)
    return attack


@pytest.fixture(scope="session")
def items() -> list[Item]:
    return langgame(WORDS, 12, seed=0, format="short")


@pytest.fixture(scope="session")
def vocab(items: list[Item]) -> Vocabulary:
    texts = [item.question for item in items] + [c for item in items for c in item.choices]
    return Vocabulary.load(train_tokenizer(texts, 330))


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def model(request: Any, vocab: Vocabulary) -> Any:
    return tiny_model(request.param, vocab.size, seed=1)


@pytest.fixture(scope="session")
def log_probs(model: Any, vocab: Vocabulary) -> dict[Path, np.ndarray]:
    """log p of OPTIONS after every tokenization of TEXT, scored one by one; float64 [options]."""
    paths = tokenizations(vocab, TEXT.encode())
    scored = score_naively(model, paths, [vocab.encode(option) for option in OPTIONS])
    return dict(zip(paths, scored, strict=True))


@pytest.fixture(scope="session")
def llama(vocab: Vocabulary) -> Any:
    return tiny_model("llama", vocab.size, seed=1)
