"""The commands as a shell calls them: what they print, and one line with code 2 on bad input."""

import io
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.cli.conftest import TEXT, Shell

import robustok as rt
from robustok.attack.settings import ObjectiveSettings
from robustok.cli import app
from robustok.cli.app import COMMANDS, command, run
from robustok.cli.terminal import StudyBars
from robustok.errors import RobustokError
from robustok.runtime import hub
from robustok.samplers.spec import SCHEMES
from robustok.study import Cell, Study
from robustok.study import plan as study_plan
from robustok.study import studies as included
from robustok.study.inputs import DataCell
from robustok.training.recipe import Finetuning, Recipe


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


def test_a_study_that_takes_long_names_its_scales_first(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def plans_alone(study: Study, folder: Path, *, watch: Any, **_: object) -> None:
        watch.plan(study_plan(study, by_content=False), {})
        raise RobustokError("planned")

    monkeypatch.setattr("robustok.study.run_study", plans_alone)
    for name in ("teaser", "figure-1"):
        first, second = shell.run("study", name, "--out", str(tmp_path)).out.splitlines()
        assert first == "at full scale; smaller ones: --scale cpu"
        assert re.fullmatch(r"\d+ cells to do, about \d+ days, .*", second)
    (line,) = shell.run("study", name, "--scale", "cpu", "--out", "x").out.splitlines()
    assert "days" not in line


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


# A command => a part of its error.
MISTAKES = """
sampel => unknown command 'sampel': did you mean 'sample'? See robustok --help
sample x --frob => ; see robustok sample --help
data langgame --seed 0 => Missing option '--out'
sample x y -s uniform --seed 0 => put the text in quotes
study plan quick --held-out= => '--held-out': it is empty: give a file or folder
sample x -t {t} -s uniform --seed => Option '--seed' requires an argument
sample x -t {t} --seed 0 -s => Option '-s' requires an argument; see robustok sample --help
evaluate ./nowhere --items {i} --seed 0 => no file or folder './nowhere': give one that exists
evaluate {m} --items {t} --seed 0 => is not JSON
sample x -t {t} -s uniform --seed abc => seed
sample x -t {t} -s unifrom --seed 0 => uniform
sample x -t {t} -s uniform-k(alpa=1) --seed 0 => alpha
sample x -t {t} -s uniform-k(alpha=-1) --seed 0 => alpha
sample x -t {t} -s stochastok(alpha=nan) --seed 0 => alpha
sample x -t nowhere.json -s uniform --seed 0 => nowhere.json
sample x --tokenizer= -s uniform --seed 0 => an empty name of a tokenizer
count x -t {broken} => tokenizer.json
study quik => quick
study nowhere.yaml => nowhere.yaml
study quick again => again
study quick --words-file {empty} --out {out} => words
study run => NAME
study --out {out} => NAME
study quick --corpus {empty} --out {out} => leave --corpus and --held-out out
study plan quick --held-out {empty} => leave --corpus and --held-out out
study quick --benchmarks {out} --out {out} => leave --benchmarks out
study list quick => quick
guard 1 2 x -t {t} => not a sequence of ids: '1 2 x'
guard requests.jsonl -t {t} => for a file robustok guard - < FILE
count x --max 3 => give --by
evaluate {m} --seed 0 => give --items
evaluate {m} --items= --seed 0 => no file and no benchmark ''
evaluate nowhere --items none.jsonl --seed 0 => none.jsonl
evaluate nowhere => give --items
evaluate {m} --items {i} --examples uniform => give --few-shot
evaluate {m} --texts {i} -s adversarial => give --items
evaluate {m} a={m} a={m} --items {i} => called 'a'
evaluate =x --items {i} => names no model
evaluate nowhere --items {i} -s adversarial(steps=-1) => steps is -1
evaluate nowhere --items {i} -s adversarial(search=lucky) => unknown search 'lucky'
evaluate nowhere --items {i} -s adversarial(objective=loss) => objective
evaluate nowhere --items {i} -s unifrom => did you mean 'uniform'
evaluate {m} --items {i} -s uniform -s uniform => already in the list
evaluate {m} --items {i} --start-token <s> => no special token '<s>'
data langgam --seed 0 --out {out} => did you mean 'langgame'
data cute --seed 0 --out {out} --words 4 --words-file {w} => leave out --words
data cute --seed 0 --out {out} --words 4 --train 9000 => CUTE questions of these kinds, not 9000
red-team {m} --seed 0 --objective margin --text a --target b => choose objective target
red-team {m} --seed 0 --objective margin --text a --wanted b => choose objective refusal or guard
red-team {m} --seed 0 --objective margin --text a --threshold 1 => target or MODULE:FUNCTION
red-team {m} --seed 0 --objective target --text a => has no target
red-team {m} --seed 0 --objective margin --text a => no answer options
red-team {m} --seed 0 --objective nothing --text a => unknown objective
red-team {m} --seed 0 --objective no:thing --text a => no function
red-team {m} --seed 0 --objective target --text a --target b --chat => no chat template
red-team {m} --seed 0 --objective target --text a --target b --judge math:isnan => give --generate
red-team {m} --seed 0 --objective target --text a --prompts {i} => give either --text or --prompts
red-team nowhere --objective target --target b --text= => give either --text or --prompts
red-team {m} --seed 0 --objective target --text a -s standard-suite(beam=2) => cannot read the
red-team {m} --seed 0 --objective margin --text a -s adversarial(beams=2) => mean 'beam'
{finetune} -s uniform --batch-size 4 => give --steps and --learning-rate, or a --preset (paper
{finetune} -s uniform --preset paper-fintune => did you mean 'paper-finetune'?
{finetune} -s uniform --preset= --steps 1 --batch-size 1 --learning-rate 1 => unknown preset
{finetune} --preset paper-finetune -s stochastok(alpha=0->x) => alpha
{finetune} -s uniform --preset paper-finetune --overflow cut => unknown overflow policy
corpus {i} {out} -t {t} --seed 0 -s uniform --engine spark => spark
corpus {i} {out} -t {t} --seed 0 -s uniform --column body => no field 'body'
corpus {i} {out} -t {t} --seed 0 -s uniformk => unknown scheme 'uniformk': did you mean
"""


def test_a_library_that_exits_with_a_text_is_an_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.ROBUSTOK, "invoke", lambda _: sys.exit("the tasks\ncannot be read"))
    assert shell.fails("lm-eval run") == "robustok: the tasks cannot be read\n"


