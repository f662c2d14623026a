"""Pre-tokens: what a pre-tokenizer cuts a text into, each of which is encoded for itself."""
