"""Tokenizer files that are made to take long: kinds by name, each of any size.

    python -m fuzz.hostile_files            # processor time of each kind at growing sizes

A file of n parts has about n tokens, added tokens or stages. Reading it, encoding a short text and
judging and drawing its ids should take time that is at most linear in n. The last two columns are
the slope of log time over log size between the two largest sizes, for reading and for the rest.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import robustok as rt
from robustok.errors import RobustokError
from robustok.tokenizer.data import byte_alphabet
from robustok.tokenizer.tokenizer_json import from_json
from robustok.tokenizer.tokenizers_api import tokenizer_json

SIZES = (2000, 4000, 8000)
TEXT = "a b <aa> <b>aa xyz  ▁ 12 é\n"
NAMES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = sorted(byte_alphabet())
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
              "use_regex": True}  # fmt: skip
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPACES = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
BYTES = [{"type": "ByteFallback"}, {"type": "Fuse"}]


def word(number: int) -> str:
    """A word of its own for each number, in letters."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def file_of(model: dict, added: list[dict] | None = None, **stages: list[dict]) -> str:
    """A tokenizer.json; each stage is a list."""
    keys = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    parts = {name: {"type": "Sequence", keys[name]: stage} for name, stage in stages.items()}
    spec = json.loads(tokenizer_json(model, None)) | parts
    return json.dumps(spec | {"added_tokens": added or []})


def bpe(tokens: list[str], merges: list[list[str]] | None = None, **settings: Any) -> dict:
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return {"type": "BPE", "vocab": vocab, "merges": merges or []} | settings


def unigram(tokens: list[str]) -> dict:
    vocab = [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0], *([token, -3.0] for token in tokens)]
    return {"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": vocab}


def added(tokens: list[str], first: int = 256, **flags: bool) -> list[dict]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}  # fmt: skip
    return [{"id": first + i, "content": t} | plain | flags for i, t in enumerate(tokens)]


def words(n: int, form: str = "{}") -> list[str]:
    return [form.format(word(i)) for i in range(n)]


def byte_level(tokens: list[str], **flags: bool) -> str:
    return file_of(bpe(LETTERS), added(tokens, **flags), pre_tokenizer=[BYTE_LEVEL])


def llama(tokens: list[str], added_tokens: list[dict]) -> str:
    return file_of(bpe([*NAMES, "▁", *tokens], byte_fallback=True), added_tokens,
                   normalizer=[PREPEND, MARKS], decoder=[SPACES, *BYTES])  # fmt: skip


def split(pattern: str, count: int = 1) -> str:
    one = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return file_of(bpe(LETTERS), pre_tokenizer=[*[one] * count, BYTE_LEVEL | {"use_regex": False}])


