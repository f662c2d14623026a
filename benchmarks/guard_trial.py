"""Whether the guard's verdicts agree with the tokenizer's own decoding and encoding.

    python benchmarks/guard_trial.py [--rows 20000] [--seed 0] [NAME ...]

NAME is a folder of $ROBUSTOK_DATA/tokenizers, `llama2-sentencepiece`, `llama3-tiktoken`, or
`unigram` (trained on the English texts). Rows have 1 to about 40 ids: canonical ones, ones drawn
by several schemes, cut off at both ends, two joined in the middle, with replaced ids, with
special and added tokens, of random ids. The expected answer does not use robustok: the library
decodes each stretch between special ids and encodes the text again. Decoding may take off a first
space that the text had, so of a row that does not come back the text with a space before it is
encoded, too. A row whose bytes are not UTF-8 has no text that the library could decode: of those
only the finding `not-utf8` and the repaired ids are judged. A Unigram library encodes text that
spells its unknown token as that token, which the guard never does: of those rows only the finding
`special-text` and the repaired ids are judged. Every tenth row is also judged alone,
which must give the same verdict. Prints a Markdown table with the number of disagreements; exit
code 1 if there is one.
"""

from __future__ import annotations

import itertools
import json
import lzma
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read at import

import numpy as np

import robustok as rt
from common import DATA, options_of, print_heads, print_row
from robustok.guard import NOT_UTF8, SPECIAL_TEXT, UNKNOWN_ID
from robustok.guard.findings import KINDS

NAMES = ("gpt2", "llama3", "qwen3", "llama2", "internlm2", "llama2-sentencepiece", "unigram")
SCHEMES = ("stochastok(alpha=0.1)", "stochastok(alpha=1)", "uniform", "uniform-k(alpha=0.2)")
BATCH = 2000
ALONE = 10  # of so many rows one is judged alone, too
MEMORY = 50_000  # texts whose ids are kept
PROGRESS = 100_000  # rows between two lines on the standard error
COLUMNS = ("canonical", "false positive", "false negative", "wrong repair", "repair not canonical",
           "not-utf8 unseen", "special-text unseen", "alone differs")  # fmt: skip


@dataclass(frozen=True)
class Library:
    """A tokenizer library: encodes plain texts, decodes ids without special ones."""

    source: Any  # what Vocabulary.load takes
    encode: Callable[[list[str]], list[list[int]]]
    decode: Callable[[list[list[int]]], list[str]]
    space_byte: int = -1  # id of "<0x20>", where decoding keeps the space of a first "<0x20>"


def load(name: str, english: list[str]) -> Library:
    """The library of one of ``NAMES`` or of a folder of tokenizers."""
    if name == "llama2-sentencepiece":
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor()
        processor.Load(str(DATA / "tokenizers/llama2/tokenizer.model"))
        return Library(processor, lambda texts: processor.encode(texts, out_type=int),
                       lambda rows: processor.decode(rows),
                       processor.piece_to_id("<0x20>"))  # fmt: skip
    if name == "llama3-tiktoken":
        return _tiktoken(DATA / "tokenizers/llama3")
    from tokenizers import Tokenizer

    if name == "unigram":
        tokenizer = _trained_unigram(english)
    else:
        tokenizer = Tokenizer.from_file(str(DATA / f"tokenizers/{name}/tokenizer.json"))
    tokenizer.encode_special_tokens = True

    def encode(texts: list[str]) -> list[list[int]]:
        return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(rows: list[list[int]]) -> list[str]:
        return tokenizer.decode_batch(rows, skip_special_tokens=False)

    return Library(Tokenizer.from_str(tokenizer.to_str()), encode, decode)


