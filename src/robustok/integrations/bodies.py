"""Reads the prompts of ids in the JSON body of a request, by the path that it was sent to.

`ROWS` is one table of the fields of vLLM, SGLang and what is built on them: which path takes ids in
which field. A field is looked up where it stands, by the names from the top of the body to it; a
list stands for each of its values. A path is known by its end, since servers are mounted below any
other. ``json`` parses, after the values of the body have been counted: parsing holds the
interpreter lock, and its time depends on their number.

A body is refused where another reader could see other ids in it: keys that occur twice or in
another case, and what pydantic's lax mode turns into integers (``"83"``, ``83.0``, ``true``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError

IDS = "ids"  # a list of ids, or lists of them
TEXT = "ids or text"  # the same, where a list of digit strings is a list of texts
EXIST = "ids that are no prompt"  # they must be in the vocabulary, and are not judged
OTHER = "no ids"  # with all that is below it, but for fields named there
_KINDS = (IDS, TEXT, EXIST, OTHER)  # of two rows for a field the first of these holds
ANY = "any"  # path


class Row(NamedTuple):
    """Fields that hold the same: names from the top of a body, joined by dots."""

    server: str
    paths: str
    fields: str
    kind: str


_COMPLETIONS = "/v1/completions /v1/completions/render /invocations"
_CHAT = (
    "/v1/chat/completions /v1/chat/completions/render /v1/chat/completions/batch "
    "/v1/chat/completions/tokens /invocations"
)
_POOLING = "/v1/embeddings /v2/embed /pooling /classify /v1/classify /invocations"
_SCORES = "/score /v1/score /rerank /v1/rerank /v2/rerank /generative_scoring /invocations"
_RESPONSES = "/v1/responses /v1/responses/render"
_TEXTS = "/v1/messages /v1/messages/count_tokens /v1/messages/render /cohere/v2/chat /api/chat"
_NO_MODEL = "/detokenize /v1/detokenize /v1/completions/derender /v1/chat/completions/derender"

ROWS = (
    Row("OpenAI", _COMPLETIONS, "prompt", TEXT),
    Row("OpenAI", _POOLING, "input", TEXT),
    Row("vLLM, SGLang", _SCORES, "query queries documents items text_1 text_2 data_1 data_2", TEXT),
    Row("vLLM", "/inference/v1/generate", "token_ids", IDS),
    Row("vLLM", f"{_COMPLETIONS} {_CHAT}", "kv_transfer_params.prompt_token_ids", IDS),
    Row("SGLang", f"/generate /encode /classify {_CHAT}", "input_ids", IDS),
    Row("SGLang", "/vertex_generate", "instances.input_ids parameters.input_ids", IDS),
    Row("prime-rl", f"{_COMPLETIONS} {_CHAT}", "tokens", IDS),
    Row("Dynamo", f"{_COMPLETIONS} {_CHAT}", "nvext.token_data", IDS),
    Row("NeMo", f"{_CHAT} /tokenize", "required_prefix_token_ids messages.prompt_token_ids "
        "messages.generation_token_ids", IDS),
    Row("NeMo", _RESPONSES, "required_prefix_token_ids input.prompt_token_ids "
        "input.generation_token_ids", IDS),
    Row("Ollama", "/api/generate", "context", IDS),
    Row("Ollama", "/api/generate", "prompt", TEXT),
    Row("vLLM, SGLang", ANY, "stop_token_ids allowed_token_ids logprob_token_ids logit_bias "
        "bad_words_ids token_ids_logprob label_token_ids", EXIST),
    Row("vLLM, SGLang", ANY, "sampling_params.stop_token_ids sampling_params.allowed_token_ids "
        "sampling_params.logprob_token_ids sampling_params.prompt_logprob_token_ids "
        "sampling_params.trace_decode_token_ids sampling_params.logit_bias "
        "sampling_params.bad_words_ids sampling_params.token_ids_logprob", EXIST),
    Row("vLLM, SGLang", ANY, "stop bad_words stop_sequences stop_regex rid", OTHER),
    Row("vLLM, SGLang", _NO_MODEL, "tokens prompt_token_ids", EXIST),
    Row("vLLM, SGLang", _NO_MODEL, "generate_response generate_responses generate_chunk "
        "stream_state chat_request completion_request prompt_tokens",
        OTHER),
    Row("OpenAI", f"{_COMPLETIONS} {_CHAT} {_RESPONSES} {_TEXTS} /tokenize", "messages.content "
        "messages.tool_calls messages.function_call messages.tools tools tool_choice functions "
        "function_call response_format metadata documents prediction chat_template_kwargs", OTHER),
    Row("OpenAI", _RESPONSES, "input.arguments input.output input.action input.content "
        "text.format reasoning include prompt.variables", OTHER),
    Row("OpenAI", _TEXTS, "messages system output_config output_format bootstrap_room", OTHER),
    Row("vLLM, SGLang", f"/inference/v1/generate /generate /encode {_COMPLETIONS} {_CHAT} "
        f"{_POOLING} {_SCORES} {_RESPONSES}", "sampling_params structured_outputs guided_json "
        "kv_transfer_params ec_transfer_params vllm_xargs features token_offsets content_parts "
        "mm_processor_kwargs media_io_kwargs repetition_detection logprob_start_len "
        "top_logprobs_num return_logprob bootstrap_port bootstrap_room session_params "
        "custom_params lora_id images_config video_config multi_item_delimiter_indices "
        "decision_layout token_indices_to_pool num_items_assigned", OTHER),
    Row("Ollama", "/api/generate /api/chat", "options format", OTHER),
)  # fmt: skip

# All that `int` or pydantic's lax mode reads as an integer has a digit and none of these, which
# pydantic does even of "000-1".
_NO_INTEGER = re.compile(r"[^\s\d+\-_.]")
_DIGIT = re.compile(r"\d")
_INTEGER = re.compile(r"\s*[+-]?\d+\s*")
_DIGITS = 40  # characters of a key that are read as an integer
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STARTS = (b":", b"[", b"{")  # of a key's value, a list, an object
_NUMBERS = {int, float, bool}
_READ_AS_INTEGERS = _NUMBERS | {str}
_STEPS = 256  # of a loop in Python between two pauses, some 0.2 ms
_PAUSE = 0.0005
_SHORT = 1 << 16  # bytes of a body that is written in one go, characters that are searched in one
_LONG_INTEGER = 256  # digits; reading it takes time quadratic in them
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)


def pause() -> None:
    """Give up the interpreter lock for long enough that a waiting event loop gets it.

    A thread that computes in Python otherwise holds it for 5 ms at a time, and an event loop asks
    for it again after each call of the system.
    """
    time.sleep(_PAUSE)


class Refused(RobustokError):
    """A request that is not answered: one line for the client, and a short ``reason``.

    ``field`` is that of the body which is wrong, ``status`` that of the response. ``is_limit``:
    also refused by the policy ``log``.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        field: str | None = None,
        status: int = 400,
        is_limit: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason, self.field, self.status, self.is_limit = reason, field, status, is_limit


