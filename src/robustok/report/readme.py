"""README.md of a measured model: the metadata block that hubs read, and its report."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robustok.report.frame import Row
from robustok.runtime.files import read_json_or_none, write_whole
from robustok.tasks.benchmarks import HUB

README = "README.md"
_METRICS = ("accuracy", "consistency")
_SIGNATURE = re.compile(r"\n<!-- robustok ([0-9a-f]{64}) -->\n\Z")  # of the text before it
_VERSIONS = re.compile(r"^### Framework versions\n\n- PEFT .*$", re.MULTILINE)
_FIGURE = re.compile(r"^!\[.*\n\n?", re.MULTILINE)  # whose file is not beside the README


def write_readme(rows: Sequence[Row], run: Path) -> Path | None:
    """Write README.md beside the weights of a local model, or else into the folder of the run.

    A README.md that was not written here, or was changed since, stays: then the next folder gets
    it. The page of blanks that peft writes beside an adapter is replaced, and its tags stay.
    Returns the path, or None where both folders have one that stays.

    Args:
        rows: rows of results.jsonl of the run, all of one model.
        run: folder of the run, which has report.md.
    """
    model = Path(rows[0]["model"]["name"])
    folders = [folder for folder in (model, run) if folder.is_dir()]
    folder = next((folder for folder in folders if _may_write(folder)), None)
    if folder is None:
        return None
    page = _FIGURE.sub("", (run / "report.md").read_text(encoding="utf-8"))
    if model.is_absolute():  # a path of this machine says nothing to others
        page = page.replace(str(model), model.name)
    text = f"---\n{_metadata(rows, model, _tags(folder))}\n---\n\n{page}"
    write_whole(folder / README, f"{text}\n<!-- robustok {_digest(text)} -->\n")
    return folder / README


def _may_write(folder: Path) -> bool:
    """Whether a folder has no README.md, peft's, or one that is as it was written here."""
    text = _text(folder)
    if text is None:
        return os.access(folder, os.W_OK)
    signature = _SIGNATURE.search(text)
    if signature is not None:
        return signature[1] == _digest(text[: signature.start()])
    return _is_blank(text)


def _text(folder: Path) -> str | None:
    file = folder / README
    return file.read_text(encoding="utf-8", errors="replace") if file.exists() else None


def _is_blank(text: str) -> bool:
    """Whether a page is the hub's template, to which peft adds its release at most."""
    from huggingface_hub import ModelCard, ModelCardData

    template = ModelCard.from_template(ModelCardData()).text
    body = _VERSIONS.sub("", ModelCard(text, ignore_metadata_errors=True).text)
    return body.split() == _VERSIONS.sub("", template).split()


def _tags(folder: Path) -> list[str]:
    """Our tags, after those of the README.md that is replaced."""
    from huggingface_hub import ModelCard

    kept = ModelCard(_text(folder) or "").data.to_dict().get("tags", [])
    # A base model that is no name of the hub is a path of this machine.
    kept = [tag for tag in kept if not tag.startswith("base_model:") or _is_hub_name(tag)]
    return list(dict.fromkeys([*kept, "robustok", "tokenization", "robustness"]))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _metadata(rows: Sequence[Row], model: Path, tags: list[str]) -> str:
    """The metadata of a model as YAML: what it is made of, and what was measured."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult(
            task_type="multiple-choice",
            dataset_type=HUB[row["task"]].path if row["task"] in HUB else row["task"],
            dataset_name=row["task"],
            metric_type=metric,
            metric_value=row[metric],
            metric_name=f"{metric}, {row['eval_scheme']}",
            metric_args={name: row[name] for name in ("low", "high", "n", "draws")}
            if metric == "accuracy"
            else None,
        )
        for row in rows
        for metric in _METRICS
        if metric in row
    ]
    has_adapter = (model / "adapter_config.json").is_file()
    return ModelCardData(
        model_name=model.name,
        base_model=_base_model(model),
        library_name="peft" if has_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=tags,
        eval_results=results,
    ).to_yaml()


def _base_model(model: Path) -> str | None:
    """The hub name of the model that one was trained from, where its folder names it."""
    recorded: Any = read_json_or_none(model / "training.json") or {}
    adapter: Any = read_json_or_none(model / "adapter_config.json") or {}
    name = recorded.get("base_model") or adapter.get("base_model_name_or_path") or ""
    return name if _is_hub_name(name) else None


def _is_hub_name(name: str) -> bool:
    """Whether a name, without the "base_model:KIND:" of a tag, can be one of the hub."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    name = name.rpartition(":")[2]
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return bool(name) and not Path(name).exists()
