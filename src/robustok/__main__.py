"""`python -m robustok`: the command line where the `robustok` script is not on the path."""

from robustok.cli import main

main()
