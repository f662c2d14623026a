"""Models: small ones from random weights, and any causal language model by path or name."""

from __future__ import annotations

from robustok.models.load import add_lora, check_fit, load_model, load_tokenizer, save_tokenizer
from robustok.models.small import ARCHITECTURES, SHAPES, Shape, small_model, train_tokenizer

__all__ = [
    "ARCHITECTURES",
    "SHAPES",
    "Shape",
    "add_lora",
    "check_fit",
    "load_model",
    "load_tokenizer",
    "save_tokenizer",
    "small_model",
    "train_tokenizer",
]
