"""Random tokenizers as the public API of ``tokenizers`` makes them, and texts for them.

A `Made` tokenizer is plain data: a model, its stages and its added tokens. The same data becomes a
`Tokenizer`. Most have parts that fit each other, as those of published tokenizers do; the others
are mixed at random.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tokenizers import AddedToken, Tokenizer

from robustok.tokenizer.data import byte_alphabet
from robustok.tokenizer.tokenizers_api import tokenizer_json

BYTE = byte_alphabet()
LETTER = {byte: character for character, byte in BYTE.items()}
NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that UTF-8 never uses
CHARACTERS = [*"ababcdeAB0129.,!'", "\n", "\t", "é", "\u0301", "ﬁ", "世", "😀", "İ", "▁", "\u00a0"]
HOSTILE = [
    "\x00", "\u0301", "e\u0301", "ﬁ", "ﬀ", "İ", "ß", "ẞ", "\u00ad", "\u200d", "\u200b", "\ufeff",
    "\ufffd", "▁", "<0x61>", "<0xE4>", "<unk>", "\u3000", "\u00a0", "\u2028", "\r\n", "½2", "½",
    "\x7f", "\u0f73", "가", "\u1100\u1161", "Ǆ", "Σ", "\ufb1d", "\U0001f469\u200d\U0001f467", "Ġ",
    "Ċ", "##", "</w>", "\u0378", "\U0010ffff", "¼", "Å", "\u212b",
]  # fmt: skip
PATTERNS = (r"\s", r"\d", r"\p{N}{1,3}", r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            r"'s|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+", "[^a]b")  # fmt: skip
REPLACED = ({"String": "a"}, {"String": "  "}, {"String": "ab"}, {"String": "\n"}, {"String": "''"},
            {"Regex": " {2,}"}, {"Regex": "[0-9]"}, {"Regex": r"\s"}, {"String": "▁"},
            {"Regex": "^ "}, {"Regex": "(?i)A"})  # fmt: skip
ADDED = (" ", "  ", "A", "AB", "a b", " a", "a ", "ﬁ", "é", "e\u0301", "\n", "▁", "▁a", "0", "12",
         "'", "<0x61>", "\u0301", "\x00", "ab", "İ")  # fmt: skip
FLAGS = ("special", "lstrip", "rstrip", "single_word")


@dataclass(frozen=True)
class Made:
    """A tokenizer as data.

    ``model``: ``kind``, ``tokens`` (of a Unigram with scores), ``merges`` and the settings of the
    library. ``added``: the arguments of each `AddedToken`, in order. ``frame``: whether the
    tokenizer puts its first added token before a text. ``fits``: whether the decoder is one that a
    user would give this tokenizer, so that it gives the text back.
    """

    model: dict[str, Any]
    normalizer: list[dict] = field(default_factory=list)
    pre_tokenizer: list[dict] = field(default_factory=list)
    decoder: list[dict] = field(default_factory=list)
    added: list[dict] = field(default_factory=list)
    frame: bool = False
    fits: bool = True

    def spec(self) -> dict[str, Any]:
        """The content of a tokenizer.json without added tokens."""
        before = _stage(self.pre_tokenizer, "pretokenizers"), _stage(self.normalizer, "normalizers")
        spec = json.loads(tokenizer_json(self._model(), *before))
        return spec | {"decoder": _stage(self.decoder, "decoders")}

    def _model(self) -> dict[str, Any]:
        model = {name: value for name, value in self.model.items() if name not in ("kind", "gap")}
        tokens = model.pop("tokens")
        if self.model["kind"] == "Unigram":
            return {"type": "Unigram", **model, "vocab": tokens}
        gap = self.model.get("gap")
        vocab = {t: i + (gap is not None and i >= gap) for i, t in enumerate(tokens)}
        return {"type": "BPE", **model, "vocab": vocab}

    def build(self) -> Tokenizer:
        """The tokenizer; raises whatever the library raises."""
        tokenizer = Tokenizer.from_str(json.dumps(self.spec()))
        for arguments in self.added:
            one = AddedToken(**arguments)
            (tokenizer.add_special_tokens if one.special else tokenizer.add_tokens)([one])
        if self.frame and self.added:
            from tokenizers.processors import TemplateProcessing

            name = self.added[0]["content"]
            pair = [(name, tokenizer.token_to_id(name))]
            tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
                single=[name, "$A"], special_tokens=pair
            )
        return tokenizer

    def hiding(self, contents: Collection[str]) -> Made:
        """The tokenizer whose model cannot read some special tokens, which get other ids."""
        names = {content: f"\U000f0000{number}" for number, content in enumerate(contents)}
        model = dict(self.model)
        if model["kind"] == "Unigram":
            model["tokens"] = [[names.get(token, token), score] for token, score in model["tokens"]]
        else:
            model["tokens"] = [names.get(token, token) for token in model["tokens"]]
            model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & {*names}]
            model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        # Those without an id in the model come last, so that the other added tokens keep theirs.
        added = sorted(self.added, key=lambda one: one["content"] in names)
        return replace(self, model=model, added=added, frame=False)

    def tokens(self) -> list[str]:
        """The tokens of the model."""
        tokens = self.model["tokens"]
        return [t for t, _ in tokens] if self.model["kind"] == "Unigram" else tokens

    @property
    def unknown(self) -> str | None:
        """The unknown token."""
        if self.model["kind"] == "BPE":
            return self.model["unk_token"]
        return None if self.model["unk_id"] is None else self.tokens()[self.model["unk_id"]]

    @property
    def byte_level(self) -> bool:
        return any(stage["type"] == "ByteLevel" for stage in self.pre_tokenizer)


def _stage(stages: list[dict], key: str) -> dict | None:
    if not stages:
        return None
    return stages[0] if len(stages) == 1 else {"type": "Sequence", key: stages}


# --- random tokenizers --------------------------------------------------------------------------


def random_tokenizer(rng: random.Random) -> Made:
    """A tokenizer: byte-level, SentencePiece-style BPE, Unigram, or of plain characters."""
    style = rng.choices(("bytes", "metaspace", "unigram", "plain"), (40, 28, 22, 10))[0]
    characters = rng.sample(CHARACTERS, rng.randint(3, 8))
    if rng.random() < 0.9:
        characters.append(" ")
    normalizer = _normalizers(rng, style)
    if style == "bytes":
        pre, decoder = _byte_stages(rng), [_byte_level(False)]
        model = _bpe(rng, _byte_alphabet(rng, characters), LETTER[32])
    elif style == "plain":
        pre = _cuts(rng) if rng.random() < 0.5 else []
        model = _bpe(rng, characters, " ", fallback=rng.random() < 0.6)
        decoder = [{"type": "ByteFallback"}] * model["byte_fallback"] + [{"type": "Fuse"}]
    else:
        pre, normalizer, decoder = _space_stages(rng, normalizer)
        letters = [c.replace(" ", "▁") for c in characters]
        if rng.random() < 0.98:
            letters.append("▁")
        if rng.random() < 0.05:
            letters.append(" ")
        make = _unigram if style == "unigram" else _bpe
        model = make(rng, list(dict.fromkeys(letters)), "▁", fallback=rng.random() < 0.6)
        if model["byte_fallback"] and decoder[0]["type"] == "Metaspace":
            decoder = [{"type": "ByteFallback"}, *decoder] if rng.random() < 0.3 else _spaces(False)
    fits = True
    if rng.random() < 0.04:
        fits = False
        decoder = rng.choice(([], [_byte_level(False)], [{"type": "Fuse"}], [_metaspace(rng)]))
    made = Made(model, normalizer, pre, decoder, fits=fits)
    made = replace(made, added=_added(rng, made))
    frame = bool(made.added) and made.added[0].get("special", False) and rng.random() < 0.3
    return replace(made, frame=frame)


def _byte_alphabet(rng: random.Random, characters: list[str]) -> list[str]:
    kind = rng.random()
    if kind < 0.25:
        return [LETTER[b] for b in range(256)]
    if kind < 0.35:
        return [LETTER[b] for b in range(256) if b not in NEVER]
    used = sorted({b for c in characters for b in c.encode()})
    if kind < 0.45:
        used.remove(rng.choice(used))
    return [LETTER[b] for b in used]


def _merged(
    rng: random.Random, alphabet: list[str], space: str
) -> tuple[list[str], list[list[str]]]:
    """Tokens of an alphabet, and the merges that make those of several letters."""
    tokens, merges = list(alphabet), []
    some = rng.sample(alphabet, min(len(alphabet), 6))
    some += [c for c in (space, "a", "b") if c in alphabet]
    for _ in range(rng.randint(0, 14)):
        pair = [rng.choice(some), rng.choice(some)]
        token = "".join(pair)
        if len(token) <= 6 and pair not in merges:
            merges.append(pair)
            if token not in tokens:
                tokens.append(token)
                some.append(token)
    if rng.random() < 0.25:  # a token that no merge makes
        token = "".join(rng.choices(some, k=rng.randint(2, 3)))
        if token not in tokens:
            tokens.append(token)
    return tokens, merges


def _names(rng: random.Random, alphabet: list[str]) -> list[str]:
    kind = rng.random()
    if kind < 0.6:
        known = range(256)
    elif kind < 0.8:
        known = [b for b in range(256) if b not in NEVER]
    else:
        known = sorted({b for c in [*alphabet, "é"] for b in c.encode()})
    left_out = {9} if rng.random() < 0.2 else set()
    if rng.random() < 0.1:
        left_out |= {rng.choice([*known])}
    return [f"<0x{b:02X}>" for b in known if b not in left_out]


def _bpe(
    rng: random.Random, alphabet: list[str], space: str, fallback: bool = False
) -> dict[str, Any]:
    tokens, merges = _merged(rng, alphabet, space)
    if fallback:
        parts = [_names(rng, alphabet), tokens][:: 1 if rng.random() < 0.7 else -1]
        tokens = parts[0] + parts[1]
    unk = "<unk>" if rng.random() < (0.6 if fallback else 0.3) else None
    if unk is not None:
        tokens.insert(0, unk)
    model: dict[str, Any] = {
        "kind": "BPE", "tokens": tokens, "merges": merges, "unk_token": unk,
        "byte_fallback": fallback, "fuse_unk": rng.random() < 0.4,
        "ignore_merges": rng.random() < 0.2,
    }  # fmt: skip
    if rng.random() < 0.01:
        model["gap"] = rng.randrange(1, len(tokens))
    return model


def _unigram(
    rng: random.Random, alphabet: list[str], space: str, fallback: bool = False
) -> dict[str, Any]:
    tokens, _ = _merged(rng, alphabet, space)
    if fallback:
        tokens = _names(rng, alphabet) + tokens
    has_unk = rng.random() < 0.85
    tokens = ["<unk>"] * has_unk + tokens
    scored = [[t, 0.0 if t == "<unk>" else -round(rng.uniform(0.5, 9), 2)] for t in tokens]
    if rng.random() < 0.03:
        scored.append([rng.choice(tokens), -1.5])  # the library keeps the last of two
    return {"kind": "Unigram", "tokens": scored, "unk_id": 0 if has_unk else None,
            "byte_fallback": fallback}  # fmt: skip


def _normalizers(rng: random.Random, style: str) -> list[dict]:
    if rng.random() < 0.5:
        return []
    return [_normalizer(rng) for _ in range(rng.choices((1, 2, 3), (70, 20, 10))[0])]


def _normalizer(rng: random.Random) -> dict:
    kind = rng.choice(("NFC", "NFC", "NFKC", "NFD", "NFKD", "Lowercase", "Lowercase", "Replace",
                       "Replace", "Prepend", "Strip", "StripAccents", "Nmt",
                       "BertNormalizer"))  # fmt: skip
    if kind == "Replace":
        pattern, content = rng.choice(REPLACED), rng.choice(("b", " ", "", "ab", "0", "▁"))
        return {"type": kind, "pattern": pattern, "content": content}
    if kind == "Prepend":
        return {"type": kind, "prepend": rng.choice(("▁", " ", "a", "▁"))}
    if kind == "Strip":
        left = rng.random() < 0.7
        return {"type": kind, "strip_left": left, "strip_right": not left or rng.random() < 0.5}
    if kind == "BertNormalizer":
        return {"type": kind, "clean_text": True, "handle_chinese_chars": rng.random() < 0.5,
                "strip_accents": None, "lowercase": rng.random() < 0.5}  # fmt: skip
    return {"type": kind}


def _byte_level(space: bool, regex: bool = True) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True,
            "use_regex": regex}  # fmt: skip


def _byte_stages(rng: random.Random) -> list[dict]:
    space = rng.random() < 0.15
    kind = rng.random()
    if kind < 0.45:
        return [_byte_level(space)]
    if kind < 0.55:
        return [_byte_level(space, regex=False)]
    return [*_cuts(rng, dropping=False), _byte_level(space, regex=rng.random() < 0.15)]


def _cuts(rng: random.Random, dropping: bool = True) -> list[dict]:
    return [_cut(rng, dropping) for _ in range(rng.choices((1, 2), (75, 25))[0])]


def _cut(rng: random.Random, dropping: bool) -> dict:
    kind = rng.choices(("Split", "Digits", "Punctuation", "UnicodeScripts", "FixedLength",
                        "CharDelimiterSplit", "Whitespace", "WhitespaceSplit"),
                       (50, 15, 15, 5, 5, 2 * dropping, 4 * dropping, 4 * dropping))[0]  # fmt: skip
    behaviors = (*["Isolated"] * 3, "MergedWithPrevious", "MergedWithNext", "Contiguous")
    behavior = "Removed" if rng.random() < 0.04 else rng.choice(behaviors)
    if kind == "Split":
        pattern = {"String": " "} if rng.random() < 0.15 else {"Regex": rng.choice(PATTERNS)}
        invert = rng.random() < 0.1
        return {"type": kind, "pattern": pattern, "behavior": behavior, "invert": invert}
    if kind == "FixedLength":
        return {"type": kind, "length": rng.randint(1, 3)}
    if kind == "CharDelimiterSplit":
        return {"type": kind, "delimiter": "a"}
    if kind == "Digits":
        return {"type": kind, "individual_digits": rng.random() < 0.6}
    if kind == "Punctuation":
        return {"type": kind, "behavior": behavior}
    return {"type": kind}


def _metaspace(rng: random.Random, scheme: str | None = None) -> dict:
    return {"type": "Metaspace", "replacement": "▁" if rng.random() < 0.98 else "_",
            "prepend_scheme": scheme or rng.choice(("always", "always", "first", "never")),
            "split": rng.random() < 0.8}  # fmt: skip


def _space_stages(
    rng: random.Random, normalizer: list[dict]
) -> tuple[list[dict], list[dict], list[dict]]:
    """Stages that write "▁" for a space: Metaspace, or normalizers as those of Llama 2."""
    if rng.random() < 0.55:
        stage = _metaspace(rng)
        before = [{"type": "WhitespaceSplit"}] if rng.random() < 0.1 else []
        if rng.random() < 0.15:
            before = [*before, *_cuts(rng, dropping=False)]
        after = _cuts(rng, dropping=False) if rng.random() < 0.1 else []
        return [*before, stage, *after], normalizer, [dict(stage)]
    prefix = rng.random() < 0.5
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    writes = [{"type": "Prepend", "prepend": "▁"}] * prefix + [spaces]
    if rng.random() < 0.7:
        normalizer = []
    pre = _cuts(rng, dropping=False) if rng.random() < 0.25 else []
    parts = (writes, normalizer) if rng.random() < 0.3 else (normalizer, writes)
    return pre, [*parts[0], *parts[1]], _spaces(prefix)


def _spaces(prefix: bool) -> list[dict]:
    """The decoder of Llama 2 and of Gemma."""
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    return [spaces, {"type": "ByteFallback"},
            {"type": "Fuse"}, *[strip] * prefix]  # fmt: skip


def _added(rng: random.Random, made: Made) -> list[dict]:
    added: list[dict] = []
    contents = [made.unknown] if made.unknown else []
    spelled = [t for t in made.tokens() if rng.random() < 0.02 or not t.startswith("<0x")] or ["a"]
    readable = [readable_token(made, t) for t in spelled]
    if "<unk>" in made.tokens() and rng.random() < 0.5:
        added.append({"content": "<unk>", "normalized": False, "special": True})
    for _ in range(rng.choices((0, 1, 2, 3), (40, 25, 20, 15))[0]):
        kind = rng.random()
        if kind < 0.25:
            content = rng.choice(("<x>", "<s>", "<|a|>", "<X>", "[é]", "<x> ", "a<x>"))
        elif kind < 0.45:
            content = rng.choice(spelled)
        elif kind < 0.7:
            content = "".join(rng.choices(readable, k=rng.randint(1, 2)))
        elif kind < 0.8 and contents:
            content = rng.choice(contents) + rng.choice(("", "a", ">", " ")) + rng.choice(contents)
        else:
            content = rng.choice(ADDED)  # fmt: skip
        if not content or content in contents:
            continue
        contents.append(content)
        one: dict = {"content": content, "normalized": rng.random() < 0.5}
        one |= {name: True for name, share in zip(FLAGS, (0.35, 0.15, 0.15, 0.15), strict=True)
                if rng.random() < share}  # fmt: skip
        added.append(one)
    if rng.random() < 0.3:
        rng.shuffle(added)
    return added


def readable_token(made: Made, token: str) -> str:
    """About the text that a token of the model stands for."""
    if made.byte_level:
        return bytes(BYTE[c] for c in token if c in BYTE).decode("utf8", "ignore")
    return token.replace("▁", " ")


def random_texts(rng: random.Random, made: Made, count: int) -> list[str]:
    """Texts of tokens, of added tokens and what is close to them, and of hostile characters."""
    tokens = [readable_token(made, t) for t in made.tokens()]
    short = [t for t in tokens if len(t) < 6] or ["a"]
    added = [one["content"] for one in made.added]
    texts = [""] if rng.random() < 0.1 else []
    known = {b for token in [*tokens, *added] for b in token.encode()}
    complete = made.model["byte_fallback"] or made.unknown is not None
    while len(texts) < count:
        parts = []
        for _ in range(rng.randint(1, 7)):
            kind = rng.random()
            if kind < 0.5:
                parts.append(rng.choice(short))
            elif kind < 0.72 and added:
                content = rng.choice(added)
                change = rng.random()
                changes = (content.upper(), content.lower(), content[:-1], content * 2)
                parts.append(rng.choice(changes) if change > 0.85 else content)
            elif kind < 0.88:
                parts.append(rng.choice((" ", " ", "  ", "a", "b", "ab", "\n")))
            elif kind < 0.94:
                parts.append(rng.choice(CHARACTERS))
            else:
                parts.append(rng.choice(HOSTILE))
        text = "".join(parts)[:24]
        if not complete and rng.random() < 0.8:  # the model knows few characters
            text = "".join(c for c in text if {*c.encode()} <= known)
        texts.append(text)
    return texts
