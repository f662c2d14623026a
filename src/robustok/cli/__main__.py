"""`python -m robustok.cli`: the same as `python -m robustok`."""

from robustok.cli import main

main()
