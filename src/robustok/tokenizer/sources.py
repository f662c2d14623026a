"""Find the tokenizer of a path, a folder, a hub name or an object, and read it into one form.

A file is recognized by its content, not by its name: tokenizer.json, tekken.json, a SentencePiece
model or a tiktoken file of ranks. A folder is read as ``AutoTokenizer`` reads it. What it does not
read: WordPiece and WordLevel, whose tokens are not parts of the text's bytes.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.runtime.hub import (
    check_hub_name,
    hub_failure,
    is_packaged,
    is_unreachable,
    own_tokenizer,
    packaged_folder,
    packaged_hint,
    split_revision,
)
from robustok.runtime.packages import EXTRAS
from robustok.tokenizer.auto import (
    COMPANIONS,
    LFS_MESSAGE,
    LFS_START,
    auto_tokenizer,
    companions,
    differences,
)
from robustok.tokenizer.data import TokenizerData, library_errors
from robustok.tokenizer.json_tokens import check_holes
from robustok.tokenizer.libraries import (
    from_processor,
    from_tiktoken,
    open_ranks,
    open_sentencepiece,
    open_tekken,
)
from robustok.tokenizer.tokenizer_json import errors_name, from_json, open_json

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
_RANK = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n")
_MODEL = re.compile(r'"model"\s*:\s*\{')  # in a list of tokens "model" is one, with its id


class Opened(NamedTuple):
    """A tokenizer as its library has it."""

    content: Any  # the text of a tokenizer.json, or the object of a library
    name: str = _OBJECT  # what messages call it
    revision: str | None = None  # the commit of a hub repository
    parsed: Any = None  # the library's tokenizer of this text, where it was made

    def library(self) -> Any:
        """The tokenizer of ``tokenizers``, tiktoken or SentencePiece."""
        if not isinstance(self.content, str):
            return self.content
        if self.parsed is not None:
            return self.parsed
        with errors_name(self.name):
            return open_json(self.content)


def read_tokenizer(source: Any) -> TokenizerData:
    """Read a path, a hub name or a tokenizer object.

    Raises RobustokError for a missing or broken file and for tokenizers whose tokens are not bytes
    of the text.
    """
    opened = open_tokenizer(source)
    content, name = opened.content, opened.name
    module = type(content).__module__.split(".")[0]
    if isinstance(content, str):
        data = from_json(content, name, opened.parsed)
    elif module == "tiktoken":
        data = from_tiktoken(content)
    elif module == "sentencepiece":
        data = from_processor(content, "the SentencePiece model" if name == _OBJECT else name)
    else:
        with library_errors(f"{name}: the tokenizers library cannot save it"):
            text = content.to_str()
        if type(content.model).__name__ == "BPE":
            with errors_name(name):
                check_holes(content)
        data = from_json(text, name)
        _check_saved(content, data, name)
    return replace(data, revision=opened.revision) if opened.revision else data


def _check_saved(tokenizer: Any, data: TokenizerData, name: str) -> None:
    """Raise RobustokError where an added token has another id once the tokenizer is saved."""
    for i, token in tokenizer.get_added_tokens_decoder().items():
        saved = data.added.get(i)
        if saved is None or saved.content != token.content:
            raise RobustokError(
                f"{name}: the added token {token.content!r} has the id {i}, and another one once"
                " the tokenizer is saved: add tokens after the model is trained or replaced"
            )


def open_tokenizer(source: Any) -> Opened:
    """Find the tokenizer of a path, a hub name or an object, without reading its tokens.

    Raises RobustokError where there is none.
    """
    if isinstance(source, (str, Path)):
        return _open_name(str(source))
    source = getattr(source, "wrapped_tokenizer", source)  # of one that draws: the canonical one
    module = type(source).__module__.split(".")[0]
    if module == "sentencepiece":
        # One with its own settings may add a BOS, sample or reverse, or load another model.
        with library_errors(f"{_OBJECT}: no SentencePiece model"):
            raw = source.serialized_model_proto()
        return Opened(open_sentencepiece(raw, _OBJECT))
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
    repository, revision = split_revision(name)
    try:
        file = next(_downloaded(repository, _WHOLE, revision))
        # The hub's cache keeps a file under snapshots/COMMIT/.
        commit = file.parent.name if file.parent.parent.name == "snapshots" else None
        for _ in _downloaded(repository, COMPANIONS, commit or revision):
            pass
    except Exception as e:  # the hub client raises many kinds, all of them with the same cure
        raise RobustokError(
            f"{name}: no such file or folder, and the hub gave no tokenizer of that name "
            f"({hub_failure(e)[:120]}){packaged_hint(name)}"
        ) from e
    pinned = f"{repository}@{commit}" if commit else name
    return _open_folder(file.parent, pinned)._replace(revision=commit)


def _downloaded(repository: str, names: tuple[str, ...], revision: str | None) -> Iterator[Path]:
    """The files of these names in a repository; raises an error of the hub where it has none."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    missing: Exception | None = None
    only_cached, count = is_unreachable(), 0
    for name in names:
        try:
            file = hf_hub_download(
                repository, name, revision=revision, local_files_only=only_cached
            )
        except EntryNotFoundError as e:
            missing = missing or e
            continue
        count += 1
        yield Path(file)
    if missing and not count and names is _WHOLE:
        raise missing


