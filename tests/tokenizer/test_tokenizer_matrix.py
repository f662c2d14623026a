"""Every kind of tokenizer is exact in all operations, or is refused with a reason.

``ROBUSTOK_FUZZ`` is the number of combinations that are tried; ``all`` tries each of them.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import pytest
from tests.guard.tokenizers_of import added_token, bpe_model, tokenizer_json
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.tokenizer_json import from_json


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"type": name, **more}


def sequence(key: str, *parts: dict) -> dict[str, Any]:
    return {"type": "Sequence", key: list(parts)}


SPACES = kind("Replace", pattern={"String": " "}, content="▁")
NORMALIZERS = {
    "none": None,
    "nfc": kind("NFC"),
    "nfkc": kind("NFKC"),
    "lowercase": kind("Lowercase"),
    "replace": kind("Replace", pattern={"String": "a"}, content="b"),
    "accents": sequence("normalizers", kind("NFD"), kind("StripAccents")),
    "bert": kind("BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None,
                 lowercase=True),
    "spaces": SPACES,
    "prepend": sequence("normalizers", kind("Prepend", prepend="▁"), SPACES),
}  # fmt: skip


def byte_level(prefix: bool, regex: bool = True) -> dict[str, Any]:
    return kind("ByteLevel", add_prefix_space=prefix, trim_offsets=True, use_regex=regex)


def split(behavior: str, invert: bool = False) -> dict[str, Any]:
    return kind("Split", pattern={"Regex": r"\d+|\s"}, behavior=behavior, invert=invert)


BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
DIGITS = kind("Digits", individual_digits=True)
PUNCTUATION = kind("Punctuation", behavior="Isolated")
STAGES: dict[str, list[dict]] = {
    "nothing": [],
    **{f"split {b} {i}": [split(b, i)] for b in BEHAVIORS for i in (False, True)},
    "digits": [DIGITS],
    "punctuation": [PUNCTUATION],
    "digits, punctuation": [DIGITS, PUNCTUATION],
    **{f"metaspace {scheme}": [kind("Metaspace", replacement="▁", prepend_scheme=scheme,
                                    split=True)] for scheme in ("always", "never", "first")},
}  # fmt: skip
ENDS: dict[str, list[dict]] = {
    "": [],
    **{f"bytes {p} {r}": [byte_level(p, r)] for p in (False, True) for r in (False, True)},
}
WORDS = ["ab", "the", "12"]


def model(name: str, in_bytes: bool) -> dict[str, Any]:
    """A small model: the whole alphabet or a part of it, with some merges."""
    letters = sorted(ByteLevel.alphabet()) if in_bytes else [*"abehtABx 12.!▁é"]
    if name == "incomplete":
        letters = [c for c in letters if c in "abeht1 Ġ▁"]
    spellings = ["<unk>", *letters]
    merges = []
    for word in [*WORDS, ("Ġ" if in_bytes else "▁") + "the"]:
        for end in range(2, len(word) + 1):
            if word[:end] not in spellings:
                spellings.append(word[:end])
                merges.append([word[: end - 1], word[end - 1]])
    if name in ("fallback", "unigram fallback"):
        spellings += [f"<0x{b:02X}>" for b in range(256)]
    if name.startswith("unigram"):
        scores = [[spelling, -float(i % 7) - 1] for i, spelling in enumerate(spellings)]
        return kind("Unigram", unk_id=0, byte_fallback=name == "unigram fallback", vocab=scores)
    if name == "wordpiece":
        vocab = {spelling: i for i, spelling in enumerate(spellings)}
        return kind("WordPiece", unk_token="<unk>", continuing_subword_prefix="##",
                    max_input_chars_per_word=100, vocab=vocab)  # fmt: skip
    return bpe_model(
        {spelling: i for i, spelling in enumerate(spellings)}, merges,
        unk_token="<unk>" if name == "unk" else None, byte_fallback=name == "fallback",
        ignore_merges=name == "ignore_merges",
    )  # fmt: skip


MODELS = ("bpe", "fallback", "ignore_merges", "unk", "incomplete", "unigram", "unigram fallback",
          "wordpiece")  # fmt: skip
FLAGS = ("none", "plain", "single_word", "lstrip", "rstrip", "normalized", "special", "model")
TEXTS = ["", "the ab", " 12 the.  1!", "The Abé", "e\u0301 ﬁ x", "a<add> the <add>b", "ab\n\tzz",
         "▁the <0x41>"]  # fmt: skip
SCHEMES = ("canonical", "characters", "uniform", "uniform-k(k=2)", "stochastok(alpha=0.5)",
           "stochastok-uniform(alpha=0.5)", "bpe-dropout(p=0.5)", "grampa(temperature=2)",
           "maxmatch-dropout(p=0.3)", "unigram(temperature=2)")  # fmt: skip

COMBINATIONS = list(itertools.product(NORMALIZERS, STAGES, ENDS, MODELS, FLAGS))


def built(normalizer: str, stages: str, end: str, name: str, flag: str) -> str:
    pre = [*STAGES[stages], *ENDS[end]]
    inside = model(name, bool(ENDS[end]))
    added = []
    if flag != "none":
        content = "the" if flag == "model" else "<add>"
        known = {p: i for i, p in enumerate(p for p, *_ in inside["vocab"])} if isinstance(
            inside["vocab"], list) else inside["vocab"]  # fmt: skip
        flags = {} if flag in ("plain", "model") else {flag: True}
        added = [added_token(known.get(content, len(known)), content, **flags)]
    decoder = sequence(
        "decoders", kind("Replace", pattern={"String": "▁"}, content=" "), kind("ByteFallback"),
        kind("Fuse"),
    )  # fmt: skip
    return tokenizer_json(
        inside, added_tokens=added, normalizer=NORMALIZERS[normalizer],
        pre_tokenizer=sequence("pretokenizers", *pre),
        decoder=byte_level(False) if ENDS[end] else decoder,
    )  # fmt: skip


# Combinations that failed once: an added token at the start of a text takes no prefix space, and a
# pre-tokenizer that cuts a text puts a space before each part.
ONCE_WRONG = [("replace", "nothing", "bytes True False", "bpe", "model"),
              *(("none", stage, f"bytes {prefix} True", "bpe", "none")
                for stage in ("nothing", "digits") for prefix in (False, True))]  # fmt: skip


def chosen() -> list[tuple[str, ...]]:
    wish = os.environ.get("ROBUSTOK_FUZZ", "24")
    count = len(COMBINATIONS) if wish == "all" else int(wish)
    drawn = random.Random(0).sample(COMBINATIONS, min(count, len(COMBINATIONS)))
    return [*ONCE_WRONG, *drawn]


def check_text(text: str, vocab: rt.Vocabulary, library: Tokenizer) -> str:
    """Whether the text was refused, or encoded and all operations agree about it."""
    try:
        ids = vocab.encode(text)
    except RobustokError as e:
        assert "\n" not in str(e)
        return "refused"
    assert ids.tolist() == library.encode(text, add_special_tokens=False).ids
    spelled = vocab.decode_bytes(ids)
    known = vocab.text_bytes(text)
    assert known is None or known == spelled
    for spec in SCHEMES:
        try:
            scheme = rt.sampler(spec, vocab)
        except RobustokError:
            continue  # not a scheme of this vocabulary
        drawn = scheme.sample(text, seed=3)
        assert vocab.decode_bytes(drawn) == spelled, spec
        assert drawn.tolist() == scheme.sample(ids, seed=3).tolist(), spec
    plain = ids[vocab.readable[ids]]
    lattice = rt.Lattice(vocab, plain)
    assert lattice.count(distance=0) == 1
    assert lattice.count() >= 1
    if len(plain) == len(ids) and vocab.encode(spelled).tolist() == ids.tolist():
        guard = rt.Guard(vocab)
        assert guard.check(ids).canonical
        drawn = rt.Uniform(vocab).sample(ids, seed=4)
        assert guard.check(drawn).canonical == (drawn.tolist() == ids.tolist())
    return "exact"


def check(combination: tuple[str, ...]) -> str:
    content = built(*combination)
    try:
        vocab = rt.Vocabulary(from_json(content, "matrix"))
    except RobustokError as e:
        assert "\n" not in str(e)
        return "refused at load"
    library = Tokenizer.from_str(content)
    library.encode_special_tokens = True
    results = [check_text(text, vocab, library) for text in TEXTS]
    return "some texts refused" if "refused" in results else "exact"


@pytest.mark.parametrize("combination", chosen(), ids="/".join)
def test_a_tokenizer_is_exact_or_refused(combination: tuple[str, ...]) -> None:
    outcome = check(combination)
    if combination[3] == "wordpiece":
        assert outcome == "refused at load"
