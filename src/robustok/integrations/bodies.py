"""Reads the prompts of ids in the JSON body of a request, from the fields of known APIs.

`ROWS` is one table of the APIs: which field holds what. A field is looked up where it stands, by
the names from the top of the body to it; a list stands for each of its values. The URL decides
nothing, since servers are mounted below any path. ``json`` parses, after the values of the body
have been counted: parsing holds the interpreter lock, and its time depends on their number.

A body is refused where another reader could see other ids in it: doubled keys, and what pydantic's
lax mode turns into integers (``"83"``, ``83.0``, ``true``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from robustok.errors import RobustokError

IDS = "ids"  # a list of ids, or lists of them
TEXT = "ids or text"  # the same, where a list of digit strings is a list of texts
TENSOR = "ids of fixed length"  # as IDS, and never repaired; of KServe, where its name says ids
ENCODED = "ids in another form"  # refused: the guard does not read it
OTHER = "no prompt"  # with all that is below it
_JUDGED = (IDS, TEXT, TENSOR)


class Row(NamedTuple):
    """Fields of an API that hold the same: names from the top of a body, joined by dots."""

    api: str
    fields: str
    kind: str


ROWS = (
    Row("OpenAI completions", "prompt", TEXT),
    Row("OpenAI completions", "suffix", TEXT),
    Row("OpenAI completions", "stop logit_bias", OTHER),
    Row("OpenAI chat", "messages.content messages.content.text prediction.content", TEXT),
    Row("OpenAI chat", "messages.tool_calls messages.function_call messages.tools tools "
        "tool_choice functions response_format metadata modalities", OTHER),
    Row("OpenAI embeddings", "input", TEXT),
    Row("OpenAI responses", "input.content input.content.text instructions", TEXT),
    Row("OpenAI responses", "input.arguments input.output input.action text.format include "
        "prompt.variables", OTHER),
    Row("Anthropic messages", "system system.text messages.content.content "
        "messages.content.content.text", TEXT),
    Row("Anthropic messages", "messages.content.input messages.content.source "
        "messages.content.content.source stop_sequences betas output_config output_format", OTHER),
    Row("vLLM completions", "prompt.prompt_token_ids prompt.encoder_prompt prompt.decoder_prompt "
        "prompt.encoder_prompt.prompt_token_ids prompt.decoder_prompt.prompt_token_ids", IDS),
    Row("vLLM generate, render", "token_ids", IDS),
    Row("vLLM chat", "messages.token_ids messages.content.tokens", IDS),
    Row("vLLM score, rerank", "query queries documents items text_1 text_2 data_1 data_2", TEXT),
    Row("vLLM score, rerank", "query.content.text queries.content.text documents.text "
        "documents.content.text items.content.text data_1.content.text data_2.content.text", TEXT),
    Row("vLLM", "stop_token_ids allowed_token_ids logprob_token_ids bad_words bad_words_ids "
        "structured_outputs guided_json guided_choice vllm_xargs kv_transfer_params "
        "ec_transfer_params mm_processor_kwargs media_io_kwargs chat_template_kwargs features "
        "repetition_detection", OTHER),
    Row("vLLM, SGLang tokenize", "tokens choices", OTHER),  # runs no model
    Row("SGLang generate, encode", "text", TEXT),
    Row("SGLang generate, encode", "input_ids", IDS),
    Row("SGLang score", "label_token_ids", OTHER),
    Row("SGLang", "sampling_params token_ids_logprob logprob_start_len top_logprobs_num "
        "return_logprob return_hidden_states return_sampling_mask bootstrap_host bootstrap_port "
        "bootstrap_room bootstrap_pair_key decode_tp_size session_params custom_params "
        "stop_regex rid lora_path lora_id extra_key cache_salt mm_hashes mm_content_hashes "
        "images_config video_config multi_item_delimiter_indices questions", OTHER),
    Row("SGLang vertex", "instances.input_ids parameters.input_ids", IDS),
    Row("SGLang vertex", "instances.text parameters.text", TEXT),
    Row("llama.cpp", "content input_prefix input_suffix input_extra.text prompt.prompt_string",
        TEXT),
    Row("llama.cpp", "prompt.multimodal_data samplers dry_sequence_breakers lora "
        "json_schema grammar_triggers preserved_tokens response_fields", OTHER),
    Row("Ollama", "context", IDS),
    Row("Ollama", "options format images messages.images", OTHER),
    Row("TGI, TEI", "inputs texts", TEXT),
    Row("TGI, TEI", "parameters ids", OTHER),
    Row("TensorRT-LLM", "prompt_token_ids", IDS),
    Row("TensorRT-LLM", "prompt_token_ids_b64", ENCODED),
    Row("TensorRT-LLM", "disaggregated_params.first_gen_tokens disaggregated_params.draft_tokens",
        TENSOR),
    Row("TensorRT-LLM", "disaggregated_params conversation_params lora_request", OTHER),
    Row("KServe v1", "instances", TEXT),
    Row("KServe v1", "instances.prompt instances.data instances.inputs", TEXT),
    Row("KServe v2", "inputs.data", TENSOR),
    Row("KServe v2", "inputs.shape inputs.parameters outputs", OTHER),
)  # fmt: skip
# Names of a KServe tensor that holds ids.
TENSORS = ("input_ids", "decoder_input_ids", "prompt_token_ids", "token_ids", "tokens")

# All that `int` or pydantic's lax mode reads as an integer has a digit and none of these, which
# pydantic does even of "000-1".
_NO_INTEGER = re.compile(r"[^\s\d+\-_.]")
_DIGIT = re.compile(r"\d")
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

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Fields:
        """The tree of some rows; of two rows for a field the later one holds."""
        tree = cls()
        for row in rows:
            for path in row.fields.split():
                node = tree
                for name in path.split("."):
                    node = node.below.setdefault(name, cls())
                node.kind = row.kind
        return tree


NOWHERE = Fields()


class Prompt(NamedTuple):
    """Ids of a body, and where they stand: ``holder[key]``, if they may be replaced there."""

    ids: list[int]
    path: Path
    holder: Any = None
    key: Any = None


class Path(NamedTuple):
    """A place in a body, as a linked list from there to the top."""

    above: Path | None
    key: str | int

    def __str__(self) -> str:
        keys: list[str | int] = []
        at: Path | None = self
        while at is not None:
            keys.append(at.key)
            at = at.above
        parts = (f"[{k}]" if isinstance(k, int) else f".{k[:60]}" for k in reversed(keys))
        return "".join(parts).removeprefix(".")


@dataclass
class RequestBody:
    """A parsed body, its prompts of ids, and how many lists with integers no row of a table has."""

    value: Any
    prompts: list[Prompt]
    unknown: int
    size: int  # in bytes

    @property
    def rows(self) -> list[list[int]]:
        """The ids of each prompt."""
        return [prompt.ids for prompt in self.prompts]

    def name(self, number: int) -> str:
        """The field of a prompt, such as ``prompt[1]``."""
        return str(self.prompts[number].path)

    def replaced(self, rows: dict[int, np.ndarray]) -> bytes:
        """The body with other ids in some rows, written anew; all other values stay as they are.

        >>> from robustok.integrations.serving import PromptGuard
        >>> body = PromptGuard(vocab).read(b'{"prompt": [83, 258], "n":1}')
        >>> body.replaced({0: np.array([266])})
        b'{"prompt": [266], "n": 1}'

        Args:
            rows: ids by the number of the row, each int [n].

        Raises Refused where the number of ids may not change, and for infinite numbers and NaN.
        """
        for number, ids in rows.items():
            prompt = self.prompts[number]
            if prompt.holder is None:
                raise Refused(
                    "not-canonical",
                    f"{prompt.path}: the ids are not canonical, and their number may not change: "
                    "send the tokenizer's own ids",
                    field=str(prompt.path),
                )
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

    >>> read_body(b'{"prompt": [[83, 258], "the"]}', Fields.of(ROWS), Limits(9, 9)).rows
    [[83, 258]]

    Args:
        raw: the bytes of the body.
        fields: the fields that are known.
        limits: the greatest numbers of values in the body.
        strict: whether to refuse integers in lists of fields that are not known.

    Takes time linear in the length of the body. Raises Refused for a body that is not JSON in
    UTF-8, has too many values or a key twice, or has a prompt that is neither text nor integers.
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
    search = _Search(strict, limits.values)
    search.run(value, fields)
    return RequestBody(value, search.prompts, search.unknown, len(raw))


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


class _Open(NamedTuple):
    """A list or an object that is not read yet: ``holder[key]``."""

    holder: Any
    key: Any
    path: Path | None
    fields: Fields  # below it
    kind: str | None
    nested: bool  # in a list


class _Search(_Steps):
    """Finds the prompts of a parsed body, and what is like ids in fields that are not known."""

    def __init__(self, strict: bool, max_prompts: int) -> None:
        super().__init__()
        self.strict, self.max_prompts = strict, max_prompts
        self.prompts: list[Prompt] = []  # in the order of the body
        self.unknown = 0
        self._open: list[_Open] = []  # the next one last

    def run(self, body: object, fields: Fields) -> None:
        """Read a body."""
        self._open.append(_Open([body], 0, None, fields, None, False))
        while self._open:
            at = self._open.pop()
            value = at.holder[at.key]
            first = len(self._open)
            if isinstance(value, dict):
                self._object(value, at)
            elif isinstance(value, list) and self._list(value, at):
                for i, inner in enumerate(value):
                    self.step()
                    if isinstance(inner, (dict, list)):
                        path = Path(at.path, i)
                        self._open.append(_Open(value, i, path, at.fields, at.kind, True))
            self._open[first:] = reversed(self._open[first:])

    def _object(self, value: dict[str, Any], at: _Open) -> None:
        for name, inner in value.items():
            self.step()
            below = at.fields.below.get(name, NOWHERE)
            kind = below.kind or (OTHER if at.kind == OTHER else None)
            path = Path(at.path, name)
            if kind == ENCODED and inner is not None:
                line = "holds ids in a form that is not judged: send a list"
                raise Refused("not-ids", f"{path} {line}", field=str(path))
            if not isinstance(inner, (dict, list)) or (kind == OTHER and not below.below):
                continue
            if kind == TENSOR and "name" in value:
                if value["name"] not in TENSORS:
                    kind = None
                elif self._flat_tensor(inner, value.get("shape"), path):
                    continue
            self._open.append(_Open(value, name, path, below, kind, False))

    def _flat_tensor(self, data: object, shape: object, path: Path) -> bool:
        """Take the rows of a tensor of two dimensions whose ids stand in one list."""
        if not (isinstance(data, list) and _has_only_integers(data)):
            return False
        if not (isinstance(shape, list) and _has_only_integers(shape) and len(shape) == 2):
            return False
        count, size = shape
        if size < 1 or count * size != len(data):
            return False
        if len(self.prompts) + count > self.max_prompts:
            raise _too_many(f"the tensors of the body have more than {self.max_prompts} rows")
        self.prompts += [Prompt(data[i : i + size], path) for i in range(0, len(data), size)]
        return True

    def _list(self, value: list[Any], at: _Open) -> bool:
        """Read a list; whether what is inside it is to be read, too."""
        types = set(map(type, value))
        if at.kind in _JUDGED and at.path is not None:
            if types == {int}:
                where = (None, None) if at.kind == TENSOR else (at.holder, at.key)
                self.prompts.append(Prompt(value, at.path, *where))
                return False
            if types & _NUMBERS:
                raise _not_ids(at.path, "must be a text, a list of integers, or lists of them")
            may_be_texts = at.kind == TEXT and not at.nested and not self.strict
            if not may_be_texts and _can_be_integers(value):
                raise _not_ids(at.path, "holds digits in strings: send integers or a text")
        elif at.kind is None and types & _READ_AS_INTEGERS and any(map(_is_integer, value)):
            if self.strict:
                raise Refused(
                    "unknown-field",
                    f"{at.path or 'the body'} holds integers, and is no field that is known: leave "
                    "it out, or name it as a field with ids",
                    field=str(at.path or ""),
                )
            self.unknown += 1
        return bool(types & {dict, list})


def _not_ids(path: Path, line: str) -> Refused:
    return Refused("not-ids", f"{path} {line}", field=str(path))


def _has_only_integers(values: list[object]) -> bool:
    return set(map(type, values)) == {int}


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
