"""robustok red-team: what a user types and reads."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Shell, save_model
from tests.oracles.models import save_tiny_models

from robustok.attack.settings import GROUP
from robustok.models import Shape, small_model
from robustok.runtime.inputs import read_rows

PROMPTS = [
    {"key": "a", "prompt": "happen, glad", "target": " rain", "choices": [" up", " rain"],
     "label": 0},
    {"key": "b", "prompt": "straight garden", "target": " up", "choices": [" up", " rain"],
     "label": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("redteam")
    save_tiny_models(folder, "one", "two")
    lines = [json.dumps(prompt) for prompt in PROMPTS]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "judges.py").write_text(
        "def length(prompt, answer):\n    return len(answer)\n"
        "def short(rows, prompt, model, vocab):\n"
        "    assert vocab.decode(rows[0]) == prompt.text and model.config\n"
        "    return -rows.lengths\n"
        "def two(rows, model):\n    return -rows.lengths\n"
        "def long(rows, *_):\n"
        "    return [len(row) if len(row) > 6 else float('-inf') for row in rows]\n"
    )
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


STEP = "adversarial(steps=2)"
TARGET = ("one", "--objective", "target", "--prompts", "prompts.jsonl", "--seed", "0")


def test_attacks_are_written_and_the_same_command_goes_on(shell: Shell) -> None:
    call = ("red-team", *TARGET, "-s", STEP, "--out", "attacks")
    attacked = shell.rows(*call)
    assert [row["key"] for row in attacked] == ["a", "b"]
    assert all(row["score"] >= row["canonical_score"] for row in attacked)
    (group,) = Path("attacks/groups").glob("*/*.json")
    written = group.read_bytes()
    assert read_rows(Path("attacks/attacks.jsonl")) == attacked
    group.write_bytes(written[:-20])
    assert shell.rows(*call) == attacked
    assert group.read_bytes() == written
    Path("foreign").mkdir()
    Path("foreign/report.md").write_text("mine")
    error = shell.fails(*call[:-1], "foreign")
    assert "foreign holds other files (report.md): give a new or empty folder" in error
    error = shell.fails(*call, "--seed", "1")
    assert "holds results with other seed" in error


KILLED = """
import os, signal, sys
from robustok import attack
from robustok.cli.app import run

attack_prompts, groups = attack.attack_prompts, []

def killed(*args, **kwargs):
    groups.append(args)
    if len(groups) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return attack_prompts(*args, **kwargs)

