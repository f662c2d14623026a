"""The command line: parse, call the library, print."""

from __future__ import annotations

import gc
import io
import os
import sys


def main() -> None:
    """The `robustok` command."""
    _open_closed_streams()
    _print_utf8()
    try:
        from robustok.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules are imported
        sys.stderr.write("robustok: stopped\n")
        code = 130
    gc.freeze()  # the interpreter looks for garbage once more when it ends, which takes 0.1 s
    sys.exit(code)


def _print_utf8() -> None:
    """Print UTF-8 into files and pipes, too: on Windows they are in an encoding of few letters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")


def _open_closed_streams() -> None:
    """Stand /dev/null in for streams that the shell closed, as `>&-` does; Python has None there.

    A file opened later would get their numbers and receive the printed output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Opened in this order, each gets the lowest free number: its own.
            number = os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            setattr(sys, name, os.fdopen(number, mode))
