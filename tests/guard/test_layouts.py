"""Rollouts in the layouts of real trainers, environments and servers.

Each file has the columns that the project writes: TRL's GRPO and SFT rows, prime-rl's token
exports, verifiers' traces, NeMo Gym's responses, slime's samples, verl's agent loop, Agent
Lightning's triplets, vLLM's request outputs and chat completions.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import robustok as rt
from robustok.guard import Rollout, read_rollouts
from robustok.guard.layouts import LAYOUTS, Part

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

P, C, D = [5, 6], [70, 71, 72], [80]
SPLIT = [(P + C, [("prompt", 2), ("completion", 3)])]
MESSAGE = {"role": "assistant", "content": "a"}
FILES: list[tuple[str, dict[str, Any], list[tuple[list[int], list[tuple[str, int]]]]]] = [
    ("trl", {"prompt_ids": P, "completion_ids": C, "logprobs": [0.5] * 3, "reward": 1.0}, SPLIT),
    ("trl", {"prompt_ids": P, "completion_ids": C, "tool_mask": [1, 0, 1]},
     [(P + C, [("prompt", 2), ("completion", 1), ("context", 1), ("completion", 1)])]),
    ("trl-sft", {"input_ids": P + C, "labels": [-100, -100, *C], "attention_mask": [1] * 5},
     [(P + C, [("context", 2), ("completion", 3)])]),
    ("trl-sft", {"input_ids": [0, *C], "labels": [0, -100, 71, 72]},
     [([0, *C], [("completion", 1), ("context", 1), ("completion", 2)])]),
    ("trl-sft", {"input_ids": P + C, "loss_mask": [0, 0, 1, 1, 1], "logprobs": [0.5] * 5},
     [(P + C, [("context", 2), ("completion", 3)])]),
    ("prime-rl", {"token_ids": P + C, "position_ids": [0, 1, 2, 3, 4], "loss_mask":
                  [False, False, True, True, True], "is_masked": None, "env_names": ["a"] * 5},
     [(P + C, [("context", 2), ("completion", 3)])]),
    ("verifiers", {"traces": [{"nodes": [
        {"parent": None, "message": {"role": "user", "content": "a"}, "token_ids": P,
         "mask": [False] * 2},
        {"parent": 0, "message": MESSAGE, "sampled": True, "token_ids": C, "mask": [True] * 3},
        {"parent": 0, "message": MESSAGE, "sampled": True, "token_ids": D, "mask": [True]}]}]},
     [(P + C, [("user", 2), ("assistant", 3)]), (P + D, [("user", 2), ("assistant", 1)])]),
    ("verifiers-steps", {"trajectory": [{"tokens": {"prompt_ids": P, "completion_ids": C,
                         "completion_mask": [1, 1, 1], "prompt_mask": [0, 0]}}, {"tokens": None}]},
     SPLIT),
    ("nemo-gym", {"response": {"output": [
        {"type": "message", "role": "assistant", "prompt_token_ids": P,
         "generation_token_ids": C, "generation_log_probs": [0.1] * 3},
        {"type": "function_call_output", "output": "4"}]}}, SPLIT),
    ("slime", {"tokens": P + C, "response_length": 3, "loss_mask": [1, 0, 1], "prompt": "a"},
     [(P + C, [("context", 2), ("completion", 1), ("context", 1), ("completion", 1)])]),
    ("verl", {"prompt_ids": P, "response_ids": C, "response_mask": [1, 1, 0], "num_turns": 2},
     [(P + C, [("prompt", 2), ("completion", 2), ("context", 1)])]),
    ("verl", {"prompt_ids": P, "response_ids": C, "loss_mask": [1, 0, 1]},
     [(P + C, [("prompt", 2), ("completion", 1), ("context", 1), ("completion", 1)])]),
    ("agent-lightning", {"triplets": [{"prompt": {"token_ids": P}, "response": {"token_ids": C}},
                                      {"prompt": {"token_ids": P}, "response": {"token_ids": D}}]},
     [*SPLIT, (P + D, [("prompt", 2), ("completion", 1)])]),
    ("vllm", {"prompt_token_ids": P, "outputs": [{"index": 0, "token_ids": C},
                                                 {"index": 1, "token_ids": D}]},
     [*SPLIT, (P + D, [("prompt", 2), ("completion", 1)])]),
    ("vllm", {"choices": [{"index": 0, "message": MESSAGE, "prompt_token_ids": P,
                           "token_ids": C}]}, SPLIT),
    ("messages", {"turns": [{"role": "user", "content": "a"}, {"role": "assistant", "ids": C},
                            {"role": "tool", "name": "search", "token_ids": D}]},
     [(C, [("assistant", 3)]), (D, [("tool:search", 1)])]),
    ("ids", {"mine": C, "n": 1}, [(C, [("completion", 3)])]),
]  # fmt: skip


def as_lists(rollout: Rollout) -> list[tuple[list[int], list[tuple[str, int]]]]:
    return [
        (ids.tolist(), [(part.role, part.end - part.begin) for part in parts])
        for ids, parts in rollout.sequences
    ]


def in_file(path: Path, rows: list[Any]) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path


def rollouts_of(path: Path, layout: str | None = None) -> list[Rollout]:
    return list(read_rollouts(path, layout))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
@pytest.mark.parametrize(("layout", "row", "expected"), FILES)
def test_each_layout_is_chosen_by_its_columns(
    tmp_path: Path, name: str, layout: str, row: dict[str, Any], expected: Any
) -> None:
    path = in_file(tmp_path / name, [row] * 3)
    assert [as_lists(rollout) for rollout in rollouts_of(path)] == [expected] * 3
    if layout != "ids":
        assert rollouts_of(path, layout)[0].prompt == rollouts_of(path)[0].prompt
        assert as_lists(rollouts_of(path, layout)[0]) == expected


def test_every_layout_has_a_file() -> None:
    assert {one.name for one in LAYOUTS} == {name for name, *_ in FILES} - {"ids"}


def test_parts_say_what_was_sampled(tmp_path: Path) -> None:
    for number, (_, row, _) in enumerate(FILES):
        (rollout,) = rollouts_of(in_file(tmp_path / f"{number}.jsonl", [row]))
        for ids, parts in rollout.sequences:
            edges = [0, *(part.end for part in parts)]
            assert edges[-1] == len(ids) and [part.begin for part in parts] == edges[:-1]
            given = ("prompt", "context", "user", "tool:search")
            assert all(part.is_sampled == (part.role not in given) for part in parts)
            assert all(isinstance(part, Part) for part in parts)


def test_rollouts_of_one_prompt_have_one_key(tmp_path: Path) -> None:
    rows = [{"prompt_ids": p, "completion_ids": C} for p in (P, P, D)]
    first, second, third = (r.prompt for r in rollouts_of(in_file(tmp_path / "a.jsonl", rows)))
    assert first == second != third and first is not None
    assert rollouts_of(in_file(tmp_path / "b.jsonl", [{"ids": C}]))[0].prompt is None
    # Also where prompt and completion are one list: by their mask or the length of the response.
    for number, (layout, row, _) in enumerate(FILES):
        if layout not in ("messages", "ids") and row.get("labels", [-100])[0] == -100:
            (rollout,) = rollouts_of(in_file(tmp_path / f"{number}.jsonl", [row]))
            assert rollout.prompt == first
    turns = [{"role": "user", "ids": P}, {"role": "assistant", "ids": C}]
    rows = [{"turns": turns}, {"turns": [*turns, {"role": "user", "ids": D}]}]
    keys = {r.prompt for r in rollouts_of(in_file(tmp_path / "c.jsonl", rows))}
    assert keys == {first}


def test_rows_without_ids_hide_no_later_ones(tmp_path: Path) -> None:
    rows = [{"turns": []}, {"turns": [{"role": "user", "content": "a"}]},
            {"turns": [{"role": "assistant", "ids": C}]}]  # fmt: skip
    for layout in (None, "messages"):
        found = rollouts_of(in_file(tmp_path / "a.jsonl", rows), layout)
        assert [as_lists(one) for one in found if one.sequences] == [[(C, [("assistant", 3)])]]


def test_bare_lists_and_a_named_column(tmp_path: Path) -> None:
    path = in_file(tmp_path / "a.jsonl", [[1, 2], [], [2**31, -5, 3]])
    assert [s[0] for r in rollouts_of(path) for s in as_lists(r)] == [[1, 2], [], [-1, -1, 3]]
    path = in_file(tmp_path / "a.jsonl", [{"a": [10], "b": [20]}, {"b": [30], "a": [40]}])
    assert [s[0] for r in rollouts_of(path, "b") for s in as_lists(r)] == [[20], [30]]


@pytest.mark.parametrize(
    ("text", "layout", "message"),
    [
        ('{"a": [10], "b": [20]}\n', None, r"several columns of integers \(a, b\), and no layout"),
        ('{"prompt_token_ids": [9], "messages": [{"token_ids": [5]}]}', None,
         "line 1: 'prompt_token_ids' holds integers beside the ids of the layout messages"),
        ('{"tokens": [9], "response_length": 1, "rollout_top_p_token_ids": [7]}', None,
         "'rollout_top_p_token_ids' holds integers beside the ids of the layout slime"),
        ('{"input": "a", "output": "b"}\n', None, "has no token ids in its columns input, output"),
        ('{"ids": [1]}\n', "idz", "has no token ids in its columns ids: give a layout"),
        ('{"a": [10]}\n{"a": [1.5]}\n', "a", "line 2: expected a list of token ids"),
        ('{"completion_ids": [10]}\n{"completion_ids": ["x"]}\n', None, "line 2: expected a list"),
        ('[1, 2]\n["x"]\n', None, "line 2: expected a list of token ids or an object"),
        ("[1, 2\n", None, ":1 is not JSON"),
        ('{}', None, "has no token ids: give a layout"),
    ],
)  # fmt: skip
def test_what_is_no_rollout_is_an_error(
    tmp_path: Path, text: str, layout: str | None, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(rt.RobustokError, match=message):
        rollouts_of(path, layout)


def test_other_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1")
    (tmp_path / "a.parquet").write_text("1")
    damaged = tmp_path / "b.parquet"
    pq.write_table(pa.table({"ids": [[i, i + 1] for i in range(3000)]}), damaged)
    raw = bytearray(damaged.read_bytes())
    raw[40:80] = bytes(40)
    damaged.write_bytes(raw)
    for name, message in (
        ("a.jsonl", "no such file"), ("a.csv", "is not read: give"),
        ("a.parquet", "cannot be read after 0 rows"), ("b.parquet", "cannot be read after 0 rows"),
    ):  # fmt: skip
        with pytest.raises(rt.RobustokError, match=message):
            rollouts_of(tmp_path / name)
