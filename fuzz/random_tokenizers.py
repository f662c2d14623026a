"""Random tokenizers and texts: what must hold for every tokenizer that a vocabulary accepts.

One call makes a tokenizer (`fuzz.made_tokenizers`) and six texts. The vocabulary refuses it in one
line, or these hold, where ``ids`` are those of the library for the text without special tokens:

1. `encode` and `encode_batch` give ``ids``, before and after the fast encoder is loaded.
2. A draw decodes to what ``ids`` decode to, by the library and by `decode_bytes`. Drawing from the
   text and from ``ids`` gives the same draw.
3. `count` is the length of `enumerate`, whose rows are those that a search over all tokens finds.
   The probabilities of an exact scheme over these rows sum to 1, that of a draw is positive, and
   that of ``ids`` too where the scheme's definition gives them one.
4. `Guard.check(ids)` is canonical; `repair` gives canonical ids of the same text, which `admit`
   accepts.

What is expected comes from the ``tokenizers`` library, or from a search that tries everything;
never from the code under test. A violation is a `Finding` with a script that makes the tokenizer,
and what was expected and given.
"""

from __future__ import annotations

import math
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import robustok as rt
from fuzz.made_tokenizers import BYTE, Made, random_texts, random_tokenizer
from robustok.runtime.environment import computed_once

TEXTS = 6  # of each tokenizer
FAST = 0.3  # share of tokenizers that may use the fast encoder, whose loading takes long
SCHEMES = (
    "canonical", "characters", "uniform", "uniform-k(k=2)", "uniform-k(alpha=1)",
    "stochastok(alpha=1)", "stochastok(alpha=0.5, ways=3)", "stochastok-uniform(alpha=1)",
    "stochastok-uniform(alpha=1, support=pairwise)", "grampa",
    "grampa(temperature=2, min_length=2)", "unigram(temperature=2)", "maxmatch-dropout(p=0.4)",
    "mix(0.5 canonical, 0.5 uniform)",
)  # fmt: skip
DROPOUT = ("bpe-dropout(p=0.4)", "bpe-dropout(p=0.4, rule=hf)",
           "bpe-dropout(p=0.4, rule=sentencepiece)")  # fmt: skip
# Whose definitions give every tokenization, or the canonical one, a positive probability.
POSITIVE = ("canonical", "uniform", "grampa", "unigram(temperature=2)", "maxmatch-dropout(p=0.4)",
            "mix(0.5 canonical, 0.5 uniform)")  # fmt: skip
MOST = 24  # tokenizations whose probabilities are summed
DRAWS = 2  # of each scheme and text
BYTE_NAME = re.compile(r"<0x([0-9A-F]{2})>")
# The names and numbers in a message.
NAMES = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|0x[0-9A-F]+|\d[\d,]*")


class Violation(Exception):
    """An invariant that does not hold; ``of``: the ids or the text that show it."""

    def __init__(self, check: str, expected: Any, got: Any, of: Any = None) -> None:
        super().__init__(check)
        self.check, self.expected, self.got, self.of = check, expected, got, of


class Refused(Exception):
    """The library or the vocabulary refuses the tokenizer."""


class Row(NamedTuple):
    """The ids of an accepted text; ``plain``: without special tokens."""

    text: str
    ids: np.ndarray
    plain: bool

    def named(self, check: str) -> str:
        """The name of a check, which is another one where special tokens are parsed."""
        return check if self.plain else f"{check} (special tokens parsed)"

    def violates(self, check: str, expected: Any, got: Any, of: Any = None) -> Violation:
        return Violation(self.named(check), expected, got, (self.text, self.ids.tolist(), of))


