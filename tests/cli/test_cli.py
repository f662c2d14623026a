"""The commands, as a shell calls them: what they print, and one line with code 2 on bad input."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from tests.cli.conftest import TEXT, Shell

import robustok as rt
from robustok.cli.app import run
from robustok.cli.terminal import StudyBars
from robustok.samplers.spec import SCHEMES
from robustok.study import Cell
from robustok.study import studies as included
from robustok.study.inputs import DataCell


def sample(tokenizer: str, text: str, scheme: str = "uniform") -> Sequence[str]:
    return ("sample", text, "--tokenizer", tokenizer, "--scheme", scheme, "--seed", "7")


def test_sample_draws_what_the_library_draws(
    shell: Shell, tokenizer: str, vocab: rt.Vocabulary
) -> None:
    record = shell.json(*sample(tokenizer, TEXT), "--draws", "3")
    expected = rt.sampler("uniform", vocab).sample_batch([TEXT], seed=7, draws=3)
    assert record["ids"] == [row.tolist() for row in expected]
    assert ["".join(tokens) for tokens in record["tokens"]] == [TEXT] * 3
    assert shell.json(*sample(tokenizer, ""))["ids"] == [[]]


def test_sample_count_and_inspect_take_the_own_tokenizer_by_default(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no file called demo
    vocab = rt.Vocabulary.load("demo")
    record = shell.json("sample", "hello world", "--scheme", "uniform", "--seed", "0")
    assert record["ids"] == [rt.sampler("uniform", vocab).sample("hello world", seed=0).tolist()]
    total = vocab.lattice("hello world").count()
    assert shell.json("count", "hello world") == {"total": str(total)}
    shown = shell.ok("inspect", "hello world")
    assert f"{total} tokenizations" in shown and "distance from canonical" in shown


def test_sample_counts_texts_that_can_only_be_canonical(
    shell: Shell, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.BytesIO(f"which\n\n{TEXT}\nwhich\n".encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(lines))
    output = shell.run(*sample(tokenizer, "-", "uniform-k(alpha=0.5)"), "--draws", "3")
    assert output.err == (
        "only canonical: 2 of 4 texts, with no tokenization at a distance from 1 to k: "
        "use a larger alpha or k\n"
    )
    assert shell.run(*sample(tokenizer, TEXT, "uniform-k(alpha=0.5)")).err == ""


def test_sample_takes_bytes_that_are_not_utf8(shell: Shell, tokenizer: str) -> None:
    text = b"word\xff\xfe".decode("utf-8", "surrogateescape")
    record = shell.json(*sample(tokenizer, text, "canonical"))
    assert record["tokens"][0][-2:] == ["\\xff", "\\xfe"]


def test_count_is_exact_and_by_distance_sums_up(shell: Shell, tokenizer: str) -> None:
    record = shell.json("count", TEXT, "--tokenizer", tokenizer, "--by", "distance")
    assert record["by_distance"][:2] == ["1", "0"]
    assert sum(map(int, record["by_distance"])) == int(record["total"]) > 1
    record = shell.json("count", TEXT, "-t", tokenizer, "--by", "segments", "--max", "3")
    assert len(record["by_segments"]) == 4
    digits = shell.json("count", f"{TEXT} " * 2000, "-t", tokenizer)["total"]
    assert len(digits) > sys.get_int_max_str_digits() and digits.isdecimal()


def test_doctor_reports_versions_and_what_is_missing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = shell.json("doctor")
    assert {"robustok", "python", "numpy"} <= record["versions"].keys()
    assert record["devices"][0] == "cpu"
    entry = {"packages": ["gigatoken"], "for": "fast canonical encoding",
             "install": "pip install 'robustok[corpus]', or '.[corpus]' in a checkout"}  # fmt: skip
    assert entry not in record["missing"]
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    assert entry in shell.json("doctor")["missing"]


def test_doctor_checks_a_tokenizer(
    shell: Shell, tokenizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.guard.invariants.SCHEMES", ("uniform",))
    record = shell.json("doctor", "--tokenizer", tokenizer)
    assert record["ok"] and record["fast_encoder"] and record["kind"] == "byte-level BPE"
    assert [check["name"] for check in record["invariants"]] == [
        "encoding", "draws", "probabilities", "guard"
    ]  # fmt: skip
    text = shell.ok("doctor", "-t", tokenizer)
    assert "fast encoder" in text and "refused" not in text
    monkeypatch.setattr(rt.Uniform, "log_prob", lambda self, ids: -1.0)
    result = shell.run("doctor", "-t", tokenizer)
    assert result.code == 1 and "wrong, probabilities: uniform" in result.out


def test_studies_are_listed_and_planned(shell: Shell, tmp_path: Path) -> None:
    first, *others = rows = shell.rows("study", "list")
    text = shell.ok("study")  # which runs nothing
    assert [line for line in text.splitlines() if line[0] != " "] == [row["name"] for row in rows]
    assert first["name"] == "quick" and first["scales"] == ["full", "cpu"]
    for row in others:  # read without a library of YAML
        text = yaml.safe_load(included()[row["name"]])
        assert (row["scales"][1:], row["title"]) == ([*text.get("scales", {})], text["title"])
    cells = shell.rows("study", "plan", "quick", "--out", str(tmp_path))
    assert {"key", "done", "label", "work"} == cells[0].keys()
    assert not any(cell["done"] for cell in cells)
    for action in ("list", "plan", "run", "report"):
        assert shell.ok("study", action, "--help").startswith(f"Usage: robustok study {action} ")


def test_sample_help_names_every_scheme(shell: Shell) -> None:
    help_text = "".join(shell.ok("sample", "--help").split())
    assert all(name in help_text for name in SCHEMES)


@pytest.mark.parametrize("folder", ["", "./"])
def test_a_path_is_the_same_however_it_is_written(
    monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("robustok.study.find_study", lambda name, **paths: given.update(paths))
    with pytest.raises(AttributeError):  # no study is found
        run(["study", "plan", "quick", "--debug", "--corpus", f"{folder}a.txt",
             "--held-out", f"{folder}b.txt", "--benchmarks", f"{folder}tasks/"])  # fmt: skip
    assert given == {"corpus": ("a.txt",), "held_out": "b.txt", "benchmarks": "tasks"}


def test_study_plan_says_what_a_folder_of_cells_already_holds(shell: Shell, tmp_path: Path) -> None:
    lines = shell.ok("study", "plan", "quick", "--cells", str(tmp_path)).splitlines()
    assert any("pretrain canonical" in line for line in lines)
    keys = [line.split()[0] for line in lines]
    assert not any(" done " in line for line in lines)
    for key in (keys[0], keys[3]):
        (tmp_path / key).mkdir()
    (tmp_path / keys[0] / "cell.json").write_text("{}")  # the other was only begun
    again = shell.ok("study", "plan", "quick", "--cells", str(tmp_path)).splitlines()
    assert [line.split()[0] for line in again if " done " in line] == keys[:1]


def cells_of_a_minute(count: int) -> tuple[Cell, ...]:
    class Minute(DataCell):
        work = 60.0  # type: ignore[assignment]

    return tuple(Minute("cute", 100, train=8, test=8, seed=seed) for seed in range(count))


def lines_of_log(
    cells: tuple[Cell, ...], seconds: float, ended: int, count: int, at_once: int = 1
) -> list[str]:
    """The log of ``count`` cells after the ``ended`` ones, each of which takes so long."""
    log, record = io.StringIO(), {"result": {}, "seconds": seconds}
    with StudyBars(Console(file=log, width=200), at_once=at_once) as bars:
        bars.plan(cells, {cell.key: record for cell in cells[:ended]})
        for cell in cells[ended : ended + count]:
            bars.start(cell)
            bars.finish(cell, record)
    return log.getvalue().splitlines()


def test_a_log_says_how_much_time_is_left() -> None:
    first, *lines = lines_of_log(cells_of_a_minute(3), 60.0, 0, 3, at_once=2)
    assert first == "3 cells to do, about 0:01:30"
    assert [line.partition("; ")[2] for line in lines] == ["0:01:00 left", "0:00:30 left", ""]


@pytest.mark.parametrize(
    ("before", "seconds", "ended", "count", "low", "high"),
    [
        ((), 120.0, 1, 10, 17, 18),  # nine cells of two minutes
        # A first cell whose cost is a second does not decide.
        ((DataCell("cute", 100, train=8, test=8, seed=99),), 30.0, 0, 1, 20, 40),
    ],
)
def test_the_time_left_follows_what_finished_cells_took(
    before: tuple[Cell, ...], seconds: float, ended: int, count: int, low: int, high: int
) -> None:
    *_, last = lines_of_log((*before, *cells_of_a_minute(20)), seconds, ended, count)
    assert low <= int(last.partition("; ")[2].split(":")[1]) <= high


def test_a_log_has_lines_of_a_running_cell(clock: list[float]) -> None:
    (cell,) = cells_of_a_minute(1)
    log = io.StringIO()
    with StudyBars(Console(file=log, width=200)) as bars:
        bars.plan((cell,), {})
        bars.start(cell)
        for step in range(40, 50):  # of a cell that an earlier run began
            clock[0] += 20.0
            bars.progress(cell, step, 100)
    lines = log.getvalue().splitlines()[1:]
    assert len(lines) == 5
    assert lines[0] == f"{cell.label}: 41.0% of 100, 0:19:40 left"


def test_debug_shows_the_traceback(tokenizer: str) -> None:
    with pytest.raises(Exception, match="unknown scheme"):
        run(["--debug", *sample(tokenizer, "x", "unifrom")])


def test_a_missing_extra_says_what_to_install(
    shell: Shell, tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = tmp_path / "a.jsonl"
    items.write_text('{"id": "a", "question": "is it?", "choices": [" no", " yes"], "label": 0}\n')
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "robustok.evaluation", raising=False)
    monkeypatch.delitem(sys.modules, "robustok.scoring", raising=False)
    output = shell.fails("evaluate", str(Path(tokenizer).parent), "--items", str(items))
    assert "robustok[models]" in output
