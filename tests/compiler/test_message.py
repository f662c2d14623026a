"""What is written to stderr while kernels are compiled."""

from __future__ import annotations

import io
import sys
import time

import pytest

from robustok.kernels.compiler import dispatcher as module
from robustok.kernels.compiler.dispatcher import message


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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


def test_kernels_within_a_kernel_are_not_announced(capsys: pytest.CaptureFixture) -> None:
    compile_for(0.2)
    assert "called" not in capsys.readouterr().err


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


def test_a_terminal_shows_the_seconds_in_a_line_that_is_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    for _ in range(2):  # each kernel
        terminal.truncate(0)
        compile_for(1.5)
        *lines, blank, end = terminal.getvalue().split("\r")[1:]
        assert len(lines) >= 2 and not blank.strip() and not end
        for line in lines:
            assert line.startswith("robustok: compiling walk.draw") and line.endswith(" s)")
            assert len(line) == len(blank) < 60


def test_a_notebook_shows_the_seconds_too() -> None:
    class OutStream:
        __module__ = "ipykernel.iostream"

    assert module._is_interactive(OutStream())
    assert not module._is_interactive(io.StringIO())


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_a_missing_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch, stderr: str | None) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    compile_for(0.1)