class Subject:
    """A made tokenizer: the library's, one to which special tokens are text, and the vocabulary.

    The model of the second cannot read special tokens, beside those that the vocabulary takes for
    words.
    """

    def __init__(self, made: Made) -> None:
        self.made = made
        try:
            self.library = made.build()
        except BaseException as e:
            raise Refused(f"by the library: {reason(e)}") from e
        try:
            self.vocab = rt.Vocabulary.load(self.library)
        except rt.RobustokError as e:
            check_line(e)
            raise Refused(f"at load: {reason(e)}") from e
        spelling = self.vocab.data.spelling
        words = spelling.words | (spelling.placed & {spelling.unknown})
        added = self.library.get_added_tokens_decoder()
        hidden = {added[i].content for i in self.special - words}
        self.plain = made.hiding([token for token in made.tokens() if token in hidden]).build()
        self.plain.encode_special_tokens = True
        self._samplers: dict[str, rt.Sampler | None] = {}
        self._rows: dict[str, list[Row]] = {}

    def ids(self, text: str, parse: bool) -> list[int] | None:
        """The library's ids, None where it raises; ``parse``: whether it finds special tokens."""
        library = self.library if parse else self.plain
        try:
            return library.encode(text, add_special_tokens=False).ids
        except BaseException as e:  # a panic of the library is no Exception
            if isinstance(e, KeyboardInterrupt):
                raise
            return None

    def rows(self, text: str) -> list[Row]:
        """The ids of an accepted text, and those with special tokens where they differ."""
        if text not in self._rows:
            rows: list[Row] = []
            for parse in (False, True):
                try:
                    ids = self.vocab.encode(text, parse_special=parse)
                except rt.RobustokError:
                    continue
                if not rows or rows[0].ids.tolist() != ids.tolist():
                    rows.append(Row(text, ids, not parse))
            self._rows[text] = rows
        return self._rows[text]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The library's text of ids."""
        return self.library.decode([int(i) for i in ids], skip_special_tokens=False)

    def sampler(self, spec: str) -> rt.Sampler | None:
        """The sampler of a spec, None where the scheme does not fit the vocabulary."""
        if spec not in self._samplers:
            try:
                self._samplers[spec] = rt.sampler(spec, self.vocab)
            except rt.RobustokError as e:
                check_line(e)
                self._samplers[spec] = None
        return self._samplers[spec]

    @computed_once
    def guard(self) -> rt.Guard:
        return rt.Guard(self.vocab, allow_special=True)

    @computed_once
    def special(self) -> set[int]:
        """Ids of special tokens."""
        return {i for i, t in self.library.get_added_tokens_decoder().items() if t.special}

    @computed_once
    def id_of(self) -> dict[str, int]:
        """The ids of the model's tokens."""
        ids = ((token, self.library.token_to_id(token)) for token in self.made.tokens())
        return {token: i for token, i in ids if i is not None}

    def holds_added(self, text: bytes) -> bool:
        """Whether a token of the model that was added, too, is in a text."""
        added = self.library.get_added_tokens_decoder()
        return any(self.vocab.tokens[i] in text for i in self.id_of.values() if i in added)

    @computed_once
    def plain_tokens(self) -> dict[int, bytes]:
        """The bytes of each token of the model that surely is text: not unknown, not added."""
        made = self.made
        added = {one["content"] for one in made.added}
        marked = "▁" in str(made.decoder) or any(
            p["type"] == "Metaspace" for p in made.pre_tokenizer
        )
        # A Unigram model may have another token with the unknown one's name.
        unknown = made.model.get("unk_id", self.id_of.get(made.unknown or ""))
        known: dict[int, bytes] = {}
        for token, i in self.id_of.items():
            if i == unknown or token in added or not token:
                continue
            if " " in token and any(
                stage["type"] == "Metaspace" and stage["prepend_scheme"] != "never"
                for stage in made.decoder
            ):
                # At the start of a text this decoder keeps the space, and takes "▁" away, so that
                # equal bytes are two texts. The encoder gives no such token, and V has none.
                continue
            name = BYTE_NAME.fullmatch(token) if made.model["byte_fallback"] else None
            if made.byte_level:
                if all(c in BYTE for c in token):
                    known[i] = bytes(BYTE[c] for c in token)
            elif name:
                known[i] = bytes([int(name[1], 16)])
            else:
                known[i] = (token.replace("▁", " ") if marked else token).encode()
        return known


def check_line(error: BaseException) -> None:
    """A refusal is one line."""
    if "\n" in str(error) or not str(error):
        raise Violation("message", "one line", str(error))


