"""The public names of `robustok.evaluation`, most of which need torch."""

from robustok.runtime.environment import require

require("torch", "transformers")

from robustok.evaluation.accuracy import evaluate
from robustok.evaluation.bound import Bound, Ratios, lipschitz_bound, lipschitz_ratios
from robustok.evaluation.comparison import (
    Accuracy,
    Difference,
    Evaluation,
    Outcome,
    paired,
)
from robustok.evaluation.embeddings import (
    EmbeddingDistances,
    WordDistances,
    embedding_distances,
)
from robustok.evaluation.intervals import clustered, wilson
from robustok.evaluation.likelihood import TextPerplexity, perplexity
from robustok.evaluation.questions import HEADER, solved_examples
from robustok.tokenizer.chat import Frame, chat_frame

__all__ = [
    "HEADER", "Accuracy", "Bound", "Difference", "EmbeddingDistances",
    "Evaluation", "Frame", "Outcome", "Ratios", "TextPerplexity", "WordDistances", "chat_frame",
    "clustered", "embedding_distances", "evaluate", "lipschitz_bound", "lipschitz_ratios",
    "paired", "perplexity", "solved_examples", "wilson",
]  # fmt: skip
