"""guard and audit as a shell and a CI job see them: what is printed, and the exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import robustok as rt
from robustok.cli.app import run
from robustok.models import train_tokenizer
from robustok.report.drift import share

TEXT = "which word starts with street"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer([TEXT] * 3, 290).save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def vocab(tokenizer: str) -> rt.Vocabulary:
    return rt.Vocabulary.load(tokenizer)


@pytest.fixture(scope="module")
def drawn(vocab: rt.Vocabulary) -> list[int]:
    return rt.sampler("uniform", vocab).sample(TEXT, seed=0).tolist()


class Output:
    def __init__(self, capsys: pytest.CaptureFixture[str], *args: str) -> None:
        self.code = run(args)
        self.out, self.err = capsys.readouterr()


def test_json_is_the_verdict(
    capsys: pytest.CaptureFixture[str], tokenizer: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    output = Output(capsys, "guard", ",".join(map(str, drawn)), "-t", tokenizer, "--json")
    record: dict[str, Any] = json.loads(output.out)
    canonical = vocab.encode(TEXT)
    assert output.code == 1
    assert record["canonical"] is False
    assert record["repaired"] == canonical.tolist()
    assert record["distance"] == rt.distance(vocab, canonical, drawn)
    assert record["splits"] >= len(drawn) - len(canonical)
    assert {f["kind"] for f in record["findings"]} == {"not-canonical"}


@pytest.mark.parametrize("form", ["{}", "[{}]"])
def test_canonical_ids_pass(
    capsys: pytest.CaptureFixture[str], tokenizer: str, vocab: rt.Vocabulary, form: str
) -> None:
    ids = form.format(", ".join(map(str, vocab.encode(TEXT).tolist())))
    for mode in ("report", "strict", "repair"):
        output = Output(capsys, "guard", ids, "-t", tokenizer, "--mode", mode)
        assert (output.code, output.err) == (0, "")
    assert Output(capsys, "guard", ids, "-t", tokenizer).out.startswith("canonical: distance 0")


def test_strict_says_one_line(
    capsys: pytest.CaptureFixture[str], tokenizer: str, drawn: list[int]
) -> None:
    output = Output(capsys, "guard", str(drawn), "-t", tokenizer, "--mode", "strict")
    assert (output.code, output.out) == (1, "")
    assert output.err.startswith("robustok: id") and output.err.count("\n") == 1


def test_repair_prints_ids_and_fails_only_on_what_is_left(
    capsys: pytest.CaptureFixture[str], tokenizer: str, vocab: rt.Vocabulary, drawn: list[int]
) -> None:
    output = Output(capsys, "guard", str([*drawn, 99999]), "-t", tokenizer, "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (0, vocab.encode(TEXT).tolist())
    special = [*drawn, 0]
    output = Output(capsys, "guard", str(special), "-t", tokenizer, "--mode", "repair")
    assert (output.code, json.loads(output.out)) == (1, [*vocab.encode(TEXT).tolist(), 0])
    allowed = (str(special), "-t", tokenizer, "--mode", "repair", "--allow-special")
    assert Output(capsys, "guard", *allowed).code == 0


def test_lines_of_standard_input(
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [vocab.encode(TEXT).tolist(), drawn, []]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, lines))))
    output = Output(capsys, "guard", "-", "-t", tokenizer, "--json")
    verdicts = [json.loads(line)["canonical"] for line in output.out.splitlines()]
    assert (output.code, verdicts) == (1, [True, False, True])
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(str, lines))))
    output = Output(capsys, "guard", "-", "-t", tokenizer, "--mode", "strict")
    assert output.err.startswith("robustok: line 2, id")


@pytest.mark.parametrize("ids", ["1,x", "[1, 2", "[1.5]", '["a"]', "[[1]]"])
def test_what_is_no_sequence_is_bad_input(
    capsys: pytest.CaptureFixture[str], tokenizer: str, ids: str
) -> None:
    output = Output(capsys, "guard", ids, "-t", tokenizer)
    assert (output.code, output.out) == (2, "")
    assert output.err.startswith("robustok: ") and output.err.count("\n") == 1


def test_audit_reports_drift_and_its_code(
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    tmp_path: Path,
) -> None:
    path = tmp_path / "rollouts.jsonl"
    rows = [vocab.encode(TEXT).tolist(), drawn]
    path.write_text("".join(json.dumps({"completion_ids": row}) + "\n" for row in rows))
    output = Output(capsys, "audit", str(path), "-t", tokenizer, "--json")
    record = json.loads(output.out)
    assert output.code == 1
    assert (record["rows"], record["drifted_rows"], record["first_rows"]) == (2, 1, [1])
    assert record["drifted"] == rt.distance(vocab, vocab.encode(TEXT), drawn)
    assert sum(p["drifted"] for p in record["by_position"]) == record["drifted"]
    output = Output(capsys, "audit", str(path), "-t", tokenizer)
    assert output.out.startswith("1 of 2 sequences drifted (50%)")
    assert "by position" in output.out and "by token" in output.out
    path.write_text(json.dumps(rows[0]))
    output = Output(capsys, "audit", str(path), "-t", tokenizer)
    assert output.code == 0 and output.out.startswith("0 of 1 sequences drifted (0%)")
    assert Output(capsys, "audit", str(path), "-t", tokenizer, "--column", "x").code == 0
    assert Output(capsys, "audit", str(tmp_path / "none.jsonl"), "-t", tokenizer).code == 2


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
    capsys: pytest.CaptureFixture[str],
    tokenizer: str,
    vocab: rt.Vocabulary,
    drawn: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = vocab.encode(TEXT).tolist()
    lines = f"{good}\n[1.5]\n{'[' * 100_000}\n{drawn}\n{good * 9}\n"
    command = ("guard", "-", "-t", tokenizer, "--max-length", str(len(drawn)))
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    answer = Output(capsys, *command, "--json")
    objects = [json.loads(line) for line in answer.out.splitlines()]
    assert answer.code == 2
    assert [o.get("canonical", o.get("line")) for o in objects] == [True, 2, 3, False, 5]
    assert "integers" in objects[1]["error"] and "at most" in objects[4]["error"]
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    answer = Output(capsys, *command, "--mode", "repair")
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
    capsys: pytest.CaptureFixture[str], tmp_path: Path, tokenizer: str, vocab: rt.Vocabulary,
    drawn: list[int],
) -> None:  # fmt: skip
    canonical = vocab.encode(TEXT).tolist()
    for name, ids in (("a", canonical), ("b", drawn)):
        turns = [
            {"role": "assistant", "ids": canonical}, {"role": "tool", "name": "find", "ids": ids}
        ]  # fmt: skip
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"turns": turns}))
    page = tmp_path / "page.html"
    output = Output(capsys, "audit", str(tmp_path), "-t", tokenizer, "--html", str(page))
    assert output.code == 1
    assert "1 of 4 sequences in 2 files drifted (25%)" in output.out
    assert [line.split()[:3] for line in output.out.splitlines() if line.startswith("tool:")] == [
        ["tool:find", "2", "1"]
    ]
    html = page.read_text()
    assert "b.jsonl, sequence 1, turn 1 (tool:find), ids" in html
    assert "<td>tool:find</td><td>2</td><td>1</td>" in html
    as_json = json.loads(Output(capsys, "audit", str(tmp_path), "-t", tokenizer, "--json").out)
    assert [g["name"] for g in as_json["by_turn"]] == ["0", "1"]
    output = Output(capsys, "audit", str(tmp_path), "-t", tokenizer, "--html", "page.txt")
    assert (output.code, output.err) == (2, "robustok: page.txt: the name must end in .html\n")
