"""Spectral norms against SVD, and the bound against the formula written out with SVD."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.models import tiny_model

from robustok import RobustokError
from robustok.evaluation import lipschitz_bound
from robustok.evaluation.bound import spectral_norm


def norm(matrix: Any) -> float:
    return float(np.linalg.svd(np.asarray(matrix.detach(), np.float64), compute_uv=False)[0])


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 3), (40, 200), (300, 300), (5, 16, 64)])
def test_the_norm_is_the_largest_singular_value(shape: tuple[int, ...]) -> None:
    for seed in range(3):
        matrix = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        norm = spectral_norm(matrix)
        wanted = torch.linalg.matrix_norm(matrix.double(), 2)
        assert norm.shape == wanted.shape
        assert bool(((norm - wanted).abs() <= 1e-5 * wanted).all())


def test_the_norm_of_zeros_is_zero_and_numbers_that_are_none_are_errors() -> None:
    assert float(spectral_norm(torch.zeros(4, 6))) == 0
    with pytest.raises(RobustokError, match="finite"):
        spectral_norm(torch.tensor([[1.0, float("nan")]]))
    for size in (1e20, 3e38):  # finite, and its square is not
        with pytest.raises(RobustokError, match="overflow"):
            spectral_norm(torch.full((4, 6), size))


def by_hand(model: Any, layer: int, n: int, k: int) -> tuple[float, float, float]:
    """C1, C2 and γ of one layer, the paper's formula line by line."""
    config = model.config
    llama = hasattr(model, "model")
    block = model.model.layers[layer] if llama else model.transformer.h[layer]
    heads, d = config.num_attention_heads, config.hidden_size
    size = d // heads
    if llama:
        attention, mlp = block.self_attn, block.mlp
        query, key, value = (getattr(attention, f"{x}_proj").weight for x in "qkv")
        output, inner = attention.o_proj.weight, [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
        feed_forward = float(np.prod([norm(m.weight) for m in inner]))
        shared = heads // config.num_key_value_heads
    else:
        joint = block.attn.c_attn.weight.T  # transformers' GPT-2 multiplies from the left
        query, key, value = joint[:d], joint[d : 2 * d], joint[2 * d :]
        output, shared = block.attn.c_proj.weight.T, 1
        feed_forward = norm(block.mlp.c_fc.weight) * norm(block.mlp.c_proj.weight)
    terms = []
    for h in range(heads):
        g = h // shared
        q = norm(query[h * size : (h + 1) * size])
        kk, v = (norm(m[g * size : (g + 1) * size]) for m in (key, value))
        terms.append(v * (4 * n / np.sqrt(d / heads) * q * kk + 1))
    c1 = float(1 + norm(output) * np.sqrt(heads) * max(terms))
    c2 = (1 + feed_forward) * norm(model.get_output_embeddings().weight)
    w = norm(model.get_input_embeddings().weight)
    return c1, c2, float(np.sqrt(2 * k) * w * (d / (d - 1)) ** 2 * c1 * c2)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_bound_is_the_formula_in_both_readings(name: str) -> None:
    model = tiny_model(name)
    seen: list[tuple[int, int]] = []
    bound = lipschitz_bound(model, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]  # three layers, then embedding and head
    for layer in range(3):
        for tokens, n in ((None, 1), (17, 17)):
            c1, c2, gamma = by_hand(model, layer, n, 6)
            assert bound.c1(layer, tokens=tokens) == pytest.approx(c1, rel=1e-4)
            assert bound.c2(layer) == pytest.approx(c2, rel=1e-4)
            log_gamma = bound.log10_gamma(6, tokens=tokens, layer=layer)
            assert 10**log_gamma == pytest.approx(gamma, rel=1e-3)
    single = [bound.log10_gamma(tokens=17, layer=i) for i in range(3)]
    outside = np.log10(np.sqrt(2) * bound.embedding * bound.head)
    assert bound.log10_gamma(tokens=17) == pytest.approx(sum(single) - 2 * outside, abs=1e-9)
    largest = model.get_input_embeddings().weight.detach().norm(dim=1).max()
    assert bound.largest_embedding == pytest.approx(float(largest))
    assert pickle.loads(pickle.dumps(bound)) == bound


def test_a_one_layer_model_has_one_gamma() -> None:
    model = tiny_model("llama")
    model.model.layers = model.model.layers[:1]
    bound = lipschitz_bound(model)
    assert bound.log10_gamma(3) == pytest.approx(bound.log10_gamma(3, layer=0))
    rows = bound.table(3, tokens=9)
    assert [row["layer"] for row in rows] == [1, "whole"]
    assert rows[0]["log10_gamma_proof"] == pytest.approx(rows[1]["log10_gamma_proof"])
    assert rows[0]["c1_proof"] > rows[0]["c1_theorem"]
