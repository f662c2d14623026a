"""The kinds of cells of a study, each one frozen dataclass with a method to run it.

Models and measurements are made from `inputs`: questions, tokenizers and text.
"""
