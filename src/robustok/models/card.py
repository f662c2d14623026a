"""Model cards: README.md beside weights, with how to load them and what they were trained on.

The last line of a card is a digest of the text before it. A card that was changed since, or that
another program wrote, is never replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from robustok.runtime.files import JsonFields, read_json_or_none, write_whole

README = "README.md"
_SIGNATURE = re.compile(r"\n<!-- robustok ([0-9a-f]{64}) -->\n\Z")  # of the text before it
_VERSIONS = re.compile(r"^### Framework versions\n\n- PEFT .*$", re.MULTILINE)


def write_card(folder: Path, text: str) -> Path:
    """Write the text as README.md of a folder, with its digest; returns the path."""
    write_whole(folder / README, f"{text}\n<!-- robustok {_digest(text)} -->\n")
    return folder / README


def may_write_card(folder: Path) -> bool:
    """Whether a folder has no README.md, peft's, or one that is as :func:`write_card` wrote it."""
    text = card_of(folder)
    if text is None:
        return os.access(folder, os.W_OK)
    signature = _SIGNATURE.search(text)
    if signature is not None:
        return signature[1] == _digest(text[: signature.start()])
    return _is_blank(text)


def card_of(folder: Path) -> str | None:
    """The README.md of a folder; None without one."""
    file = folder / README
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else None


def _is_blank(text: str) -> bool:
    """Whether a page is the hub's template, to which peft adds its release at most."""
    from huggingface_hub import ModelCard, ModelCardData

    template = ModelCard.from_template(ModelCardData()).text
    body = _VERSIONS.sub("", ModelCard(text, ignore_metadata_errors=True).text)
    return body.split() == _VERSIONS.sub("", template).split()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_adapter(model: Path) -> bool:
    """Whether a folder has an adapter of peft instead of all weights."""
    return (model / "adapter_config.json").is_file()


def loading(model: Path) -> str:
    """The first part of a card: the model's name, and how to load it."""
    package, auto = "transformers", "AutoModelForCausalLM"
    if is_adapter(model):
        package, auto = "peft", "AutoPeftModelForCausalLM"
    name = model.resolve().name if model.is_dir() else str(model)
    imported = "peft, transformers" if package == "peft" else "transformers"
    return (
        f"# {name}\n\n```python\nimport {imported}\n\n"
        f'model = {package}.{auto}.from_pretrained("{name}")\n'
        f'tokenizer = transformers.AutoTokenizer.from_pretrained("{name}")\n```\n'
    )


def trained_on(record: JsonFields) -> str:
    """A sentence on the training that a training.json records; empty without one."""
    identity: Any = record.get("identity") or {}
    training: Any = record.get("training") or {}
    if "sampler" not in identity:
        return ""
    base = f" from [{record['base_model']}](https://huggingface.co/{record['base_model']})"
    losses = training.get("losses") or ()
    last = f", last loss {losses[-1][1]:.3f}" if losses else ""
    tokens = f", {training['tokens']:,} tokens" if "tokens" in training else ""
    details = ", ".join(
        f"{name.replace('_', ' ')} {identity[name]}"
        for name in ("batch_size", "learning_rate", "seed")
        if identity.get(name) is not None
    )
    return (
        f"Trained with robustok{base * bool(record.get('base_model'))} on tokenizations drawn by "
        f"`{identity['sampler']}`: {identity['steps']:,} steps{tokens}{last} ({details}).\n"
    )


def recorded_training(model: Path) -> Any:
    """The training.json of a model; an empty dictionary without one."""
    return read_json_or_none(model / "training.json") or {}
