"""Optional packages: the purpose of each, and the extra that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple


class Extra(NamedTuple):
    purpose: str
    extra: str  # extra of robustok; empty if the package is installed by its own name

    def install(self, package: str) -> str:
        """The command that installs a package.

        >>> EXTRAS["torch"].install("torch")
        "pip install 'robustok[train]'"
        """
        return f"pip install 'robustok[{self.extra}]'" if self.extra else f"pip install {package}"


_TRAIN = "training, scoring and evaluation"
EXTRAS = {
    "typer": Extra("the command line", "cli"),
    "rich": Extra("the command line", "cli"),
    "torch": Extra(_TRAIN, "train"),
    "transformers": Extra(_TRAIN, "train"),
    "accelerate": Extra("training", "train"),
    "datasets": Extra("benchmarks and text from the hub", "train"),
    "peft": Extra("LoRA", "train"),
    "safetensors": Extra("saving models", "train"),
    "pydantic": Extra("studies", "study"),
    "yaml": Extra("studies", "study"),
    "matplotlib": Extra("figures", "report"),
    "jinja2": Extra("reports", "report"),
    "wordfreq": Extra("frequent words", "words"),
    "pyarrow": Extra("Parquet files", "corpus"),
    "zstandard": Extra(".zst files", "corpus"),
    "ray": Extra("corpora and studies on a cluster", "ray"),
    "lm_eval": Extra("lm-eval's tasks", "lm-eval"),
    "gguf": Extra("the models smollm2-135m and gemma3-270m", "small"),
    "starlette": Extra("the playground", "play"),
    "uvicorn": Extra("the playground", "play"),
    "sentencepiece": Extra("SentencePiece .model files", ""),
    "tiktoken": Extra("tiktoken encodings", ""),
}


def missing_line(package: str) -> str:
    """The error message for a package of EXTRAS that is not installed.

    >>> missing_line("ray")
    "this needs ray: pip install 'robustok[ray]'"
    """
    return f"this needs {package}: {EXTRAS[package].install(package)}"


def require(*packages: str) -> None:
    """Raise ModuleNotFoundError with :func:`missing_line` for the first package not installed.

    Args:
        *packages: names of importable modules, each a key of ``EXTRAS``.
    """
    for package in packages:
        if find_spec(package) is None:
            raise ModuleNotFoundError(missing_line(package), name=package)
