"""A tokenizer, a model with questions, and a shell that runs commands in this process."""

import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from robustok import Vocabulary
from robustok.cli import terminal
from robustok.cli.app import run
from robustok.kernels.compiler import dispatcher
from robustok.models import Shape, small_model, train_tokenizer
from robustok.tasks import Item, write_items

TEXT = "which word starts with street"
ITEMS = [
    Item(f"q{i}", f"which word starts with {letter}? Answer:", (" street", " house"), label)
    for i, (letter, label) in enumerate([("s", 0), ("h", 1), ("st", 0), ("ho", 1)])
]


@pytest.fixture(scope="session", autouse=True)
def silent() -> None:
    """Nothing on stderr that depends on time: compilation, and progress in a log."""
    dispatcher.DELAY = threading.TIMEOUT_MAX
    terminal.EVERY = threading.TIMEOUT_MAX


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of progress in a log, as one number that a test changes."""
    now = [0.0]
    monkeypatch.setattr(terminal, "EVERY", 30.0)
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer([TEXT] * 3, 290).save(str(path))
    return str(path)


@pytest.fixture(scope="session")
def vocab(tokenizer: str) -> Vocabulary:
    return Vocabulary.load(tokenizer)


def save_model(folder: Path, *, seed: int = 0, layers: int = 1, tokens: Sequence[str] = ()) -> Path:
    """A folder with a random model, its tokenizer with these special tokens, and `ITEMS`."""
    tokenizer = train_tokenizer([item.question + item.answer for item in ITEMS], 290)
    tokenizer.add_special_tokens(list(tokens))
    shape = Shape(layers, 16, 2, 2, 32, 256)
    small_model(290 + len(tokens), shape, seed=seed, end_id=0).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_items(folder / "items.jsonl", ITEMS)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes; its questions are in ``items.jsonl``."""
    return save_model(tmp_path_factory.mktemp("models") / "model")


class Output(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Runs commands in this process and reads what they print.

    The first argument is a command line without quotes, the others are one argument each.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def run(self, line: str, *args: str) -> Output:
        code = run([*line.split(), *args])
        out, err = self._capsys.readouterr()
        err = err.removesuffix("seed 0\n")  # of a command without --seed
        return Output(code, out, err)

    def ok(self, *args: str) -> str:
        """What a call prints that succeeds and warns of nothing."""
        output = self.run(*args or ("",))
        assert (output.code, output.err) == (0, "")
        return output.out

    def rows(self, *args: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok(*args, "--json").splitlines()]

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--json"))

    def fails(self, *args: str) -> str:
        """The one line that a wrong call gives, at the most after the types of weights."""
        output = self.run(*args or ("",))
        assert (output.code, re.sub(r".*: weights in \w+\n", "", output.out)) == (2, "")
        assert output.err.startswith("robustok: ")
        assert output.err.count("\n") == 1 and output.err.endswith("\n")
        return output.err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)
