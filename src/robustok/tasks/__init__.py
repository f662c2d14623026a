"""Questions for models: generated language games, benchmarks, and their files."""

from __future__ import annotations

from robustok.tasks.benchmarks import HUB
from robustok.tasks.cute_items import cute
from robustok.tasks.item import (
    Item,
    Pair,
    benchmark_files,
    read_items,
    read_pairs,
    read_questions,
    write_items,
)
from robustok.tasks.langgame_items import langgame
from robustok.tasks.words import clean_words, frequent_words, read_texts, read_words

__all__ = [
    "HUB",
    "Item",
    "Pair",
    "benchmark_files",
    "clean_words",
    "cute",
    "frequent_words",
    "langgame",
    "read_items",
    "read_pairs",
    "read_questions",
    "read_texts",
    "read_words",
    "write_items",
]
