"""Vocabularies and canonical encoders, read from files, names and tokenizer objects."""
