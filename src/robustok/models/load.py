"""Load any causal language model, from a folder first and only then from the hub."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from robustok.errors import RobustokError
from robustok.models.lora import base_of_lora, has_lora, merge_lora
from robustok.models.tokenizer import END_OF_TEXT

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from robustok.vocabulary import Vocabulary


def load_model(path_or_name: str | Path, *, dtype: str = "auto") -> PreTrainedModel:
    """Load a causal language model for evaluation.

    >>> model.save_pretrained("runs/mine")
    >>> type(load_model("runs/mine")).__name__
    'LlamaForCausalLM'

    A folder with LoRA weights gives its base model with the adapter merged in.
    ``dtype`` is ``auto`` (as saved) or a name such as ``float32``, ``bfloat16``.
    A folder is read without asking the hub.

    Raises RobustokError where there is no such model or it cannot be read.
    """
    from transformers import AutoModelForCausalLM

    check_model(path_or_name)
    light = has_lora(path_or_name)
    try:
        weights = base_of_lora(path_or_name) if light else str(path_or_name)
        check_model(weights)
        model = AutoModelForCausalLM.from_pretrained(
            weights, dtype=dtype, local_files_only=Path(weights).is_dir(), use_safetensors=True
        )
        model = merge_lora(model, path_or_name) if light else model
    except (OSError, ValueError, RuntimeError) as e:
        reason = str(e).strip().split("\n")[0]
        raise RobustokError(f"could not load the model '{path_or_name}': {reason}") from e
    return model.eval()


def check_model(path_or_name: str | Path) -> None:
    """Raise RobustokError for a path where there is no folder, and a folder without a model.

    What looks like a name of the hub passes: only the hub can tell.
    """
    folder = Path(path_or_name)
    if folder.is_dir():
        if not (folder / "config.json").is_file() and not has_lora(folder):
            raise RobustokError(f"'{folder}' holds no model: it has no config.json")
    elif folder.is_absolute() or str(path_or_name).startswith((".", "~")):
        raise RobustokError(f"no folder '{path_or_name}': give a model folder or a hub name")


def load_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """Load transformers' own tokenizer of a model, for its chat template.

    >>> save_tokenizer("tokenizer.json", "runs/mine")
    >>> type(load_tokenizer("runs/mine")).__name__
    'TokenizersBackend'

    A folder is read without asking the hub. Raises RobustokError where there is none.
    """
    from transformers import AutoTokenizer

    local = Path(path_or_name).is_dir()
    try:
        return AutoTokenizer.from_pretrained(str(path_or_name), local_files_only=local)
    except (OSError, ValueError) as e:
        reason = str(e).strip().split("\n")[0]
        raise RobustokError(f"could not load the tokenizer of '{path_or_name}': {reason}") from e


def save_tokenizer(source: str | Path, folder: str | Path) -> None:
    """Put a model's tokenizer beside its trained weights, so that the folder is whole.

    >>> save_tokenizer("tokenizer.json", "runs/mine")
    >>> rt.Vocabulary.load("runs/mine").size == vocab.size
    True

    ``source`` is a tokenizer.json, a folder or a hub name; files are copied as they are. Raises
    RobustokError where there is no tokenizer.
    """
    source, folder = Path(source), Path(folder)
    found = [source] if source.is_file() else [source / name for name in _TOKENIZER_FILES]
    here = [path for path in found if path.is_file()]
    for path in here:
        name = "tokenizer.json" if path == source and path.suffix == ".json" else path.name
        shutil.copyfile(path, folder / name)
    if not here:
        load_tokenizer(str(source)).save_pretrained(str(folder))
    elif not (folder / "tokenizer_config.json").is_file():
        _name_special_tokens(folder)


def _name_special_tokens(folder: Path) -> None:
    """Say which token ends a text: other tools ask a model's tokenizer, not its config."""
    from transformers import PreTrainedTokenizerFast

    file = folder / "tokenizer.json"
    if not file.is_file() or END_OF_TEXT not in file.read_text(encoding="utf-8"):
        return
    names = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **names)  # type: ignore[arg-type]
    tokenizer.save_pretrained(str(folder))


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def check_fit(model: PreTrainedModel, vocab: Vocabulary) -> None:
    """Raise RobustokError where the vocabulary has ids that the model has no embedding for.

    >>> from robustok.models import small_model
    >>> try:
    ...     check_fit(small_model(270, "quick", seed=0), vocab)
    ... except RobustokError as error:
    ...     print(error)
    the vocabulary has 278 ids but the model 270 embeddings: give the model's own tokenizer
    """
    rows = len(model.get_input_embeddings().weight)  # type: ignore[arg-type]
    if vocab.size > rows:
        raise RobustokError(
            f"the vocabulary has {vocab.size} ids but the model {rows} embeddings: "
            "give the model's own tokenizer"
        )
