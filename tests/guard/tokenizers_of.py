"""Tokenizers trained on a few lines, of the kinds that today's models have."""

import json
from importlib.metadata import version
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel

from robustok.tokenizer.vocabulary import Vocabulary

needs_normalized_contents = pytest.mark.skipif(
    tuple(map(int, version("tokenizers").split(".")[:2])) < (0, 23),
    reason="before 0.23, tokenizers does not tell the normalized content of an added token",
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = [
    "the theater is there, isn't it?  We'll see\n\n\tthat then!!  12 123 1234 12345 1999",
    "the rest rests -- the nest (the tests) don't  rest.\r\n   then   they  do: x=1; y=22",
    "naïve café élan e\u0301lan ąę żółć мир и мы 東京は夜 ¿qué? 😀😀 «the» \u00a0the\u2003rest",
    "the <|end|> <b> <|im_start|> ends here; foo_bar.baz!foo ?!@foo #the $5.00",
]
SPECIAL = ["<|end|>", "<|im_start|>"]
METASPACE_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ],
}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def bpe_model(vocab: dict[str, int], merges: list[Any], **more: Any) -> dict[str, Any]:
    """The model of a tokenizer.json."""
    return {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False, "vocab": vocab, "merges": merges, **more,
    }  # fmt: skip


def tokenizer_json(model: Any, **stages: Any) -> str:
    """A tokenizer.json with these parts."""
    spec = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
    }  # fmt: skip
    return json.dumps(spec | {"model": model} | stages)


def added_token(i: int, content: str, **flags: bool) -> dict[str, Any]:
    """An added token of a tokenizer.json."""
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": i, "content": content, **dict.fromkeys(names, False), **flags}


def cut_by(*patterns: str) -> dict[str, Any]:
    """The pre-tokenizer of a tokenizer.json that cuts by patterns and then spells bytes."""
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, BYTES]}


def byte_level(
    pattern: str | None, *, nfc: bool = False, prefix: bool = False, alphabet: bool = True
) -> Vocabulary:
    """Byte-level BPE: the pattern of GPT-2, or another one; 350 tokens and two special ones.

    Without ``alphabet``, bytes that are not in `TEXT` have no token.
    """
    tokenizer = Tokenizer(models.BPE())
    if pattern is None:
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=prefix)  # type: ignore[assignment]
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([  # type: ignore[assignment]
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    if nfc:
        tokenizer.normalizer = normalizers.NFC()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=350, special_tokens=SPECIAL, show_progress=False,
        initial_alphabet=ByteLevel.alphabet() if alphabet else [],
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    return Vocabulary.load(tokenizer)


def metaspace(*, prefix: bool) -> Vocabulary:
    """SentencePiece-style BPE with byte fallback and no pre-tokenizer, as of Llama 2."""
    return Vocabulary.load(metaspace_tokenizer(prefix=prefix))


def metaspace_tokenizer(*, prefix: bool) -> Tokenizer:
    spellings = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    merges = []
    letters = sorted({c for line in TEXT for c in line.replace(" ", "▁") if ord(c) < 0x2582})
    spellings += [c for c in letters if c not in spellings]
    for word in ("▁the", "▁rest", "▁▁", "▁re", "there", "▁t", "▁then", "▁is", "ests", "▁12"):
        for end in range(2, len(word) + 1):
            pair = (word[: end - 1], word[end - 1])
            if pair not in merges:
                merges.append(pair)
            if word[:end] not in spellings:
                spellings.append(word[:end])
    steps: list[object] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    start = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    content = tokenizer_json(
        bpe_model(
            {spelling: i for i, spelling in enumerate(spellings)}, merges,
            unk_token="<unk>", fuse_unk=True, byte_fallback=True,
        ),
        added_tokens=[added_token(i, c, special=True) for i, c in enumerate(spellings[:3])],
        normalizer={"type": "Sequence", "normalizers": steps},
        post_processor={
            "type": "TemplateProcessing", "single": [start, text], "pair": [start, text, text],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        decoder=METASPACE_DECODER,
    )  # fmt: skip
    return Tokenizer.from_str(content)


def unigram_with_bytes() -> Vocabulary:
    """Unigram with byte fallback, whose ordinary tokens also spell the name of a byte, "<0x41>"."""
    tokens = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), *"ab<>0x41"]
    model = {"type": "Unigram", "unk_id": 0, "byte_fallback": True,
             "vocab": [[token, -float(i > 0)] for i, token in enumerate(tokens)]}  # fmt: skip
    content = tokenizer_json(model, decoder=METASPACE_DECODER)
    return Vocabulary.load(Tokenizer.from_str(content))
