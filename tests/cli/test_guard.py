"""guard and audit as a shell and a CI job see them: what is printed, and the exit code."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TEXT, Output, Shell
from tests.corpus.conftest import write_rows

import robustok as rt
from robustok.cli.app import run

Call = Callable[..., Output]


@pytest.fixture(scope="module")
def drawn(vocab: rt.Vocabulary) -> list[int]:
    return rt.sampler("uniform", vocab).sample(TEXT, seed=0).tolist()


@pytest.fixture(scope="module")
def canonical(vocab: rt.Vocabulary) -> list[int]:
    return vocab.encode(TEXT).tolist()


@pytest.fixture
def guard(shell: Shell, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `guard` on ids, or with lines on standard input."""

    def call(ids: Any, *args: str) -> Output:
        if isinstance(ids, list) and not all(isinstance(i, int) for i in ids):
            monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, ids))))
            ids = "-"
        return shell.run("guard", str(ids), "-t", tokenizer, *args)

    return call


@pytest.fixture
def audit(shell: Shell, tokenizer: str) -> Call:
    return lambda *args: shell.run("audit", *map(str, args), "-t", tokenizer)


def test_json_is_the_verdict(
    guard: Call, vocab: rt.Vocabulary, drawn: list[int], canonical: list[int]
) -> None:
    output = guard(",".join(map(str, drawn)), "--json")
    record: dict[str, Any] = json.loads(output.out)
    assert output.code == 1
    assert record["canonical"] is False
    assert record["repaired"] == canonical
    assert record["distance"] == rt.distance(vocab, canonical, drawn)
    assert record["splits"] >= len(drawn) - len(canonical)
    assert {f["kind"] for f in record["findings"]} == {"not-canonical"}


@pytest.mark.parametrize(("form", "between"), [("{}", ", "), ("[{}]", ", "), ("{}", " ")])
def test_canonical_ids_pass(guard: Call, canonical: list[int], form: str, between: str) -> None:
    ids = form.format(between.join(map(str, canonical)))
    outputs = {mode: guard(ids, "--mode", mode) for mode in ("report", "repair")}
    assert all((output.code, output.err) == (0, "") for output in outputs.values())
    assert outputs["report"].out.startswith("canonical: distance 0")


