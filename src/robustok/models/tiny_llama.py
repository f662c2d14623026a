"""Small causal language models of the Llama architecture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from robustok.errors import RobustokError, nearest

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama model: layers, width, heads, feed-forward and context."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int
    tied: bool = True

    def __post_init__(self) -> None:
        if min(self.layers, self.width, self.heads, self.kv_heads, self.feed_forward) < 1:
            raise RobustokError("a model shape needs sizes of at least 1")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise RobustokError(
                f"width {self.width} does not split into {self.heads} heads of even width: "
                "make it a multiple of twice the heads"
            )
        if self.heads % self.kv_heads:
            raise RobustokError(f"{self.heads} heads do not share {self.kv_heads} key-value heads")

    def scaled(self, scale: float) -> Shape:
        """The shape with its width, feed-forward and depth shrunk (or grown) by a factor.

        Heads keep their width, and groups their size.
        """
        if not 0 < scale <= 16:
            raise RobustokError(f"scale {scale} is not between 0 and 16")
        group = self.heads // self.kv_heads
        kv_heads = max(1, round(self.kv_heads * scale))
        heads = kv_heads * group
        return replace(
            self,
            layers=max(1, round(self.layers * scale)),
            width=self.width // self.heads * heads,
            heads=heads,
            kv_heads=kv_heads,
            feed_forward=max(8, round(self.feed_forward * scale / 8) * 8),
        )


SHAPES = {
    # The paper's Tiny-LLM: 8 layers, 16 heads in groups of 4, SwiGLU, RMSNorm, RoPE, tied.
    "tiny-llm": Shape(8, 512, 16, 4, 1320, 512),
    # About 0.6 million parameters at a vocabulary of 1,000, for a study of minutes on a CPU.
    "quick": Shape(3, 128, 4, 4, 336, 256),
}


def tiny_llama(vocab_size: int, shape: str | Shape = "tiny-llm", *, seed: int) -> LlamaForCausalLM:
    """Make a Llama model with random weights, the same for the same seed.

    >>> model = tiny_llama(1000, "quick", seed=0)
    >>> sum(p.numel() for p in model.parameters())
    712576

    ``shape`` is a :class:`Shape` or the name of one: ``tiny-llm`` (the paper's
    50-million-parameter model, with GPT-2's 50,257 tokens) or ``quick``.

    Raises RobustokError for an unknown name.
    Source: the paper's table "Model architecture (Tiny-LLM)".
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if isinstance(shape, str):
        if shape not in SHAPES:
            raise RobustokError(f"unknown model shape '{shape}': {nearest(shape, SHAPES)}")
        shape = SHAPES[shape]
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.width,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=shape.tied,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
