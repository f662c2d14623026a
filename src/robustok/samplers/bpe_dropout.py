"""`bpe-dropout`: byte-pair encoding that skips merges at random (Provilkov et al. 2020)."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from robustok.checks import shown
from robustok.errors import RobustokError
from robustok.kernels.batch import Batch, Rows, spelled, texts_between
from robustok.kernels.merges import BITS, Merges, PreTokens, build_merges, whole_tokens
from robustok.kernels.stochastok import pairs_of
from robustok.runtime.environment import import_lock
from robustok.samplers.base import Sampler
from robustok.samplers.canonical import Canonical
from robustok.samplers.parameters import MERGES, Choice, probability
from robustok.tokenizer.comparison import Characters, check_texts
from robustok.tokenizer.data import TokenizerData, split_at_broken
from robustok.tokenizer.stages import NO_CUTS
from robustok.tokenizer.tokenizers_api import HAS_PARTS
from robustok.tokenizer.vocabulary import Vocabulary

RULES = ("provilkov", "hf", "sentencepiece")
_SECONDS, _SLOWEST = 1.0, 1e6  # after which `regex` is given up, with more for each character
_MATCHES = 512  # of a pattern in one call of `regex`


class BpeDropout(Sampler):
    """Merges as the tokenizer would, except that each may be dropped with probability p.

    >>> [vocab.tokens[i] for i in BpeDropout(vocab, p=0.5).sample("hello world", seed=1)]
    [b'h', b'e', b'll', b'o', b' ', b'w', b'or', b'ld']

    Args:
        vocab: the vocabulary of a BPE tokenizer.
        p: probability that a merge is dropped, from 0 (the canonical ids) to 1.
        rule: when a merge is dropped and for how long; three libraries differ, and so do their
            distributions. ``"provilkov"`` (default; Algorithm 1 of the paper): each step drops
            every candidate merge independently and applies the best that is left; the pre-token is
            done when none is left. ``"hf"`` (`tokenizers`): dropped merges come back after the next
            applied merge, and outdated entries of its queue count, so it is weaker.
            ``"sentencepiece"``: a dropped pair never comes back, so it is stronger.

    Merges stay within pre-tokens; without a pre-tokenizer the whole text is a pre-token, and
    ``"provilkov"`` and ``"hf"`` change next to nothing. Raises RobustokError where the tokenizer is
    no BPE, where its merges need a token that stays where the tokenizer puts it, and for a text of
    a tiktoken ``Encoding`` whose pre-tokens are not known.

    In 20 lines of plain Python: provilkov, sentencepiece and hf in ``tests/oracles/dropout.py``.
    """

    name = "bpe-dropout"
    example = "bpe-dropout(p=0.1)"
    variants = ("bpe-dropout(p=0.5, rule=hf)", "bpe-dropout(p=0.5, rule=sentencepiece)")
    parameters = {"p": probability(0.1), "rule": Choice(RULES)}
    strength = "p"
    color = "#cc79a7"
    needs = MERGES
    p: float
    rule: str

    def __init__(self, vocab: Vocabulary, *, p: float = 0.1, rule: str = "provilkov") -> None:
        super().__init__(vocab, p=p, rule=rule)
        vocab.derived("bpe-dropout merges are checked", lambda: _check_merges(vocab))

    def _draw(self, batch: Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        # These kernels add 15 ms to `import robustok`, and few programs draw from this scheme.
        with import_lock:
            from robustok.kernels.dropout import draw_bpe_dropout

        if self.p == 0.0:
            Canonical(self.vocab)._draw(batch, first, last, out, ends)
            return
        v = self.vocab
        texts = texts_between(batch, first, last)
        values, offsets, *_ = texts
        texts = spelled(texts, v.token_bytes, v.token_offsets)
        pre_tokens = self._pre_tokens(values, offsets, texts)
        rule, rows = RULES.index(self.rule), Rows(out, ends)
        reached = draw_bpe_dropout(v.trie, self._merges(), pre_tokens, texts, self.p, rule, rows)
        if reached < last - first:
            raise RobustokError("bpe-dropout: the vocabulary has no token for a character here")

    def _pre_tokens(self, values: np.ndarray, offsets: np.ndarray, texts: Batch) -> PreTokens:
        """Cut texts (ids and bytes) at added tokens, and where the pre-tokenizer cuts."""
        added = self.vocab.derived("bpe-dropout added ids", lambda: _added_ids(self.vocab))
        edges, is_whole = texts.offsets, None
        ids = values[offsets[0] : offsets[-1]]
        is_added, lengths = added[ids], self.vocab.token_lengths[ids]
        token_ends = np.cumsum(lengths)
        if is_added.any():
            added_starts = (token_ends - lengths)[is_added]
            edges = np.unique(np.concatenate([edges, added_starts, token_ends[is_added]]))
            is_whole = np.isin(edges[:-1], added_starts)
        borders = np.zeros(len(texts.values) + 1, np.bool_)
        borders[token_ends] = True
        cutter = self.vocab.derived("bpe-dropout cutter", lambda: Cutter(self.vocab.data))
        ends = cutter.cut(texts.values, edges, is_whole, borders)
        first = np.searchsorted(ends, texts.offsets, "right")
        token_offsets = self.vocab.token_offsets
        whole_ids = whole_tokens(first, ends, texts.offsets, values, offsets, token_offsets)
        return PreTokens(first, ends, whole_ids, added)

    def _merges(self) -> Merges:
        """The merge tables of this rule, made once a vocabulary."""
        by_result = self.rule == "sentencepiece"
        return self.vocab.derived(
            f"bpe-dropout merges {self.rule}", lambda: _tables(self.vocab, by_result)
        )


class Cutter:
    """Cuts texts into pre-tokens as the library of a tokenizer does.

    Where one pattern decides all cuts, the package ``regex`` reads it, if it cuts check texts of
    all kinds as the library does. Its cuts count only where they are borders of the ids and the
    library was seen to cut alike around the characters of the text. It cuts other texts itself.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._library = getattr(data.encoder, "pre_token_ends", None) if HAS_PARTS else None
        pattern = data.stages.cut_pattern
        self._is_whole = pattern == NO_CUTS
        self._ends = None if pattern is None or self._is_whole else _ends_by_regex(pattern)
        self._characters: Characters | None = None
        if self._ends is None or self._library is None:
            return
        self._characters = Characters(self._differ)
        has_other = self._characters.has_other
        if not self._characters.is_ascii_same or any(
            not has_other(text) and self._differ(text) for text in check_texts()
        ):
            self._ends = None

    def _differ(self, text: str) -> bool:
        """Whether the package ``regex`` cuts a text otherwise than the library."""
        assert self._ends is not None and self._library is not None
        return self._ends(text) != self._library(text)

    def cut(
        self, text: np.ndarray, edges: np.ndarray, is_whole: np.ndarray | None, borders: np.ndarray
    ) -> np.ndarray:
        """The ends of all pre-tokens of a text, int64, in bytes.

        ``text``: uint8. ``edges``: int64, ascending from 0 to the length of ``text``: each span
        between two edges is cut on its own. ``is_whole``: bool [spans], true where the span is one
        pre-token. ``borders``: bool [len(text) + 1], where ids begin and end. A byte that is not
        UTF-8 is a pre-token.
        """
        raw, ends = text.tobytes(), []
        bounds = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        for number, (begin, end) in enumerate(bounds):
            if is_whole is not None and is_whole[number]:
                ends.append([end])
                continue
            for low, high, is_valid in split_at_broken(raw[begin:end]):
                start, stop = begin + low, begin + high
                if is_valid:
                    ends.append(start + self._cut_span(raw[start:stop], borders[start : stop + 1]))
                else:
                    ends.append(np.arange(start + 1, stop + 1))
        return np.concatenate(ends).astype(np.int64) if ends else np.empty(0, np.int64)

    def _cut_span(self, span: bytes, borders: np.ndarray) -> np.ndarray:
        """The ends of the pre-tokens of a text that is UTF-8."""
        if self._is_whole:
            return np.array([len(span)])
        text = span.decode()
        characters = self._characters
        if self._ends is not None and not (characters and characters.has_other(text)):
            ends = _in_bytes(self._ends(text), span, text)
            is_growing = np.diff(ends, prepend=0).all()
            if is_growing and len(ends) and ends[-1] == len(span) and borders[ends].all():
                return ends
        if self._library is None:
            raise RobustokError(
                f"bpe-dropout: the pre-tokens of the text {shown(text)} are not known, since the"
                " tokenizer's library does not show its cuts: 'pip install regex', or use another"
                " scheme, such as uniform"
            )
        return _in_bytes(self._library(text), span, text)


