"""Exit codes, messages and colors: pipes, terminals, missing output or input, several processes."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.conftest import TEXT, save_model

import robustok
from robustok.cli import app as cli
from robustok.cli.app import COMMANDS
from robustok.cli.printing import print_heading, print_tokens
from robustok.training.run import check_launch

ROBUSTOK = f"{sys.executable} -m robustok"


def shell(line: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


SAMPLE = f"{ROBUSTOK} sample '{TEXT}' -t {{tokenizer}} -s uniform --seed 0 -n {{draws}}"
ROWS = f"{sys.executable} -c \"print('[1, 2, 3]\\n' * 20000)\" 2>/dev/null"
COMPLETE = "COMP_WORDS='robustok samp' COMP_CWORD=1 _ROBUSTOK_COMPLETE=bash_complete"
COMPLETE_STUDY = COMPLETE.replace("samp", "study r").replace("WORD=1", "WORD=2")


@pytest.mark.parametrize(("line", "code", "out", "err"), [
    pytest.param(f"{SAMPLE} | head -1", 141, r".+\n", "", id="a reader that goes away"),
    pytest.param(f"{ROWS} | {ROBUSTOK} guard - -t {{tokenizer}} | head -1", 141, None, "",
                 id="guard never ends with the code for findings because of head"),
    pytest.param(f"{SAMPLE} >&-", 0, "", "", id="a closed output"),
    pytest.param(f"{ROBUSTOK} sample - -t {{tokenizer}} -s uniform --seed 0 <&-", 0, "", "",
                 id="a closed input is an empty one"),
    pytest.param(f"{SAMPLE} >/dev/full", 2, None, "robustok: No space left on device\n",
                 id="a full disk", marks=pytest.mark.skipif(
                     not Path("/dev/full").exists(), reason="no /dev/full on this system")),
    pytest.param(f"PYTHONIOENCODING=cp1252 {ROBUSTOK} inspect '{TEXT}' -t {{tokenizer}} --seed 0",
                 0, ".*█.*", "", id="UTF-8 where Python has another encoding, as on Windows"),
    pytest.param(f"FORCE_COLOR=1 TERM=xterm {SAMPLE}", 0, r".*\x1b\[.*", "",
                 id="colors in a pipe where they are forced"),
    pytest.param(f"{ROBUSTOK} --version", 0, f"robustok {robustok.__version__}\n", "",
                 id="the version"),
    pytest.param(f"{COMPLETE} {ROBUSTOK}", 0, "plain,sample\n", "", id="completion of commands"),
    pytest.param(f"{COMPLETE_STUDY} {ROBUSTOK}", 0, "plain,run\nplain,report\n", "",
                 id="completion of the commands of studies"),
])  # fmt: skip
def test_streams_and_exit_codes(
    line: str, code: int, out: str | None, err: str, tokenizer: str
) -> None:
    draws = 20_000 if "head" in line else 3
    ended, printed, errors = shell(line.format(tokenizer=tokenizer, draws=draws))
    assert (ended, errors) == (code, err)
    assert out is None or re.fullmatch(out, printed, re.DOTALL if "*" in out else 0)


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (KeyboardInterrupt(), "stopped; nothing finished is lost", 130),
        (type("PanicException", (BaseException,), {})("boom"), "a library failed: boom", 2),
        (OSError(30, "Read-only file system", "out.jsonl"), "Read-only file system: out.jsonl", 2),
        (BrokenPipeError(32, "Broken pipe"), "Broken pipe", 2),  # of a process of ours
        (MemoryError(), "out of memory", 2),
        (ModuleNotFoundError("torch", name="torch"), "this needs torch: pip install", 2),
    ],
)
def test_any_end_is_one_line(
    error: BaseException,
    line: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: object) -> None:
        raise error

    monkeypatch.setattr("robustok.cli.doctor._findings", fail)
    assert cli.run(["doctor"]) == code
    err = capsys.readouterr().err.strip()
    assert err.startswith(f"robustok: {line}") and "\n" not in err


def test_doctor_names_extras_with_their_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("robustok.cli.doctor.find_spec", lambda name: None)
    assert cli.run(["doctor"]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("missing")]
    extras = ("models", "corpus", "ray", "lm-eval", "play")
    assert len(lines) == len(extras) + 2  # and sentencepiece and tiktoken
    for extra, line in zip(extras, lines, strict=False):
        assert f"pip install 'robustok[{extra}]', or '.[{extra}]' in a checkout" in line
    assert lines[0].startswith("missing torch, transformers, accelerate, ")


@pytest.mark.parametrize("line", [
    "evaluate nowhere --items none.jsonl --seed 0 --out", "study run quick --out",
])  # fmt: skip
def test_figures_that_cannot_be_drawn_are_an_error_before_anything_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "robustok.runtime.packages.find_spec",
        lambda name: None if name == "matplotlib" else object(),
    )
    assert cli.run([*line.split(), str(tmp_path / "out")]) == 2
    assert "this needs matplotlib: pip install 'robustok[models]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("without", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colors_shows_bars_between_tokens(
    without: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ({"FORCE_COLOR": "1", "TERM": "xterm"} | without).items():
        monkeypatch.setenv(name, value)
    print_tokens([b"a", b"b"])
    print_heading("uniform")
    assert capsys.readouterr().out == "a|b\n\nuniform\n"


@pytest.mark.parametrize(("rank", "printed"), [("0", True), ("1", False)])
def test_the_first_process_alone_prints(
    rank: str, printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    assert cli.run(["--version"]) == 0
    assert bool(capsys.readouterr().out) is printed


@pytest.mark.parametrize(("count", "is_named"), [(1, False), (2, True)])
def test_accelerate_with_one_process_in_place_of_two_is_named(
    count: int, is_named: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the variables that `accelerate launch` sets on a CPU."""
    torch = pytest.importorskip("torch")
    if torch.accelerator.is_available():
        pytest.skip("accelerate starts all processes where there are accelerators")
    launcher = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu"]
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    clean = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK", "MASTER_ADDR")}
    result = subprocess.run(
        [*launcher, "--num_processes", str(count), "--no_python", sys.executable, "-c", script],
        env=clean, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    monkeypatch.setattr(os, "environ", json.loads(result.stdout))
    with caplog.at_level(logging.WARNING):
        check_launch(0)
    assert ("use torchrun" in caplog.text) is is_named


ON_ITEMS = "--items m/items.jsonl --seed 0"
RECIPE = "--steps 2 --batch-size 2 --learning-rate 1e-3"
LINES = {
    "sample": "sample street -t m/tokenizer.json -s uniform --seed 0",
    "count": "count street -t m/tokenizer.json",
    "inspect": "inspect street -t m/tokenizer.json --seed 0",
    "doctor": "doctor",
    "guard": "guard 1,2,3 -t m/tokenizer.json",
    "audit": "audit ids.jsonl -t m/tokenizer.json",
    "evaluate": f"evaluate m {ON_ITEMS} -s canonical -s uniform --draws 2 --out rows",
    "report": "study report rows",
    "finetune": f"finetune m {ON_ITEMS} --out tuned -s uniform {RECIPE}",
    "finetune --lora": f"finetune m {ON_ITEMS} --out low -s uniform --lora {RECIPE}",
    "evaluate an adapter": f"evaluate low {ON_ITEMS} -s canonical",
    "few-shot": f"evaluate m {ON_ITEMS} -s canonical -k 1",
    "attack": f"evaluate m {ON_ITEMS} -s adversarial(steps=1)",
    "red-team": "red-team m --objective refusal --text street --seed 0",
    "study list": "study list",
    "study plan": "study plan quick",
    "an error": f"evaluate nowhere/at {ON_ITEMS}",
    "a usage error": "evaluate --unknown",
} | {f"{name} --help": f"{name} --help" for name in COMMANDS}
PROGRAM = """
import json, sys
from robustok.cli.app import run
for name, line in json.loads(sys.argv[1]).items():
    for stream in (sys.stdout, sys.stderr):
        print("=====", name, file=stream, flush=True)
    run(line.split())
"""
TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:[349]\d|10[0-7])(?:;\d+)*m")
# What a slow machine adds: that kernels are compiled, and progress after some seconds.
SLOW = re.compile(r"robustok: compiling .*\n|\r.*\r|.*: \d+\.\d% of .*\n")
Outputs = dict[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    save_model(folder / "m")
    (folder / "ids.jsonl").write_text("[1, 2, 3]\n")
    return folder


def outputs(
    folder: Path, lines: dict[str, str], prefix: Sequence[str] = (), **environment: str
) -> tuple[Outputs, Outputs]:
    """What each line prints on standard output and on standard error."""
    unset = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    kept |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROGRAM, json.dumps(lines)],
        cwd=folder, capture_output=True, text=True, timeout=500, env=kept | environment,
    )  # fmt: skip
    both = (done.stdout.replace("\r\n", "\n"), done.stderr)
    printed, errors = (
        dict(re.findall(r"===== (.*)\n((?:(?!=====).*\n?)*)", text)) for text in both
    )
    return printed, errors


@pytest.fixture(scope="module")
def piped(folder: Path) -> tuple[Outputs, Outputs]:
    return outputs(folder, LINES)


@pytest.mark.parametrize("name", LINES)
def test_a_pipe_gets_no_escape_codes_and_no_warnings(
    piped: tuple[Outputs, Outputs], name: str
) -> None:
    printed, errors = piped[0][name], SLOW.sub("", piped[1][name])
    assert "\x1b" not in printed + errors
    if "error" in name:
        assert errors.startswith("robustok: ") and errors.count("\n") == 1
    else:
        assert errors == "" and printed


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
def test_no_color_removes_the_colors_of_a_terminal(folder: Path) -> None:
    prefix = [sys.executable, "-c", TERMINAL]
    names = ("sample", "inspect", "doctor", "guard", "audit", "evaluate", "study plan", "an error")
    lines = {name: LINES[name] for name in names}
    colored, _ = outputs(folder, {"sample": lines["sample"]}, prefix)
    plain, _ = outputs(folder, lines, prefix, NO_COLOR="1")
    assert COLOR.search(colored["sample"])
    assert list(plain) == list(lines)
    assert [name for name in names if COLOR.search(plain[name])] == []
