"""Inside a model: hidden states, embedding distances, weight norms, and the Lipschitz bound."""