def _open_folder(folder: Path, name: str) -> Opened:
    """The tokenizer of a folder; ``name`` is what the user, or the hub, calls it."""
    whole = whole_file(folder)
    others: list[str] = []
    if whole is not None and whole.name == "tokenizer.json":
        opened = _open_file(whole)
        tokenizer = opened.library()
        try:
            found = differences(folder, tokenizer)
        except (ValueError, LookupError, TypeError, AttributeError) as e:
            raise RobustokError(
                f"{name}: the files beside tokenizer.json are malformed ({type(e).__name__}: {e})"
            ) from e
        if not (found.others or found.tokens):
            return opened._replace(parsed=tokenizer)
        if not found.others:
            with library_errors(f"{opened.name}: the tokenizers library refuses added tokens"):
                tokenizer.add_tokens(found.tokens)
            return Opened(tokenizer, name)
        others = found.others
    elif whole is not None and (whole.name == "tekken.json" or not companions(folder)):
        return _open_file(whole)
    elif not companions(folder):
        raise RobustokError(f"{name}: the folder has no tokenizer.json and no tokenizer.model")
    return _open_auto(name, whole, others or companions(folder))


def _open_auto(name: str, whole: Path | None, others: list[str]) -> Opened:
    """The tokenizer that transformers makes; without it that of the file alone, and a warning."""
    if find_spec("transformers") is None:
        install = EXTRAS["transformers"].install("transformers")
        if whole is None:
            raise RobustokError(f"{name}: reading {others[0]} needs transformers: {install}")
        _log.warning(
            "%s: only %s is read; transformers would heed %s, too, and may give other ids: %s",
            name,
            whole.name,
            ", ".join(others),
            install,
        )
        return _open_file(whole)
    try:
        tokenizer: Any = auto_tokenizer(name)
    except RobustokError:
        raise
    except Exception as e:  # of many kinds
        reason = hub_failure(e)[:200].rstrip(":. ")
        if whole is None:
            raise RobustokError(
                f"{name}: the folder has no tokenizer.json and no tokenizer.model, and transformers"
                f" finds no tokenizer in it ({reason})"
            ) from e
        raise RobustokError(
            f"{name}: transformers cannot read its tokenizer ({reason}); to read {whole.name} "
            "alone, pass its path"
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
        if not _MODEL.search(text) and (other := _other_json(text)):
            raise RobustokError(f"{name}: {other}")
        return Opened(text, name)
    if _RANK.match(start):
        return Opened(open_ranks(raw, name), name)
    if raw[:1] == b"\n":  # the first field of a SentencePiece model
        return Opened(open_sentencepiece(raw, name), name)
    raise RobustokError(f"{name}: {_other_file(start, path)}")


_KERAS = "a tokenizer of Keras, whose tokens are words and not bytes of the text"
# What files start with that are no tokenizer, and what to do.
_STARTS = (
    (LFS_START, LFS_MESSAGE),
    (b'"{\\"class_name', _KERAS),
    (b"<", "a web page, not a tokenizer: download the file itself"),
    (b"PK\x03\x04", "a zip archive: pass a file in it"),
    (b"\x1f\x8b", "compressed: unpack it with gunzip"),
    (b"\x80", "a pickle, which is not read: save the tokenizer as tokenizer.json"),
    (
        b"GGUF",
        "weights with a tokenizer: save it with AutoTokenizer.from_pretrained(FOLDER,"
        " gguf_file=FILE).save_pretrained(OUT)",
    ),
    (b"#version", "the merges of a tokenizer without its tokens: pass the folder"),
    (b"[PAD]", "the tokens of a WordPiece tokenizer, which are not bytes of the text"),
)


def _other_file(start: bytes, path: Path) -> str:
    """What a file with this start is, which is no tokenizer and no JSON, and what to do."""
    if not start:
        return "an empty file: download the tokenizer again"
    for begin, message in _STARTS:
        if start.startswith(begin):
            return message
    if path.suffix == ".safetensors" or start[8:9] == b"{":
        return "weights, not a tokenizer: pass the folder of the model"
    return (
        "no tokenizer: pass a tokenizer.json, tekken.json, a SentencePiece model or the folder of a"
        " model"
    )


def _other_json(text: str) -> str | None:
    """What a JSON file is that has no "model", and what to do; None where it is not known."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    if "word_index" in text[:100_000] or content.get("class_name") == "Tokenizer":
        return _KERAS
    if "tokenizer_class" in content or "added_tokens_decoder" in content:
        return "settings beside a tokenizer: pass their folder, or the tokenizer.json in it"
    if "model_type" in content or "architectures" in content:
        return "the configuration of a model: pass its folder"
    if content and all(isinstance(value, int) for value in content.values()):
        return "tokens without merges: pass their folder, or a tokenizer.json"
    return None
