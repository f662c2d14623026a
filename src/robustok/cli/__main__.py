"""`python -m robustok.cli`, for where the command is not on the path."""

from robustok.cli import main

main()
