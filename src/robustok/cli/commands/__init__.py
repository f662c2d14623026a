"""The commands: each is a function of its name, or a typer app of several."""
