"""Small models of the paper's architectures, from random weights, and their tokenizer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from robustok.errors import RobustokError, check_choice
from robustok.tokenizer.tokenizers_api import require_parts

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

END_OF_TEXT = "<|endoftext|>"
SMALLEST = 257
# By the name in transformers: the usual name.
ARCHITECTURES = {"llama": "Llama", "gpt2": "GPT-2", "qwen3": "Qwen 3", "gemma3": "Gemma 3"}


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer.

    >>> tokenizer = train_tokenizer(["low lower lowest"] * 3, 260)
    >>> tokenizer.encode("low").tokens
    ['low']

    Args:
        texts: the training texts; the same texts give the same tokenizer.
        size: number of ids, at least 257. It is smaller if the texts have no more pairs to merge.

    The vocabulary has all 256 bytes, so it encodes any text; id 0 is ``<|endoftext|>``.
    ``tokenizer.save(path)`` writes tokenizer.json. Raises RobustokError for a smaller ``size``.
    """
    if size < SMALLEST:
        raise RobustokError(f"a vocabulary of {size} cannot hold the 256 bytes: ask for {SMALLEST}")
    require_parts("training a tokenizer")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@dataclass(frozen=True)
class Shape:
    """The sizes of a model: layers, width, heads, feed-forward and longest input.

    >>> shape = Shape(2, 64, 4, 4, feed_forward=160, max_length=128, architecture="gpt2")
    >>> small_model(300, shape, seed=0).config.model_type
    'gpt2'

    Args:
        layers: number of layers.
        width: size of a hidden state; a multiple of twice the heads.
        heads: number of attention heads.
        kv_heads: number of key-value heads, which divides the heads; fewer than them is
            grouped-query attention. As many as the heads in a GPT-2.
        feed_forward: inner width of the feed-forward layers.
        max_length: longest input, in tokens.
        tied: whether the output layer shares the embedding's weights (default).
        architecture: one of :data:`ARCHITECTURES`: ``"llama"`` (default), ``"gpt2"``, ``"qwen3"``
            or ``"gemma3"``.

    Raises RobustokError for sizes that do not fit together and for an unknown architecture.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    max_length: int
    tied: bool = True
    architecture: str = "llama"

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, ARCHITECTURES)
        if self.architecture == "gpt2" and self.kv_heads != self.heads:
            raise RobustokError(f"GPT-2 has as many key-value heads as heads: {self.heads}")
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
        """The shape with its width, feed-forward and depth multiplied by a factor.

        Args:
            scale: the factor, greater than 0 and at most 16. Each size is rounded to a valid one.

        Heads keep their width, and groups their size. The longest input stays.
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


def small_model(
    vocab_size: int, shape: str | Shape = "tiny-llm", *, seed: int, end_id: int | None = None
) -> PreTrainedModel:
    """Make a causal language model with random weights, the same for the same seed.

    >>> model = small_model(1000, "quick", seed=0)
    >>> sum(p.numel() for p in model.parameters())
    712576

    Args:
        vocab_size: number of ids, which is the number of rows of the embedding.
        shape: a :class:`Shape` or the name of one: ``tiny-llm`` (the paper's 50-million-parameter
            Llama, with GPT-2's 50,257 tokens) or ``quick``.
        seed: any integer that torch accepts.
        end_id: id of the token that begins, ends and pads a text; by default the configuration
            names none.

    Raises RobustokError for an unknown name.
    Source: the paper's table "Model architecture (Tiny-LLM)".
    """
    import torch
    from transformers import AutoModelForCausalLM

    if isinstance(shape, str):
        shape = SHAPES[check_choice("model shape", shape, SHAPES)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(_config(vocab_size, shape, end_id))


def _config(vocab_size: int, shape: Shape, end_id: int | None) -> Any:
    from transformers import Gemma3TextConfig, GPT2Config, LlamaConfig, Qwen3Config

    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "use_cache": False,
    }
    if shape.architecture == "gpt2":
        return GPT2Config(
            n_embd=shape.width,
            n_inner=shape.feed_forward,
            n_layer=shape.layers,
            n_head=shape.heads,
            n_positions=shape.max_length,
            # Its dropout is for many rounds through little text; the others have none.
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **common,
        )
    common |= {
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.max_length,
    }
    head = shape.width // shape.heads
    match shape.architecture:
        case "qwen3":
            return Qwen3Config(head_dim=head, **common)
        case "gemma3":
            # Five layers that look back a little for one that looks back to the start, as in
            # Gemma 3; a small model's last one sees all, so that it has one.
            layers = [
                "sliding_attention" if i % 6 < 5 else "full_attention"
                for i in range(shape.layers - 1)
            ]
            return Gemma3TextConfig(
                head_dim=head,
                query_pre_attn_scalar=head,
                sliding_window=shape.max_length // 2,
                layer_types=[*layers, "full_attention"],
                **common,
            )
    return LlamaConfig(**common)
