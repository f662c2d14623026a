"""The command line: parse, call the library, print."""

from __future__ import annotations

import sys


def main() -> None:
    """The `robustok` command."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError:
        sys.stderr.write("robustok: the command line needs more: pip install 'robustok[all]'\n")
        sys.exit(2)
    from robustok.cli.app import run

    sys.exit(run(sys.argv[1:]))
