"""Hidden states against one forward pass a tokenization, and the bound against its formula."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from peft import (
    LoraConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
    inject_adapter_in_model,
)
from tests.evaluation.conftest import draws_of
from tests.oracles.chi_square import assert_distribution
from tests.oracles.data import TOKENIZERS, data_path, real
from tests.oracles.lattice import distance, tokenizations
from tests.oracles.models import ARCHITECTURES, FALLBACKS, tiny_model
from tests.oracles.scoring import outputs_naively
from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

from robustok import Ragged, RobustokError, Vocabulary
from robustok.attack import attack_items
from robustok.evaluation import embedding_distances, embeddings, lipschitz_bound, lipschitz_ratios
from robustok.evaluation.bound import spectral_norm
from robustok.evaluation.embeddings import draw_others, last_states, spell
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


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FALLBACKS, "longrope"])
@pytest.mark.parametrize("prefix", [None, [*range(40, 47)], [*range(40, 78)]])
@pytest.mark.filterwarnings("ignore")  # mamba's, about kernels that are not installed
def test_states_are_those_of_one_sequence_at_a_time(
    name: str, prefix: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "default_max_batch_tokens", lambda model: 32)
    model = tiny_model(name)
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 9, rng.integers(1, 9)).tolist() for _ in range(40)]
    result = last_states(model, Ragged.from_rows(rows), prefix=prefix)
    for i, row in enumerate(rows):
        wanted = np.stack(outputs_naively(model, [*(prefix or []), *row])[:-1])
        assert np.abs(result[:, i] - wanted).max() < 1e-4 * max(1, np.abs(wanted).max())


@pytest.mark.parametrize("name", ["llama", "gpt2", "granite", "gemma2"])
def test_ratios_are_changes_over_the_root_of_the_distance(name, vocab, items) -> None:
    """Of the logits as the model gives them: Granite's are divided, those of Gemma 2 capped."""
    model, items = tiny_model(name, vocab.size, seed=1), items[:3]
    seen: list[tuple[int, int]] = []
    attacks = attack_items(model, vocab, items, seed=5).attacks
    result = lipschitz_ratios(
        model, vocab, items, draws=4, seed=5, attacked=[attack.ids for attack in attacks],
        progress=lambda d, t: seen.append((d, t)),
    )  # fmt: skip
    wanted: dict[str, list[list[float]]] = {"sampled": [], "adversarial": []}
    for item, attack in zip(items, attacks, strict=True):
        canonical = vocab.encode(item.question).tolist()
        base = outputs_naively(model, canonical)
        drawn = draws_of(vocab, item, 4, 5)
        for kind, rows in (("sampled", drawn), ("adversarial", [attack.ids])):
            for row in rows:
                apart = distance(vocab, tuple(canonical), tuple(row.tolist()))
                moved = zip(outputs_naively(model, row), base, strict=True)
                if apart:
                    wanted[kind].append([np.linalg.norm(a - b) / apart**0.5 for a, b in moved])
    assert result.sampled == pytest.approx(np.array(wanted["sampled"]), abs=1e-4)
    assert result.adversarial == pytest.approx(np.array(wanted["adversarial"]), abs=1e-4)
    assert result.sampled.shape[1] == model.config.num_hidden_layers + 2
    assert seen[-1] == (3, 3) and [d for d, _ in seen] == sorted(d for d, _ in seen)
    rows = result.table()
    assert {row["kind"] for row in rows} == {"sampled", "adversarial"}
    assert rows[-1]["max"] == result.adversarial[:, -1].max()
    assert pickle.loads(pickle.dumps(result)).longest == result.longest


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


def test_a_matrix_that_is_not_a_weight_alone_is_refused() -> None:
    """The bound was that of the weights without their adapter, or of other rows."""
    model = tiny_model("llama")
    inject_adapter_in_model(LoraConfig(target_modules=["v_proj"]), model)  # as transformers loads
    with pytest.raises(RobustokError, match=r"as with LoRA .* merge the adapter"):
        lipschitz_bound(model)
    config = GPTBigCodeConfig(vocab_size=120, n_embd=32, n_layer=2, n_head=4, multi_query=False)
    with pytest.raises(RobustokError, match="GPTBigCodeForCausalLM keeps its weights"):
        lipschitz_bound(GPTBigCodeForCausalLM(config))


@pytest.mark.parametrize("kind", ["prefix", "prompt"])
def test_states_of_a_tuned_prefix_are_not_those_of_the_base(kind: str, vocab: Vocabulary) -> None:
    base = tiny_model("llama", vocab.size)
    rows = vocab.encode_batch(["glad rain", "street"])
    before = last_states(base, rows)
    make = {"prefix": PrefixTuningConfig, "prompt": PromptTuningConfig}[kind]
    tuned: Any = get_peft_model(base, make(num_virtual_tokens=3, task_type="CAUSAL_LM")).eval()
    for weights in tuned.prompt_encoder.parameters():
        torch.nn.init.normal_(weights, std=2.0)
    if kind == "prompt":
        with pytest.raises(RobustokError, match=r"outputs for .* ids, as with prompt tuning"):
            last_states(tuned, rows)
        return
    states = last_states(tuned, rows)
    for i, row in enumerate(rows):
        ids = torch.tensor([row.tolist()])
        expected = tuned(ids, output_hidden_states=True).hidden_states[-1][0, -1].detach()
        assert states[-1, i] == pytest.approx(expected.numpy(), abs=1e-4)
    assert not np.allclose(states[-1], before[-1], atol=0.1)


def test_a_one_layer_model_has_one_gamma() -> None:
    model = tiny_model("llama")
    model.model.layers = model.model.layers[:1]
    bound = lipschitz_bound(model)
    assert bound.log10_gamma(3) == pytest.approx(bound.log10_gamma(3, layer=0))
    rows = bound.table(3, tokens=9)
    assert [row["layer"] for row in rows] == [1, "whole"]
    assert rows[0]["log10_gamma_proof"] == pytest.approx(rows[1]["log10_gamma_proof"])
    assert rows[0]["c1_proof"] > rows[0]["c1_theorem"]
