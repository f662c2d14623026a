"""Pre-tokenization: cut texts by a DFA, as a tokenizer's library cuts them."""
