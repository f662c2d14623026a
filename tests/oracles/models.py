"""Tiny random models of several architectures, with weights large enough to tell inputs apart."""

from pathlib import Path
from typing import Any

import torch
import transformers as tf

from robustok import Vocabulary
from robustok.models import save_tokenizer, train_tokenizer

VOCABULARY = 120
ARCHITECTURES = ("llama", "gpt2", "qwen3", "gemma3", "gemma3-eager", "mistral")
SENTENCE = "Which baby starts with glad rain: happen? Answer: up carry half garden straight"
FALLBACKS = ("bloom", "gpt-neo", "mamba")


def tiny_model(name: str, vocabulary: int = VOCABULARY, seed: int = 0) -> Any:
    """A model of two or three layers, in evaluation mode."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    old: dict[str, Any] = {k: shape[k] for k in ("vocab_size", "bos_token_id", "eos_token_id")}
    layers = ["sliding_attention", "full_attention", "sliding_attention"]
    if name == "llama":
        model: Any = tf.LlamaForCausalLM(tf.LlamaConfig(**shape))
    elif name == "longrope":  # rotates sequences of more than 42 tokens otherwise
        rope: dict[str, Any] = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0}
        rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 1.5]}
        rope["original_max_position_embeddings"] = 42
        model = tf.LlamaForCausalLM(tf.LlamaConfig(**shape, rope_parameters=rope))
    elif name == "dynamic":  # another base for each length above 40
        rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
        config = tf.LlamaConfig(**shape, rope_parameters=rope, max_position_embeddings=40)
        model = tf.LlamaForCausalLM(config)
    elif name == "gpt2":
        config = tf.GPT2Config(
            **old, n_embd=32, n_layer=3, n_head=4, n_positions=256, initializer_range=0.3
        )
        model = tf.GPT2LMHeadModel(config)
    elif name == "qwen3":
        model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**shape, head_dim=8))
    elif name == "granite":  # divides its logits
        model = tf.GraniteForCausalLM(tf.GraniteConfig(**shape, logits_scaling=8.0))
    elif name == "gemma2":  # caps its logits
        config = tf.Gemma2Config(**shape, head_dim=8, final_logit_softcapping=3.0)
        model = tf.Gemma2ForCausalLM(config)
    elif name.startswith("gemma3"):
        config = tf.Gemma3TextConfig(**shape, head_dim=8, sliding_window=6, layer_types=layers)
        model = tf.Gemma3ForCausalLM(config)
    elif name == "mistral":
        model = tf.MistralForCausalLM(tf.MistralConfig(**shape, sliding_window=6))
    elif name == "bloom":
        config = tf.BloomConfig(**old, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3)
        model = tf.BloomForCausalLM(config)
    elif name == "gpt-neo":  # its window is longer than the input that the mode is tested on
        config = tf.GPTNeoConfig(
            **old, hidden_size=32, num_layers=2, num_heads=4, window_size=32,
            attention_types=[[["global", "local"], 1]], max_position_embeddings=256,
            initializer_range=0.3,
        )  # fmt: skip
        model = tf.GPTNeoForCausalLM(config)
    elif name == "mamba":
        config = tf.MambaConfig(**old, hidden_size=32, num_hidden_layers=2, state_size=4)
        model = tf.MambaForCausalLM(config)
    else:
        raise ValueError(name)
    if name.endswith("eager"):
        model.set_attn_implementation("eager")
    return model.eval()


def save_tiny_models(folder: Path, *names: str) -> Vocabulary:
    """Folders with a small Llama each, of seeds 0, 1 and so on, and one tokenizer of `SENTENCE`."""
    tokenizer = train_tokenizer([SENTENCE] * 3, 330)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocab = Vocabulary.load(tokenizer)
    for seed, name in enumerate(names):
        tiny_model("llama", vocab.size, seed=seed).save_pretrained(folder / name)
        save_tokenizer(folder / "tokenizer.json", folder / name)
    return vocab
