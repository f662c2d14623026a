"""Where the known APIs have ids in a request: an example for each field of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robustok.integrations import bodies
from robustok.integrations.bodies import (
    ENCODED,
    IDS,
    OTHER,
    ROWS,
    TENSOR,
    TEXT,
    Fields,
    Limits,
    Refused,
    read_body,
)

FIELDS = Fields.of(ROWS)
LIMITS = Limits(1000, 1000)
A, B = [83, 258], [5, 6, 7]
X: Any = "X"  # where ids stand in an example
# Of each API, requests with ids in each field that the table has, one after another.
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("OpenAI completions", {"model": "m", "prompt": X, "suffix": X}),
    ("OpenAI completions", {"prompt": ["a", X]}),
    ("OpenAI chat", {"messages": [{"role": "user", "content": X}], "prediction": {"content": X}}),
    ("OpenAI chat", {"messages": [{"content": [{"type": "text", "text": X}, "b"]}]}),
    ("OpenAI embeddings", {"input": [X, X]}),
    ("OpenAI responses", {"instructions": X, "input": [{"role": "user", "content": X}]}),
    ("OpenAI responses", {"input": [{"content": [{"type": "input_text", "text": X}]}]}),
    ("Anthropic messages", {"system": X, "messages": [{"content": [{"content": X}]}]}),
    ("Anthropic messages", {"system": [{"type": "text", "text": X}], "messages": [
        {"content": [{"type": "tool_result", "content": [{"type": "text", "text": X}]}]}]}),
    ("vLLM completions", {"prompt": {"prompt_token_ids": X}}),
    ("vLLM completions", {"prompt": {"encoder_prompt": X, "decoder_prompt": X}}),
    ("vLLM completions", {"prompt": {
        "encoder_prompt": {"prompt_token_ids": X}, "decoder_prompt": {"prompt_token_ids": X}}}),
    ("vLLM generate, render", {"token_ids": X, "sampling_params": {"stop_token_ids": [3]}}),
    ("vLLM chat", {"messages": [{"token_ids": X, "content": [{"tokens": X}]}]}),
    ("vLLM score, rerank", {"query": X, "documents": [X]}),
    ("vLLM score, rerank", {"queries": [X], "items": [X]}),
    ("vLLM score, rerank", {"text_1": X, "text_2": [X]}),
    ("vLLM score, rerank", {"data_1": X, "data_2": [X]}),
    ("vLLM score, rerank", {"query": {"content": [{"text": X}]}, "documents": [{"text": X}]}),
    ("vLLM score, rerank", {"queries": {"content": {"text": X}}}),
    ("vLLM score, rerank", {"items": {"content": {"text": X}}}),
    ("vLLM score, rerank", {"documents": {"content": [{"text": X}]}}),
    ("vLLM score, rerank", {"data_1": {"content": {"text": X}}}),
    ("vLLM score, rerank", {"data_2": {"content": {"text": X}}}),
    ("SGLang generate, encode", {"input_ids": X, "sampling_params": [{"stop_token_ids": [1]}]}),
    ("SGLang generate, encode", {"input_ids": [X, X], "text": X}),
    ("SGLang vertex", {"instances": [{"input_ids": X}, {"text": X}],
                       "parameters": {"input_ids": X, "text": X}}),
    ("llama.cpp", {"content": X, "input_prefix": X, "input_suffix": X,
                   "input_extra": [{"filename": "a", "text": X}]}),
    ("llama.cpp", {"prompt": [X, {"prompt_string": X, "multimodal_data": [[1]]}]}),
    ("Ollama", {"prompt": "a", "context": X}),
    ("TGI, TEI", {"inputs": [X, "a"], "texts": [X]}),
    ("TensorRT-LLM", {"messages": [], "prompt_token_ids": X}),
    ("TensorRT-LLM", {"disaggregated_params": {
        "first_gen_tokens": X, "draft_tokens": X, "first_gen_logits": [[1, 2]]}}),
    ("KServe v1", {"instances": [X, {"prompt": X}, {"data": X}, {"inputs": X}]}),
    ("KServe v2", {"inputs": [{"name": "input_ids", "datatype": "INT64", "shape": [1, 2],
                               "data": X}]}),
]  # fmt: skip


def filled(example: Any, ids: list[list[int]], value: list[int]) -> Any:
    """The example with ids in place of each X, which are noted."""
    if example == X:
        ids.append(value)
        return value
    if isinstance(example, list):
        return [filled(inner, ids, value) for inner in example]
    if isinstance(example, dict):
        return {name: filled(inner, ids, value) for name, inner in example.items()}
    return example


def paths(example: Any, path: str = "") -> set[str]:
    """The fields with an X, without the places in lists."""
    if example == X:
        return {path}
    if isinstance(example, list):
        return set().union(*(paths(inner, path) for inner in example))
    if isinstance(example, dict):
        return set().union(*(paths(v, f"{path}.{k}".lstrip(".")) for k, v in example.items()))
    return set()


@pytest.mark.parametrize(("api", "example"), EXAMPLES)
def test_ids_of_each_api_are_found_and_replaced_where_they_stand(api: str, example: Any) -> None:
    ids: list[list[int]] = []
    raw = json.dumps(filled(example, ids, A)).encode()
    for strict in (False, True):
        body = read_body(raw, FIELDS, LIMITS, strict=strict)
        assert body.rows == ids and body.unknown == 0
    own = {field for row in ROWS if row.api == api for field in row.fields.split()}
    assert own & paths(example)
    body = read_body(raw, FIELDS, LIMITS)
    new = {number: np.array(B, np.int32) for number in range(len(ids))}
    if api == "KServe v2" or "disaggregated_params" in example:
        with pytest.raises(Refused, match="their number may not change"):
            body.replaced(new)
    else:
        assert json.loads(body.replaced(new)) == filled(example, [], B)


def test_each_field_has_an_example() -> None:
    judged = {f for row in ROWS if row.kind in (IDS, TEXT, TENSOR) for f in row.fields.split()}
    assert judged == set().union(*(paths(example) for _, example in EXAMPLES))


@pytest.mark.parametrize("field", [f for r in ROWS if r.kind == OTHER for f in r.fields.split()])
def test_what_is_no_prompt_passes_everywhere(field: str) -> None:
    for value in ([1, 2], [[1]], ["5"], {"x": [1], "prompt": [[2]], "content": [1, "a"]}):
        body: Any = value
        for name in reversed(field.split(".")):
            body = {name: body}
        if field.startswith("parameters") and isinstance(value, dict):
            continue  # its fields of the same name hold ids
        found = read_body(json.dumps(body).encode(), FIELDS, LIMITS, strict=True)
        assert found.rows == [] and found.unknown == 0


def test_schemas_and_arguments_of_tools_are_no_prompts() -> None:
    schema = {"type": "array", "default": [1, 2], "enum": [83, 258]}
    body = {
        "messages": [
            {"content": [{"type": "tool_use", "input": {"items": A, "prompt": A, "text": [A]}}]},
            {"content": "a", "tool_calls": [{"function": {"arguments": {"input_ids": A}}}]},
        ],
        "tools": [{"input_schema": schema}, {"function": {"parameters": schema}}],
        "response_format": {"json_schema": {"schema": schema}},
        "text": {"format": {"schema": schema}}, "sampling_params": {"json_schema": schema},
        "guided_json": schema, "structured_outputs": {"json": schema}, "format": schema,
        "parameters": {"grammar": {"value": schema}},
    }  # fmt: skip
    found = read_body(json.dumps(body).encode(), FIELDS, LIMITS, strict=True)
    assert found.rows == []


@pytest.mark.parametrize(
    "value", [[5], [[5, 6]], [5, "a"], ["5", " 6 "], [5.0], [True], [None, "5"], [{"a": [5]}]]
)
def test_unknown_fields_are_counted_or_refused(value: Any) -> None:
    for body in (
        {"prompt": "a", "x": value},
        {"messages": [{"x": value}]},
        value,
        {"x": {"y": value}},
    ):
        raw = json.dumps(body).encode()
        assert read_body(raw, FIELDS, LIMITS).unknown == 1
        with pytest.raises(Refused, match="is no field that is known") as refused:
            read_body(raw, FIELDS, LIMITS, strict=True)
        assert refused.value.reason == "unknown-field"
    for value in ([], ["a", "b c"], [0.5, 1.25], [None], "5", 5):
        raw = json.dumps({"prompt": "a", "x": value}).encode()
        assert read_body(raw, FIELDS, LIMITS, strict=True).unknown == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": ["the", 1]}, "prompt"),
        ({"prompt": [[1, "the", 2], [3]]}, "prompt[0]"),
        ({"input_prefix": [12, "a"]}, "input_prefix"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [[5], [1.5]]}, "prompt[1]"),
        ({"input_ids": [83.0]}, "input_ids"),
        ({"prompt": [None, 83]}, "prompt"),
        ({"messages": [{"content": "a"}, {"content": [{"text": [["83"]]}]}]},
         "messages[1].content[0].text[0]"),
        ({"prompt_token_ids": ["83", None]}, "prompt_token_ids"),
        ({"prompt_token_ids_b64": "UwAAAA=="}, "prompt_token_ids_b64"),
        ([{"token_ids": ["\u0662"]}], "[0].token_ids"),
        ({"prompt": [["83", "258"]]}, "prompt[0]"),
        ({"input_ids": ["83", " +2_58.0 "]}, "input_ids"),
        ({"prompt_token_ids": [" " * 3000 + "83"]}, "prompt_token_ids"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(json.dumps(body).encode(), FIELDS, LIMITS)
    assert (refused.value.reason, refused.value.field) == ("not-ids", field)
    assert str(refused.value).startswith(field)


def test_prompts_are_in_the_order_of_the_body() -> None:
    ids = [[n] for n in range(12)]
    body = {"messages": [{"content": ids[:5]}], "prompt": ids[5:10], "input": {"content": ids[10:]}}
    found = read_body(json.dumps(body).encode(), FIELDS, LIMITS)
    assert found.rows == ids
    assert [found.name(i) for i in (0, 9, 11)] == [
        "messages[0].content[0]", "prompt[4]", "input.content[1]",
    ]  # fmt: skip


def test_tensors_of_kserve() -> None:
    def rows(**tensor: Any) -> Any:
        raw = json.dumps({"inputs": [{"name": "input_ids", **tensor}]}).encode()
        found = read_body(raw, FIELDS, LIMITS._replace(values=30))
        return found.rows, found.unknown

    assert rows(shape=[2, 3], data=[1, 2, 3, 4, 5, 6]) == ([[1, 2, 3], [4, 5, 6]], 0)
    assert rows(shape=[2, 2], data=[[1, 2], [3, 4]]) == ([[1, 2], [3, 4]], 0)
    for shape in ([2, 3], [3], [0, 0], [-1, -4], ["2", "2"], None):
        assert rows(shape=shape, data=[1, 2, 3, 4]) == ([[1, 2, 3, 4]], 0)
    assert rows(name="max_tokens", shape=[1], data=[16]) == ([], 1)
    assert rows(name=["input_ids"], shape=[1], data=[16]) == ([], 1)
    assert rows(name="temperature", shape=[1], data=[0.7]) == ([], 0)
    assert len(rows(shape=[30, 1], data=[1] * 30)[0]) == 30
    with pytest.raises(Refused, match="more than 30 rows"):
        rows(shape=[31, 1], data=[1] * 31)


@pytest.mark.parametrize("short", [0, 1 << 16])
def test_rewriting_keeps_all_other_values(short: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_SHORT", short)
    raw = b'{"user" :"\\ud800","x":1.50,"n":123456789012345678901,"e":1e300,"prompt":[[5],"a"]}'
    ids = {0: np.array([6, 7], np.int32)}
    new = read_body(raw, FIELDS, LIMITS).replaced(ids)
    assert json.loads(new) == json.loads(raw) | {"prompt": [[6, 7], "a"]}
    for number in (b"1e400", b"-1e400", b"NaN"):
        body = read_body(raw.replace(b"1e300", number), FIELDS, LIMITS)
        with pytest.raises(Refused, match="a number that JSON cannot write"):
            body.replaced(ids)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"prompt": [1, 2', "not-json"),
        (b"{" * 99, "not-json"),
        (b"[" * 400, "not-json"),
        (b'{"seed": %s}' % (b"9" * 5000), "not-json"),
        (b'{"prompt": [01]}', "not-json"),
        (b'{"prompt": "\xff"}', "not-json"),
        (b'{"prompt": "\xed\xa0\x80"}', "not-json"),  # a surrogate, which UTF-8 has not
        (b'""' * 3000, "not-json"),
        (b'"', "not-json"),
        ('{"prompt": [1]}'.encode("utf-16-le"), "not-json"),
        (b"[" * 3000, "too-many-values"),
        (b'"a",' * 3000, "too-many-values"),
        (b'{"x": "[[[", "y": [%s]}' % (b"[]," * 1000), "too-many-values"),
        (b'{"a": 1, "\\u0061": 2}', "duplicate-key"),
        (b'{"x": {"tools": {"a": 1, "a": 2}}}', "duplicate-key"),
    ],
)
def test_hostile_json_ends_in_an_error(raw: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(raw, FIELDS, LIMITS)
    assert refused.value.reason == code


@pytest.mark.parametrize(
    "value",
    [
        "-" * 200,
        "0" * 200,
        " " * 200,
        [int("9" * 4000)] * 20,
        [0.1] * 100,
        {str(i): i for i in range(100)},
    ],
    ids=["minus signs", "zeros", "spaces", "long integers", "floats", "keys"],
)
def test_what_takes_long_is_read_with_pauses(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_SHORT", 20)
    monkeypatch.setattr(bodies, "_STEPS", 10)
    pauses: list[None] = []
    monkeypatch.setattr(bodies, "pause", lambda: pauses.append(None))
    assert read_body(json.dumps({"x": [value]}).encode(), FIELDS, LIMITS).value == {"x": [value]}
    assert len(pauses) >= 2


@given(st.text(alphabet=" \t+-_.019٣a", max_size=12))
def test_long_strings_are_read_as_short_ones(text: str) -> None:
    read = bodies._can_be_digits(text)
    assert read == (set(text) <= set(" \t+-_.019٣") and bool(set(text) & set("019٣")))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bodies, "_SHORT", 3)
        assert bodies._can_be_digits(text) == read


def test_deep_nesting_ends_in_an_error() -> None:
    deep = b'{"prompt": [5], "tools": %s5%s}' % (b"[" * 100_000, b"]" * 100_000)
    with pytest.raises(Refused, match="nested too deeply"):
        read_body(deep, FIELDS, Limits(10**6, 10**6))
    read = read_body(b'{"prompt": [5], "tools": %s5%s}' % (b"[" * 400, b"]" * 400), FIELDS, LIMITS)
    for depth in range(400, 1000, 100):
        raw = b'{"prompt": [5], "tools": %s5%s}' % (b"[" * depth, b"]" * depth)
        try:
            read = read_body(raw, FIELDS, Limits(10**6, 10**6))
            assert json.loads(read.replaced({0: np.array([6])}))["prompt"] == [6]
        except Refused as refused:
            assert refused.reason == "too-deep"


def test_values_in_strings_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_STEPS", 2)  # pauses, which are rare otherwise
    text = '[{":",}\\"' * 500
    found = read_body(
        json.dumps({"prompt": text, text: [A, text, {"": ""}]}).encode(), FIELDS, LIMITS
    )
    assert found.value["prompt"] == text and found.unknown == 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(sorted(FIELDS.below)) | st.text(max_size=3), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_any_json_is_read_or_refused(value: Any, strict: bool) -> None:
    try:
        found = read_body(json.dumps(value).encode(), FIELDS, LIMITS, strict=strict)
    except Refused:
        return
    assert found.value == value
    assert all(row and all(type(i) is int for i in row) for row in found.rows)
    again = read_body(found.replaced({}), FIELDS, LIMITS, strict=strict)
    assert (again.value, again.rows, again.unknown) == (value, found.rows, found.unknown)


def test_the_documentation_has_the_table() -> None:
    def cell(api: str, is_other: bool) -> str:
        rows = [row for row in ROWS if row.api == api and (row.kind == OTHER) == is_other]
        return ", ".join(f"`{field}`" for row in rows for field in row.fields.split())

    text = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for api in dict.fromkeys(row.api for row in ROWS):
        assert f"| {api} | {cell(api, False)} | {cell(api, True)} |" in text


def test_one_kind_for_each_field() -> None:
    known = [field for row in ROWS for field in row.fields.split()]
    twice = {field for field in known if known.count(field) > 1}
    assert twice == set()
    assert {row.kind for row in ROWS} == {IDS, TEXT, TENSOR, ENCODED, OTHER}