attack.attack_prompts = killed
run(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_run_goes_on_to_the_same_bytes(shell: Shell) -> None:
    prompts = [{**PROMPTS[i % 2], "key": str(i)} for i in range(GROUP + 2)]
    Path("many.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts))
    call = ("red-team", "one", "--objective", "target", "--prompts", "many.jsonl", "--seed", "0",
            "-s", STEP, "--out")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", KILLED, *call, "killed"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len([*Path("killed/groups").glob("*/*.json")]) == 1
    for name in ("killed", "whole"):
        shell.ok(*call, name)
    whole, killed = (
        {path.relative_to(name): path.read_bytes() for path in Path(name).rglob("*.*")
         if path.is_file()} for name in ("whole", "killed")
    )  # fmt: skip
    assert whole == killed and len(whole) > 3


def test_scores_of_another_precision_are_not_continued(shell: Shell, tmp_path: Path) -> None:
    """Of a model that was saved in bfloat16, and is small, so that auto is float32."""
    half = save_model(tmp_path / "half")
    model = small_model(290, Shape(1, 16, 2, 2, 32, 256), seed=0, end_id=0)
    model.bfloat16().save_pretrained(half)
    call = ("red-team", str(half), *TARGET[1:], "-s", STEP, "--out", "halves")
    shell.ok(*call)
    error = shell.fails(*call, "--dtype", "bfloat16")
    assert re.search("holds results with other .*precision: delete it", error)


SEVERAL = (
    "-s", "adversarial(max_scored=40)", "-s", "adversarial(search=beam, max_scored=40)",
    "-s", "adversarial(search=random, max_scored=40)",
)  # fmt: skip


def test_several_attacks_are_printed_with_the_worst_of_each_prompt(shell: Shell) -> None:
    call = ("red-team", "one", "--prompts", "prompts.jsonl", "--objective", "margin", "--seed", "0")
    *parts, worst = shell.rows(*call, *SEVERAL, "--out", "several")
    assert worst["eval_scheme"] == "worst of 3 attacks"
    assert worst["success"] >= max(part["success"] for part in parts)
    assert all(part["n_scored"] <= 80 for part in parts)
    assert worst["n_scored"] == sum(part["n_scored"] for part in parts)
    results = [json.loads(p.read_text())["result"] for p in Path("several/groups").glob("*/*.json")]
    scores = zip(*([row["score"] for row in one["attacks"]] for one in results), strict=True)
    worst_scores = [row["score"] for row in read_rows(Path("several/attacks.jsonl"))]
    assert worst_scores == pytest.approx([max(part) for part in scores])
    for part, scheme in zip(parts, SEVERAL[1::2], strict=True):
        alone = shell.rows(*call, "-s", scheme)
        assert part["success"] == sum(row["success"] for row in alone) / len(alone)
    assert re.search(r"worst of 3 attacks +\d.* \[", shell.ok(*call, *SEVERAL, "--out", "several"))
    page = Path("several/report.md").read_text()
    assert f"Under the worst attack {100 * worst['success']:.1f}" in page
    assert page.count("| attacked |") == 2 and Path("several/figures/curve.png").exists()


def test_several_attacks_say_where_the_canonical_tokenization_is_excluded(shell: Shell) -> None:
    call = ("red-team", "one", "--prompts", "prompts.jsonl", "--objective", "judges:long",
            "--seed", "0", *SEVERAL)  # fmt: skip
    rows = shell.rows(*call)
    assert {row["canonical_score"] for row in rows} == {None}
    assert rows[-1]["score"] > 6
    assert re.search(r"excluded +\+", shell.ok(*call))


def test_a_wrong_objective_or_search_is_found_before_the_model_is_loaded(shell: Shell) -> None:
    for wrong, message in (
        (("--objective", "judges:two"), r"define it as f\(rows, prompt, model, vocab\)"),
        (("--objective", "judges:none"), "no function"),
        (("--objective", "margin", "-s", "adversarial(search=lucky)"), "unknown search 'lucky'"),
        (("--objective", "margin", "-s", "adversarial(start=unifrom)"), "did you mean 'uniform'"),
        (
            ("--objective", "margin", "-s", "adversarial(objective=log-probability)"),
            "objective=log-probability is for questions.*leave the setting out",
        ),
        (("--objective", "margin", "--generate", "--judge", "no:judge"), "no function"),
    ):
        error = shell.fails("red-team", "nowhere", "--prompts", "prompts.jsonl", *wrong)
        assert re.search(message, error), error


def test_answers_are_written_and_judged(shell: Shell) -> None:
    output = shell.ok(
        "red-team", *TARGET, "-s", STEP, "--generate", "--judge", "judges:length",
        "--out", "answered",
    )  # fmt: skip
    assert "judge: mean" in output
    answers = read_rows(Path("answered/answers.jsonl"))
    assert [a["attacked_verdict"] for a in answers] == [len(a["attacked"]) for a in answers]
    assert "| tokenization | tokens | score | answer |" in Path("answered/report.md").read_text()


@pytest.mark.parametrize(
    "settings",
    [
        ("one", "--objective", "refusal", "--unwanted", " up", "--wanted", " rain"),
        ("one", "--objective", "guard", "--unwanted", " up", "--wanted", " rain"),
        ("one", "--objective", "margin"),
        ("one", "--objective", "judges:short"),
        ("one", "--objective", "target", "-s", "adversarial(search=random, max_scored=20)"),
    ],
)
def test_every_objective_runs(shell: Shell, settings: tuple[str, ...]) -> None:
    common = ("--prompts", "prompts.jsonl", "--seed", "0")
    search = () if "-s" in settings else ("-s", STEP)
    attacked = shell.rows("red-team", *settings, *common, *search)
    assert [row["key"] for row in attacked] == ["a", "b"]
