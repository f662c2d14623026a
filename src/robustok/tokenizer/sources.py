"""Find the tokenizer of a path, a folder, a hub name or an object, and read it into one form.

A file is recognized by its content, not by its name: tokenizer.json, tekken.json, a SentencePiece
model, or a tiktoken file of ranks. What it does not read: WordPiece and WordLevel, whose tokens are
not parts of the text's bytes.

A folder is read as ``AutoTokenizer`` of transformers reads it, which adds the tokens of
tokenizer_config.json, and builds the stages of a class such as ``GPT2Tokenizer`` anew. Where
:func:`differences` finds what may change ids, transformers reads it (:func:`auto_tokenizer`), whose
import takes seconds.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.runtime.hub import (
    check_hub_name,
    hub_arguments,
    hub_failure,
    is_packaged,
    is_unreachable,
    own_tokenizer,
    packaged_folder,
    packaged_hint,
    split_revision,
)
from robustok.runtime.packages import EXTRAS
from robustok.tokenizer.data import TokenizerData, library_errors
from robustok.tokenizer.libraries import (
    from_processor,
    from_tiktoken,
    open_ranks,
    open_sentencepiece,
    open_tekken,
)
from robustok.tokenizer.tokenizer_json import check_holes, errors_name, from_json
from robustok.tokenizer.tokenizers_api import (
    HAS_PARTS,
    AddedToken,
    json_of,
    open_json,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)
_OBJECT = "the tokenizer object"  # what errors call it
# Files that hold a whole tokenizer, the first of which counts.
_WHOLE = (
    "tokenizer.json",
    "tekken.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "spm.model",
    "source.spm",
)
_PATTERNS = ("*.model", "*.model.v*", "*.spm", "*.tiktoken", "tekken*.json")  # of other names
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
_RANK = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n")


class Opened(NamedTuple):
    """A tokenizer as its library has it."""

    content: Any  # the text of a tokenizer.json, or the object of a library
    name: str = _OBJECT  # what messages call it
    revision: str | None = None  # the commit of a hub repository

    def library(self) -> Any:
        """The tokenizer of ``tokenizers``, tiktoken or SentencePiece."""
        if not isinstance(self.content, str):
            return self.content
        with errors_name(self.name):
            return open_json(self.content)


def read_tokenizer(source: Any) -> TokenizerData:
    """Read a path, a hub name or a tokenizer object."""
    opened = open_tokenizer(source)
    content, name = opened.content, opened.name
    module = type(content).__module__.split(".")[0]
    if isinstance(content, str):
        data = from_json(content, name)
    elif module == "tiktoken":
        data = from_tiktoken(content)
    elif module == "sentencepiece":
        data = from_processor(content, "the SentencePiece model" if name == _OBJECT else name)
    else:
        with errors_name(name):
            text = json_of(content)
            if HAS_PARTS and hasattr(content, "get_vocab"):
                check_holes(content, content.get_vocab(with_added_tokens=False))
        data = from_json(text, name)
        _check_saved(content, data, name)
    return replace(data, revision=opened.revision) if opened.revision else data


def _check_saved(tokenizer: Any, data: TokenizerData, name: str) -> None:
    """Raise RobustokError where an added token has another id once the tokenizer is saved."""
    added = tokenizer.get_added_tokens_decoder() if HAS_PARTS else {}
    for i, token in added.items():
        saved = data.added.get(i)
        if saved is None or saved.content != token.content:
            raise RobustokError(
                f"{name}: the added token {token.content!r} has the id {i}, and another one once"
                " the tokenizer is saved: add tokens after the model is trained or replaced"
            )


def open_tokenizer(source: Any) -> Opened:
    """Find the tokenizer of a path, a hub name or an object, without reading its tokens."""
    if isinstance(source, (str, Path)):
        return _open_name(str(source))
    source = getattr(source, "wrapped_tokenizer", source)  # of one that draws: the canonical one
    module = type(source).__module__.split(".")[0]
    if module == "sentencepiece":
        # One with its own settings may add a BOS, sample or reverse, or load another model.
        with library_errors(f"{_OBJECT}: no SentencePiece model"):
            raw = source.serialized_model_proto()
        return Opened(open_sentencepiece(raw, _OBJECT))
    if module == "tokenizers" and "implementations" in type(source).__module__:
        return Opened(open_json(json_of(source)))  # a class around a tokenizer
    if module in ("tiktoken", "tokenizers"):
        return Opened(source)
    backend = getattr(source, "backend_tokenizer", None)
    if backend is not None:
        return Opened(backend)
    raise RobustokError(
        f"cannot read a tokenizer from {type(source).__name__}: pass a path, a hub name, or a "
        "tokenizers, transformers (fast), tiktoken or sentencepiece object"
    )


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a folder that decide what its tokenizer returns, config.json not among them."""
    names = [*_WHOLE, *(name for name in COMPANIONS if name != "config.json")]
    return [folder / name for name in names if (folder / name).is_file()]


