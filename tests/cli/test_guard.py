"""guard and audit as a shell and a CI job see them: what is printed, and the exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import TEXT, Shell

import robustok as rt
from robustok.cli.app import run
from robustok.report.page import share


@pytest.fixture(scope="module")
def drawn(vocab: rt.Vocabulary) -> list[int]:
    return rt.sampler("uniform", vocab).sample(TEXT, seed=0).tolist()


def test_json_is_the_verdict(
    shell: Shell, tokenizer: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    output = shell.run("guard", ",".join(map(str, drawn)), "-t", tokenizer, "--json")
    record: dict[str, Any] = json.loads(output.out)
    canonical = vocab.encode(TEXT)
    assert output.code == 1
    assert record["canonical"] is False
    assert record["repaired"] == canonical.tolist()
    assert record["distance"] == rt.distance(vocab, canonical, drawn)
    assert record["splits"] >= len(drawn) - len(canonical)
    assert {f["kind"] for f in record["findings"]} == {"not-canonical"}


@pytest.mark.parametrize("form", ["{}", "[{}]"])
def test_canonical_ids_pass(shell: Shell, tokenizer: str, vocab: rt.Vocabulary, form: str) -> None:
    ids = form.format(", ".join(map(str, vocab.encode(TEXT).tolist())))
    for mode in ("report", "strict", "repair"):
        output = shell.run("guard", ids, "-t", tokenizer, "--mode", mode)
        assert (output.code, output.err) == (0, "")
    assert shell.run("guard", ids, "-t", tokenizer).out.startswith("canonical: distance 0")


def test_strict_says_one_line(shell: Shell, tokenizer: str, drawn: list[int]) -> None:
    output = shell.run("guard", str(drawn), "-t", tokenizer, "--mode", "strict")
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith("robustok: id") and output.err.count("\n") == 1


def test_repair_prints_ids_and_fails_only_on_what_is_left(
    shell: Shell, tokenizer: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    output = shell.run("guard", str([*drawn, 99999]), "-t", tokenizer, "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (0, vocab.encode(TEXT).tolist())
    special = [*drawn, 0]
    output = shell.run("guard", str(special), "-t", tokenizer, "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (1, [*vocab.encode(TEXT).tolist(), 0])
    allowed = (str(special), "-t", tokenizer, "--mode", "repair", "--allow-special")
    assert shell.run("guard", *allowed).code == 0


def test_lines_of_standard_input(
    shell: Shell,
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [vocab.encode(TEXT).tolist(), drawn, []]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, lines))))
    output = shell.run("guard", "-", "-t", tokenizer, "--json")
    rows = [json.loads(line) for line in output.out.splitlines()]
    verdicts = [(row["line"], row["canonical"]) for row in rows]
    assert (output.code, verdicts) == (1, [(1, True), (2, False), (3, True)])
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, lines))))
    output = shell.run("guard", "-", "-t", tokenizer, "--mode", "strict")
    assert output.err.startswith("robustok: line 2, id")


@pytest.mark.parametrize("ids", ["1,x", "[1, 2", "[1.5]", '["a"]', "[[1]]"])
def test_what_is_no_sequence_is_bad_input(shell: Shell, tokenizer: str, ids: str) -> None:
    shell.fails("guard", ids, "-t", tokenizer)


def test_audit_reports_drift_and_its_code(
    shell: Shell,
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    tmp_path: Path,
) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = [vocab.encode(TEXT).tolist(), drawn]
    path.write_text("".join(json.dumps({"completion_ids": row}) + "\n" for row in rows))
    output = shell.run("audit", str(path), "-t", tokenizer, "--json")
    record = json.loads(output.out)
    assert output.code == 1
    assert (record["rows"], record["drifted_rows"], record["first_rows"]) == (2, 1, [1])
    assert record["drifted"] == rt.distance(vocab, vocab.encode(TEXT), drawn)
    assert sum(p["drifted"] for p in record["by_position"]) == record["drifted"]
    output = shell.run("audit", str(path), "-t", tokenizer)
    assert output.out.startswith("1 of 2 sequences drifted (50%)")
    assert "by position" in output.out and "by token" in output.out
    path.write_text(json.dumps(rows[0]))
    output = shell.run("audit", str(path), "-t", tokenizer)
    assert output.code == 0 and output.out.startswith("0 of 1 sequences drifted (0%)")
    assert shell.run("audit", str(path), "-t", tokenizer, "--column", "x").code == 0
    assert shell.run("audit", str(tmp_path / "none.jsonl"), "-t", tokenizer).code == 2


def test_each_line_is_answered_before_the_next_is_read(
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    vocab: rt.Vocabulary,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[str] = []

    def lines() -> Iterator[str]:
        for _ in range(3):
            yield f"{vocab.encode(TEXT).tolist()}\n"
            answers.append(capsys.readouterr().out)

    monkeypatch.setattr("sys.stdin", lines())
    assert run(["guard", "-", "-t", tokenizer, "--json"]) == 0
    assert [json.loads(answer)["canonical"] for answer in answers] == [True] * 3


def test_a_bad_line_gets_an_error_and_the_others_their_verdict(
    shell: Shell,
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = vocab.encode(TEXT).tolist()
    lines = f"{good}\n[1.5]\n{'[' * 100_000}\n{drawn}\n{good * 9}\n"
    command = ("guard", "-", "-t", tokenizer, "--max-length", str(len(drawn)))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    answer = shell.run(*command, "--json")
    objects = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 2
    assert [o.get("canonical", o.get("line")) for o in objects] == [True, 2, 3, False, 5]
    assert "integers" in objects[1]["error"] and "at most" in objects[4]["error"]
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    answer = shell.run(*command, "--mode", "repair")
    assert answer.code == 2
    assert [json.loads(line) for line in answer.out.splitlines()] == [good, good]
    assert [line.split(":")[1] for line in answer.err.splitlines()] == [
        " line 2", " line 3", " line 5",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "0%"), (1, 800, "0.12%"), (5, 5, "100%"), (9960, 10000, "99.6%"),
     (99999, 100000, "99.9%"), (1, 3, "33%"), (1, 10**9, "<0.0001%")],
)  # fmt: skip
def test_shares_have_no_exponent(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text


def test_audit_of_a_folder_of_conversations(
    shell: Shell, tmp_path: Path, tokenizer: str, vocab: rt.Vocabulary,
    drawn: list[int],
) -> None:  # fmt: skip
    canonical = vocab.encode(TEXT).tolist()
    for name, ids in (("a", canonical), ("b", drawn)):
        turns = [
            {"role": "assistant", "ids": canonical}, {"role": "tool", "name": "find", "ids": ids}
        ]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"turns": turns}))
    page = tmp_path / "page.html"
    output = shell.run("audit", str(tmp_path), "-t", tokenizer, "--html", str(page))
    assert output.code == 1
    assert "1 of 4 sequences in 2 files drifted (25%)" in output.out
    assert [line.split()[:3] for line in output.out.splitlines() if line.startswith("tool:")] == [
        ["tool:find", "2", "1"]
    ]
    html = page.read_text()
    assert "b.jsonl, sequence 1, turn 1 (tool:find), ids" in html
    assert "<td>tool:find</td><td>2</td><td>1</td>" in html
    as_json = json.loads(shell.run("audit", str(tmp_path), "-t", tokenizer, "--json").out)
    assert [g["name"] for g in as_json["by_turn"]] == ["0", "1"]
    error = shell.fails("audit", str(tmp_path), "-t", tokenizer, "--html", "page.txt")
    assert error == "robustok: page.txt: the name must end in .html\n"


def test_recorded_requests_are_read_and_numbered(
    shell: Shell, tokenizer: str, drawn: list[int], monkeypatch: Any
) -> None:
    requests = [{"prompt_token_ids": drawn, "stop": [], "n": 1}, {"text": "the"},
                {"a": [1], "b": [2]}]  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, requests))))
    output = shell.run("guard", "-", "-t", tokenizer)
    assert output.code == 2
    assert output.out.startswith("line 1: not canonical")
    assert "line 2: the object has no list of ids" in output.err
    assert "line 3: the object has several lists of ids (a, b)" in output.err


def test_an_audit_takes_several_files_and_refuses_none(
    shell: Shell, tokenizer: str, drawn: list[int], tmp_path: Any
) -> None:
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "empty.jsonl"]
    for file, count in zip(files, (1, 2, 0), strict=True):
        file.write_text(f"{json.dumps({'ids': drawn})}\n" * count)
    output = shell.run("audit", *map(str, files), "-t", tokenizer, "--json")
    assert output.code == 1
    assert json.loads(output.out)["drifted_rows"] == 3
    output = shell.run("audit", str(files[2]), "-t", tokenizer)
    assert output.code == 2
    assert "empty.jsonl: no sequence of ids to audit" in output.err
