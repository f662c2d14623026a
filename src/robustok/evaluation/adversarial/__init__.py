"""Worst-case accuracy: searches for a tokenization with a wrong answer, and certificates."""
