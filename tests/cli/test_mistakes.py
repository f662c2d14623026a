"""Bad input to any command: one line that says what is wrong, code 2, and nothing is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

from robustok.cli import app

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
evaluate {m} --items= --seed 0 => no file ''
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
red-team {m} --seed 0 --objective target --text a -s standard-suite(beam=2) => cannot read the
red-team {m} --seed 0 --objective margin --text a -s adversarial(beams=2) => mean 'beam'
{finetune} -s uniform --batch-size 4 => give --steps and --learning-rate, or a --preset (paper
{finetune} -s uniform --preset paper-fintune => did you mean 'paper-finetune'?
{finetune} -s uniform --preset= --steps 1 --batch-size 1 --learning-rate 1 => unknown preset
{finetune} --preset paper-finetune -s stochastok(alpha=0->x) => alpha
{finetune} -s uniform --preset paper-finetune --overflow cut => unknown overflow policy
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
    command, _, message = line.partition(" => ")
    filled = command.format(
        t=tokenizer, m=model, i=model / "items.jsonl", w=tmp_path / "words.txt",
        broken=tmp_path / "broken.json", empty=tmp_path / "empty.txt", out=tmp_path / "out",
        finetune=f"finetune {model} --items {model}/items.jsonl --seed 0 -o {tmp_path}/out",
    )  # fmt: skip
    assert message in shell.fails(filled)
    assert not (tmp_path / "out").exists()
