"""The smallest tokenizers of a kind, built from a few tokens, merges and stages."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from tests.guard.tokenizers_of import METASPACE_DECODER, bpe_model, tokenizer_json
from tests.tokenizer.test_vocabulary import bpe as gpt2_json
from tokenizers import AddedToken, Tokenizer, processors

import robustok as rt
from robustok.tokenizer.data import byte_alphabet

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}  # fmt: skip
SPACED = BYTE_LEVEL | {"add_prefix_space": True, "use_regex": False}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
FIRST, WHOLE = METASPACE | {"prepend_scheme": "first"}, METASPACE | {"split": False}
PREPEND, LOWER = {"type": "Prepend", "prepend": "▁"}, {"type": "Lowercase"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
MARKS = {"type": "Sequence", "normalizers": [PREPEND, SPACES]}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
FALLBACK = {"byte_fallback": True}
UNKNOWN = {"unk_token": "<unk>"}
NAMED = FALLBACK | UNKNOWN | {"ignore_merges": True}  # it takes a pre-token "<unk>" for the token
READS_BYTES = {"type": "ByteFallback"}
AT_SPACES = {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False}


def stages(**given: Any) -> dict[str, Any]:
    """The stages of a tokenizer.json: lists are sequences."""
    names = {"norm": ("normalizer", "normalizers"), "pre": ("pre_tokenizer", "pretokenizers"),
             "decoder": ("decoder", "decoders")}  # fmt: skip
    return {
        names[key][0]: {"type": "Sequence", names[key][1]: value} if type(value) is list else value
        for key, value in given.items()
    }


def bpe(tokens: Any, *merges: str, settings: Any = (), **given: Any) -> Tokenizer:
    """A BPE of a string of tokens with spaces between, or others; a merge is two tokens."""
    names = tokens.split(" ") if isinstance(tokens, str) else tokens
    vocab = tokens if isinstance(tokens, dict) else {name: i for i, name in enumerate(names)}
    model = bpe_model(vocab, [merge.split(" ") for merge in merges], **dict(settings))
    return Tokenizer.from_str(tokenizer_json(model, **stages(**given)))


def unigram(tokens: Any, unk_id: int | None = 0, falls_back: bool = False, **given: Any) -> Any:
    """A Unigram model of tokens with their scores, in pairs."""
    model = {"type": "Unigram", "unk_id": unk_id, "byte_fallback": falls_back,
             "vocab": [*map(list, tokens)]}  # fmt: skip
    return Tokenizer.from_str(tokenizer_json(model, **stages(**given)))


def add(tokenizer: Tokenizer, *contents: str, **flags: bool) -> Tokenizer:
    flags = {"normalized": False} | flags
    adds = tokenizer.add_special_tokens if flags.get("special") else tokenizer.add_tokens
    adds([AddedToken(content, **flags) for content in contents])
    return tokenizer


def special(tokenizer: Tokenizer, *contents: str, **flags: bool) -> Tokenizer:
    return add(tokenizer, *contents, special=True, **flags)


def gpt2(normalizer: Any = None) -> Tokenizer:
    tokenizer = Tokenizer.from_str(gpt2_json())
    tokenizer.normalizer = normalizer
    return tokenizer


def t5() -> Tokenizer:
    """A Unigram without most characters, whose pre-tokenizer drops spaces and writes marks."""
    tokens = zip(["<unk>", *"▁ab", "▁a", "ab"], [0.0, -2.0, -2.0, -2.1, -2.5, -3.0], strict=True)
    pre = [{"type": "WhitespaceSplit"}, METASPACE]
    return special(unigram(tokens, pre=pre, decoder=METASPACE), "<unk>")


def before_each_text(tokenizer: Tokenizer, name: str) -> Tokenizer:
    tokenizer.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single=[name, "$A"], special_tokens=[(name, tokenizer.token_to_id(name))]
    )
    return tokenizer


def without_mark(space: str) -> Tokenizer:
    """A BPE with byte fallback and marks of spaces that are no tokens."""
    names = [*(space if b == ord(" ") else name for b, name in enumerate(BYTES)), *"ab", "ab"]
    return bpe(names, "a b", settings=FALLBACK, norm=MARKS, decoder=METASPACE_DECODER)


def whole(normalizer: Any) -> Tokenizer:
    """A byte-level BPE that merges "abc", where "ab" is an added token."""
    tokenizer = bpe([*byte_alphabet(), "ab", "abc"], "a b", "ab c", pre=BYTE_LEVEL,
                    decoder=BYTE_LEVEL)  # fmt: skip
    tokenizer.normalizer = normalizer
    return add(tokenizer, "ab")


def has_gigatoken(vocab: rt.Vocabulary) -> bool:
    """Whether gigatoken encodes for a vocabulary, where it is installed."""
    return vocab.gigatoken.reason is None or find_spec("gigatoken") is None
