"""What transformers reads beside tokenizer.json: tokens and settings of other files of a folder.

``AutoTokenizer`` adds the tokens of tokenizer_config.json, and builds the stages of a class such as
``GPT2Tokenizer`` anew. :func:`differences` lists what may change ids. Tokens alone are added here;
anything else is left to transformers (:func:`auto_tokenizer`), whose import takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import AddedToken, Tokenizer

from robustok.errors import RobustokError
from robustok.runtime.hub import check_hub_name, hub_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONFIG = "tokenizer_config.json"
_LEGACY = ("special_tokens_map.json", "added_tokens.json")  # read where CONFIG has no added tokens
# Files that make a folder one of transformers, beside tokenizer.json.
COMPANIONS = (CONFIG, *_LEGACY, "config.json", "vocab.json", "merges.txt")
# The classes that keep the stages of tokenizer.json.
_PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")
# Model types for which transformers uses a plain class where a folder names it.
_PLAIN_TYPES = (
    "gemma", "gemma2", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2",
    "opt", "phi", "phi3", "qwen3",
)  # fmt: skip
LFS_START = b"version https://git-lfs"
LFS_MESSAGE = (
    "a pointer of Git LFS, not the file itself: run 'git lfs pull', or download the file again"
)


class Differences(NamedTuple):
    """What the files of a folder say beside its tokenizer.json."""

    tokens: list[AddedToken]  # those that transformers adds, in this order
    others: list[str]  # what else may change ids, in words


def companions(folder: Path) -> list[str]:
    """The names of the files that make a folder one of transformers."""
    return [name for name in COMPANIONS if (folder / name).is_file()]


def names_class(folder: Path) -> bool:
    """Whether tokenizer_config.json names the class of the tokenizer."""
    return bool(_read(folder / CONFIG).get("tokenizer_class"))


def auto_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer that ``AutoTokenizer`` of transformers makes of a folder or a hub name.

    Runs no code of the model. Raises what transformers raises, and RobustokError for a name that no
    repository can have.
    """
    from transformers import AutoTokenizer

    name, where = hub_arguments(path_or_name)
    if not Path(name).exists():
        check_hub_name(name, "tokenizer")
    return AutoTokenizer.from_pretrained(name, **where)


def differences(folder: Path, tokenizer: Tokenizer) -> Differences:
    """How ``AutoTokenizer`` may read a folder otherwise than its tokenizer.json alone.

    Args:
        folder: a folder with tokenizer.json.
        tokenizer: that of this file.

    Raises RobustokError for a damaged file.
    """
    config, model = _read(folder / CONFIG), _read(folder / "config.json")
    config.setdefault("pad_token", (tokenizer.padding or {}).get("pad_token"))
    others = list(_settings(folder, config, model))
    added = sorted(tokenizer.get_added_tokens_decoder().items())
    ids = {token.content: i for i, token in added}
    before = {token.content: repr(token) for _, token in added}
    listed, named, roles = config.get("added_tokens_decoder"), *_named(config)
    if listed is not None:
        tokens = [_token(listed[i]) for i in sorted(listed, key=int)]
    else:
        tokens = [token for _, token in added]
        more, more_roles = _named(_read(folder / "special_tokens_map.json"))
        named, roles = named | more, roles | more_roles
        numbers = _read(folder / "added_tokens.json").items()
        if any(ids.get(content) != i for content, i in numbers):
            others.append("added_tokens.json")
    lacking = sorted(named - {*ids} - {token.content for token in tokens})
    others += [f"the token {content!r}" for content in lacking]
    for token in tokens:
        token.special = token.special or token.content in roles
    changed = any(repr(token) != before.get(token.content) for token in tokens)
    return Differences(tokens if changed else [], others)


def _token(token: dict) -> AddedToken:
    return AddedToken(**{name: value for name, value in token.items() if name != "id"})


def _settings(folder: Path, config: dict, model: dict) -> Iterator[str]:
    """The settings of a folder that may change the stages of its tokenizer.json, in words."""
    name = config.get("tokenizer_class") or model.get("tokenizer_class")
    kind = model.get("model_type")
    if "auto_map" in config:
        yield "the tokenizer's own code"
    elif name is not None and name not in _PLAIN_CLASSES:
        yield f"the class {name}"
    elif kind and (name is None or kind not in _PLAIN_TYPES):
        yield f"the model type {kind!r}"
    for key in ("fix_mistral_regex", "fast_tokenizer_files"):
        if config.get(key):
            yield f"{key} of {CONFIG}"
    if (folder / "tekken.json").is_file():
        yield "tekken.json"


def _named(config: dict) -> tuple[set[str], set[str]]:
    """The contents of all tokens that a file names, and of those that have a role."""
    roles = [value for key, value in config.items() if key.endswith("_token")]
    extra: list[Any] = []
    for key in ("extra_special_tokens", "additional_special_tokens"):
        values = config.get(key) or ()
        if isinstance(values, dict):
            roles += values.values()
        else:
            extra += values
    return _contents(roles + extra), _contents(roles)


def _contents(values: Iterable[Any]) -> set[str]:
    contents = (value.get("content") if isinstance(value, dict) else value for value in values)
    return {content for content in contents if isinstance(content, str)}


def _read(file: Path) -> dict:
    """The content of a JSON file, empty where there is none."""
    if not file.is_file():
        return {}
    try:
        raw = file.read_bytes()
        if raw.startswith(LFS_START):
            raise RobustokError(f"{file}: {LFS_MESSAGE}")
        content = json.loads(raw)
    except (OSError, ValueError) as e:
        raise RobustokError(f"{file}: not readable as JSON ({e})") from e
    if not isinstance(content, dict):
        raise RobustokError(f"{file}: not a JSON object")
    return content
