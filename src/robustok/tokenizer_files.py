"""Read tokenizer files and objects into one form: every token as bytes, and an encoder.

Byte-level BPE, SentencePiece-style BPE and Unigram come in through tokenizer.json, a
``tokenizers`` or transformers tokenizer, a tiktoken ``Encoding`` or a SentencePiece model.
What it does not read: WordPiece and WordLevel, whose tokens are not parts of the text's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robustok.errors import RobustokError
from robustok.hub_names import check_hub_name, hub_failure, split_revision
from robustok.packaged import is_packaged, packaged_folder
from robustok.sentencepiece_model import from_model_file, from_processor
from robustok.tokenizer_data import IdSet, library_errors
from robustok.tokenizer_data import TokenizerData as TokenizerData
from robustok.tokenizer_data import byte_alphabet as byte_alphabet
from robustok.tokenizer_data import steps as steps
from robustok.tokenizer_json import from_json
from robustok.tokenizers_encoder import TokenizersEncoder as TokenizersEncoder


def read_tokenizer(source: Any) -> TokenizerData:
    """Read a path, a hub name or a tokenizer object.

    Raises RobustokError for a missing or broken file and for tokenizers whose tokens are not bytes
    of the text.
    """
    if isinstance(source, (str, Path)):
        return _from_name(str(source))
    source = getattr(source, "wrapped_tokenizer", source)  # of one that draws: the canonical one
    module = type(source).__module__.split(".")[0]
    if module == "tiktoken":
        return _from_tiktoken(source)
    if module == "sentencepiece":
        return from_processor(source)
    if module == "tokenizers":
        return _from_object(source)
    backend = getattr(source, "backend_tokenizer", None)
    if backend is not None:
        return _from_object(backend)
    raise RobustokError(
        f"cannot read a tokenizer from {type(source).__name__}: pass a path, a hub name, or a "
        "tokenizers, transformers (fast), tiktoken or sentencepiece object"
    )


def _from_object(tokenizer: Any) -> TokenizerData:
    if type(tokenizer.model).__name__ == "BPE":
        ids = tokenizer.get_vocab(with_added_tokens=False).values()
        if max(ids, default=-1) >= len(ids):
            raise RobustokError(
                f"the tokenizer object: its {len(ids)} tokens have ids up to {max(ids)}: the "
                "tokenizers library needs ids without holes"
            )
    return from_json(tokenizer.to_str(), "the tokenizer object")


def _from_name(name: str) -> TokenizerData:
    path = Path(name)
    if path.is_dir():
        for file in ("tokenizer.json", "tokenizer.model"):
            if (path / file).is_file():
                return _from_name(str(path / file))
        raise RobustokError(f"{name}: the folder has no tokenizer.json and no tokenizer.model")
    if path.is_file():
        if path.suffix == ".model":
            return from_model_file(path)
        try:
            text = path.read_text(encoding="utf8")
        except (OSError, UnicodeDecodeError) as e:
            raise RobustokError(f"{name}: not readable as a tokenizer.json ({e})") from e
        return from_json(text, name)
    if is_packaged(name):
        return _from_name(str(packaged_folder(name)))
    check_hub_name(name, "tokenizer")
    return _from_hub(name)


def _from_hub(name: str) -> TokenizerData:
    """The tokenizer of a hub repository, ``owner/name`` or ``owner/name@revision``."""
    from huggingface_hub import hf_hub_download

    repository, revision = split_revision(name)
    try:
        path = Path(hf_hub_download(repository, "tokenizer.json", revision=revision))
    except Exception as e:  # the hub client raises many kinds, all of them with the same cure
        raise RobustokError(
            f"{name}: no such file or folder, and the hub gave no tokenizer of that name "
            f"({hub_failure(e)[:120]})"
        ) from e
    # The hub's cache keeps a file under snapshots/COMMIT/.
    commit = path.parent.name if path.parent.parent.name == "snapshots" else None
    return replace(_from_name(str(path)), revision=commit)


@dataclass(frozen=True)
class TiktokenEncoder:
    """A tiktoken ``Encoding``; its texts are never changed."""

    encoding: Any
    complete: bool  # every byte has a token

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        with library_errors("tiktoken cannot encode this text"):
            if parse_special:
                return self.encoding.encode_batch(list(texts), allowed_special="all", num_threads=1)
            return self.encoding.encode_ordinary_batch(list(texts), num_threads=1)

    def normalize(self, text: str) -> str | None:
        return text if self.complete else None


def _from_tiktoken(encoding: Any) -> TokenizerData:
    ranks: dict[bytes, int] = encoding._mergeable_ranks
    special: dict[str, int] = encoding._special_tokens
    tokens: list[bytes] = [b""] * (max([*ranks.values(), *special.values()]) + 1)
    for text, i in special.items():
        tokens[i] = text.encode()
    for token, i in ranks.items():
        tokens[i] = token
    ordinary = frozenset(ranks.values()) - frozenset(special.values())
    complete = len({tokens[i] for i in ordinary if len(tokens[i]) == 1}) == 256
    return TokenizerData(
        tokens, IdSet(ordinary), frozenset(), TiktokenEncoder(encoding, complete), "byte-level BPE",
        source=encoding,
    )  # fmt: skip
