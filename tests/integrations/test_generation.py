"""Canonical generation and healed prompts on tiny random models, against plain generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import robustok as rt
from robustok.integrations.generation import CanonicalProcessor
from robustok.models import Shape, small_model, train_tokenizer

TEXT = "the theater is there, the rest rests: http://the.net the nest"


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return rt.Vocabulary.load(train_tokenizer([TEXT] * 5, 300))


@pytest.fixture(scope="module")
def model(vocab: rt.Vocabulary) -> Any:
    return small_model(vocab.size + 5, Shape(1, 16, 1, 1, 32, 128), seed=0)  # padded embeddings


def generated(model: Any, ids: Any, processors: list[Any], **settings: Any) -> np.ndarray:
    torch.manual_seed(0)
    given = torch.as_tensor(ids)
    out = model.generate(
        given, attention_mask=(given != 0).long(), max_new_tokens=30, pad_token_id=0,
        logits_processor=processors, **settings,
    )  # fmt: skip
    return out.numpy()


@pytest.mark.parametrize(
    "settings", [{"do_sample": True}, {"do_sample": False, "num_beams": 3}, {"do_sample": False}]
)
def test_output_is_canonical(vocab: rt.Vocabulary, model: Any, settings: dict[str, Any]) -> None:
    guard = rt.Guard(vocab, allow_special=True)
    prompts = [vocab.encode(text) for text in ("the rest", "nest: the")]
    longest = max(map(len, prompts))
    ids = [[0] * (longest - len(p)) + p.tolist() for p in prompts]
    out = generated(model, ids, [CanonicalProcessor(vocab, prompt_length=longest)], **settings)
    assert out.max() < vocab.size
    for row in out:
        finding = next((f for f in guard.check(row).findings if f.kind == "not-canonical"), None)
        # The last id may begin a character or end in spaces that more text would follow.
        assert finding is None or finding.end == len(row)
    assert out.shape[1] > longest


def test_scores_of_allowed_ids_stay(vocab: rt.Vocabulary) -> None:
    ids = torch.tensor([vocab.encode("the res").tolist()])
    scores = torch.randn(1, vocab.size + 5)
    processor = CanonicalProcessor(vocab, prompt_length=ids.shape[1])
    changed = processor(ids, scores)
    kept = torch.isfinite(changed)
    assert torch.equal(changed[kept], scores[kept])
    guard = rt.Guard(vocab, allow_special=True)
    for i, token in enumerate(vocab.tokens):
        if token.isascii() and not token[-1:].isspace():
            assert kept[0, i] == guard.check([*ids[0].tolist(), i]).canonical
    assert not kept[0, vocab.size :].any()


def test_a_prompt_that_is_not_canonical_binds_the_completion_alone(
    vocab: rt.Vocabulary, model: Any
) -> None:
    prompt = [*vocab.encode("t").tolist(), *vocab.encode("he").tolist()]
    assert not rt.Guard(vocab).check(prompt).canonical
    out = generated(
        model, [prompt], [CanonicalProcessor(vocab, prompt_length=len(prompt))], do_sample=True
    )
    verdict = rt.Guard(vocab, allow_special=True).check(out[0, len(prompt) :])
    assert all(f.end == out.shape[1] - len(prompt) for f in verdict.findings)
