"""Pre-tokenization: cut texts by a DFA, and look up the ids of pre-tokens seen before."""
