"""Tokenizers of the ``tokenizers`` library: a tokenizer.json as plain data, and its encoder.

Byte-level BPE, SentencePiece-style BPE and Unigram. What it does not read: WordPiece and WordLevel,
whose tokens are not parts of the text's bytes.

An encoder has two tokenizers that share one model: ``encode_special_tokens`` is a setting of the
whole object, and changing it while another thread encodes would turn that thread's text into
special tokens.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
import secrets
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from robustok.errors import RobustokError
from robustok.runtime.environment import computed_once
from robustok.tokenizer.data import TokenizerData, library_error, library_errors, search_of
from robustok.tokenizer.json_tokens import BYTE_NAME, ModelTokens, TokenIds, added_tokens
from robustok.tokenizer.stages import Stages

_SEPARATORS = "\x1c\x1d\x1e\x1f"  # whitespace to str.split and not to the library
_MADE_ASCII = ";`K"  # what NFC writes for other characters, and NFD beside letters with marks


def from_json(text: str, name: str, tokenizer: Any = None) -> TokenizerData:
    """The tokenizer of a tokenizer.json; ``name`` is what messages call it.

    ``tokenizer`` is what :func:`open_json` returns of it, where the caller has it.

    Raises RobustokError where the file is malformed, the library refuses it, or its ids cannot be
    read as bytes of the text.
    """
    with errors_name(name):
        if tokenizer is None:
            tokenizer = open_json(text)
        _check_kind(type(tokenizer.model).__name__, partial(getattr, tokenizer.model))
        return _read(tokenizer, text)


@contextmanager
def errors_name(name: str) -> Iterator[None]:
    """Name the tokenizer in errors, also in those of values that have other types than expected."""
    try:
        yield
    except RobustokError as e:
        raise RobustokError(f"{name}: {e}") from e
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        reason = " ".join(str(e).split())[:200]
        raise RobustokError(f"{name}: not a tokenizer.json ({type(e).__name__}: {reason})") from e


def open_json(text: str) -> Any:
    """The tokenizer of the library; raises RobustokError where it refuses the file."""
    try:
        with library_errors("the tokenizers library refuses it"):
            return Tokenizer.from_str(text)
    except RobustokError:
        model = json.loads(text)["model"]
        _check_kind(model.get("type") or "BPE", model.get)  # older files do not say it
        raise


def _check_kind(kind: str, setting: Callable[[str, Any], Any]) -> None:
    """Raise RobustokError for a kind of model, or a setting, that is not supported."""
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if setting(affix, None):
            raise RobustokError(f"BPE with {affix} {setting(affix, None)!r} is not supported")


def _read(tokenizer: Any, text: str) -> TokenizerData:
    stages = Stages.of_tokenizer(tokenizer)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    is_bpe = type(tokenizer.model).__name__ == "BPE"
    if is_bpe:
        tokenizer.model.dropout = None
    model = ModelTokens(tokenizer, text)
    if not model.names:
        raise RobustokError("its model has no tokens")
    added = added_tokens(tokenizer, model.names)
    ids = TokenIds(tokenizer, model, added, stages)
    if is_bpe and not ids.complete and model.unknown_name is None:
        # The library leaves out what it has no token for; where the name is not in the vocabulary
        # it raises instead.
        longest = max(len(name) for name in model.names if name is not None)
        tokenizer.model.unk_token = "<unk>" * (1 + longest)
    family = "byte-level" if stages.byte_level else "sentencepiece"
    return TokenizerData(
        tokens=ids.tokens,
        ordinary=array("i", np.flatnonzero(ids.is_ordinary).astype(np.int32).tobytes()),
        byte_fallback=frozenset(ids.fallback),
        encoder=TokenizersEncoder(tokenizer, model, ids, stages),
        family=f"{family} {model.kind}",
        read_merges=_read_merges if is_bpe else None,
        read_scores=None if is_bpe else partial(_scores_by_id, model.scores),
        source=tokenizer,
        stages=stages,
        added=added,
        spelling=ids.spelling,
    )


def _read_merges(data: TokenizerData) -> np.ndarray:
    """The merges of a BPE, as `TokenizerData` has them."""
    model = json.loads(data.source.to_str())["model"]
    left, right = [a for a, _ in model["merges"]], [b for _, b in model["merges"]]
    columns = left, right, map(operator.add, left, right)
    ids = np.array([[*map(model["vocab"].__getitem__, column)] for column in columns], np.int32)
    known = np.zeros(len(data.tokens), np.bool_)
    known[[*data.ordinary, *data.spelling.in_model]] = True
    return ids[:2, known[ids].all(axis=0)].T.copy()


def _scores_by_id(scores: list[float], data: TokenizerData) -> dict[int, float]:
    """The scores of a Unigram model, as `TokenizerData` has them."""
    return dict(enumerate(scores))


class TokenizersEncoder:
    """A Rust tokenizer for plain text and its twin that parses special tokens.

    ``complete``: every text has a token for each character or byte. ``reachable``: special tokens
    that the model itself would read in a text. ``names_bytes``: the model would read "<0x41>" in a
    text as the byte.
    """

    def __init__(self, tokenizer: Any, model: ModelTokens, ids: TokenIds, stages: Stages) -> None:
        added = tokenizer.get_added_tokens_decoder()
        words = {added[i].content for i in ids.spelling.words}
        # The unknown token spells what it stands for, and may come from its text.
        words |= {
            t.content
            for i, t in added.items()
            if i == ids.spelling.unknown and i in ids.spelling.placed
        }
        special = [
            t.content for t in added.values() if t.special and t.content and t.content not in words
        ]
        self.parsing, self.complete, self.spelling = tokenizer, ids.complete, ids.spelling
        self.reachable = _reachable(model, special)
        self.names_bytes = model.byte_fallback and (model.kind == "Unigram" or model.ignore_merges)
        self._adds_space, self._metaspace = stages.adds_space, stages.metaspace
        self._ends_words = stages.ends_words
        # Before a text, where all that normalization does is to write this space, as SentencePiece
        # does, and "▁" for every space; else None.
        first = {("inside",): "", ("before", "inside"): " "}.get(stages.space_rules or ())
        self.first_space = first if stages.metaspace else None
        spaces = {model.id_of("▁"), *added} - {None, *ids.fallback}
        has_mark = not stages.metaspace or (
            stages.writes_mark and any(ids.tokens[i] == b" " and ids.is_ordinary[i] for i in spaces)
        )
        keeps = stages.keeps_text and has_mark and not ids.spelling.lossy
        # The ids decode to what `normalize` returns, except where the text contains a mark.
        self._exact = ids.complete and stages.keeps_text and has_mark
        # The same for a text whose words are known, unless a character has no token.
        self._lacks: Callable[[str], object] | None = None
        if has_mark and self._ends_words is not None and not self._exact:
            self._exact, self._lacks = True, _search_unknown(model, ids)
        self._composes = stages.composes
        known = stages.composes or self.first_space is not None
        self._is_stable = known or all(one.lowers for one in stages.normalizers)
        # Special ones that the model reads, too, are placed where the decoder writes another text.
        plain = {
            i: token
            for i, token in added.items()
            if not token.special or (i in ids.spelling.words and i in ids.spelling.placed)
        }
        # NFC and NFD make no text of these tokens, and change none. Where NFD writes one for a
        # letter with a mark, it has to be found in that text, too.
        decomposes = any(one.decomposes for one in stages.normalizers)
        apart = all(one.canonical for one in stages.normalizers) and all(
            t.content.isascii()
            and not {*t.content} & {*_MADE_ASCII}
            and (t.normalized or not decomposes)
            for t in plain.values()
        )
        doubtful = {
            token.content
            for i, token in plain.items()
            if not stages.joins_parts
            or token.lstrip
            or token.rstrip
            or ids.tokens[i] != token.content.encode()
            or (not apart and stages.normalizers and token.normalized)
        }
        # "▁" is a space to the model, but not to what looks for added tokens. Special ones hide
        # others that are within them.
        hides = {token.content for token in added.values() if token.special}
        contents = "".join(token.content for token in plain.values())
        if stages.metaspace and (" " in contents or {" ", "▁"} & {*"".join(hides)}):
            doubtful.add("▁")
        # The model reads the name of an unknown token that no other text has.
        names = [] if model.unknown_name is None else [model.unknown_name]
        if ids.spelling.unknown not in ids.spelling.placed:
            doubtful |= {*_reachable(model, names)} - {*self.reachable}
        # Without doubtful tokens the text of the ids is that of all texts, or of those in ASCII.
        self._accepts = keeps and (apart or self.first_space is not None)
        self._accepts_ascii = keeps and stages.composes
        # Whether normalizers may write such a token, which is not looked for there.
        writes = bool(stages.normalizers) and not apart and self.first_space is None
        marks = doubtful | {
            token.content
            for i, token in plain.items()
            if not ids.is_ordinary[i]
            or token.single_word
            or not stages.is_local
            or (not token.normalized and (writes or not self._is_normal(token.content)))
        }
        marks |= {*self.reachable, *names}
        # A text may have placed tokens without their names, as "Ġa".
        reads = {
            read.decode(errors="ignore")  # at least what they have of whole characters
            for i, read in ids.spelling.in_model.items()
            if i in added or self._lacks is not None
        }
        self._exact = self._exact and "" not in reads
        marks |= reads
        normalized = {t.content for t in plain.values() if t.normalized}
        # Spaces of a text are not read as the "▁" of these, or as an ordinary token.
        raw = {
            t.content
            for i, t in plain.items()
            if ids.is_ordinary[i] and not (t.normalized or t.special)
        } - {*self.reachable, *names}
        self._doubtful = self._search_of(doubtful, normalized, raw)
        self._marks = self._search_of(marks, normalized, raw)
        # A text that has none of the special tokens, as written, has none to the model.
        self._is_searched = bool(self.reachable) and all(
            re.fullmatch("[!-~]+", content) for content in self.reachable
        )
        searched = [*(added if self._is_searched else plain).values()]
        self._has_added = self._search_of(
            {t.content for t in searched}, {t.content for t in searched if t.normalized}, raw
        )

    def _search_of(
        self, contents: set[str], normalized: set[str], raw: set[str]
    ) -> Callable[[str], object] | None:
        """A search for any of some added tokens, in a text or a normalized one.

        ``normalized``: those that are looked for in the normalized text; ``raw``: those that are
        looked for only in the text as it came.
        """
        if self.parsing.normalizer is not None:
            with library_errors("the tokenizers library cannot normalize an added token"):
                contents = contents | {
                    self.parsing.normalizer.normalize_str(c) for c in contents & normalized
                }
        if self._metaspace:
            contents = contents | {content.replace("▁", " ") for content in contents - raw}
        return search_of(contents - {""})

    @computed_once
    def tokenizer(self) -> Any:
        """The tokenizer to which special tokens are text; slow to make where the model has them."""
        hides = self.reachable
        return _hiding_twin(self.parsing, hides) if hides else plain_twin(self.parsing)

    @property
    def of_words(self) -> Any:
        """The tokenizer of a text of which :meth:`words` knows the words."""
        return self.parsing if self._is_searched else self.tokenizer

    def __getstate__(self) -> dict[str, Any]:
        """One of the two tokenizers; the library does not pickle ``encode_special_tokens``."""
        return {name: value for name, value in vars(self).items() if name != "tokenizer"}

    def encode_batch(self, texts: Sequence[str], parse_special: bool) -> list[list[int]]:
        is_parsing = parse_special or (
            self._is_searched and all(self._without_added(text) is not None for text in texts)
        )
        tokenizer = self.parsing if is_parsing else self.tokenizer
        if self.names_bytes:
            for text in texts:
                self._refuse_names(text)
        try:
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        except BaseException as error:  # a panic of a Rust library is no Exception
            refusal = library_error("the tokenizers library cannot encode this text", error)
            for text in texts:
                self._refuse_missing(text)
            raise refusal from error
        return [one.ids for one in encoded]

    def normalize(self, text: str) -> str | None:
        if not self._exact or self._has_mark(text):
            return None
        spelled = self._spelled(text)
        if spelled is None or self._has_mark(spelled) or (self._lacks and self._lacks(spelled)):
            return None
        if self.names_bytes and "<0x" in spelled:
            return None
        if self.spelling.lossy and spelled.encode().startswith(self.spelling.lossy):
            return None
        if not self._is_stable:
            source = self.spelling.plain_source(spelled.encode()).decode()
            if source != text and self._spelled(source) != spelled:
                return None
        return spelled

    def words(self, text: str) -> list[str] | None:
        """The words of a text, without the "▁" before each; None where they are not known.

        The ids of the text are those of its words, where `Stages.ends_words` is known.
        """
        normalized = self._without_added(text)
        if normalized is None:
            return None
        text = normalized
        if self.names_bytes and "<0x" in text:
            return None
        if self._ends_words == "space":
            words = text.replace("▁", " ").split(" ")
            # The library writes a space before a text that begins with none.
            return words if words[0] else words[1:]
        if "▁" in text or any(separator in text for separator in _SEPARATORS):
            return None
        return text.split()

    def _spelled(self, text: str) -> str | None:
        """What the ids decode to, where each character that is left has a token, or None."""
        if self._ends_words is not None:
            words = self.words(text)
            return None if words is None else " ".join(["", *words])
        # Without the library where it can be, which takes 40 ns a byte.
        if self.first_space is not None:
            text = self.first_space + text if text else text
        elif not (self._composes and text.isascii()):
            text = self._normalized(text)
        if self._metaspace:
            text = text.replace("▁", " ")
        if self._adds_space and text and text[0] != " ":
            text = " " + text
        return text

    def accepts(self, texts: Sequence[str]) -> bool:
        if self._doubtful is None or not self._accepts:
            return self._accepts
        return not self._adds_space and not any(map(self._doubtful, texts))

    def is_accepted(self, text: str) -> bool:
        if self._doubtful is not None and self._doubtful(" " * self._adds_space + text):
            return False
        if self._accepts or (self._accepts_ascii and text.isascii()):
            return True
        return self.normalize(text) is not None

    def keeps(self, spelled: bytes) -> bool:
        if self._ends_words is None:
            return False
        text = spelled.decode(errors="replace")
        return self._spelled(text) == text

    def _without_added(self, text: str) -> str | None:
        """The normalized text; None where an added token may be in the text."""
        if self._has_added is None:
            return self._normalized(text)
        if self._has_added(text):
            return None
        text = self._normalized(text)
        return None if self._has_added(text) else text

    def _has_mark(self, text: str) -> bool:
        return self._marks is not None and bool(self._marks(text))

    def _normalized(self, text: str) -> str:
        if self.parsing.normalizer is None:
            return text
        with library_errors("the tokenizers library cannot normalize this text"):
            return self.parsing.normalizer.normalize_str(text)

    def _is_normal(self, text: str) -> bool:
        """Whether normalization leaves a text as it is."""
        return self._normalized(text) == text

    def _refuse_names(self, text: str) -> None:
        name = BYTE_NAME.search(self._normalized(text))
        if name is not None:
            raise RobustokError(
                f"this tokenizer takes the text {name.group()!r} for a byte: the text cannot be "
                "tokenized exactly"
            )

    def _refuse_missing(self, text: str) -> None:
        """Raise RobustokError for the first character of ``text`` without a token, if any."""
        for character in dict.fromkeys(text):
            try:
                self.tokenizer.encode(character, add_special_tokens=False)
            except BaseException as error:
                library_error("", error)  # raises what is no error of the library
                raise RobustokError(
                    f"the vocabulary has no token for {character!r}: this text cannot be tokenized"
                ) from None


def _search_unknown(model: ModelTokens, ids: TokenIds) -> Callable[[str], object]:
    """A search for a character that is no token by itself; "▁" is a space."""
    lengths = np.fromiter(map(len, model.spellings), np.int64, len(model.spellings))
    single = np.flatnonzero((lengths == 1) & ids.is_ordinary[: len(lengths)]).tolist()
    known = sorted(model.spellings[i] for i in single)
    return re.compile(f"[^ {re.escape(''.join(known))}]").search


def _reachable(model: ModelTokens, special: list[str]) -> tuple[str, ...]:
    """The special tokens that the model itself would find in a text, where none are parsed."""
    inside = {content for content in special if model.id_of(content) is not None}
    is_all = model.kind == "Unigram" or model.ignore_merges
    return tuple(sorted(inside if is_all else model.merged(inside)))


def plain_twin(tokenizer: Any) -> Any:
    """A tokenizer of the same model, which takes 150 MB for Llama 3, to which special is text.

    It neither truncates nor pads, and adds no special tokens.
    """
    twin = Tokenizer(tokenizer.model)
    twin.normalizer, twin.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    added = tokenizer.get_added_tokens_decoder()
    ordered = [added[i] for i in sorted(added)]
    for special, tokens in itertools.groupby(ordered, lambda token: token.special):
        (twin.add_special_tokens if special else twin.add_tokens)(list(tokens))
    if {i: repr(t) for i, t in twin.get_added_tokens_decoder().items()} != {
        i: repr(t) for i, t in added.items()
    }:
        twin = Tokenizer.from_str(tokenizer.to_str())
        twin.no_truncation()
        twin.no_padding()
        twin.post_processor = None
    twin.encode_special_tokens = True
    return twin


def _hiding_twin(tokenizer: Any, hidden: Sequence[str]) -> Any:
    """:func:`plain_twin` of a model that would find special tokens, ``hidden``, in a text."""
    spec = json.loads(tokenizer.to_str())
    model = spec["model"]
    # Nobody can write a name that is chosen at random in this process.
    names = {content: f"{secrets.token_hex(16)}" for content in hidden}
    if model["type"] == "Unigram":
        model["vocab"] = [
            [names.get(spelling, spelling), score] for spelling, score in model["vocab"]
        ]
    else:
        model["vocab"] = {
            names.get(spelling, spelling): i for spelling, i in model["vocab"].items()
        }
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & {*names}]
    # They still keep other added tokens from being found within them. Last, since the model lacks
    # them here, so that they take new ids.
    spec["added_tokens"].sort(key=lambda token: token["content"] in names)
    twin = Tokenizer.from_str(json.dumps(spec))
    twin.encode_special_tokens = True
    return twin
