"""Where the known servers have ids in a request, and the fuzzer of bodies finds each hole."""

import json
from typing import Any

import numpy as np
import pytest
from fuzz import bodies as fuzz
from hypothesis import given
from hypothesis import strategies as st

from robustok.integrations import asgi, bodies
from robustok.integrations.bodies import (
    ANY,
    EXIST,
    IDS,
    OTHER,
    ROWS,
    TEXT,
    Limits,
    Refused,
    fields_of,
    known_path,
    read_body,
)

FIELDS = fields_of("/v1/completions", ("own", "deep.own"))
LIMITS = Limits(1000, 1000)
A, B = [83, 258], [5, 6, 7]
X: Any = "X"  # where ids stand in an example
# Requests with ids in each field that the table has.
EXAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "m", "prompt": X, "tokens": X}),
    ("/v1/completions/render", {"prompt": ["a", X]}),
    ("/invocations", {"prompt": X, "input": X, "tokens": X, "query": X, "documents": [X]}),
    ("/v1/completions", {"kv_transfer_params": {"remote_port": [1], "prompt_token_ids": X}}),
    ("/v1/chat/completions", {"messages": [], "kv_transfer_params": {"prompt_token_ids": X}}),
    ("/v1/chat/completions", {"messages": [{"content": "a"}], "input_ids": X,
                              "required_prefix_token_ids": X, "nvext": {"token_data": X}}),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "a",
                              "prompt_token_ids": X, "generation_token_ids": X}]}),
    ("/v1/chat/completions/batch", {"messages": [[{"content": "a", "prompt_token_ids": X}]]}),
    ("/v1/chat/completions/tokens", {"messages": [], "tokens": X}),
    ("/v1/embeddings", {"input": [X, X]}),
    ("/pooling", {"input": X}),
    ("/classify", {"input": X, "input_ids": X}),
    ("/v1/responses", {"input": [{"content": "a", "prompt_token_ids": X,
                                  "generation_token_ids": X}], "required_prefix_token_ids": X}),
    ("/v1/score", {"query": X, "items": [X], "label_token_ids": [1]}),
    ("/score", {"queries": [X], "text_1": X, "text_2": [X], "data_1": X, "data_2": [X]}),
    ("/rerank", {"query": X, "documents": [X]}),
    ("/generative_scoring", {"query": X, "items": [X]}),
    ("/inference/v1/generate", {"token_ids": X, "sampling_params": {"stop_token_ids": [3]}}),
    ("/generate", {"input_ids": [X, X], "sampling_params": [{"stop_token_ids": [1]}]}),
    ("/encode", {"input_ids": X}),
    ("/vertex_generate", {"instances": [{"input_ids": X}], "parameters": {"input_ids": X}}),
    ("/tokenize", {"messages": [{"prompt_token_ids": X}], "required_prefix_token_ids": X}),
    ("/api/generate", {"prompt": X, "context": X}),
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


@pytest.mark.parametrize(("path", "example"), EXAMPLES)
def test_ids_of_each_path_are_found_and_replaced_where_they_stand(path: str, example: Any) -> None:
    ids: list[list[int]] = []
    raw = json.dumps(filled(example, ids, A)).encode()
    for mounted in (path, f"/gateway{path}", f"{path}/"):
        fields = fields_of(known_path(mounted))
        for strict in (False, True):
            body = read_body(raw, fields, LIMITS, strict=strict)
            assert body.rows == ids and body.unknown == 0
    body = read_body(raw, fields_of(path), LIMITS)
    new = {number: np.array(B, np.int32) for number in range(len(ids))}
    assert json.loads(body.replaced(new)) == filled(example, [], B)
    # On another path they are no known field.
    elsewhere = fields_of(known_path("/v1/unknown"))
    assert read_body(raw, elsewhere, LIMITS).rows == []
    assert read_body(raw, elsewhere, LIMITS).unknown >= len(ids)
    with pytest.raises(Refused, match="is no field that is known for this path"):
        read_body(raw, elsewhere, LIMITS, strict=True)
    assert read_body(raw, fields_of(ANY), LIMITS).rows == ids


def test_each_field_has_an_example() -> None:
    judged = {f for row in ROWS if row.kind in (IDS, TEXT) for f in row.fields.split()}
    assert judged == set().union(*(paths(example) for _, example in EXAMPLES))


def test_a_path_is_known_by_its_longest_end() -> None:
    for path, known in (
        ("/v1/completions", "/v1/completions"), ("/a/v1/score", "/v1/score"), ("/score", "/score"),
        ("/inference/v1/generate", "/inference/v1/generate"), ("/x/generate", "/generate"),
        ("/v1/completions/x", None), ("/v1/models", None), ("", None),
    ):  # fmt: skip
        assert known_path(path) == known


OTHERS = [(row.paths.split()[0], f) for row in ROWS if row.kind == OTHER
          for f in row.fields.split()]  # fmt: skip


@pytest.mark.parametrize(("path", "field"), OTHERS)
def test_what_holds_no_ids_passes(path: str, field: str) -> None:
    for value in ([1, 2], [[1]], ["5"], {"x": [1], "y": [[2]], "z": [1, "a"]}):
        body: Any = value
        for name in reversed(field.split(".")):
            body = {name: body}
        found = read_body(json.dumps(body).encode(), fields_of(path), LIMITS, strict=True)
        assert found.rows == [] and found.unknown == 0