def _open_name(name: str) -> Opened:
    if not name:
        raise RobustokError("an empty name of a tokenizer: give a file, a folder or a hub name")
    path = Path(name)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as e:
        raise RobustokError(f"{shown(name)}: no file, no folder and no hub name ({e})") from e
    if is_folder:
        return _open_folder(path, name)
    if is_file:
        return _open_file(path)
    if file := own_tokenizer(name):
        return _open_file(file)._replace(name=name)
    if is_packaged(name):
        return _open_folder(packaged_folder(name), name)
    check_hub_name(name, "tokenizer")
    return _open_hub(name)


def _open_hub(name: str) -> Opened:
    """The tokenizer of a hub repository, ``owner/name`` or ``owner/name@revision``."""
    from huggingface_hub import snapshot_download

    repository, revision = split_revision(name)
    try:
        files, only_cached = [*_WHOLE, *COMPANIONS], is_unreachable()
        folder = Path(
            snapshot_download(
                repository, revision=revision, allow_patterns=files, local_files_only=only_cached
            )
        )
    except Exception as e:  # the hub client raises many kinds, all of them with the same cure
        raise RobustokError(
            f"{name}: no such file or folder, and the hub gave no tokenizer of that name "
            f"({hub_failure(e)[:120]}){packaged_hint(name)}"
        ) from e
    commit = folder.name  # the hub's cache keeps files under snapshots/COMMIT/
    return _open_folder(folder, f"{repository}@{commit}")._replace(revision=commit)


def _open_folder(folder: Path, name: str) -> Opened:
    """The tokenizer of a folder; ``name`` is what the user, or the hub, calls it."""
    whole, others = whole_file(folder), companions(folder)
    if whole is not None and whole.name == "tokenizer.json":
        opened = _open_file(whole)
        try:
            spec = json.loads(opened.content)
        except (ValueError, RecursionError):
            return opened  # which its reader refuses
        try:
            others = differences(folder, spec)
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            raise RobustokError(
                f"{name}: the files beside tokenizer.json are malformed ({type(e).__name__}: {e})"
            ) from e
        if not others:
            return opened
    elif whole is not None and (whole.name == "tekken.json" or not others):
        return _open_file(whole)
    elif whole is None:
        _refuse_merges(folder, name)
    if whole is None and not others:
        raise RobustokError(f"{name}: the folder has no tokenizer.json and no tokenizer.model")
    return _open_auto(name, whole, others)


