"""The example scripts run as they are, and what they train on is what they say."""

import asyncio
import json
import subprocess
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from tests.oracles.models import save_tiny_models
from tests.oracles.scripts import script
from transformers import PreTrainedTokenizerFast

import robustok as rt
from robustok.attack import attack
from robustok.cli.app import run as run_command
from robustok.integrations.perturb import Perturb
from robustok.integrations.stochastic.fast import StochasticTokenizer
from robustok.models import Shape, load_model, small_model, train_tokenizer

# Of transformers, TRL and datasets among themselves; none is about what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

Rows = list[dict[str, Any]]


def example(name: str) -> Any:
    return script(f"examples/{name}.py")


def run(name: str, out: Path) -> tuple[Rows, Rows]:
    """Run an example; the rows it trained on, before and after, in order."""
    given: Rows = []
    drawn: Rows = []
    draw = Perturb.drawn

    def spy(self: Perturb, rows: Rows, *args: Any) -> Any:
        moved = draw(self, rows, *args)
        given.extend(rows)
        drawn.extend(columns.row for columns in moved)
        return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Perturb, "drawn", spy)
        example(name).main(str(out))
    return given, drawn


def changed_turns(vocab: rt.Vocabulary, old: dict, new: dict) -> list[int]:
    """The numbers of the parts between special tokens that are drawn."""
    turns = [
        np.split(ids, np.flatnonzero(np.isin(ids, list(vocab.special))))
        for ids in (np.asarray(row["input_ids"]) for row in (old, new))
    ]
    pairs = enumerate(zip(*turns, strict=True))
    return [number for number, parts in pairs if not np.array_equal(*parts)]


