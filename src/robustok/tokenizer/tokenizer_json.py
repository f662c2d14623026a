"""A tokenizer.json as plain data: byte-level BPE, SentencePiece-style BPE and Unigram.

What each id spells in a text, and which ids a draw may use, read from the JSON alone. What it does
not read: WordPiece and WordLevel, whose tokens are not parts of the text's bytes.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.tokenizer.data import (
    USED_BYTES,
    Spelling,
    TokenizerData,
    byte_alphabet,
    library_errors,
)
from robustok.tokenizer.stages import Stages
from robustok.tokenizer.tokenizers_api import (
    BYTE_NAME,
    HAS_PARTS,
    AddedToken,
    TokenizersEncoder,
    added_tokens_of,
    json_of,
    library_ids,
    name_of,
    normalizer_of,
    open_json,
    parts_of,
    tokenizer_json,
)

_ANY_BYTE_NAME = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # as its decoder reads it
_HOLES = 1 << 10  # ids without a token that a small vocabulary may have
# A character of the byte-level alphabet to the one of its byte, others to one that is no byte.
_NO_BYTE = 256
_BYTES = dict.fromkeys(range(256), _NO_BYTE) | {ord(c): b for c, b in byte_alphabet().items()}

Normalize = Callable[[str], str]


def from_json(text: str, name: str) -> TokenizerData:
    """The tokenizer of a tokenizer.json; ``name`` is what messages call it."""
    with errors_name(name):
        spec = json.loads(text)
        model = spec["model"]
        _check_kind(model)
        has_settings = _remove_settings(spec)
        tokenizer = None
        if HAS_PARTS or not has_settings:  # 1.0 refuses any dropout
            tokenizer = open_json(text)  # the library refuses what is malformed, also in a setting
        return _read(open_json(json.dumps(spec)) if has_settings else tokenizer, spec)


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


def _check_kind(model: dict) -> None:
    """Raise RobustokError for a kind of model, or a setting, that is not supported."""
    kind = model.get("type") or ("Unigram" if isinstance(model.get("vocab"), list) else "BPE")
    if kind not in ("BPE", "Unigram"):
        raise RobustokError(
            f"a {kind} tokenizer is not supported, its tokens are not bytes of the text "
            "(supported: BPE and Unigram)"
        )
    for affix in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(affix):
            raise RobustokError(f"BPE with {affix} {model[affix]!r} is not supported")


def _remove_settings(spec: dict) -> bool:
    """Remove randomness and what changes the length of rows; whether there was any."""
    model = spec["model"]
    dropout = model.get("dropout")
    if dropout is not None and not 0.0 <= dropout <= 1.0:
        raise RobustokError(f"its dropout of {dropout} is no probability")
    before = dropout, spec.get("truncation"), spec.get("padding")
    if any(setting is not None for setting in before):
        model["dropout"] = spec["truncation"] = spec["padding"] = None
        return True
    return False


def _read(tokenizer: Any, spec: dict) -> TokenizerData:
    parts = parts_of(tokenizer, spec)
    stages = Stages.of_parts(parts)
    normalize = normalizer_of(tokenizer, parts["normalizer"])
    model = ModelTokens(spec["model"], tokenizer)
    if not any(model.names):
        raise RobustokError("its model has no tokens")
    added = added_tokens_of(tokenizer, spec)
    _check_added(added, model.names, normalize)
    ids = TokenIds(tokenizer, model, added, stages, normalize)
    spelling, is_bpe = ids.spelling, model.kind == "BPE"
    if is_bpe and not ids.complete and model.unknown_name is None:
        # A name of no token, so that the library raises where it would leave out a character.
        spec["model"]["unk_token"] = "<unk>" * (1 + max(map(len, model.names)))
        tokenizer = open_json(json.dumps(spec))
    hidden = model.reachable(_control_tokens(added, spelling))
    encoder = TokenizersEncoder(tokenizer, hidden, parts["normalizer"], ids.complete)
    only_special = all(token.special for token in added.values()) and not spelling.words
    return TokenizerData(
        tokens=ids.tokens,
        ordinary=array("i", np.flatnonzero(ids.is_ordinary).astype(np.int32).tobytes()),
        byte_fallback=frozenset(ids.fallback),
        encoder=encoder,
        family=f"{'byte-level' if stages.byte_level else 'sentencepiece'} {model.kind}",
        read_merges=_read_merges if is_bpe else None,
        scores=None if is_bpe else dict(enumerate(model.scores)),
        library=tokenizer,
        stages=stages,
        added=added,
        spelling=spelling,
        spells_all=ids.complete and stages.spells_text and only_special,
    )


def _control_tokens(added: dict[int, AddedToken], spelling: Spelling) -> set[str]:
    """The special tokens that are no text: neither words, nor the unknown token that spells it."""
    text = {*spelling.words} | ({spelling.unknown} & spelling.placed)
    return {t.content for i, t in added.items() if t.special and t.content and i not in text}


def _merges_of(model: dict) -> list[list[str]]:
    """The merges of a BPE, in order, which older files have as text."""
    merges = model["merges"]
    return [m.split(" ") for m in merges] if merges and isinstance(merges[0], str) else merges


def _read_merges(data: TokenizerData) -> np.ndarray:
    """The merges of a BPE, as `TokenizerData` has them."""
    model = json.loads(json_of(data.library))["model"]
    left, right = zip(*_merges_of(model), strict=True) if model["merges"] else ((), ())
    columns = left, right, map(operator.add, left, right)
    ids = np.array([[*map(model["vocab"].__getitem__, column)] for column in columns], np.int32)
    return ids.T.copy()


class ModelTokens:
    """The model of a tokenizer: the spelling of each id, and its settings.

    ``names``: the spellings by id, "" where there is no token. ``ids``: the id of each spelling.
    ``scores``: those of a Unigram model.
    ``unknown_name``: that of the unknown token, which need not be in the vocabulary.
    """

    def __init__(self, model: dict, tokenizer: Any) -> None:
        self.kind = "BPE" if isinstance(model["vocab"], dict) else "Unigram"
        self._model = model
        self.byte_fallback = bool(model.get("byte_fallback"))
        self.ignore_merges = bool(model.get("ignore_merges"))
        self.scores: list[float] = []
        self.ids: dict[str, int]
        self.unknown_name: str | None
        self.unknown: int | None
        if self.kind == "BPE":
            self.ids = model["vocab"]
            self.unknown_name = model.get("unk_token")
            self.unknown = None if self.unknown_name is None else self.ids.get(self.unknown_name)
        else:
            self.ids = {name: i for i, (name, _) in enumerate(model["vocab"])}
            self.scores = [score for _, score in model["vocab"]]
            self.unknown = model.get("unk_id")
            self.unknown_name = None if self.unknown is None else model["vocab"][self.unknown][0]
        self.names = self._names(tokenizer)

    def _names(self, tokenizer: Any) -> list[str]:
        """The spellings by id; raises RobustokError where two have one id, or many have none."""
        size = 1 + max(self.ids.values(), default=-1)
        if size > len(self.ids):
            check_holes(tokenizer, self.ids)
        names = [""] * size
        for spelling, i in sorted(self.ids.items()) if size != len(self.ids) else self.ids.items():
            if names[i]:
                raise RobustokError(f"tokens {names[i]!r} and {spelling!r} have the same id {i}")
            names[i] = spelling
        return names

    def reachable(self, contents: set[str]) -> tuple[str, ...]:
        """Those of some texts, none of them `merged`, that the model itself finds in a text."""
        is_all = self.kind == "Unigram" or self.ignore_merges
        return tuple(sorted(contents & self.ids.keys())) if is_all else ()

    def merged(self, contents: set[str]) -> set[str]:
        """Those of some tokens to which the merges of a BPE bring their characters."""
        results = [*contents.intersection(map("".join, _merges_of(self._model)))]
        rows: list[list[int]] = []
        if results:
            alone = self._model | {"type": "BPE", "ignore_merges": False, "unk_token": None}
            rows = library_ids(open_json(tokenizer_json(alone, None)), results, True)
        pairs = zip(results, rows, strict=True)
        whole = {content for content, ids in pairs if ids == [self.ids[content]]}
        return whole | {content for content in contents if len(content) == 1}


def check_holes(tokenizer: Any, ids: dict[str, int]) -> None:
    """Raise RobustokError where ids have many holes, or lose tokens when saved and pickled."""
    largest = max(ids.values(), default=-1)
    if largest < len(ids):
        return
    if largest < 2 * len(ids) + _HOLES and (
        not HAS_PARTS or open_json(json_of(tokenizer)).get_vocab() == tokenizer.get_vocab()
    ):
        return
    raise RobustokError(
        f"its {len(ids)} tokens have ids up to {largest}: too many ids without a token, or more "
        "than the tokenizers library saves, or one that it gave to an added token, too"
    )


def _check_added(
    added: dict[int, AddedToken], names: list[str], normalize: Normalize | None
) -> None:
    """Raise RobustokError where an added token has the id or the normalized text of another one."""
    matched: dict[str, str] = {}  # what the library looks for in normalized text: the token
    for i, token in added.items():
        taken = names[i] if i < len(names) else ""
        if taken not in ("", token.content):
            raise RobustokError(f"added token {token.content!r} gets the id {i} of token {taken!r}")
        if not (token.normalized and token.content) or normalize is None:
            continue
        with library_errors("the tokenizers library cannot normalize an added token"):
            text = normalize(token.content)
        other = matched.setdefault(text, token.content)
        if not text or other != token.content:
            others = f"one text of the added tokens {other!r} and" if text else "nothing of"
            raise RobustokError(
                f"the normalizer makes {others} {token.content!r}, which the tokenizers library "
                "cannot find then: set normalized=False"
            )


class TokenIds:
    """What each id of a tokenizer is (see `data`).

    | an id | its bytes | it is |
    |---|---|---|
    | the unknown token | its name | placed, or special where every text has tokens |
    | a special token that is no word | its name | special |
    | an added token that the model lacks | what the decoder writes | placed |
    | a token whose place counts (`_stays`) | what the decoder writes | placed |
    | every other one | what the decoder writes | ordinary |

    ``tokens``: the bytes of every id. ``is_ordinary``: bool [ids], of which ``fallback`` are those
    of the byte fallback. ``complete``: every text has a token for each character or for each of its
    bytes. ``spelling``: where all others stand.
    """

    def __init__(
        self,
        tokenizer: Any,
        model: ModelTokens,
        added: dict[int, AddedToken],
        stages: Stages,
        normalize: Normalize | None,
    ) -> None:
        self._stages, self._model, self._added = stages, model, added
        self._tokenizer, self._normalize = tokenizer, normalize
        self._words = _words(model, {t.content for t in added.values() if t.special and t.content})
        self._falls_back, self._is_byte_level = model.byte_fallback, stages.byte_level
        self.fallback: set[int] = set()
        self._placed: set[int] = set()
        size = len(model.names)
        self.tokens, apart = self._read_at_once()
        apart |= {i for i in {*added, model.unknown} - {None} if i < size}
        self.tokens += [b""] * (max(added, default=-1) + 1 - size)
        self.is_ordinary = np.arange(len(self.tokens)) < size
        self.is_ordinary[[*apart]] = False
        for i in sorted({*added} | {i for i in apart if model.names[i]}):
            self._read_one(i)
        self.complete = self._is_complete()
        if not self.complete and model.unknown is not None:
            self._placed.add(model.unknown)
        self.spelling = self._read_spelling()
        self._check_names()

    def _read_one(self, i: int) -> None:
        """Note what an id is that is added, unknown, or not read with all others at once."""
        token, names = self._added.get(i), self._model.names
        name = names[i] if i < len(names) else ""
        if i == self._model.unknown or self._is_control(token):
            self.tokens[i] = (name or (token.content if token else "")).encode()
            return
        shown = name if token is None else name_of(self._tokenizer, i)
        self.tokens[i] = text = self._decoded(shown)
        if not name or self._stays(token, name, shown):
            self._placed.add(i)
        elif text:
            self.is_ordinary[i] = True
            if self._falls_back and BYTE_NAME.fullmatch(name):
                self.fallback.add(i)

    def _is_control(self, token: AddedToken | None) -> bool:
        """Whether an added token is special and no word."""
        return token is not None and token.special and token.content not in self._words

    def _stays(self, token: AddedToken | None, name: str, shown: str) -> bool:
        """Whether a token of the model, which the decoder reads as ``shown``, keeps its place."""
        # The decoder keeps a space at the start of a text, where it leaves out a mark.
        if self._stages.first_loses_marks and " " in shown:
            return True
        if self._decoded(shown) != self._read(name):
            return True
        if token is None:  # no text gives what is not in the alphabet
            return self._is_byte_level and _in_alphabet(name) is None
        # The parts of a text around added tokens may get a space of their own.
        has_space = self._stages.prepends or self._stages.adds_space
        return not token.special and (token.lstrip or token.rstrip or has_space)

    def _read_spelling(self) -> Spelling:
        """Where ids stand that are not ordinary, and what is written around a text."""
        stages, added = self._stages, self._added
        raw = {i: t for i, t in added.items() if not t.special}
        return Spelling(
            placed=frozenset(self._placed),
            unknown=self._model.unknown,
            prefix=self._decoded(self._written_before()),
            contents=self._contents(raw),
            restarts=frozenset(i for i, token in raw.items() if not token.normalized),
            marked=stages.metaspace,
            words=frozenset(i for i, t in added.items() if t.content in self._words),
            lossy=self._lossy() if stages.first_loses_marks else (),
            adds_space=stages.adds_space and not stages.prepends,
        )

    def _written_before(self) -> str:
        """What the normalizer writes before each text."""
        if not self._stages.prepends or self._normalize is None:
            return ""
        with library_errors("the tokenizers library cannot normalize a text"):
            return self._normalize("a")[:-1]

    def _check_names(self) -> None:
        """Raise RobustokError where a text of names, as those of bytes, has other ids."""
        added = self._added
        unknown = None if self._model.unknown is None else added.get(self._model.unknown)
        if unknown is not None and not unknown.special:
            raise RobustokError(
                f"its unknown token {unknown.content!r} is an added token that is not special: set "
                "special=True"
            )
        if self.fallback and self._stages.decoders and not self._stages.decodes_names:
            raise RobustokError(
                "its decoder does not read the byte tokens of the vocabulary, such as <0x0A>: "
                "drawn ids would not decode to the text"
            )
        names = [name_of(self._tokenizer, i) for i in added]  # as the normalizer leaves them
        names += [token.content for token in added.values()] if self._falls_back else []
        named = [name for name in names if _ANY_BYTE_NAME.fullmatch(name)]
        if named and self._reads_names:
            raise RobustokError(
                f"it reads the added token {named[0]!r} as a byte: drawn ids would not decode to "
                "the text"
            )

    def _read_at_once(self) -> tuple[list[bytes], set[int]]:
        """The bytes of the tokens of the model by id, and the ids that have to be read one by one.

        These are names of bytes, tokens outside the byte-level alphabet, those with
        a space where the decoder may keep it, and ids without a token.
        """
        names = self._model.names
        apart = {i for i, name in enumerate(names) if not name or name[:3] == "<0x"}
        if self._stages.first_loses_marks:
            apart |= {i for i, name in enumerate(names) if " " in name}
        if not self._is_byte_level:
            mark = "▁" if self._stages.metaspace else " "
            return [name.replace(mark, " ").encode() for name in names], apart
        text = "".join(names).translate(_BYTES)
        raw = text.encode("latin-1", "replace")
        ends = [*itertools.accumulate(map(len, names))]
        outside = np.flatnonzero(np.frombuffer(text.encode("utf-32-le"), np.uint32) >= _NO_BYTE)
        apart |= {*np.searchsorted(ends, outside, "right").tolist()}
        return [raw[begin:end] for begin, end in zip([0, *ends], ends, strict=False)], apart

    def _contents(self, raw: dict[int, AddedToken]) -> dict[int, bytes]:
        """The text that the matcher finds, of added tokens that have other bytes."""
        contents: dict[int, bytes] = {}
        for i, token in raw.items():
            if token.normalized and self._stages.metaspace:
                continue
            content = name_of(self._tokenizer, i) if token.normalized else token.content
            if content.encode() != self.tokens[i]:
                contents[i] = content.encode()
        return contents

    @property
    def _reads_names(self) -> bool:
        """Whether the decoder writes the byte that a token such as ``<0x0A>`` names."""
        return self._stages.decodes_names or self._falls_back

    def _read(self, spelling: str) -> bytes:
        """The bytes of a text that the model reads as a token."""
        if self._falls_back and BYTE_NAME.fullmatch(spelling):
            return bytes([int(spelling[3:5], 16)])
        if self._is_byte_level:
            read = _in_alphabet(spelling)
            return spelling.encode() if read is None else read
        return (spelling.replace("▁", " ") if self._stages.metaspace else spelling).encode()

    def _decoded(self, spelling: str) -> bytes:
        """What the decoder writes for a token."""
        if self._reads_names and _ANY_BYTE_NAME.fullmatch(spelling):
            return bytes([int(spelling[3:5], 16)])
        return self._read(spelling)

    def _is_complete(self) -> bool:
        id_of = self._model.ids.get
        if self._stages.byte_level:
            ids = {i for letter in byte_alphabet() if (i := id_of(letter)) is not None}
            ones = {self.tokens[i] for i in (*ids, *self._added) if self.is_ordinary[i]}
            single = {token[0] for token in ones if len(token) == 1}
        elif self._falls_back:
            single = {self.tokens[i][0] for i in self.fallback}
            letters = {b: id_of(chr(b)) for b in range(128)}
            single |= {b for b, i in letters.items() if i is not None and self.is_ordinary[i]}
            if self._stages.metaspace:  # read as "▁", which is a token or three bytes
                single.add(ord(" "))
        else:
            return False
        return single >= USED_BYTES

    def _lossy(self) -> tuple[bytes, ...]:
        """The tokens with a "▁" that the decoder leaves out at the start of a text and no other."""
        names = dict(enumerate(self._model.names))
        # It reads added tokens as the normalizer leaves them.
        names |= {i: name_of(self._tokenizer, i) for i in self._added}
        some = [i for i, name in names.items() if "▁" in name[1:]]
        return tuple(self.tokens[i] for i in some if self.is_ordinary[i] or i in self._placed)


def _in_alphabet(spelling: str) -> bytes | None:
    """The bytes of a spelling in the byte-level alphabet; None for one with another character."""
    try:
        return spelling.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError:
        return None


def _words(model: ModelTokens, contents: set[str]) -> frozenset[str]:
    """The special tokens that the model was trained to read in a text, such as a padding "!".

    Of a Unigram model, those of letters and digits, or of one character, with a score.
    """
    inside = contents & model.ids.keys()
    if model.kind == "BPE":
        return frozenset(model.merged(inside))
    words = {c for c in inside if len(c) == 1 or c.isalnum()}
    return frozenset(c for c in words if model.scores[model.ids[c]] < 0.0)
