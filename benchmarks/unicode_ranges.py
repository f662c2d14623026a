"""Write the code points that gigatoken must not get, and check them against both libraries.

    python benchmarks/unicode_ranges.py            # check the installed releases
    python benchmarks/unicode_ranges.py --write    # also write gigatoken_ranges.json

For every kind of pre-tokenizer that gigatoken knows, it and `tokenizers` encode each of the
1,112,064 code points in several contexts (`tokenizer.gigatoken_check.differences`), and so do it
and tiktoken for the patterns of tiktoken that are known to be one of them. Prints how many differ,
and fails where one differs that Unicode 14 assigns. Several releases of a library: run it with each
of them first on PYTHONPATH. `--write` needs a Python whose `unicodedata` is of Unicode 14
(3.11), and adds the installed releases to those that were checked.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
import unicodedata
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import numpy as np

from common import options_of
from robustok.tokenizer.gigatoken_check import (
    CHECKED,
    RANGES_FILE,
    SIZE,
    differences,
    safe_points,
    unsafe_table,
)
from robustok.tokenizer.libraries import SAME_CUTS, TiktokenEncoder

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_FIRST = r"[^\r\n\p{L}\p{N}]?"


def _cased_words(suffix: str) -> str:
    return f"{_FIRST}{_UPPER}*{_LOWER}+{suffix}|{_FIRST}{_UPPER}+{_LOWER}*{suffix}"


PATTERNS = {
    "gpt2": [r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "cl100k": [
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "llama3": [
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
    ],
    "qwen2": [
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
    ],
    "qwen3.5": [
        _CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
        + _SPACES
    ],
    "o200k": [
        _cased_words(_CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
    ],
    "tekken": [_cased_words("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES],
    "deepseek": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+"
        r"|\s+(?!\S)|\s+",
    ],
}  # of each kind of pre-tokenizer the regular expressions by which it splits


def pre_tokenizer(patterns: Iterable[str]) -> dict:
    """The stage of a tokenizer.json that splits by these patterns, one after the other."""
    splits = [
        {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
        for p in patterns
    ]
    last = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
    }  # fmt: skip
    return {"type": "Sequence", "pretokenizers": [*splits, last]}


def spans(points: Iterable[int]) -> list[str]:
    """Ascending code points as ranges, such as ``378-379``."""
    ranges: list[list[int]] = []
    for point in points:
        if ranges and ranges[-1][1] == point - 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return [f"{first:X}-{last:X}" for first, last in ranges]


def unassigned() -> set[int]:
    """The code points that Unicode 14 does not assign."""
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("--write needs unicodedata of Unicode 14.0.0, as Python 3.11 has")
    return {point for point in range(SIZE) if unicodedata.category(chr(point)) == "Cn"}


def write(unsafe: set[int], checked: dict[str, dict[str, list[str]]]) -> None:
    lines = textwrap.wrap(" ".join(spans(sorted(unsafe))), 96, break_on_hyphens=False)
    content = {"checked": checked, "unassigned": lines}
    RANGES_FILE.write_text(json.dumps(content, indent=1) + "\n")


def found(libraries: list[str], points: list[int]) -> Iterator[tuple[str, str, Iterator[int]]]:
    """Each library, a kind of pre-tokenizer, and the code points around which it cuts otherwise."""
    if "tokenizers" in libraries:
        for kind, patterns in PATTERNS.items():
            yield "tokenizers", kind, differences(pre_tokenizer(patterns), points)
    if "tiktoken" in libraries:
        import tiktoken

        for number, (pattern, same) in enumerate(SAME_CUTS.items()):
            encoding = tiktoken.Encoding(
                "", pat_str=pattern, mergeable_ranks={b"a": 0}, special_tokens={}
            )
            over = TiktokenEncoder(encoding, True).over
            yield "tiktoken", str(number), differences(pre_tokenizer([same]), points, over)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--write", action="store_true", help="write the file")
    parser.add_argument("--only", nargs="*", help="kinds of pre-tokenizers")
    parser.add_argument("--library", choices=("tokenizers", "tiktoken"), action="append")
    parser.add_argument("--quick", action="store_true", help="only what is compared at load time")
    options = parser.parse_args()
    libraries = options.library or ["tokenizers", "tiktoken"]
    print(*(f"{name} {version(name)}" for name in ["gigatoken", *libraries]))
    unsafe = unassigned() if options.write else set(np.flatnonzero(unsafe_table()).tolist())
    points = safe_points() if options.quick else [*range(0xD800), *range(0xE000, SIZE)]
    safe = True
    for library, kind, different in found(libraries, points):
        if options.only and kind not in options.only:
            continue
        started = time.process_time()
        points_apart = list(different)
        outside = [point for point in points_apart if point not in unsafe]
        print(
            f"{library}, {kind}: {len(points_apart):,} of {len(points):,} differ, in "
            f"{len(spans(points_apart))} ranges; {len(outside)} are assigned in Unicode 14 "
            f"{' '.join(spans(outside))}; {time.process_time() - started:.0f} s",
            flush=True,
        )
        safe = safe and not outside
    if not safe:
        sys.exit("the libraries differ where they must not")
    if options.write:
        checked = CHECKED.get(version("gigatoken"), {})
        for library in libraries:
            releases = sorted({*checked.get(library, ()), version(library)})
            checked = checked | {library: releases}
        write(unsafe, CHECKED | {version("gigatoken"): checked})


if __name__ == "__main__":
    main()