def test_ids_that_are_no_prompt_are_found_on_every_path() -> None:
    values = ([9, 8], [[9], [8]], {"9": -100, " 8 ": 5.0, "x": 1})
    fields = [f for row in ROWS if row.kind == EXIST and row.paths == ANY
              for f in row.fields.split()]  # fmt: skip
    for path in ("/v1/completions", "/generate", "/unknown"):
        for field in fields:
            for value in values:
                body: Any = value
                for name in reversed(field.split(".")):
                    body = {name: body}
                raw = json.dumps(body).encode()
                found = read_body(raw, fields_of(known_path(path)), LIMITS, strict=True)
                assert [i for ids, *_ in found.existing for i in ids] == [9, 8]
                assert (found.rows, found.unknown) == ([], 0)
    with pytest.raises(Refused, match="holds digits in strings"):
        read_body(b'{"stop_token_ids": ["83"]}', fields_of(None), LIMITS)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"Prompt": A}, "Prompt"), ({"prompt": "a", "PROMPT": A}, "PROMPT"),
        ({"kv_transfer_params": {"Prompt_Token_Ids": A}}, "kv_transfer_params.Prompt_Token_Ids"),
        ({"\u017ftop_token_ids": A}, "\u017ftop_token_ids"),
        ({"deep": [{"OWN": 1}]}, "deep[0].OWN"),
    ],
)  # fmt: skip
def test_a_known_name_in_another_case_is_refused(body: Any, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(json.dumps(body).encode(), FIELDS, LIMITS)
    assert (refused.value.reason, refused.value.field) == ("other-case", field)
    arguments = {"tools": [{"Prompt": 1, "function": {"Prompt": [1]}}]}
    assert read_body(json.dumps(arguments).encode(), FIELDS, LIMITS, strict=True).unknown == 0


@pytest.mark.parametrize(
    "value", [[5], [[5, 6]], [5, "a"], ["5", " 6 "], [5.0], [True], [None, "5"], [{"a": [5]}]]
)
def test_unknown_fields_are_counted_or_refused(value: Any) -> None:
    for body in (
        {"prompt": "a", "x": value},
        {"other": [{"x": value}]},
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
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [[5], [1.5]]}, "prompt[1]"),
        ({"own": [83.0]}, "own"),
        ({"prompt": [None, 83]}, "prompt"),
        ({"own": ["83", None]}, "own"),
        ([{"own": ["\u0662"]}], "[0].own"),
        ({"deep": [{"own": [["83", "258"]]}]}, "deep[0].own[0]"),
        ({"prompt": [["83", "258"]]}, "prompt[0]"),
        ({"own": ["83", " +2_58.0 "]}, "own"),
        ({"own": [" " * 3000 + "83"]}, "own"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(body: Any, field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_body(json.dumps(body).encode(), FIELDS, LIMITS)
    assert (refused.value.reason, refused.value.field) == ("not-ids", field)
    assert str(refused.value).startswith(field)


def test_prompts_are_in_the_order_of_the_body() -> None:
    ids = [[n] for n in range(12)]
    body = {"deep": [{"own": ids[:5]}], "prompt": ids[5:10], "own": ids[10:]}
    found = read_body(json.dumps(body).encode(), FIELDS, LIMITS)
    assert found.rows == ids
    assert [found.name(i) for i in (0, 9, 11)] == ["deep[0].own[0]", "prompt[4]", "own[1]"]


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


def test_one_kind_for_each_field_of_a_path() -> None:
    for path in {path for row in ROWS for path in row.paths.split()}:
        kinds: dict[str, str] = {}
        for row in ROWS:
            for field in row.fields.split() if path in row.paths.split() else []:
                assert OTHER in (row.kind, kinds.setdefault(field, row.kind)) or (
                    kinds[field] == row.kind
                )


def finds(number: int) -> bool:
    try:
        fuzz.call(1, number)
    except AssertionError:
        return True
    return False


def test_nothing_reaches_the_application_unjudged() -> None:
    outcomes = [fuzz.call(1, number) for number in range(700)]
    assert 50 < outcomes.count("refused") < 650


@pytest.mark.parametrize(
    "hole", ["digits", "numbers", "doubled keys", "case", "label", "depth", "compressed"]
)
def test_a_hole_is_found(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hole == "digits":
        monkeypatch.setattr(bodies, "_can_be_integers", lambda values: False)
    elif hole == "numbers":
        monkeypatch.setattr(bodies, "_NUMBERS", set())
    elif hole == "doubled keys":
        monkeypatch.setattr(bodies._Hooks, "read_object", lambda hooks, pairs: dict(pairs))
    elif hole == "case":
        monkeypatch.setattr(bodies._IdReader, "_check_case", lambda *_: None)
    elif hole == "label":
        monkeypatch.setattr(fuzz, "TYPES", (b"multipart/form-data",))
        monkeypatch.setattr(asgi.GuardMiddleware, "_admitted", _by_label)
    elif hole == "depth":
        monkeypatch.setattr(bodies._IdReader, "_read_list", _flat)
    else:
        monkeypatch.setattr(asgi, "_header", lambda scope, name: [b"multipart/form-data"]
                            if name == b"content-type" else [])  # fmt: skip
    assert any(finds(number) for number in range(3_000))


_read_list = bodies._IdReader._read_list


def _flat(self: Any, value: Any, at: Any) -> bool:
    """Reads no list inside a list."""
    return False if at.is_nested else _read_list(self, value, at)


def _by_label(self: Any, scope: Any, raw: bytes) -> Any:
    """Judges what begins like an object within sixteen bytes, or is called JSON."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if b"json" not in kind and raw[:16].lstrip()[:1] != b"{":
        return None
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return self.prompts.admit_body(raw, scope["path"])
