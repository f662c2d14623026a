"""The models of a study: small ones made here, and any causal language model by path or name."""

from __future__ import annotations

from robustok.models.load import check_fit, load_model, load_tokenizer, save_tokenizer
from robustok.models.lora import add_lora
from robustok.models.tiny_llama import SHAPES, Shape, tiny_llama
from robustok.models.tokenizer import train_tokenizer

__all__ = [
    "SHAPES",
    "Shape",
    "add_lora",
    "check_fit",
    "load_model",
    "load_tokenizer",
    "save_tokenizer",
    "tiny_llama",
    "train_tokenizer",
]
