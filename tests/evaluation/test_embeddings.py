"""Distances of a word's tokenizations, against one forward pass a tokenization."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import TOKENIZERS, data_path, real
from tests.oracles.lattice import tokenizations
from tests.oracles.scoring import outputs_naively

from robustok import RobustokError, Vocabulary
from robustok.evaluation import embedding_distances
from robustok.evaluation.embeddings import draw_others, spell
from robustok.models import Shape, small_model

WORDS = ["rain", "happen", "differ", "garden"]


def states(model: Any, ids: list[int]) -> np.ndarray:
    """Unit-normalized last-token states, one forward pass."""
    rows = np.stack(outputs_naively(model, ids)[:-1])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("sentence", [None, "which {word}, glad"])
@pytest.mark.parametrize("prefix", [None, [0, 5]])
def test_distances_are_those_of_one_pass_a_tokenization(
    model: Any, vocab: Vocabulary, sentence: str | None, prefix: list[int] | None
) -> None:
    settings: dict[str, Any] = {"draws": 7, "seed": 3, "sentence": sentence, "prefix": prefix}
    result = embedding_distances(model, vocab, WORDS, **settings)
    first = list(prefix or [])
    for word in WORDS:
        before, ids, after = spell(vocab, word, sentence)
        drawn = draw_others(vocab, {word: ids}, 7, 3)[word]
        canonical = states(model, [*first, *before, *ids, *after])
        gaps = [states(model, [*first, *before, *row, *after]) - canonical for row in drawn]
        wanted = np.linalg.norm(gaps, axis=2).mean(axis=0)
        assert result.by_word[word].mean == pytest.approx(wanted, abs=1e-5)
    rows = result.table()
    means = [one.mean for one in result.by_word.values()]
    assert [row["mean_of_others"] for row in rows] == pytest.approx(np.mean(means, axis=0))
    assert all(row["low"] < row["mean"] < row["high"] for row in rows) or (
        sentence and rows[0]["mean"] == 0
    )
    assert pickle.loads(pickle.dumps(result)) == result
    assert json.loads(json.dumps(result.table()))[2]["layer"] == 2


def test_draws_are_uniform_over_the_others(vocab: Vocabulary) -> None:
    ids = vocab.encode("happen")
    others = set(tokenizations(vocab, b"happen")) - {tuple(ids.tolist())}
    assert len(others) > 3
    drawn = draw_others(vocab, {"happen": ids}, 20_000, seed=0)["happen"]
    assert_distribution(drawn, dict.fromkeys(others, 1 / len(others)))


def test_the_mean_is_that_over_all_tokenizations(model: Any, vocab: Vocabulary) -> None:
    # Enough draws that a word's mean over them is its mean over all the others.
    result = embedding_distances(model, vocab, ["happen", "r"], draws=4000, seed=0)
    canonical = vocab.encode("happen").tolist()
    paths = tokenizations(vocab, b"happen")
    gaps = [states(model, list(path)) - states(model, canonical) for path in paths]
    exact = np.linalg.norm(gaps, axis=2).sum(axis=0)
    # "r" has one tokenization, at distance 0 from itself.
    rows = result.table()
    assert [r["mean"] for r in rows] == pytest.approx(exact / len(paths) / 2, rel=0.03)
    others = [row["mean_of_others"] for row in rows]
    assert others == pytest.approx(exact / (len(paths) - 1), rel=0.03)
    assert (result.words, result.single) == (2, 1)


def test_near_orthogonal_embeddings_give_the_papers_first_value() -> None:
    """Layer 0 of the paper's figure is 1.2428; the other reading would give 1.40."""
    words = data_path("words", "1000-most-common-words.txt").read_text().split()
    vocab = real("llama3")
    model = small_model(vocab.size, Shape(1, 64, 1, 1, 8, 64), seed=0)
    result = embedding_distances(model, vocab, words, draws=4, seed=0)
    first = result.table()[0]
    assert first["mean"] == pytest.approx(1.2428, rel=0.01)
    assert first["mean_of_others"] > 1.38


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_word_in_a_sentence_has_its_own_canonical_tokens(name: str) -> None:
    data_path("tokenizers", name)
    vocab = real(name)
    for sentence in ("I said {word} twice.", "{word}", "({word})", "Über {word}ness naïve"):
        for word in ("revolution", "é", "the"):
            before, ids, after = spell(vocab, word, sentence)
            whole = vocab.encode(sentence.replace("{word}", word))
            assert [*before, *ids, *after] == whole.tolist()
            own = [vocab.decode_bytes([i]) for i in ids]
            assert word.encode() in b"".join(own)
            assert word.encode() not in b"".join(own[1:]) and word.encode() not in b"".join(
                own[:-1]
            )


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        ([], {}, "no words"),
        (["rain"], {"draws": 0}, "1 or more"),
        (["rain"], {"sentence": "no place"}, "{word} once"),
        (["r"], {}, "longer words"),
        ("rain", {}, "words: give a list"),
    ],
)
def test_what_cannot_be_measured_is_an_error(
    model: Any, vocab: Vocabulary, words: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RobustokError, match=message):
        embedding_distances(model, vocab, words, seed=0, **settings).table()