def reason(error: BaseException) -> str:
    """The message of an error without the names and numbers in it."""
    kind = "" if isinstance(error, rt.RobustokError) else f"{type(error).__name__} "
    return " ".join((kind + NAMES.sub("_", str(error))).split())[:160]


# --- encoding -------------------------------------------------------------------------------------


def check_encode(s: Subject, text: str, counts: Counter[str]) -> None:
    """Invariant 1 for one text, with and without special tokens; its ids decode to its text."""
    for parse in (False, True):
        expected = s.ids(text, parse)
        counts["texts encoded"] += 1
        try:
            ids = s.vocab.encode(text, parse_special=parse)
        except rt.RobustokError as e:
            check_line(e)
            library = ", as by the library" if expected is None else ""
            counts[f"texts refused{library}: {reason(e)}"] += 1
            continue
        if expected is None:
            raise Violation("encode: the library raises", "a refusal", ids.tolist(), parse)
        if ids.tolist() != expected:
            raise Violation("encode", expected, ids.tolist(), parse)
        if s.made.fits and s.special.isdisjoint(ids.tolist()):  # those are decoded to their names
            check_decode(s, ids)


def check_decode(s: Subject, ids: np.ndarray) -> None:
    """`decode` agrees with the library, beside spaces at the start that its decoder takes away.

    The decoder Strip takes one, Metaspace those of the first token.
    """
    expected, got = s.decode(ids), s.vocab.decode(ids)
    takes = {stage["type"] for stage in s.made.decoder if stage.get("prepend_scheme") != "never"}
    most = len(got) if "Metaspace" in takes else "Strip" in takes
    begin = len(got) - len(expected)
    if not (0 <= begin <= most and got == " " * begin + expected):
        raise Violation("decode", expected, got, ids.tolist())


def check_batches(s: Subject, texts: list[str], counts: Counter[str]) -> None:
    """`encode_batch` in both orders, of str and bytes, by the fast encoder where it can be used."""
    expected: dict[str, list[int]] = {}
    for text in texts:
        try:
            alone = s.vocab.encode(text).tolist()
        except rt.RobustokError:
            continue
        expected[text] = s.ids(text, False) or alone
    s.vocab.gigatoken.load()
    counts["fast encoders loaded"] += s.vocab.gigatoken.reason is None
    for step, as_bytes in ((1, False), (-1, False), (1, True)):
        accepted = [*expected][::step]
        batch = [text.encode() if as_bytes else text for text in accepted]
        encoded = s.vocab.encode_batch(batch)
        counts["rows of batches compared"] += len(batch)
        for text, row in zip(accepted, encoded, strict=True):
            if row.tolist() != expected[text]:
                kind = f"encode_batch: {type(batch[0]).__name__}"
                raise Violation(kind, expected[text], row.tolist(), (text, batch))


# --- draws ----------------------------------------------------------------------------------------


