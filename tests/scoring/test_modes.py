"""The mode of scoring is right at the lengths at hand, whatever the model does with long inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.models import tiny_model

from robustok.ragged import Ragged
from robustok.scoring import score
from robustok.scoring.engine import text_losses

VOCABULARY = 97
OPTIONS = [[5], [6, 7, 8], [9, 10]]
BASE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 300,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LATENT = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "index_topk": 24, "index_head_dim": 16, "index_n_heads": 4,
}  # fmt: skip
# Window, number of keys or size of state: below the lengths of the tests.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 24},
    "gemma3_text": {"sliding_window": 24, "head_dim": 8},
    "qwen3": {"head_dim": 8},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 300},
    "mamba": {"state_size": 8},
    "doge": {"keep_window_size": 24},
    "moshi": {"sliding_window": 24, "head_dim": 8, "ffn_dim": 48, "num_codebooks": 2},
    "deepseek_v32": LATENT,
}


def model_of(name: str) -> Any:
    try:
        config = transformers.AutoConfig.for_model(name, **{**BASE, **CONFIGS[name]})
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    except (KeyError, ValueError, ImportError) as error:
        pytest.skip(f"not in this transformers: {error}")
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.7 if "embed" in parameter_name else 0.25)
    return model


def without_mask_of_many(limit: int) -> Any:
    """A model that ignores its mask where a row has more than ``limit`` keys."""
    model = tiny_model("llama", VOCABULARY)
    inner = model.model.forward

    def forward(*args: Any, attention_mask: Any = None, **inputs: Any) -> Any:
        is_long = attention_mask is not None and attention_mask.shape[-1] > limit
        return inner(*args, attention_mask=None if is_long else attention_mask, **inputs)

    model.model.forward = forward
    return model


def looking_ahead(start: int) -> Any:
    """A model whose logits depend on the tokens beyond ``start``, so on padding too."""
    model = tiny_model("llama", VOCABULARY)
    inner = model.model.forward

    def forward(*args: Any, **inputs: Any) -> Any:
        outputs = inner(*args, **inputs)
        states = outputs.last_hidden_state
        if states.shape[1] > start:
            outputs.last_hidden_state = states + states[:, start:].mean(1, keepdim=True)
        return outputs

    model.model.forward = forward
    return model


MADE: dict[str, Callable[[], Any]] = {
    "no mask of more than 40 keys": lambda: without_mask_of_many(40),
    "no mask of more than 100 keys": lambda: without_mask_of_many(100),
    "looks ahead from token 20": lambda: looking_ahead(20),
    "looks ahead from token 60": lambda: looking_ahead(60),
}


def alone(model: Any, ids: list[int], read: int) -> float:
    """The log-probability of the last ``read`` ids, of one sequence."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].float()
    log_probs = torch.log_softmax(logits, -1)
    return float(sum(log_probs[len(ids) - read - 1 + j, i] for j, i in enumerate(ids[-read:])))


@pytest.fixture(scope="module", params=[*CONFIGS, *MADE])
def model(request: pytest.FixtureRequest) -> Any:
    return MADE[request.param]() if request.param in MADE else model_of(request.param)


@settings(max_examples=8)
@given(
    length=st.integers(2, 70),
    before=st.integers(0, 60),
    count=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_scores_are_those_of_one_sequence_at_a_time(model, length, before, count, seed) -> None:
    rng = np.random.default_rng(seed)
    prefix = rng.integers(3, VOCABULARY, before).tolist()
    first = rng.integers(3, VOCABULARY, length).tolist()
    rows = [first]
    for _ in range(count - 1):
        at = int(rng.integers(length))
        middle = rng.integers(3, VOCABULARY, int(rng.integers(1, 4))).tolist()
        rows.append(first[:at] + middle + first[at + 1 :])
    right = [[alone(model, [*prefix, *q, *o], len(o)) for o in OPTIONS] for q in rows]
    result = score(model, rows, OPTIONS, prefix, max_batch_tokens=200)
    np.testing.assert_allclose(result.log_probs, right, atol=0.02, rtol=0)


@pytest.mark.parametrize("start", [20, 60])
def test_losses_of_a_model_that_looks_ahead_are_those_of_one_text_at_a_time(start: int) -> None:
    model = looking_ahead(start)
    rows = [list(range(3, 3 + n)) for n in (80, 50, 8)]
    losses = text_losses(model, Ragged.from_rows(rows), max_length=200, start=1)
    right = [-alone(model, [1, *row], len(row)) for row in rows]
    np.testing.assert_allclose(losses, right, rtol=1e-4)


def test_short_inputs_of_such_models_share_their_prefixes() -> None:
    model = without_mask_of_many(400)
    assert score(model, [[3, 4, 5], [3, 4, 6]], OPTIONS).mode == "tree"
    model = tiny_model("llama", VOCABULARY)
    assert score(model, [list(range(3, 90))] * 2, OPTIONS).mode == "tree"


@pytest.mark.parametrize("seed", range(8))
def test_rounding_is_not_taken_for_a_wrong_mode(seed: int) -> None:
    torch.manual_seed(seed)
    shape: dict[str, Any] = BASE | {"num_hidden_layers": 12, "initializer_range": 0.3}
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))
    model = model.eval().to(torch.bfloat16)
    for length in (4, 8, 24, 64):
        row = list(range(3, 3 + length))
        assert score(model, [row, row[1:]], OPTIONS, [4] * length).mode == "tree"


@pytest.mark.parametrize("limit", [40, 100])
def test_half_precision_hides_no_missing_mask(limit: int) -> None:
    model = without_mask_of_many(limit).to(torch.bfloat16)
    assert score(model, [list(range(3, 83))] * 2, OPTIONS, [4] * 30).mode == "plain"


@pytest.mark.parametrize("limit", [1, 20, 64, 150])
def test_no_pass_of_a_probe_is_larger_than_the_limit_of_the_caller(limit: int) -> None:
    """Apart from single sequences, which are read whole."""
    model, shapes = tiny_model("llama", VOCABULARY), []
    model.model.register_forward_pre_hook(
        lambda module, inputs, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)),
        with_kwargs=True,
    )
    rows = [list(range(3, 3 + n)) for n in (50, 40, 8)]
    assert score(model, rows, OPTIONS, [4] * 30, max_batch_tokens=limit).mode == "tree"
    text_losses(model, Ragged.from_rows(rows), max_length=200, start=1, max_batch_tokens=limit)
    assert len(shapes) > 20
    assert not [shape for shape in shapes if shape[0] > 1 and shape[0] * shape[1] > limit]