@pytest.mark.parametrize(
    ("name", "epochs"),
    [("hf_trainer", 2), ("trl_sft", 2), ("trl_packing", 1), ("trl_dpo", 1), ("trl_grpo", 1)],
)
def test_a_trainer_trains_on_draws_of_its_rows(name, epochs, tmp_path, capsys):
    if name.startswith("trl"):
        pytest.importorskip("trl", reason="trl is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given, drawn = run(name, tmp_path / "out")
    vocab = rt.Vocabulary.load(str(tmp_path / "out"))
    assert load_model(tmp_path / "out").num_parameters() > 0
    assert len(given) >= 20
    pairs = list(zip(given, drawn, strict=True))
    for old, new in pairs:
        assert vocab.decode_bytes(new["input_ids"]) == vocab.decode_bytes(old["input_ids"])
    assert np.mean([old["input_ids"] != new["input_ids"] for old, new in pairs]) > 0.95
    draws: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for old, new in pairs[: len(pairs) // 2] if name == "trl_grpo" else pairs:
        draws.setdefault(tuple(old["input_ids"]), set()).add(tuple(new["input_ids"]))
    if epochs == 2:  # are drawn apart
        assert np.mean([len(rows) == 2 for rows in draws.values()]) > 0.95
    if name == "trl_grpo":  # a group does not share its prompt
        assert np.mean([len(rows) for rows in draws.values()]) > 3.5
    if name == "trl_sft":  # <|im_start|>system…, <|im_end|>…, <|im_start|>user…: the fourth part
        assert all(changed_turns(vocab, *pair) == [3] for pair in pairs[:100])


def test_the_plain_loop_draws_in_every_epoch(tmp_path, monkeypatch, capsys):
    encoded: list[list[list[int]]] = []
    encode = StochasticTokenizer.encode_batch

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        encodings = encode(self, *args, **kwargs)
        real = [zip(e.ids, e.attention_mask, strict=True) for e in encodings]
        encoded.append([[i for i, mask in row if mask] for row in real])
        return encodings

    monkeypatch.setattr(StochasticTokenizer, "encode_batch", spy)
    example("stochastic_tokenizer").main(str(tmp_path / "out"))
    vocab = rt.Vocabulary.load(str(tmp_path / "out"))
    epochs = [
        {vocab.decode(ids): ids for batch in batches for ids in batch}
        for batches in (encoded[:8], encoded[8:])
    ]
    assert epochs[0].keys() == epochs[1].keys()
    assert np.mean([epochs[0][text] != epochs[1][text] for text in epochs[0]]) > 0.95
    assert load_model(tmp_path / "out").num_parameters() > 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_torch_loop_runs_with_workers(tmp_path, capsys):
    example("torch_loop").main(str(tmp_path / "out"))
    assert load_model(tmp_path / "out").num_parameters() > 0


def test_the_agent_keeps_its_sampled_ids(tmp_path, capsys):
    totals = example("agent_rollouts").main(str(tmp_path))
    out = capsys.readouterr().out
    assert "ids begin the next step" in out
    assert "through text: id" in out
    assert totals["carried"] == pytest.approx(totals["log_prob"])
    assert totals["drifted"] == 2  # random weights write no canonical ids
    assert (tmp_path / "rollouts.jsonl").is_file()


@pytest.mark.parametrize("policy", ["reject", "repair"])
def test_the_guarded_server_answers_concurrent_requests(policy, capsys):
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    result = example("guarded_server").main(policy, requests=40)
    text, canonical, batch, drawn = (result["answers"][n::4] for n in range(4))
    assert {status for status, _ in text + canonical + batch} == {200}
    answer = text[0][1]["choices"][0]["text"]
    assert {a["choices"][0]["text"] for _, a in text + canonical} == {answer}
    assert {a["choices"][0]["text"] for _, a in batch} == {answer}
    if policy == "reject":
        assert {(status, a["error"]["code"]) for status, a in drawn} == {(400, "not-canonical")}
    else:  # the model sees the canonical ids
        assert {(status, a["choices"][0]["text"]) for status, a in drawn} == {(200, answer)}
    verdict = {"reject": "refused", "repair": "repaired"}[policy]
    assert f'robustok_guard_sequences_total{{kind="{verdict}"}} ' in result["metrics"]
    assert 'robustok_guard_requests_total{kind="text"} ' in result["metrics"]


def test_one_answer_from_eight_tokenizations(tmp_path, capsys):
    accuracies = example("many_tokenizations").main(str(tmp_path), steps=3)
    assert set(accuracies) == {"each draw alone", "mean"}
    assert all(0 <= accuracy <= 1 for accuracy in accuracies.values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{name}: {accuracy:.2f}" for name, accuracy in accuracies.items()]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model with a chat template, as a folder."""
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(["Question: What color is the sky? Answer:"] * 5, 300),
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
    )
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}>"
    tokenizer.save_pretrained(str(folder))
    size = rt.Vocabulary.load(str(folder)).size
    model = small_model(size, Shape(1, 16, 1, 1, 32, 256), seed=0)
    model.config.bos_token_id = size - 1
    model.save_pretrained(str(folder))
    return folder


def test_defenses_are_measured_and_a_stopped_run_continues(chat_model, tmp_path, capsys):
    arguments = ["--out", str(tmp_path), "--model", str(chat_model), "--questions", "8"]
    arguments += ["--max-scored", "4", "--draws", "2", "--steps", "1"]
    main = example("defenses").main
    main(arguments)
    first = json.loads((tmp_path / "defenses.json").read_text())
    assert (first["n"], len(first["rows"])) == (8, 9)
    assert (tmp_path / "roc.png").stat().st_size > 10_000
    attacks = tmp_path / "attacks" / "none.jsonl"
    lines = attacks.read_text().splitlines(keepends=True)
    attacks.write_text("".join(lines[:4]))
    main(arguments)
    rows = [json.loads(line) for line in attacks.read_text().splitlines()]
    before = [json.loads(line) for line in lines]
    assert [(row["key"], row["ids"]) for row in rows] == [(r["key"], r["ids"]) for r in before]
    again = json.loads((tmp_path / "defenses.json").read_text())
    assert [r | {"seconds": 0} for r in again["rows"]] == [
        r | {"seconds": 0} for r in first["rows"]
    ]
    main([*arguments[:5], "4", *arguments[6:]])  # other questions, same attacks
    capsys.readouterr()
    with pytest.raises(rt.RobustokError, match="holds attacks with other settings: delete it"):
        main([*arguments[:-5], "8", *arguments[-4:]])


def test_the_red_team_writes_attacks_and_answers(chat_model, tmp_path, capsys):
    example("red_team").main(
        ["--out", str(tmp_path), "--model", str(chat_model), "--max-scored", "6"]
    )
    record = json.loads((tmp_path / "attack.json").read_text())
    assert record["parts"][-1]["eval_scheme"] == "worst of 5 attacks"
    assert len(record["answers"]) == 4
    assert len((tmp_path / "attacks.jsonl").read_text().splitlines()) >= 4


TEXT = "happen, glad"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tools = tmp_path_factory.mktemp("tools")
    save_tiny_models(tools, "model")
    row = {"query": TEXT, "choices": [" up", " rain"], "label": 0}
    (tools / "items.jsonl").write_text(json.dumps(row) + "\n")
    return tools


def fake(name: str, **names: Any) -> Any:
    stub = types.ModuleType(name)
    vars(stub).update(names)
    return stub


class Record(types.SimpleNamespace):
    """Keeps its arguments."""

    @classmethod
    def from_content(cls, model: str, content: str) -> Any:
        return cls(model=model, completion=content)


@pytest.fixture
def inspect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def plain(function: Any) -> Any:
        return function

    stubs = {
        "inspect_ai": fake("inspect_ai", Task=Record, task=plain),
        "inspect_ai.dataset": fake(
            "inspect_ai.dataset", Sample=Record, MemoryDataset=lambda samples: samples
        ),
        "inspect_ai.model": fake("inspect_ai.model", ModelOutput=Record),
        "inspect_ai.scorer": fake(
            "inspect_ai.scorer", Score=Record, accuracy=lambda: "accuracy",
            stderr=lambda: "stderr", scorer=lambda metrics: plain,
        ),
        "inspect_ai.solver": fake("inspect_ai.solver", solver=plain),
    }  # fmt: skip
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    return script("examples/inspect_task.py")


def test_inspect_scores_the_option_chosen_under_attack(inspect: Any, tools: Path) -> None:
    task = inspect.robust_accuracy(str(tools / "model"), str(tools / "items.jsonl"), 40)
    (sample,) = task.dataset
    assert (sample.input, sample.target) == (TEXT, " up")
    state = types.SimpleNamespace(
        input_text=sample.input, metadata=dict(sample.metadata), output=None,
        choices=[types.SimpleNamespace(value=choice) for choice in sample.choices],
    )  # fmt: skip
    state = asyncio.run(task.solver(state, None))
    score = asyncio.run(task.scorer(state, types.SimpleNamespace(text=sample.target)))
    model, vocab = inspect._loaded(str(tools / "model"))
    alone = attack(model, vocab, TEXT, [" up", " rain"], 0, restarts=1000, max_scored=40, seed=0)
    assert state.metadata["ids"] == alone.ids.tolist()
    assert score.value == ("I" if alone.success else "C")
    assert state.output.completion == [" up", " rain"][int(np.argmax(alone.log_probs))]


def test_inspect_reads_paths_as_the_shell_that_started_it(
    inspect: Any, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(tools))
    monkeypatch.chdir(tmp_path)  # the tools of the task's file, where Inspect runs it
    (sample,) = inspect.robust_accuracy("model", "items.jsonl").dataset
    assert sample.input == TEXT
    assert inspect._resolved("owner/name") == "owner/name"


mpl.use("Agg")

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = ("tokenizations", "robust_training", "how_robust")


def in_process(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
    """The command line in this process, where libraries are imported already."""
    assert command[:3] == [sys.executable, "-m", "robustok"]
    return subprocess.CompletedProcess(command, run_command(command[3:]), "", "")


def cells(name: str) -> list[dict]:
    return json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


@pytest.mark.filterwarnings("ignore")  # of the libraries among themselves
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", in_process)
    drawn: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    scope: dict = {"__name__": "__main__"}
    for number, cell in enumerate(cells(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}[{number}]", "exec"), scope)
    plt.close("all")
    assert drawn and capsys.readouterr().out


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_with_its_pictures(name: str) -> None:
    outputs = [output for cell in cells(name) for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(output["output_type"] == "error" for output in outputs)
