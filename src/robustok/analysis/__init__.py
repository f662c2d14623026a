"""Checks of a tokenizer against its own library, without a model."""