@dataclass
class Fields:
    """A tree of the fields of a table by their names, with what each of them holds."""

    kind: str | None = None
    below: dict[str, Fields] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)  # the names without regard to case

    def add(self, names: str, kind: str) -> None:
        """Set the kind of a field; ``names`` are those from the top of a body, joined by dots."""
        node = self
        for name in names.split("."):
            node.folded.add(name.casefold())
            node = node.below.setdefault(name, Fields())
        node.kind = min(node.kind or kind, kind, key=_KINDS.index)


_NOWHERE = Fields()
_PATHS = sorted({p for row in ROWS for p in row.paths.split()} - {ANY}, key=len, reverse=True)


def known_path(path: str) -> str | None:
    """The longest path of the table that ends ``path``; None for another one."""
    return next((known for known in _PATHS if path.rstrip("/").endswith(known)), None)


@cache
def fields_of(path: str | None, further: tuple[str, ...] = ()) -> Fields:
    """The fields of a known path, or of all paths (`ANY`), and ``further`` ones with ids."""
    tree = Fields()
    for row in ROWS:
        paths = row.paths.split()
        if path == ANY or path in paths or ANY in paths:
            for names in row.fields.split():
                tree.add(names, row.kind)
    for names in further:
        tree.add(names, IDS)
    return tree


class PromptIds(NamedTuple):
    """Ids of a body, and where they stand: ``holder[key]``."""

    ids: list[int]
    place: Place
    holder: Any = None
    key: Any = None


class Place(NamedTuple):
    """A place in a body, as a linked list from there to the top."""

    above: Place | None
    key: str | int

    def __str__(self) -> str:
        keys: list[str | int] = []
        at: Place | None = self
        while at is not None:
            keys.append(at.key)
            at = at.above
        parts = (f"[{k}]" if isinstance(k, int) else f".{k[:60]}" for k in reversed(keys))
        return "".join(parts).removeprefix(".")


