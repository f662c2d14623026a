"""The commands, one a file: each has a `NAME` and a typer function or app."""
