"""The `tokenizers` library behind one interface: releases 0.21 to 0.23, and 1.0.

Release 1.0 has a tokenizer that is made from JSON and encodes, and nothing of its parts. So a
tokenizer is read from its JSON here, and encoded with; what 0.2x alone can do says so. No other
module of the core imports `tokenizers`.

An encoder has two tokenizers that share one model: ``encode_special_tokens`` is a setting of the
whole object in 0.2x, and changing it while another thread encodes would turn that thread's text
into special tokens.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.data import library_error, library_errors
from robustok.tokenizer.stages import spelling_bytes

HAS_PARTS = hasattr(Tokenizer, "to_str")  # normalizers, models and added tokens: below 1.0
BYTE_NAME = re.compile(r"<0x[0-9A-F]{2}>")  # as the library writes it
_PARTS = ("normalizer", "pre_tokenizer", "decoder")


class AddedToken(NamedTuple):
    """A token that the library looks for in a text before its model."""

    content: str
    special: bool = False
    normalized: bool = True
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


def require_parts(what: str) -> None:
    """Raise RobustokError where the installed release lacks what ``what`` needs."""
    if not HAS_PARTS:
        raise RobustokError(
            f"{what} needs the parts of a tokenizer, which tokenizers {tokenizers.__version__} does"
            " not have: pip install 'tokenizers<1'"
        )


def open_json(text: str) -> Any:
    """The tokenizer of a tokenizer.json; raises RobustokError where the library refuses it."""
    with library_errors("the tokenizers library refuses it"):
        if HAS_PARTS:
            return Tokenizer.from_str(text)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "tokenizer.json")
            file.write_text(text, encoding="utf8")
            return Tokenizer.from_file(str(file))


def json_of(tokenizer: Any) -> str:
    """The tokenizer.json of a tokenizer, or of an object around one that can be saved."""
    with library_errors("the tokenizers library cannot save it"):
        # 1.0 gives its JSON to pickle alone.
        return tokenizer.to_str() if HAS_PARTS else tokenizer.__reduce__()[1][0]


def parts_of(tokenizer: Any, spec: dict) -> dict[str, dict | None]:
    """Normalizer, pre-tokenizer and decoder as in JSON, with the defaults of the library in 0.2x.

    ``spec``: the tokenizer.json.
    """
    if not HAS_PARTS:
        parts = {part: spec.get(part) for part in _PARTS}
        if spec["model"].get("byte_level"):  # as 1.0 writes what was a pre-tokenizer
            before = [parts["pre_tokenizer"]] if parts["pre_tokenizer"] else []
            stages = [*before, spelling_bytes()]
            parts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages}
        return parts
    stages = ((part, getattr(tokenizer, part)) for part in _PARTS)
    return {part: x if x is None else json.loads(x.__getstate__()) for part, x in stages}


def added_tokens_of(tokenizer: Any, spec: dict) -> dict[int, AddedToken]:
    """The added tokens by id, in 0.2x as the library numbers them, which may not be as the file."""
    if HAS_PARTS:
        added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
        return {
            i: AddedToken(*(getattr(token, field) for field in AddedToken._fields))
            for i, token in added.items()
        }
    return {
        token["id"]: AddedToken(*(token[field] for field in AddedToken._fields))
        for token in spec.get("added_tokens") or ()
    }


def name_of(tokenizer: Any, i: int) -> str:
    """The name of an id: of an added token as the normalizer leaves it."""
    if HAS_PARTS:
        return tokenizer.id_to_token(i) or ""
    return tokenizer.decode_tokens([i])[0]


def normalizer_of(tokenizer: Any, part: dict | None) -> Callable[[str], str] | None:
    """What the normalizer of a tokenizer makes of a text; None where it has none.

    ``part``: the normalizer as in JSON.
    """
    if part is None:
        return None
    if HAS_PARTS:
        return tokenizer.normalizer.normalize_str
    # A model of bytes alone spells what its normalizer writes.
    names = {f"<0x{byte:02X}>": byte for byte in range(256)}
    model = {"type": "BPE", "vocab": names, "merges": [], "byte_fallback": True}
    probe = open_json(tokenizer_json(model, None, part))
    return lambda text: bytes(library_ids(probe, [text], False)[0]).decode()


def tokenizer_json(model: dict, pre_tokenizer: dict | None, normalizer: dict | None = None) -> str:
    """A tokenizer.json with a model and what comes before it, and nothing else."""
    settings = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": (settings if model["type"] == "BPE" else {}) | model,
    }
    return json.dumps(parts, ensure_ascii=False)


def library_ids(tokenizer: Any, texts: Sequence[str], is_plain: bool) -> list[list[int]]:
    """The ids of each text. ``is_plain``: 1.0 alone: whether special tokens are text."""
    if HAS_PARTS:
        encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    else:
        encoded = tokenizer.encode_batch(
            [*texts],
            add_special_tokens=False,
            encode_special_tokens=is_plain,
            padding=None,
            truncation=None,
        )
    return [one.ids for one in encoded]


def plain_twin(tokenizer: Any) -> Any:
    """A tokenizer of the same model, which takes 150 MB for Llama 3, to which special is text.

    It neither truncates nor pads, and adds no special tokens.
    """
    if not HAS_PARTS:
        return tokenizer
    twin = Tokenizer(tokenizer.model)
    twin.normalizer, twin.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    added = tokenizer.get_added_tokens_decoder()
    # In one call: each call takes time for all tokens before.
    twin.add_tokens([added[i] for i in sorted(added)])
    if {i: repr(t) for i, t in twin.get_added_tokens_decoder().items()} != {
        i: repr(t) for i, t in added.items()
    }:
        twin = Tokenizer.from_str(tokenizer.to_str())
        twin.no_truncation()
        twin.no_padding()
        twin.post_processor = None
    twin.encode_special_tokens = True
    return twin


def _hiding_twin(tokenizer: Any, hidden: Sequence[str]) -> Any:
    """:func:`plain_twin` of a model that would find special tokens, ``hidden``, in a text."""
    spec = json.loads(json_of(tokenizer))
    model = spec["model"]
    # Nobody can write a name that is chosen at random in this process.
    names = {content: secrets.token_hex(16) for content in hidden}
    if model["type"] == "Unigram":
        model["vocab"] = [
            [names.get(spelling, spelling), score] for spelling, score in model["vocab"]
        ]
    else:
        model["vocab"] = {
            names.get(spelling, spelling): i for spelling, i in model["vocab"].items()
        }
        unknown = model.get("unk_token")
        model["unk_token"] = names.get(unknown, unknown)
        model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & {*names}]
    # They still keep other added tokens from being found within them. Last, since the model lacks
    # them here, so that they take new ids.
    spec["added_tokens"].sort(key=lambda token: token["content"] in names)
    twin = open_json(json.dumps(spec))
    if HAS_PARTS:
        twin.encode_special_tokens = True
    return twin


class TokenizersEncoder:
    """A tokenizer for plain text and its twin that parses special tokens.

    ``hidden``: special tokens that the model itself would read in a text. ``complete``: every text
    has a token for each character or byte. ``normalizer``: as in JSON.
    """

    def __init__(
        self, tokenizer: Any, hidden: Sequence[str], normalizer: dict | None, complete: bool
    ) -> None:
        self.parsing, self.hidden, self.complete = tokenizer, hidden, complete
        self.normalizer = normalizer

    @computed_once
    def tokenizer(self) -> Any:
        """The tokenizer to which special tokens are text; slow to make where the model has them."""
        hides = self.hidden
        return _hiding_twin(self.parsing, hides) if hides else plain_twin(self.parsing)

    def __getstate__(self) -> dict[str, Any]:
        """One of the two tokenizers; the library does not pickle ``encode_special_tokens``."""
        return {name: value for name, value in vars(self).items() if name != "tokenizer"}

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        tokenizer = self.parsing if parse_special else self.tokenizer
        try:
            return library_ids(tokenizer, texts, not parse_special)
        except BaseException as error:  # a panic of a Rust library is no Exception
            refusal = library_error("the tokenizers library cannot encode this text", error)
            for text in texts:
                self._refuse_missing(text)
            raise refusal from error

    def pre_token_ends(self, text: str) -> list[int]:
        """Where the pre-tokens of a normalized text end, in characters, which 1.0 cannot say."""
        cutter = self.parsing.pre_tokenizer
        if cutter is None or not text:
            return [len(text)] if text else []
        with library_errors("the tokenizers library cannot cut this text"):
            spans = [span for _, span in cutter.pre_tokenize_str(text)]
        return sorted({x for span in spans for x in span} - {0} | {len(text)})

    def _refuse_missing(self, text: str) -> None:
        """Raise RobustokError for the first character of ``text`` without a token, if any."""
        for character in dict.fromkeys(text):
            try:
                library_ids(self.tokenizer, [character], True)
            except BaseException as error:
                library_error("", error)  # raises what is no error of the library
                raise RobustokError(
                    f"the vocabulary has no token for {character!r}: this text cannot be tokenized"
                ) from None
