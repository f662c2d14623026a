"""The commands: each is a function of its name, or a group of several."""