@dataclass
class RequestBody:
    """A parsed body and its ids; ``unknown`` lists with integers are in no field of the table."""

    value: Any
    prompts: list[PromptIds]
    existing: list[PromptIds]  # ids that are no prompt
    unknown: int
    size: int  # in bytes

    @property
    def rows(self) -> list[list[int]]:
        """The ids of each prompt."""
        return [prompt.ids for prompt in self.prompts]

    def name(self, number: int) -> str:
        """The field of a prompt, such as ``prompt[1]``."""
        return str(self.prompts[number].place)

    def replaced(self, rows: dict[int, np.ndarray]) -> bytes:
        """The body with other ids in some rows, written anew; all other values stay as they are.

        ``rows``: ids by the number of the row, each int [n]. Raises Refused for infinite numbers.
        """
        for number, ids in rows.items():
            prompt = self.prompts[number]
            prompt.holder[prompt.key] = ids.tolist()
        try:
            if self.size < _SHORT:
                return json.dumps(self.value, allow_nan=False).encode()
            return b"".join(_written(self.value))
        except ValueError:
            raise Refused(
                "not-json", "the body has a number that JSON cannot write, such as 1e400 or NaN"
            ) from None
        except RecursionError:
            raise Refused("too-deep", "the body is nested too deeply", is_limit=True) from None


def _written(value: object) -> Iterator[bytes]:
    """JSON of a value, in parts: the encoder in C would hold the interpreter lock for all of it."""
    for step, part in enumerate(json.JSONEncoder(allow_nan=False).iterencode(value)):
        yield part.encode()
        if step % (4 * _STEPS) == 4 * _STEPS - 1:
            pause()


class Limits(NamedTuple):
    """What bounds the work that a body takes."""

    values: int  # lists, objects and keys
    items: int  # of all lists and objects together, ids included


def read_body(
    raw: bytes | bytearray, fields: Fields, limits: Limits, *, strict: bool = False
) -> RequestBody:
    """Parse a body and find its prompts of ids.

    ``strict``: whether to refuse integers in lists of fields that are not known.

    Takes time linear in the length of the body. Raises Refused for a body that is not JSON in
    UTF-8, has too many values, or a key twice or in another case than the table has it, or has a
    prompt that is neither text nor integers.
    """
    encoding = json.detect_encoding(raw)
    if not encoding.startswith("utf-8"):
        raise Refused("not-json", "the body is not JSON in UTF-8")
    _check_size(raw, limits)
    hooks = _Hooks()
    has_long_integer = b"0" * _LONG_INTEGER in raw.translate(_ZEROS)  # or a string has its digits
    try:
        # Decoded here: `json` also takes surrogates in bytes, at 0.2 µs for each of them.
        value = json.loads(
            raw.decode(encoding),
            object_pairs_hook=hooks.read_object,
            parse_float=hooks.read_float,
            parse_int=hooks.read_integer if has_long_integer else None,
        )
    except Refused:
        raise
    except RecursionError:
        raise Refused("too-deep", "the body is nested too deeply", is_limit=True) from None
    except ValueError:
        raise Refused("not-json", "the body is not JSON") from None
    reader = _IdReader(strict)
    reader.read(value, fields)
    return RequestBody(value, reader.prompts, reader.existing, reader.unknown, len(raw))


def _check_size(raw: bytes | bytearray, limits: Limits) -> None:
    """Raise Refused for a body with more values than ``limits``, before it is parsed."""
    starts, commas = sum(map(raw.count, _STARTS)), raw.count(b",")
    if starts <= limits.values and commas <= limits.items:
        return
    # Many of them may stand in strings.
    starts = commas = at = 0
    for step, string in enumerate(_STRING.finditer(raw)):
        begin = string.start()
        starts += sum(raw.count(start, at, begin) for start in _STARTS)
        commas += raw.count(b",", at, begin)
        at = string.end()
        if starts > limits.values or commas > limits.items or step > sum(limits):
            break
        if step % _STEPS == _STEPS - 1:
            pause()
    else:
        starts += sum(raw.count(start, at) for start in _STARTS)
        commas += raw.count(b",", at)
    if starts > limits.values:
        raise _too_many(f"the body has more than {limits.values} lists, objects and keys")
    if commas > limits.items:
        raise _too_many(f"the lists and objects of the body have more than {limits.items} values")


def _too_many(line: str) -> Refused:
    line = f"{line}; send fewer of them at a time"
    return Refused("too-many-values", line, status=413, is_limit=True)


class _Steps:
    """Counts the steps of a loop in Python, and pauses after each `_STEPS` of them."""

    def __init__(self) -> None:
        self._left = _STEPS

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = _STEPS
            pause()


class _Hooks(_Steps):
    """What the parser in C calls for what can take it long, so that others get the lock between.

    A float of a thousand digits that is halfway between two takes 0.1 ms, as an integer of 4,000.
    """

    def read_object(self, pairs: list[tuple[str, object]]) -> dict[str, Any]:
        """An object of its pairs; servers disagree on which of two equal keys counts."""
        self.step()
        value = dict(pairs)
        if len(value) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise Refused("duplicate-key", f"the body has the key '{key[:60]}' twice")
                seen.add(key)
        return value

    def read_float(self, text: str) -> float:
        self.step()
        return float(text)

    def read_integer(self, text: str) -> int:
        self.step()
        return int(text)