def _refuse_merges(folder: Path, name: str) -> None:
    """Raise RobustokError for the two files of a BPE in a folder that names no class."""
    for vocab, merges in (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")):
        has_both = (folder / vocab).is_file() and (folder / merges).is_file()
        if has_both and not (names_class(folder) or (folder / "config.json").is_file()):
            raise RobustokError(
                f"{name}: {vocab} and {merges} do not say what cuts a text; of a byte-level BPE"
                f" make a tokenizer.json: tokenizers.ByteLevelBPETokenizer('{vocab}', '{merges}')"
                ".save('tokenizer.json')"
            )


def _open_auto(name: str, whole: Path | None, others: list[str]) -> Opened:
    """The tokenizer that transformers makes; without it that of the file alone, and a warning."""
    if find_spec("transformers") is None:
        install = EXTRAS["transformers"].install("transformers")
        if whole is None:
            raise RobustokError(f"{name}: reading {others[0]} needs transformers: {install}")
        what = f"{name}: only {whole.name} is read; transformers would heed {', '.join(others)}"
        _log.warning("%s, too, and may give other ids: %s", what, install)
        return _open_file(whole)
    try:
        tokenizer: Any = auto_tokenizer(name)
    except RobustokError:
        raise
    except Exception as e:  # of many kinds
        raise RobustokError(
            f"{name}: transformers cannot read its tokenizer ({hub_failure(e)[:200].rstrip(':. ')})"
            "; to read a file alone, such as tokenizer.json, pass its path"
        ) from e
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return Opened(backend, name)
    tekken = whole and whole.parent / "tekken.json"
    if tekken and tekken.is_file():  # read by mistral-common
        return _open_file(tekken)
    raise RobustokError(
        f"{name}: transformers reads it as a {type(tokenizer).__name__}, which is not one of the"
        " tokenizers library: its ids cannot be read as bytes"
    )


def companions(folder: Path) -> list[str]:
    """The names of the files that make a folder one of transformers."""
    return [name for name in COMPANIONS if (folder / name).is_file()]


def names_class(folder: Path) -> bool:
    """Whether tokenizer_config.json names the class of the tokenizer."""
    return bool(_read(folder / CONFIG).get("tokenizer_class"))


def auto_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer that ``AutoTokenizer`` of transformers makes of a folder or a hub name.

    Runs no code of the model. Raises what transformers raises.
    """
    from transformers import AutoTokenizer

    name, where = hub_arguments(path_or_name)
    if not Path(name).exists():
        check_hub_name(name, "tokenizer")
    return AutoTokenizer.from_pretrained(name, **where)


def differences(folder: Path, spec: dict) -> list[str]:
    """What ``AutoTokenizer`` may read otherwise in a folder than in ``spec``, its tokenizer.json.

    In words.
    """
    config, model = _read(folder / CONFIG), _read(folder / "config.json")
    config.setdefault("pad_token", (spec.get("padding") or {}).get("pad_token"))
    others = list(_settings(folder, config, model))
    added = {token["content"]: token for token in spec.get("added_tokens") or ()}
    listed, named, roles = config.get("added_tokens_decoder"), *_named(config)
    if listed is None:
        more, more_roles = _named(_read(folder / "special_tokens_map.json"))
        named, roles = named | more, roles | more_roles
        numbers = _read(folder / "added_tokens.json").items()
        if any(added.get(content, {}).get("id") != i for content, i in numbers):
            others.append("added_tokens.json")
    changed = {
        token["content"]
        for token in (listed or {}).values()
        if token["content"] not in added or _token(token) != _token(added[token["content"]])
    }
    changed |= named - {*added}
    changed |= {content for content in roles & {*added} if not added[content]["special"]}
    return others + [f"the token {content!r}" for content in sorted(changed)]


def _token(token: dict) -> AddedToken:
    return AddedToken(**{name: token[name] for name in AddedToken._fields if name in token})


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
    named, with_role = (
        {content for value in values if isinstance(content := _content(value), str)}
        for values in (roles + extra, roles)
    )
    return named, with_role


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


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


def whole_file(folder: Path) -> Path | None:
    """The file of a folder that holds a whole tokenizer, or None."""
    for file in _WHOLE:
        if (folder / file).is_file():
            return folder / file
    files = sorted({file for pattern in _PATTERNS for file in folder.glob(pattern)})
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:4])
        raise RobustokError(f"{folder}: pass the path of one of its tokenizers ({names})")
    return files[0] if files else None


def _open_file(path: Path) -> Opened:
    """The tokenizer of a file, of the kind that its content shows."""
    name = str(path)
    try:
        raw = path.read_bytes()
    except OSError as e:
        raise RobustokError(f"{name}: not readable ({e.strerror or e})") from e
    start = raw[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"{":
        try:
            text = raw.decode("utf8")
        except UnicodeDecodeError as e:
            raise RobustokError(f"{name}: not readable as a tokenizer.json ({e})") from e
        if '"token_bytes"' in text[:8192]:
            return Opened(open_tekken(text, name), name)
        return Opened(text, name)
    if _RANK.match(start):
        return Opened(open_ranks(raw, name), name)
    if raw[:1] == b"\n":  # the first field of a SentencePiece model
        return Opened(open_sentencepiece(raw, name), name)
    if raw.startswith(LFS_START):
        raise RobustokError(f"{name}: {LFS_MESSAGE}")
    raise RobustokError(
        f"{name}: no tokenizer: pass a tokenizer.json, tekken.json, a SentencePiece model or the"
        " folder of a model"
    )
