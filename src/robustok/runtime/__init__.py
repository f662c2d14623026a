"""Files, worker processes, the environment, names of the hub: what needs no tokenizer."""