def _tiktoken(folder: Path) -> Library:
    import base64

    import tiktoken

    lines = (folder / "tokenizer.model").read_text().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, lines)}
    spec = json.loads((folder / "tokenizer.json").read_text())
    pattern = next(
        step["pattern"]["Regex"] for step in spec["pre_tokenizer"]["pretokenizers"]
        if step["type"] == "Split"
    )  # fmt: skip
    special = {"<|begin_of_text|>": len(ranks), "<|end_of_text|>": len(ranks) + 1}
    encoding = tiktoken.Encoding(
        "llama3", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
    )
    return Library(encoding, lambda texts: encoding.encode_ordinary_batch(texts, num_threads=1),
                   lambda rows: encoding.decode_batch(rows, num_threads=1))  # fmt: skip


def _trained_unigram(texts: list[str]) -> Any:
    """A Unigram tokenizer with byte fallback, NFKC and a space before the text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    trainer = trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator((text[:2000] for text in texts[:300]), trainer)
    scores = json.loads(trained.to_str())["model"]["vocab"]
    known = {token for token, _ in scores}
    worst = min(score for _, score in scores) - 10
    scores += [[name, worst] for name in (f"<0x{b:02X}>" for b in range(256)) if name not in known]
    model = models.Unigram([(p, s) for p, s in scores], 0, True)
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.NFKC()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # type: ignore[assignment]
    tokenizer.decoder = decoders.Sequence([  # type: ignore[assignment]
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ])  # fmt: skip
    return Tokenizer.from_str(tokenizer.to_str())


def read_texts(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf8") as lines:
        return [json.loads(line)["text"] for line in lines]


def snippets(texts: list[str], count: int, rng: np.random.Generator) -> list[str]:
    """Pieces of 5 to 120 characters from random places."""
    chosen = rng.integers(0, len(texts), count)
    lengths = rng.integers(5, 120, count)
    result = []
    for i, length in zip(chosen.tolist(), lengths.tolist(), strict=True):
        begin = int(rng.integers(0, max(1, len(texts[i]) - length)))
        result.append(texts[i][begin : begin + length])
    return result


def rows_of(
    vocab: rt.Vocabulary, texts: list[str], rng: np.random.Generator
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Kinds of rows without end, each with its name."""
    samplers = {spec: rt.sampler(spec, vocab) for spec in SCHEMES}
    readable, special = np.flatnonzero(vocab.readable), np.array(sorted(vocab.special), np.int32)
    number = 0
    while True:
        canonical = vocab.encode_batch(snippets(texts, BATCH, rng))
        rows = [row for row in canonical if len(row)]
        yield "canonical", rows
        for spec, sampler in samplers.items():
            number += 1
            yield spec, list(sampler.sample_batch(canonical, seed=number))
        yield "cut off", [_cut(row, rng) for row in rows]
        others = [rows[i] for i in rng.permutation(len(rows)).tolist()]
        pairs = list(zip(rows, others, strict=True))
        yield "two joined", [np.concatenate([_cut(a, rng), _cut(b, rng)]) for a, b in pairs]
        yield "ids replaced", [_replaced(row, readable, rng) for row in rows]
        if len(special):
            yield "special ids", [_inserted(row, special, rng) for row in rows]
        yield "random ids", [rng.choice(readable, rng.integers(1, 8)) for _ in range(BATCH // 2)]


def _cut(row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    begin, end = sorted(rng.integers(0, len(row) + 1, 2).tolist())
    return row[begin : max(end, begin + 1)]


def _replaced(row: np.ndarray, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    row = row.copy()
    row[rng.integers(0, len(row))] = rng.choice(ids)
    return row


def _inserted(row: np.ndarray, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.insert(row, rng.integers(0, len(row) + 1, 2), rng.choice(ids, 2))


class Rows:
    """Some rows, cut before and after each id of ``splits`` (bool [ids]).

    ``stretches``: for each row its stretches, ids and whether each of them splits.
    """

    def __init__(self, rows: list[np.ndarray], splits: np.ndarray) -> None:
        self.rows = [row.tolist() for row in rows]
        ends = np.cumsum([len(row) for row in rows])
        flat = np.concatenate(rows)
        fixed = splits[flat]
        cuts = np.flatnonzero(np.diff(fixed)) + 1
        edges = np.unique(np.concatenate([[0], cuts, ends]))
        number = np.searchsorted(ends, edges[:-1], "right").tolist()
        ids, edges = flat.tolist(), edges.tolist()
        self.stretches: list[list[tuple[list[int], bool]]] = [[] for _ in rows]
        for i, (begin, end) in zip(number, itertools.pairwise(edges), strict=True):
            self.stretches[i].append((ids[begin:end], bool(fixed[begin])))


class Expected:
    """What the library gives for rows after decoding and encoding; equal texts are encoded once."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.takes_space = library.decode(library.encode([" a"])) != [" a"]
        self._known: dict[str, list[int]] = {}

    def of(self, rows: Rows) -> list[list[list[int]]]:
        """For each row the ids that are right: one list, or several where a space is in doubt.

        Ids that split a row stay in place. Where the library takes off a first space and the first
        result is not the row, the texts are also encoded with a space before each. sentencepiece
        takes the first space off a row unless its first id is the byte token of the space; there
        the encoding of the text without that space is added, the one that has the bytes of the row.
        """
        if len(self._known) > MEMORY:
            self._known = {}
        ids = [part for parts in rows.stretches for part, fixed in parts if not fixed]
        texts = self.library.decode(ids)
        self._encode(texts)
        at = iter(texts)
        parts_of = [
            [(part, None if fixed else next(at)) for part, fixed in parts]
            for parts in rows.stretches
        ]
        result = [
            [[i for part, text in parts for i in (part if text is None else self._known[text])]]
            for parts in parts_of
        ]
        if not self.takes_space:
            return result
        doubtful = [n for n, row in enumerate(rows.rows) if result[n][0] != row]
        others = [text for n in doubtful for _, text in parts_of[n] if text is not None]
        self._encode([f" {text}" for text in others])
        if self.library.space_byte >= 0:
            self._encode([text.removeprefix(" ") for text in others])
        for n in doubtful:
            result[n] = self._several(parts_of[n])
        return result

    def _several(self, parts: list[tuple[list[int], str | None]]) -> list[list[int]]:
        either, spaced, shorter = [], [], []
        for ids, text in parts:
            if text is None:
                plain = with_space = without_space = ids
            else:
                plain, with_space = self._known[text], self._known[f" {text}"]
                is_byte = ids[0] == self.library.space_byte
                without_space = self._known[text.removeprefix(" ")] if is_byte else plain
            either += with_space if with_space == ids else plain
            spaced += with_space
            shorter += without_space
        return [either, spaced, shorter]

    def _encode(self, texts: list[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self.library.encode(new), strict=True))


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf8")
    except UnicodeDecodeError:
        return False
    return True


def splitting(vocab: rt.Vocabulary) -> np.ndarray:
    """Ids that no text gives, bool [ids]: the library decodes and encodes what is between them."""
    splits = ~vocab.readable
    decoder = getattr(vocab.data.source, "get_added_tokens_decoder", dict)()
    splits[[i for i, token in decoder.items() if not token.special]] = False
    return splits


def judge(
    vocab: rt.Vocabulary, library: Expected, guard: rt.Guard, given: list[np.ndarray],
    show: Callable[[str, np.ndarray, list[int]], None],
) -> Counter[str]:  # fmt: skip
    """Count the disagreements over some rows."""
    splits, counts = splitting(vocab), Counter[str]()
    fixed = set(np.flatnonzero(splits).tolist())
    verdicts = guard.check_batch(given)
    repaired = [row.tolist() for row in verdicts.repaired]
    canonical = verdicts.canonical.tolist()
    rows = Rows(given, splits)
    wanted = library.of(rows)
    not_repaired = _not_canonical(guard, repaired)

    def rows_with(*kinds: str) -> set[int]:
        has_kind = np.isin(verdicts.table.kind, [KINDS.index(kind) for kind in kinds])
        return set(verdicts.finding_rows[has_kind].tolist())

    broken, spelled = rows_with(NOT_UTF8, UNKNOWN_ID), rows_with(SPECIAL_TEXT)
    for i, row in enumerate(rows.rows):
        valid = all(
            is_utf8(b"".join([vocab.tokens[t] for t in part])) for part, _ in rows.stretches[i]
        )
        wrong = []
        if i % ALONE == 0:
            counts["alone"] += 1
            alone = guard.check(row)
            if alone != verdicts[i] or alone.repaired.tolist() != repaired[i]:
                wrong.append("alone differs")
        if i in not_repaired:
            wrong.append("repair not canonical")
        if not valid:
            if i not in broken:
                wrong.append("not-utf8 unseen")
        elif _count(wanted[i][0], fixed) > _count(row, fixed):  # text encoded as a special token
            counts["spells special"] += 1
            if i not in spelled:
                wrong.append("special-text unseen")
        else:
            truth = row in wanted[i]
            counts["canonical"] += truth
            if canonical[i] != truth:
                wrong.append("false negative" if canonical[i] else "false positive")
            if repaired[i] not in wanted[i]:
                wrong.append("wrong repair")
        counts["not UTF-8"] += not valid
        for kind in wrong:
            counts[kind] += 1
            show(kind, given[i], wanted[i][0])
    counts["rows"] += len(given)
    return counts


def _not_canonical(guard: rt.Guard, rows: list[list[int]]) -> set[int]:
    """The numbers of rows that the guard does not call canonical; equal rows are checked once."""
    numbers: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(rows):
        numbers.setdefault(tuple(row), []).append(number)
    canonical = guard.check_batch([list(row) for row in numbers]).canonical.tolist()
    return {
        number
        for same, is_canonical in zip(numbers.values(), canonical, strict=True) if not is_canonical
        for number in same
    }  # fmt: skip


def _count(ids: list[int], chosen: set[int]) -> int:
    return 0 if chosen.isdisjoint(ids) else sum(i in chosen for i in ids)


def trial(name: str, rows: int, seed: int, shown: int) -> Counter[str]:
    """All rows of one tokenizer."""
    english = read_texts(DATA / "corpus/english_val.jsonl.xz")
    texts = english[:100] + read_texts(DATA / "corpus/multilingual_code.jsonl.xz") * 2
    texts += [json.loads(line)["text"] for line in (DATA / "corpus/hard_cases.jsonl").open()]
    library = load(name, english)
    vocab = rt.Vocabulary.load(library.source)
    guard, rng = rt.Guard(vocab, allow_special=True), np.random.default_rng(seed)
    answers = Expected(library)
    counts: Counter[str] = Counter()
    examples: Counter[str] = Counter()

    def show(kind: str, row: np.ndarray, wanted: list[int]) -> None:
        examples[kind] += 1
        if examples[kind] <= shown:
            text, repaired = vocab.decode_bytes(row), guard.repair(row).tolist()
            print(f"{name}, {kind}: {row.tolist()} {text!r}\n  expected {wanted}, "
                  f"repaired {repaired}", file=sys.stderr, flush=True)  # fmt: skip

    for _, batch in rows_of(vocab, texts, rng):
        before = counts["rows"]
        counts += judge(vocab, answers, guard, batch, show)
        if before // PROGRESS < counts["rows"] // PROGRESS:
            wrong = sum(counts[c] for c in COLUMNS[1:])
            print(f"{name}: {counts['rows']:,} rows, {wrong} wrong", file=sys.stderr, flush=True)
        if counts["rows"] >= rows:
            return counts
    return counts


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--rows", type=int, default=20_000, help="of each tokenizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=3, help="disagreements of each kind to print")
    options = parser.parse_args()
    columns = ("rows", "alone", "not UTF-8", "spells special", *COLUMNS)
    print_heads("tokenizer", *columns, "s")
    wrong = 0
    for name in options.names:
        start = time.process_time()
        counts = trial(name, options.rows, options.seed, options.show)
        cells = (f"{counts[c]:,}" for c in columns)
        print_row(name, *cells, f"{time.process_time() - start:.0f}")
        wrong += sum(counts[c] for c in COLUMNS[1:])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