class _Unread(NamedTuple):
    """A list or an object that is not read yet: ``holder[key]``."""

    holder: Any
    key: Any
    place: Place | None
    fields: Fields  # below it
    kind: str | None
    is_nested: bool  # in a list


class _IdReader(_Steps):
    """Finds the ids of a parsed body, and what is like ids in fields that are not known."""

    def __init__(self, strict: bool) -> None:
        super().__init__()
        self.strict = strict
        self.prompts: list[PromptIds] = []  # in the order of the body
        self.existing: list[PromptIds] = []
        self.unknown = 0
        self._unread: list[_Unread] = []  # the next one last

    def read(self, body: object, fields: Fields) -> None:
        """Read all lists and objects of a body, from its begin to its end, without recursion."""
        self._unread.append(_Unread([body], 0, None, fields, None, False))
        while self._unread:
            at = self._unread.pop()
            value = at.holder[at.key]
            first = len(self._unread)
            if isinstance(value, dict):
                self._read_object(value, at)
            elif isinstance(value, list) and self._read_list(value, at):
                for i, inner in enumerate(value):
                    self.step()
                    if isinstance(inner, (dict, list)):
                        place = Place(at.place, i)
                        self._unread.append(_Unread(value, i, place, at.fields, at.kind, True))
            self._unread[first:] = reversed(self._unread[first:])

    def _read_object(self, value: dict[str, Any], at: _Unread) -> None:
        if at.kind == EXIST and at.place is not None:  # logit_bias: ids are the keys
            ids = [int(key[:_DIGITS]) for key in value if _INTEGER.fullmatch(key)]
            self.existing.append(PromptIds(ids, at.place))
            return
        for name, inner in value.items():
            self.step()
            below = at.fields.below.get(name)
            if below is None:
                self._check_case(name, at)
                below = _NOWHERE
            kind = below.kind or (OTHER if at.kind == OTHER else None)
            if isinstance(inner, (dict, list)) and (kind != OTHER or below.below):
                place = Place(at.place, name)
                self._unread.append(_Unread(value, name, place, below, kind, False))

    def _check_case(self, name: str, at: _Unread) -> None:
        """Raise Refused for a known name in another case: Go's JSON reads it as the known one."""
        if at.fields.folded and name.casefold() in at.fields.folded:
            place = str(Place(at.place, name))
            line = f"{place} is a known field in another case: write its name as the API does"
            raise Refused("other-case", line, field=place)

    def _read_list(self, value: list[Any], at: _Unread) -> bool:
        """Read a list; whether what is inside it is to be read, too."""
        types = set(map(type, value))
        if at.kind in _KINDS[:-1] and at.place is not None:
            if types == {int}:
                same_kind = self.existing if at.kind == EXIST else self.prompts
                same_kind.append(PromptIds(value, at.place, at.holder, at.key))
                return False
            if types & _NUMBERS:
                raise _not_ids(at.place, "must be a text, a list of integers, or lists of them")
            may_be_texts = at.kind == TEXT and not at.is_nested and not self.strict
            if not may_be_texts and _can_be_integers(value):
                raise _not_ids(at.place, "holds digits in strings: send integers or a text")
        elif at.kind is None and types & _READ_AS_INTEGERS and any(map(_is_integer, value)):
            self._count_unknown(at)
        return bool(types & {dict, list})

    def _count_unknown(self, at: _Unread) -> None:
        if self.strict:
            raise Refused(
                "unknown-field",
                f"{at.place or 'the body'} holds integers, and is no field that is known for this "
                "path: leave it out, or name it as a field with ids",
                field=str(at.place or ""),
            )
        self.unknown += 1


def _not_ids(place: Place, line: str) -> Refused:
    return Refused("not-ids", f"{place} {line}", field=str(place))


def _is_integer(value: object) -> bool:
    """Whether a lax reader could take a value as an integer."""
    if isinstance(value, str):
        return _can_be_digits(value)
    return type(value) in _NUMBERS and not (isinstance(value, float) and value % 1 != 0)


def _can_be_digits(text: str) -> bool:
    has_digit = False
    for begin in range(0, len(text), _SHORT):
        if begin:
            pause()
        end = begin + _SHORT
        if _NO_INTEGER.search(text, begin, end):
            return False
        has_digit = has_digit or _DIGIT.search(text, begin, end) is not None
    return has_digit


def _can_be_integers(values: list[object]) -> bool:
    """Whether a lax reader could take all values as integers, of which there is one at least."""
    return any(v is not None for v in values) and all(v is None or _is_integer(v) for v in values)