@pytest.mark.parametrize("line", MISTAKES.split("\n")[1:-1])
def test_bad_input_is_one_line(
    shell: Shell, tokenizer: str, model: Path, tmp_path: Path, line: str
) -> None:
    files = {"broken": '{"model": ', "empty": "\n\n", "words": "street\nhouse\nwhich\nword\n"}
    for name, content in files.items():
        (tmp_path / name).with_suffix(".json" if name == "broken" else ".txt").write_text(content)
    before = {*tmp_path.iterdir()}
    command, _, message = line.partition(" => ")
    filled = command.format(
        t=tokenizer, m=model, i=model / "items.jsonl", w=tmp_path / "words.txt",
        broken=tmp_path / "broken.json", empty=tmp_path / "empty.txt", out=tmp_path / "out",
        finetune=f"finetune {model} --items {model}/items.jsonl --seed 0 -o {tmp_path}/out",
    )  # fmt: skip
    assert message in shell.fails(filled)
    assert {*tmp_path.iterdir()} == before


def test_help_has_panels_defaults_and_ranges(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = shell.ok("finetune", "--help")
    order = ("\nOptions:", "--out ", "--json ", "--help ", "\nTraining:", "--steps ", "\nModel:")
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "[x>=1]" in text and "[default: 0; x>=0]" in text and "[default: error]" in text
    assert "--weight-decay" not in text  # a field without flags
    assert "or safe verdict; repeatable" in shell.ok("red-team", "--help")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("red-team", ObjectiveSettings), ("finetune", Finetuning), ("pretrain", Recipe)],
)  # fmt: skip
def test_every_field_with_help_is_an_option(
    name: str, settings: Any, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = shell.ok(name, "--help")
    assert len(text.splitlines()) <= 100
    for one in fields(settings):
        flags = one.metadata.get("flags", (f"--{one.name.replace('_', '-')}",))
        if one.metadata.get("help") and flags:
            assert f"{flags[0].partition('/')[0]} " in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_commands_begins_as_that_of_each(name: str) -> None:
    first, *_ = (command(name).help or "").split("\n\n")
    assert " ".join(first.split()) == COMMANDS[name][1]


def test_no_command_has_two_options_of_one_name() -> None:
    for name in COMMANDS:
        flags = [flag for param in command(name).params for flag in param.opts]
        assert len(flags) == len(set(flags)), name


@pytest.mark.parametrize("given", ["--items {m}/items.jsonl -n 2", "--texts {t} -s canonical",
                                   "--items {m}/items.jsonl -s adversarial(steps=1)"])  # fmt: skip
def test_the_type_of_the_weights_and_the_seed_are_printed(
    given: str, model: Path, tmp_path: Path, shell: Shell
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("which word")
    call = f"evaluate {model} {given.format(m=model, t=text)}"
    first, *_ = shell.ok(f"{call} --dtype bfloat16").splitlines()
    assert first == f"{model.name}: weights in bfloat16, seed 0"
    assert shell.rows(f"{call} --dtype bfloat16")[0]["precision"] == "bfloat16"
    assert "unknown dtype 'float16': did you mean" in shell.fails(f"{call} --dtype float16")


def test_evaluate_prints_the_paired_test_that_its_help_promises(model: Path, shell: Shell) -> None:
    given = ["--items", str(model / "items.jsonl"), "--seed", "0", "-n", "2"]
    _, canonical, uniform = shell.ok("evaluate", str(model), *given).splitlines()
    assert "p = " not in canonical
    assert "against the first" in uniform and "p = " in uniform


def test_a_scheme_of_a_file_is_imported_by_any_command(
    tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setenv("ROBUSTOK_IMPORT", "")
    file = tmp_path / "halves.py"
    file.write_text(
        "import robustok as rt\n"
        "@rt.register\n"
        "class Halves(rt.Sampler):\n"
        "    name = 'halves'\n"
        "    def draw(self, ids, random):\n"
        "        return rt.Characters(self.vocab).draw(ids, random)\n"
    )
    line = f"sample street -t {tokenizer} -s halves --json"
    assert "unknown scheme 'halves'" in shell.fails(line)
    assert "give a file of Python" in shell.fails(f"{line} --import {tmp_path}/none.py")
    assert "--import FILE.py" in shell.fails(f"{line} --import")
    assert shell.json(f"{line} --import {file}")["scheme"] == "halves"
    code = "import robustok as rt; print(rt.sampler('halves', rt.Vocabulary.load('demo')).spec)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout == "halves\n"  # a worker process knows it, too


def test_count_reads_standard_input(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    """Its lines are those of a file: without a mark, and a carriage return alone ends none."""
    texts = ["which word", "street\rword", "street"]
    stream = io.BytesIO("\r\n".join(texts).encode("utf-8-sig"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    rows = shell.rows("count", "-", "-t", tokenizer)
    assert [row["text"] for row in rows] == texts
    for text, row in zip(texts, rows, strict=True):
        assert shell.json("count", text, "-t", tokenizer)["total"] == row["total"]


def test_a_line_of_standard_input_has_the_limit_of_a_file(
    tokenizer: str, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr("robustok.runtime.inputs.MAX_LINE", 8)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"street\nwhich word\n")))
    assert "line 2 is longer than" in shell.fails("count", "-", "-t", tokenizer)


def test_the_folder_that_is_the_current_one_is_a_model(
    model: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.chdir(model)
    (row,) = shell.rows("evaluate", ".", "--items", "items.jsonl", "-s", "canonical", "--seed", "0")
    assert row["model"] == model.name


def test_lm_eval_takes_packaged_names(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval")
    from robustok.integrations.lm_eval import RobustokLM

    monkeypatch.setattr("robustok.integrations.lm_eval.packaged_folder", lambda name: model)
    assert hub.is_packaged("smollm2-135m")
    wrapped: Any = RobustokLM  # its decorator hides its type
    assert wrapped("smollm2-135m", device="cpu").vocab.size == 290


def test_lm_eval_gets_each_scheme_in_its_model_args() -> None:
    from robustok.cli.evaluate import _with_scheme

    given = ["run", "--model_args", "pretrained=a", "--tasks", "b"]
    assert _with_scheme(given, "uniform")[2] == "pretrained=a,scheme=uniform"
    for name in ("--model_args=", "-a="):
        given = [f"{name}pretrained=a"]
        assert _with_scheme(given, "uniform") == [f"{name}pretrained=a,scheme=uniform"]
    assert _with_scheme(["-a", "pretrained=a"], "uniform")[1] == "pretrained=a,scheme=uniform"
