"""The JSON body of a request: which of its lists of integers are prompts, and the body with others.

The integers never become Python objects. `kernels.json_ids` finds the lists of integers and
shortens strings, and ``json`` reads the rest, whose size is limited. Fields are looked up by name
at any depth, so that the routes of vLLM, SGLang and other servers are covered without a list of
routes. A body is refused where another reader could see other ids in it: doubled keys, and what
pydantic's lax mode turns into integers (``"83"``, ``83.0``, ``true``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.json_ids import LONG_KEY, SCANNED, TOO_DEEP, Lists, find_lists
from robustok.ragged import Ragged

MAX_VALUES = 1 << 15  # of a body, beside integers in lists
MAX_NAME = LONG_KEY // 6 - 2  # characters of a field's name, each of which may be an escape of six
_MAX_DEPTH = 100  # open brackets; a parser of Python's gives up at about 1,000

# Fields that hold a prompt. `TEXT`: vLLM's and SGLang's request models take texts as well, so a
# list of digit strings is a list of texts. `IDS`: another server may take integers only.
IDS, TEXT, OTHER = "ids", "text", "other"
FIELDS: dict[str, str] = {
    **dict.fromkeys((
        "prompt", "input", "text", "texts", "content", "query", "queries", "document",
        "documents", "items", "text_1", "text_2", "data_1", "data_2",
    ), TEXT),
    **dict.fromkeys((
        "prompt_token_ids", "prompt_ids", "prompt_tokens", "prompts", "input_ids", "input_tokens",
        "inputs", "token_ids", "tokens", "suffix", "suffix_ids", "suffix_token_ids", "prefix",
        "prefix_ids", "prefix_token_ids", "context", "context_ids", "context_token_ids",
        "encoder_prompt", "encoder_prompt_token_ids", "decoder_prompt", "decoder_prompt_token_ids",
        "decoder_input_ids", "instruction", "instruct",
    ), IDS),
    # Integers of these are no prompt; they matter only where unknown lists are refused.
    **dict.fromkeys((
        "stop_token_ids", "allowed_token_ids", "bad_words_ids", "logprob_token_ids",
        "token_ids_logprob", "label_token_ids", "logprob_start_len", "top_logprobs_num",
        "return_logprob", "return_sampling_mask", "return_hidden_states", "bootstrap_port",
        "bootstrap_room", "decode_tp_size", "multi_item_delimiter_indices", "bytes", "enum",
    ), OTHER),
}  # fmt: skip
# All that `int` or pydantic's lax mode reads as an integer, which pydantic does even of "000-1".
_DIGITS = re.compile(r"[\s+\-_.]*\d[\s\d+\-_.]*")
_NUMBERS = {int, float, bool}


class Refused(RobustokError):
    """A request that is not answered: one line for the client, and a short ``reason``.

    ``status`` is that of the response. ``is_limit``: also refused by the policy ``log``.
    """

    def __init__(
        self, reason: str, message: str, *, status: int = 400, is_limit: bool = False
    ) -> None:
        super().__init__(message)
        self.reason, self.status, self.is_limit = reason, status, is_limit


@dataclass(frozen=True)
class RequestBody:
    """A body and its prompts of ids: ``rows[i]`` is the list ``raw[begin:end]`` of ``spans[i]``."""

    raw: bytes | bytearray
    rows: Ragged
    spans: np.ndarray  # int64 [rows, 2]

    def replaced(self, rows: dict[int, np.ndarray]) -> bytes:
        """The body with other ids in some rows; every other byte stays as it is.

        >>> read_body(b'{"prompt": [83, 258], "n":1}').replaced({0: np.array([266])})
        b'{"prompt": [266], "n":1}'

        Args:
            rows: ids by the number of the row, each int [n].
        """
        order = sorted(rows, key=lambda row: int(self.spans[row, 0]))
        parts, at = [], 0
        for row in order:
            begin, end = self.spans[row].tolist()
            parts += [bytes(self.raw[at:begin]), json.dumps(rows[row].tolist()).encode()]
            at = end
        return b"".join([*parts, bytes(self.raw[at:])])


def read_body(
    raw: bytes | bytearray,
    *,
    fields: tuple[str, ...] = (),
    strict: bool = False,
    max_values: int = MAX_VALUES,
) -> RequestBody:
    """The prompts of ids in a JSON body.

    >>> read_body(b'{"prompt": [[83, 258], "the"], "seed": 0}').rows[0]
    array([ 83, 258], dtype=int32)

    Args:
        raw: the body.
        fields: names of further fields with ids, of at most `MAX_NAME` characters.
        strict: whether lists of what can be read as integers are refused in unknown fields.
        max_values: greatest number of values beside integers in lists.

    Takes time linear in the length of the body and releases the interpreter lock while it reads
    ids. Raises Refused for a body that is not JSON in UTF-8, is too large or too deep, has a key
    twice, or has a prompt that is neither text nor integers.
    """
    if not json.detect_encoding(raw).startswith("utf-8"):
        raise Refused("not-json", "the body is not JSON in UTF-8")
    lists = find_lists(raw, max_values, _MAX_DEPTH)
    if lists.state == TOO_DEEP:
        raise Refused(
            "too-deep", f"the body has more than {_MAX_DEPTH} open brackets", is_limit=True
        )
    if lists.state != SCANNED:
        raise Refused(
            "too-many-values",
            f"the body has more than {max_values} values beside ids; send fewer of them at a time",
            status=413, is_limit=True,
        )  # fmt: skip
    try:
        value = json.loads(lists.skeleton, object_pairs_hook=_unique)
    except Refused:
        raise
    except (ValueError, RecursionError):
        raise Refused("not-json", "the body is not JSON") from None
    known = {**FIELDS, **dict.fromkeys(fields, IDS)}
    return _with_rows(raw, lists, sorted(_prompts(value, known, strict, lists.offsets)))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of ``pairs``; servers disagree on which of two equal keys counts."""
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Refused("duplicate-key", f"the body has the key '{key[:60]}' twice")
            seen.add(key)
    return value