def test_repair_prints_ids_and_fails_only_on_what_is_left(
    guard: Call, drawn: list[int], canonical: list[int]
) -> None:
    output = guard([*drawn, 99999], "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (0, canonical)
    special = [*drawn, 0]
    output = guard(special, "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (1, [*canonical, 0])
    assert guard(special, "--mode", "repair", "--allow-special").code == 0


@pytest.mark.parametrize("ids", [
    "1,x", "1,,2", "1_0", "\uff11", "+1", "1.0", "true", "null", "[1, 2", "[1.5]", '["a"]', "[[1]]",
])  # fmt: skip
def test_what_is_no_sequence_is_bad_input(shell: Shell, tokenizer: str, ids: str) -> None:
    shell.fails("guard", ids, "-t", tokenizer)


@pytest.mark.parametrize("ids", ["", " ", ","])
def test_no_ids_are_bad_input_and_an_empty_sequence_is_canonical(
    shell: Shell, guard: Call, tokenizer: str, ids: str
) -> None:
    assert "an empty sequence is []" in shell.fails("guard", ids, "-t", tokenizer)
    assert guard([]).code == 0
    assert guard(["", []]).code == 2


def test_a_repeated_name_is_bad_input(shell: Shell, tokenizer: str) -> None:
    line = '{"prompt_token_ids": [5], "prompt_token_ids": [6]}'
    assert "twice" in shell.fails("guard", line, "-t", tokenizer)


def test_each_line_is_answered_before_the_next_is_read(
    capsys: pytest.CaptureFixture[str], tokenizer: str, canonical: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    answers: list[str] = []

    def lines() -> Iterator[str]:
        for _ in range(3):
            yield f"{canonical}\n"
            answers.append(capsys.readouterr().out)

    monkeypatch.setattr("sys.stdin", lines())
    assert run(["guard", "-", "-t", tokenizer, "--json"]) == 0
    assert [json.loads(answer)["canonical"] for answer in answers] == [True] * 3


def test_a_bad_line_gets_an_error_and_the_others_their_verdict(
    guard: Call, drawn: list[int], canonical: list[int]
) -> None:
    lines = [canonical, "[1.5]", "[" * 100_000, drawn, canonical * 9]
    limit = ("--max-length", str(len(drawn)))
    answer = guard(lines, *limit, "--json")
    objects = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 2
    assert [o.get("canonical", o.get("line")) for o in objects] == [True, 2, 3, False, 5]
    assert "integers" in objects[1]["error"] and "at most" in objects[4]["error"]
    answer = guard(lines, *limit, "--mode", "repair")
    assert answer.code == 2 and answer.err == ""
    printed = [json.loads(line) for line in answer.out.splitlines()]
    assert [p["line"] if isinstance(p, dict) else p for p in printed] == [
        canonical, 2, 3, canonical, 5,
    ]  # fmt: skip
    lines_of_report = [line for line in guard(lines, *limit).out.splitlines() if line[0] != " "]
    numbers = [line.split(":")[0] for line in lines_of_report if not line.startswith("repaired")]
    assert numbers == [f"line {number}" for number in range(1, 6)]


def test_recorded_bodies_are_read_as_the_middleware_does(
    guard: Call, drawn: list[int], canonical: list[int]
) -> None:
    bodies = [
        {"model": "m", "prompt": drawn, "stop_token_ids": [5], "n": 1},
        {"prompt": "the"},
        {"messages": [{"role": "user", "content": "the"}], "tokens": canonical},
        {"prompt": [canonical, drawn]},
        {"prompt": [99999]},
        {"prompt": "a", "stop_token_ids": [99999]},
        {"Prompt": drawn},
        {"prompt_token_ids": drawn},
    ]
    lines = [json.dumps(body) for body in bodies]
    output = guard(lines, "--json")
    assert output.code == 2
    records = [json.loads(line) for line in output.out.splitlines()]
    assert [record["line"] for record in records] == list(range(1, 9))
    assert (records[0]["field"], records[0]["repaired"]) == ("prompt", canonical)
    assert records[1]["prompts"] == []
    assert (records[2]["field"], records[2]["canonical"]) == ("tokens", True)
    fields = [(p["field"], p["canonical"]) for p in records[3]["prompts"]]
    assert fields == [("prompt[0]", True), ("prompt[1]", False)]
    assert records[4]["findings"][0]["kind"] == "unknown-id"
    assert "stop_token_ids: 99999 is not in the vocabulary" in records[5]["error"]
    assert "another case" in records[6]["error"]
    assert records[7]["field"] == "prompt_token_ids"

    output = guard(lines, "--mode", "repair")
    printed = [json.loads(line) for line in output.out.splitlines()]
    assert output.code == 2 and len(printed) == len(bodies)
    assert printed[0] == bodies[0] | {"prompt": canonical}
    assert printed[1:3] == bodies[1:3]
    assert printed[3] == {"prompt": [canonical, canonical]}
    assert [p.get("line") for p in printed[4:7]] == [5, 6, 7]
    assert guard(lines[:4], "--mode", "repair").code == 0
    assert guard([lines[4]], "--mode", "repair").code == 1
    output = guard(lines[4], "--mode", "repair")
    assert (output.code, output.out) == (1, "") and "99999 is not in the voc" in output.err
    assert guard(lines[6], "--mode", "repair").code == 2

    output = guard(lines[:4])
    assert output.out.startswith("line 1, prompt: not canonical: distance")
    assert "\nline 2: no ids\nline 3, tokens: canonical" in output.out


@pytest.mark.parametrize("sent", [2**63, 2**64, 10**30, -(2**70)])
def test_an_id_beyond_64_bits_is_named(guard: Call, sent: int) -> None:
    for ids in (f"5,{sent}", f'{{"prompt": [5, {sent}]}}'):
        output = guard(ids)
        assert output.code == 1 and f"{sent} is not in the vocabulary" in output.out
        assert json.loads(guard(ids, "--json").out)["findings"][0]["ids"] == [sent]


def test_standard_input_without_a_line_is_bad_input(
    shell: Shell, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "has no line" in shell.fails("guard", "-", "-t", tokenizer)

    class Folder:
        def __iter__(self) -> Iterator[str]:
            raise IsADirectoryError(21, "Is a directory")

    monkeypatch.setattr("sys.stdin", Folder())
    assert "Is a directory" in shell.fails("guard", "-", "-t", tokenizer)


def test_a_byte_order_mark_is_no_part_of_the_first_line(guard: Call, canonical: list[int]) -> None:
    assert guard([f"\ufeff{canonical}", canonical]).code == 0


def test_audit_reports_drift_and_its_code(
    audit: Call, vocab: rt.Vocabulary, drawn: list[int], canonical: list[int], tmp_path: Path
) -> None:
    rows = [{"completion_ids": row} for row in (canonical, drawn)]
    path = write_rows(tmp_path / "rollouts.jsonl", rows)
    output = audit(path, "--json")
    record = json.loads(output.out)
    assert output.code == 1
    assert (record["rows"], record["drifted_rows"], record["first_rows"]) == (2, 1, [1])
    assert record["parts"][0]["drifted"] == rt.distance(vocab, canonical, drawn)
    low, high = record["interval"]
    assert 0 < low < 0.5 < high < 1
    output = audit(path)
    assert output.out.startswith("1 of 2 rollouts drifted (50.00%, 95% interval ")
    titles = [line.split("  ")[0] for line in output.out.splitlines()]
    assert {"all ids", "first 256 sampled", "completion", "split"} <= set(titles)
    write_rows(path, [canonical])
    output = audit(path)
    assert output.code == 0 and output.out.startswith("0 of 1 rollouts drifted (0.00%")
    assert audit(path, "--layout", "x").code == 0  # bare lists have no columns


def test_two_checkpoints_are_compared_on_the_prompts_of_both(
    audit: Call, drawn: list[int], canonical: list[int], tmp_path: Path
) -> None:
    def rows(drifts: list[bool]) -> list[Any]:
        return [{"prompt_ids": [5, n], "completion_ids": drawn if drift else canonical}
                for n, drift in enumerate(drifts)]  # fmt: skip

    first = write_rows(tmp_path / "a.jsonl", rows([True] * 16 + [False] * 4))
    second = write_rows(tmp_path / "b.jsonl", rows([True] * 6 + [False] * 18))
    record = json.loads(audit(first, "--against", second, "--json").out)
    assert record["prompts"] == 20
    assert record["difference"] == pytest.approx(-0.5)
    low, high = record["difference_interval"]
    assert low < -0.5 < high < 0
    assert (
        "On 20 prompts of both, the second has -50.0 points"
        in audit(first, "--against", second).out
    )
    write_rows(second, [{"completion_ids": canonical}])
    assert "no prompt is in both" in audit(first, "--against", second).err


def test_audit_of_a_folder_of_conversations(
    audit: Call, tmp_path: Path, drawn: list[int], canonical: list[int]
) -> None:
    for name, ids in (("a", canonical), ("b", drawn)):
        answer, call = {"role": "assistant", "ids": canonical}, {"role": "tool", "name": "find"}
        write_rows(tmp_path / f"{name}.jsonl", [{"turns": [answer, call | {"ids": ids}]}])
    output = audit(tmp_path)
    assert output.code == 1
    assert "1 of 2 rollouts drifted (50.00%" in output.out and "of 4 sequences" in output.out
    (line,) = [line for line in output.out.splitlines() if line.startswith("tool:")]
    assert line.split()[:3] == ["tool:find", "2", "1"]


def test_an_audit_takes_several_files_and_refuses_none(
    audit: Call, drawn: list[int], tmp_path: Path
) -> None:
    files = [
        write_rows(tmp_path / f"{name}.jsonl", [{"ids": drawn}] * count)
        for name, count in (("a", 1), ("b", 2), ("empty", 0))
    ]
    output = audit(*files, "--json")
    assert output.code == 1
    assert json.loads(output.out)["drifted_rows"] == 3
    for args, message in (
        ((files[2],), "empty.jsonl: no sequence of ids to audit"),
        ((tmp_path / "none.jsonl",), "no such file"),
    ):
        output = audit(*args)
        assert (output.code, output.out) == (2, "") and message in output.err