def check_draws(s: Subject, texts: list[str], spec: str, counts: Counter[str]) -> None:
    """Invariant 2: draws decode to the same text, and are the same from the text and its ids."""
    sampler = s.sampler(spec)
    rows = [row for text in texts for row in s.rows(text)]
    if sampler is None or not rows:
        return
    given = rt.Ragged.from_rows([row.ids for row in rows])
    accepted = [row.text for row in rows if row.plain]
    drawn = sampler.sample_batch(given, seed=0, keys=[0] * len(rows), draws=DRAWS)
    keys = [0] * len(accepted)
    of_texts = iter(sampler.sample_batch(accepted, seed=0, keys=keys, draws=DRAWS))
    counts["draws compared"] += len(drawn)
    for number, ids in enumerate(drawn):
        row = rows[number // DRAWS]
        check_same_text(s, row, ids, "draw")
        other = next(of_texts) if row.plain else ids
        if other.tolist() != ids.tolist():
            kind = "draw: from the text and from its ids"
            raise row.violates(kind, ids.tolist(), other.tolist(), number % DRAWS)
    alone = sampler.sample(rows[0].ids, seed=0).tolist()
    if alone != drawn[0].tolist():
        raise rows[0].violates("draw: alone and in a batch", alone, drawn[0].tolist())


def check_same_text(s: Subject, row: Row, other: np.ndarray, name: str) -> None:
    """``other`` decodes to what the ids of the row decode to."""
    ids = row.ids
    if ids.tolist() == other.tolist():
        return
    if s.vocab.decode_bytes(ids) != s.vocab.decode_bytes(other):
        raise row.violates(f"{name}: other bytes", ids.tolist(), other.tolist())
    if s.made.fits and s.decode(ids) != s.decode(other):
        kind = f"{name}: the library decodes another text"
        raise row.violates(kind, ids.tolist(), other.tolist())


# --- lattice and probabilities --------------------------------------------------------------------


def check_lattice(s: Subject, text: str, counts: Counter[str]) -> None:
    """`count` and `enumerate`, against a search over all tokens where no token is added."""
    for row in s.rows(text):
        lattice = rt.Lattice(s.vocab, row.ids)
        count = lattice.count()
        counts["lattices counted"] += 1
        if count > MOST:
            continue
        listed = list(lattice.enumerate())
        paths = {tuple(ids.tolist()) for ids in listed}
        counts["tokenizations enumerated"] += len(listed)
        if not count == len(listed) == len(paths):
            raise row.violates("count", len(listed), count)
        if tuple(row.ids.tolist()) not in paths:
            raise row.violates("enumerate: no canonical ids", row.ids.tolist(), sorted(paths))
        for ids in listed:
            check_same_text(s, row, ids, "enumerate")
        known = s.plain_tokens
        # Where added tokens stand, and second ids of the same bytes, is the vocabulary's choice.
        whole = b"".join(known.get(i, b"") for i in row.ids.tolist())
        plain = all(i in known and s.vocab.ordinary[i] for i in row.ids.tolist())
        if plain and not s.holds_added(whole):
            expected = cuts_of(whole, {*known.values()})
            cuts = {tuple(len(s.vocab.tokens[i]) for i in path) for path in paths}
            counts["lattices compared with a search"] += 1
            if expected != cuts:
                raise row.violates("enumerate: not all of a search", expected, cuts)


def cuts_of(text: bytes, tokens: set[bytes]) -> set[tuple[int, ...]]:
    """Every way to cut a text into tokens, as their lengths."""
    ways: list[set[tuple[int, ...]]] = [{()}]
    for end in range(1, len(text) + 1):
        begins = [begin for begin in range(end) if text[begin:end] in tokens]
        ways.append({(*way, end - begin) for begin in begins for way in ways[begin]})
    return ways[-1]


def check_probabilities(s: Subject, text: str, spec: str, counts: Counter[str]) -> None:
    """Invariant 3 for an exact scheme."""
    sampler = s.sampler(spec)
    if sampler is None or not sampler.exact:
        return
    for row in s.rows(text):
        ids = row.ids
        for seed in range(2):
            value = log_prob(sampler, sampler.sample(ids, seed=seed))
            counts["probabilities of draws"] += 1
            if not math.isfinite(value) or value > 1e-9:
                raise row.violates("log_prob of a draw", "finite", value, seed)
        if spec in POSITIVE and not math.isfinite(log_prob(sampler, ids)):
            raise row.violates("log_prob of the canonical ids", "finite", "-inf")
        lattice = rt.Lattice(s.vocab, ids)
        if lattice.count() > MOST:
            continue
        values = [log_prob(sampler, one) for one in lattice.enumerate()]
        total = math.fsum(map(math.exp, values))
        counts["sums of probabilities"] += 1
        if not abs(total - 1) <= 1e-9:
            raise row.violates("sum of probabilities", 1, total, values)
        if spec == "uniform" and any(abs(v + math.log(len(values))) > 1e-9 for v in values):
            raise row.violates("log_prob of uniform", -math.log(len(values)), values)


def log_prob(sampler: rt.Sampler, ids: np.ndarray) -> float:
    """The log-probability, NaN where it is refused."""
    try:
        return sampler.log_prob(ids)
    except rt.RobustokError:
        return math.nan


# --- guard ----------------------------------------------------------------------------------------


def check_guard(s: Subject, texts: list[str], spec: str, counts: Counter[str]) -> None:
    """Invariant 4: the library's ids are canonical, and repairing a draw gives canonical ids."""
    rows = [row for text in texts for row in s.rows(text)]
    if not rows:
        return
    given = rt.Ragged.from_rows([row.ids for row in rows])
    verdicts = [*s.guard.check_batch(given)]
    verdicts[0] = s.guard.check(rows[0].ids.tolist())  # as a list, alone
    counts["guard verdicts"] += len(rows)
    for row, verdict in zip(rows, verdicts, strict=True):
        repaired = verdict.repaired.tolist()
        if not verdict.canonical or repaired != row.ids.tolist():
            raise row.violates("guard: the library's ids", row.ids.tolist(), repaired)
    sampler = s.sampler(spec)
    if sampler is None:
        return
    drawn = [*sampler.sample_batch(given, seed=1, keys=[0] * len(given))]
    all_repaired = [verdict.repaired for verdict in s.guard.check_batch(drawn)]
    again = [*s.guard.check_batch(all_repaired)]
    counts["repaired draws compared"] += len(rows)
    for row, draw, ids, verdict in zip(rows, drawn, all_repaired, again, strict=True):
        check_same_text(s, row, ids, "repair")
        other = verdict.repaired.tolist()
        if not verdict.canonical or other != ids.tolist():
            raise row.violates("repair: not canonical", ids.tolist(), other, draw.tolist())
    if s.special.isdisjoint(drawn[0].tolist()):
        admitted = s.guard.admit(drawn[0]).tolist()
        if admitted != all_repaired[0].tolist():
            raise rows[0].violates("admit: what repair gives", all_repaired[0].tolist(), admitted)


# --- calls ----------------------------------------------------------------------------------------


class Finding(AssertionError):
    """A violation; ``script`` makes its tokenizer and says what was expected and given."""

    def __init__(self, subject: Subject, arguments: tuple[Any, ...], violation: Violation) -> None:
        super().__init__(violation.check)
        self.script = "\n".join([
            "import robustok as rt", "from tokenizers import Tokenizer",
            f"t = Tokenizer.from_str({subject.library.to_str()!r})", "v = rt.Vocabulary.load(t)",
            f"# {violation.check} of {arguments!r}", f"# of {violation.of!r}",
            f"# expected {violation.expected!r}", f"# robustok {violation.got!r}",
        ])  # fmt: skip


def call(seed: int, number: int) -> Counter[str]:
    """Make a tokenizer and check it: what was compared and refused, or a `Finding`."""
    rng = random.Random(f"{seed}/{number}")
    made = random_tokenizer(rng)
    texts = random_texts(rng, made, TEXTS)
    counts: Counter[str] = Counter({"tokenizers made": 1})
    try:
        subject = Subject(made)
    except Refused as e:
        counts[f"refused {e}"] += 1
        return counts
    counts["tokenizers loaded"] += 1
    if rng.random() > FAST:
        subject.vocab.gigatoken.reason = "left out"
    # The rules of dropout share their slow comparison of pre-tokens.
    specs = DROPOUT if rng.random() < 0.15 else rng.sample(SCHEMES, 3)
    checks: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        (check_batches, (texts,)),
        (check_guard, (texts, rng.choice(specs))),
        *((check_draws, (texts, spec)) for spec in specs),
        *((check, (text,)) for text in texts for check in (check_encode, check_lattice)),
        *((check_probabilities, (text, rng.choice(SCHEMES))) for text in texts[:2]),
    ]
    rng.shuffle(checks)  # no call may change the result of another one
    for check, arguments in checks:
        violation = violated(subject, check, arguments, counts)
        if violation is not None:
            raise Finding(subject, arguments, violation)
    return counts


def violated(
    subject: Subject, check: Callable[..., None], arguments: tuple[Any, ...], counts: Counter[str]
) -> Violation | None:
    """The violation that a check raises, if any; another error than a refusal is one, too."""
    try:
        check(subject, *arguments, counts)
    except Violation as e:
        return e
    except KeyboardInterrupt:
        raise
    except BaseException as e:  # a refusal where an invariant should hold, a fault, or a panic
        frames = traceback.extract_tb(e.__traceback__)
        where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].name}"
        return Violation(
            f"{check.__name__} raises {type(e).__name__} at {where}", "no error", str(e)[:200]
        )
    return None