def _prompts(body: Any, known: dict[str, str], strict: bool, offsets: np.ndarray) -> list[int]:
    """The numbers of the lists that are prompts.

    In ``body`` a list of integers is ``[its number]``, and a text is "0" where an integer could be
    read from it, else "": see `kernels.json_ids`.
    """
    prompts = []
    open_values: list[tuple[Any, str | None, str, bool]] = [(body, IDS, "the body", False)]
    while open_values:
        value, kind, name, nested = open_values.pop()
        if isinstance(value, dict):
            open_values += [(v, known.get(k), f"'{k[:60]}'", False) for k, v in value.items()
                            if isinstance(v, (dict, list))]  # fmt: skip
            continue
        if not isinstance(value, list):
            continue
        types = set(map(type, value))
        if types == {int}:
            (number,) = value
            if offsets[number] < offsets[number + 1]:
                if kind in (IDS, TEXT):
                    prompts.append(number)
                elif strict and kind is None:
                    raise _unknown(name)
            continue
        if kind in (IDS, TEXT) and types & _NUMBERS:
            raise Refused("not-ids", f"{name} must be a text, a list of integers, or lists of them")
        if kind != OTHER and _can_be_integers(value):
            if kind is None and strict:
                raise _unknown(name)
            if kind == IDS or (kind == TEXT and (nested or strict)):
                raise Refused("not-ids", f"{name} holds digits in strings: send integers or a text")
        open_values += [(v, kind, name, True) for v in value if isinstance(v, (dict, list))]
    return prompts


def _unknown(name: str) -> Refused:
    return Refused(
        "unknown-field",
        f"{name} holds integers, and is no field that is known: leave it out, or name it as a "
        "field with ids",
    )


def _can_be_integers(values: list[Any]) -> bool:
    """Whether a lax reader could take all values as integers, of which there is one at least."""
    some = False
    for value in values:
        if value is None:
            continue
        some = True
        if isinstance(value, str):
            if not _DIGITS.fullmatch(value):
                return False
        elif type(value) not in _NUMBERS or (isinstance(value, float) and value % 1 != 0):
            return False
    return some


def _with_rows(raw: bytes | bytearray, lists: Lists, numbers: list[int]) -> RequestBody:
    if len(numbers) == len(lists.spans):
        return RequestBody(raw, Ragged(lists.values, lists.offsets), lists.spans)
    rows = [lists.values[lists.offsets[i] : lists.offsets[i + 1]] for i in numbers]
    return RequestBody(raw, Ragged.from_rows(rows), lists.spans[numbers].reshape(-1, 2))