def merged(n: int) -> str:
    """Merges of two letters, as many as there are."""
    pairs = [[LETTERS[i % 256], LETTERS[i // 256 % 256]] for i in range(n)]
    return file_of(bpe([*LETTERS, *map("".join, pairs)], pairs), pre_tokenizer=[BYTE_LEVEL])


def chain(n: int) -> str:
    """Each token is the one before and a letter, so that all together are long."""
    runs = ["a" * i for i in range(1, math.isqrt(n) + 2)]
    pairs = [[run, "a"] for run in runs[:-1]]
    return file_of(bpe([*LETTERS, *runs], pairs), pre_tokenizer=[BYTE_LEVEL])


KINDS: dict[str, Callable[[int], str]] = {
    "tokens": lambda n: file_of(bpe([*LETTERS, *words(n, "zz{}")]), pre_tokenizer=[BYTE_LEVEL]),
    "merges": merged,
    "merges in a chain": chain,
    "holes in the ids": lambda n: file_of(
        bpe([]) | {"vocab": {t: 2 * i for i, t in enumerate([*LETTERS, *words(n, "zz{}")])}},
        pre_tokenizer=[BYTE_LEVEL]),
    "a long token": lambda n: file_of(bpe([*LETTERS, "a" * n]), pre_tokenizer=[BYTE_LEVEL]),
    "added tokens": lambda n: byte_level(words(n, "<{}>")),
    "added special tokens": lambda n: byte_level(words(n, "<{}>"), special=True),
    "added tokens of words": lambda n: byte_level(words(n), single_word=True),
    "added tokens that take spaces": lambda n: byte_level(words(n), lstrip=True, rstrip=True),
    "added tokens that begin alike": lambda n: byte_level(
        ["a" * (i + 2) + "!" for i in range(math.isqrt(n))]),
    "a long added token": lambda n: byte_level(["<" + "a" * n]),
    "normalized added tokens": lambda n: file_of(
        bpe(LETTERS), added(words(n, "<{}>"), normalized=True), normalizer=[{"type": "NFC"}],
        pre_tokenizer=[BYTE_LEVEL]),
    "special tokens that the model reads": lambda n: file_of(
        bpe([*LETTERS, *words(n, "q{}")], ignore_merges=True),
        added(words(n, "q{}"), special=True), pre_tokenizer=[BYTE_LEVEL]),
    "added tokens of Llama's kind": lambda n: llama(
        words(n, "<{}>"), added(words(n, "<{}>"), 257, normalized=True, lstrip=True)),
    "runs of marks": lambda n: llama(["▁" * (i + 1) for i in range(math.isqrt(n))], []),
    "names that are no bytes": lambda n: llama([f"<0x{256 + i:X}>" for i in range(n)], []),
    "Unigram": lambda n: file_of(unigram(words(n, "x{}")), pre_tokenizer=[METASPACE]),
    "tokens with a mark amid them": lambda n: file_of(
        unigram(words(n, "a▁{}")), pre_tokenizer=[METASPACE], decoder=[METASPACE]),
    "equal tokens": lambda n: file_of(unigram(["aa"] * n), pre_tokenizer=[METASPACE]),
    "normalizers": lambda n: file_of(
        bpe(LETTERS), normalizer=[{"type": "NFC"}] * (n // 20), pre_tokenizer=[BYTE_LEVEL]),
    "normalizers that prepend": lambda n: file_of(
        bpe([*NAMES, "▁"], byte_fallback=True), added(words(9), 257, normalized=True),
        normalizer=[PREPEND] * (n // 20), decoder=[SPACES, *BYTES]),
    "decoders": lambda n: file_of(
        bpe([*NAMES, "▁"], byte_fallback=True), normalizer=[PREPEND, MARKS],
        decoder=[SPACES] * (n // 20) + BYTES),
    "pre-tokenizers": lambda n: split("a|[^a]", n // 20),
    "alternatives of a pattern": lambda n: split("|".join(words(n // 20)) + r"|\s|\S"),
    "a class of a pattern": lambda n: split(
        "[" + "".join(chr(0x4E00 + 2 * i) for i in range(n)) + r"]+|\s|\S"),
    "optional parts of a pattern": lambda n: split("a?" * (n // 20) + r"|\s|\S"),
    "groups of a pattern": lambda n: split(
        "(?:" * (n // 20) + "a" + ")*" * (n // 20) + r"|\s|\S"),
}  # fmt: skip


def read(content: str) -> rt.Vocabulary | None:
    """The vocabulary of a file, None where it is refused."""
    try:
        return rt.Vocabulary(from_json(content, "hostile"))
    except RobustokError as e:
        assert "\n" not in str(e)
        return None


def use(vocab: rt.Vocabulary, text: str = TEXT) -> None:
    """Encode a text, judge its ids, and draw."""
    try:
        ids = vocab.encode(text)
    except RobustokError as e:
        assert "\n" not in str(e)
        return
    assert rt.Guard(vocab).check(ids).canonical
    drawn = rt.Uniform(vocab).sample(text, seed=0)
    assert vocab.decode_bytes(vocab.canonicalize(drawn)) == vocab.decode_bytes(ids)


def main() -> None:
    use(rt.Vocabulary.load("demo"), "a")  # loads and compiles
    for name, make in KINDS.items():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        times: list[list[float]] = []
        for size in SIZES:
            content, start = make(size), time.process_time()
            vocab = read(content)
            middle = time.process_time()
            if vocab is not None:
                use(vocab)
            times.append([middle - start, time.process_time() - middle])
        slopes = [
            math.log(max(b, 1e-3) / max(a, 1e-3), SIZES[-1] / SIZES[-2])
            for a, b in zip(*times[-2:], strict=True)
        ]
        seconds = "  ".join(f"{load:6.3f} {rest:6.3f}" for load, rest in times)
        print(f"{name:36} {seconds}   {slopes[0]:5.2f} {slopes[1]:5.2f}", flush=True)


if __name__ == "__main__":
    main()