def _ends_by_regex(pattern: str) -> Callable[[str], list[int]] | None:
    """The ends of all matches of a pattern in a text, by the package ``regex``.

    They are in characters, up to the first one at which no match begins. None where the package
    cannot read the pattern.
    """
    try:
        with import_lock:
            import regex
    except ImportError:
        return None
    try:  # a call for many matches: each call reads the clock, which takes longer than a match
        compiled = regex.compile(f"(?:({pattern})){{1,{_MATCHES}}}+")
    except (regex.error, ValueError, RecursionError):
        return None
    if compiled.groups > 1:
        return None

    def ends_of(text: str) -> list[int]:
        ends, at, last = [], 0, time.monotonic() + _SECONDS + len(text) / _SLOWEST
        while at < len(text):
            try:
                match = compiled.match(text, at, timeout=max(last - time.monotonic(), 0.0))
            except TimeoutError:  # the library may have another way to read the pattern
                return []
            if match is None or match.end() == at:
                break
            ends += match.ends(1)
            at = match.end()
        return ends

    return ends_of


def _in_bytes(ends: list[int], span: bytes, text: str) -> np.ndarray:
    """Positions in characters as positions in bytes, int64."""
    positions = np.array(ends, np.int64)
    if len(span) == len(text):
        return positions
    starts = np.flatnonzero((np.frombuffer(span, np.uint8) & 0xC0) != 0x80)
    return np.append(starts, len(span))[positions]


