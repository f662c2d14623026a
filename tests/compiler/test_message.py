"""What is written to stderr while kernels are compiled."""

from __future__ import annotations

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


def compile_for(seconds: float) -> None:
    with message("walk.draw"), message("walk.called"):
        time.sleep(seconds)


def test_the_first_compilation_is_announced_while_it_runs(capsys: pytest.CaptureFixture) -> None:
    with message("walk.draw"):
        for _ in range(1000):
            text = capsys.readouterr().err
            if text:
                break
            time.sleep(0.01)
        assert text.startswith("robustok: compiling walk.draw: ")
        assert "4 to 15 seconds, once\n" in text
    with message("walk.other"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_a_process_that_waited_for_another_leaves_the_line_to_it(
    capsys: pytest.CaptureFixture,
) -> None:
    module._leave_to_other(0.5)
    compile_for(0.2)
    assert capsys.readouterr().err == ""


def test_kernels_within_a_kernel_have_no_line_of_their_own(capsys: pytest.CaptureFixture) -> None:
    compile_for(0.2)
    assert capsys.readouterr().err.count("robustok: compiling") == 1


def test_a_short_compilation_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(module, "DELAY", 1000)
    compile_for(0)
    assert capsys.readouterr().err == ""


def test_the_reason_is_given_where_every_process_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(module.cache, "cache_directory", lambda: None)
    compile_for(0.2)
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_a_missing_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch, stderr: str | None) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    compile_for(0.1)
