"""What is written to stderr while kernels are compiled."""

import io
import sys
import time

import pytest

from robustok.kernels.compiler import dispatcher as module
from robustok.kernels.compiler.dispatcher import message


@pytest.fixture(autouse=True)
def without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELAY", 0)
    monkeypatch.setattr(module, "_is_announced", False)


def test_the_first_compilation_is_announced_while_it_runs(capsys: pytest.CaptureFixture) -> None:
    with message("walk.draw"):
        for _ in range(1000):
            text = capsys.readouterr().err
            if text:
                break
            time.sleep(0.01)
        assert text.startswith("robustok: compiling the draws of a scheme: ")
        assert "4 to 15 seconds, once\n" in text
    with message("walk.other"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("delay", "waited"), [(1000, 0.0), (0, 0.5)])
def test_a_short_compilation_and_one_by_another_process_are_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, delay: float, waited: float
) -> None:
    monkeypatch.setattr(module, "DELAY", delay)
    module._leave_to_other(waited)
    with message("walk.draw"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_a_missing_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch, stderr: str | None) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    with message("walk.draw"):
        time.sleep(0.1)