def _added_ids(vocab: Vocabulary) -> np.ndarray:
    """Which ids are added tokens that stand for text, bool [ids]."""
    added = np.zeros(vocab.size, np.bool_)
    added[[i for i in vocab.data.added if i < vocab.size]] = True
    return added & vocab.ordinary


def _tables(vocab: Vocabulary, by_result: bool) -> Merges:
    left, right, result = _merge_list(vocab)
    if max(vocab.size, len(result)) > 1 << BITS:
        raise RobustokError(
            f"bpe-dropout: {vocab.size:,} ids and {len(result):,} merges are too many: the merge "
            f"table packs each into {BITS} bits, so at most {1 << BITS:,}"
        )
    ranks = np.arange(len(result), dtype=np.int32)
    if by_result:  # sentencepiece ranks a merge by its result, whatever the pair
        best_rank = np.full(vocab.size, len(result), np.int32)
        np.minimum.at(best_rank, result, ranks)
        ranks = best_rank[result]
    byte_ids = np.full(256, -1, np.int32)
    for byte, i in vocab._byte_ids.items():
        byte_ids[byte] = i
    by_character = not vocab.data.family.startswith("byte-level")
    character_ids = _characters(vocab) if by_character else np.empty(0, np.int32)
    return build_merges(left, right, result, ranks, byte_ids, character_ids, vocab.size)


def _characters(vocab: Vocabulary) -> np.ndarray:
    """The id of each character below 65,536, or -1; int32 [65536]."""
    character_ids = np.full(1 << 16, -1, np.int32)
    lengths = vocab.token_lengths
    for i in np.flatnonzero(vocab.ordinary & (lengths > 0) & (lengths <= 3)).tolist():
        token = vocab.tokens[i].decode("utf8", "ignore")
        if len(token) == 1 and len(token.encode("utf8")) == lengths[i]:
            character_ids[ord(token)] = i  # the last of equal tokens, as in the trie
    return character_ids


def _check_merges(vocab: Vocabulary) -> None:
    """Raise RobustokError where a merge has a token that no draw may put into a text."""
    merges = np.empty((0, 3), np.int32) if vocab.data.merges is None else vocab.data.merges
    is_fixed = np.ones(vocab.size, np.bool_)
    is_fixed[vocab.data.ordinary] = False
    # A merge to a special token is left out, but no text has a token of its parts.
    fixed = np.append(merges[vocab.is_placed[merges]], merges[:, :2][is_fixed[merges[:, :2]]])
    if len(fixed):
        name = shown(vocab.tokens[fixed.min()].decode(errors="replace"))
        raise RobustokError(
            f"bpe-dropout: merges of the model need its token {name}, which is special or stays "
            "where the tokenizer puts it: use another scheme, such as uniform"
        )


def _merge_list(vocab: Vocabulary) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left, right and resulting ids of every merge, best first.

    tiktoken and SentencePiece have no list: any two tokens whose concatenation is a token merge,
    and the best merge has the result of the lowest rank or the highest score.
    """
    data = vocab.data
    if data.merges is not None:
        pairs = data.merges[:, :2]
        ids = {token: int(i) for i, token in enumerate(vocab.tokens) if vocab.ordinary[i]}
        tokens = vocab.tokens
        # A merge whose result is no token of V would draw an id that is not ordinary.
        spelled = ((tokens[a], tokens[b], tokens[a] + tokens[b]) for a, b in pairs.tolist())
        merge_ids = [[ids.get(token, -1) for token in merge] for merge in spelled]
        merges = np.array(merge_ids, np.int32).reshape(-1, 3)
        left, right, result = merges[(merges >= 0).all(axis=1)].T.copy()
        return left, right, result
    start, left, right = pairs_of(
        vocab.trie, vocab.token_bytes, vocab.token_offsets, vocab.ordinary
    )
    result = np.repeat(np.arange(vocab.size, dtype=np.int32), np.diff(start))
    fallback = np.zeros(vocab.size, np.bool_)
    fallback[list(data.byte_fallback)] = True
    mergeable = ~(fallback[left] | fallback[right])
    left, right, result = left[mergeable], right[mergeable], result[mergeable]
    scores = data.scores or {}
    priority = np.array([-scores.get(int(i), -float(i)) for i in result])
    order = np.argsort(priority, kind="stable")
    return left[order], right[order], result[order]
