"""Small tokenizers of every family, trained on a few lines: what the fuzzer encodes with."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel

LINES = [
    "hello world the quick brown fox jumps over the lazy dog 123 4567 don't",
    "the theater is there, isn't it?  We'll see\n\n\tthat then!!  12 123 1234 1999",
    "na\u00efve caf\u00e9 \u00e9lan e\u0301lan мир и мы \u6771\u4eac\u306f\u591c",
    "\U0001f600\U0001f600 ab ab aab aaa aaaa",
] * 4
SPECIAL = ["<s>", "</s>", "<|endoftext|>"]
WORDS = r"'s|'t|\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _bpe(size: int, alphabet: bool = True, **parts: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    if "pre_tokenizer" not in parts:
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=ByteLevel.alphabet() if alphabet else [],
    )  # fmt: skip
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _split(pattern: str) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def _sentencepiece(*, prefix: bool, missing: tuple[int, ...] = ()) -> Tokenizer:
    """BPE with byte fallback and no pre-tokenizer; ``missing`` bytes have no token."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256) if b not in missing)]
    merges: list[list[str]] = []
    tokens += sorted({c for line in LINES for c in line.replace(" ", "\u2581")} - {"\u00e9"})
    for word in (
        "\u2581the",
        "\u2581hello",
        "\u2581\u2581",
        "\u2581re",
        "there",
        "ab",
        "aa",
        "\u258112",
    ):
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                merges.append([word[: end - 1], word[end - 1]])
                tokens.append(word[:end])
    steps: list[Any] = [{"type": "Prepend", "prepend": "\u2581"}] if prefix else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})
    after: list[Any] = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                        {"type": "ByteFallback"}, {"type": "Fuse"}]  # fmt: skip
    if prefix:
        after.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, c in enumerate(tokens[:3])]  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": True,
             "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)},
             "merges": merges}  # fmt: skip
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": None,
        "post_processor": None, "decoder": {"type": "Sequence", "decoders": after}, "model": model,
    }))  # fmt: skip


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.decoder = decoders.Metaspace()  # type: ignore[assignment]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.decoder = decoders.WordPiece()  # type: ignore[assignment]
    trainer = trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=["[UNK]", "[CLS]"], show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def _with_holes() -> Tokenizer:
    """Ids without a token between the last token and an added one."""
    content = json.loads(_bpe(300).to_str())
    content["added_tokens"].append(
        {"id": 340, "content": "<|far|>", "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
    )  # fmt: skip
    return Tokenizer.from_str(json.dumps(content))


def small_tokenizers() -> dict[str, Tokenizer]:
    """Tokenizers by name; some of them a vocabulary refuses."""
    with_space = ByteLevel(add_prefix_space=True)
    without_pattern = ByteLevel(add_prefix_space=False, use_regex=False)
    return {
        "byte-level": _bpe(320),
        "byte-level, prefix space": _bpe(320, pre_tokenizer=with_space),
        "byte-level, NFC": _bpe(330, pre_tokenizer=_split(WORDS), normalizer=normalizers.NFC()),
        "byte-level, no pattern": _bpe(310, pre_tokenizer=without_pattern),
        "byte-level, incomplete alphabet": _bpe(60, alphabet=False),
        "sentencepiece": _sentencepiece(prefix=False),
        "sentencepiece, prefix": _sentencepiece(prefix=True),
        "sentencepiece, a byte missing": _sentencepiece(prefix=False, missing=(0x0A, 0xFF)),
        "unigram": _unigram(),
        "word-piece": _word_piece(),
        "holes": _with_holes(),
    }
