"""Accuracy of a model over tokenizations, its intervals, and answers from many tokenizations.

Names are imported when one of them is used, so that the statistics (`intervals`, `comparison`)
need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.evaluation.accuracy import TextPerplexity, evaluate, perplexity
    from robustok.evaluation.bound import Bound, Ratios, lipschitz_bound, lipschitz_ratios
    from robustok.evaluation.comparison import Accuracy, Difference, Evaluation, Outcome, paired
    from robustok.evaluation.embeddings import (
        EmbeddingDistances,
        WordDistances,
        embedding_distances,
    )
    from robustok.evaluation.intervals import clustered, wilson
    from robustok.evaluation.questions import HEADER, solved_examples
    from robustok.tokenizer.chat import Frame, after_prefix, chat_frame

__all__ = [
    "HEADER", "Accuracy", "Bound", "Difference", "EmbeddingDistances", "Evaluation", "Frame",
    "Outcome", "Ratios", "TextPerplexity", "WordDistances", "after_prefix", "chat_frame",
    "clustered", "embedding_distances", "evaluate", "lipschitz_bound", "lipschitz_ratios",
    "paired", "perplexity", "solved_examples", "wilson",
]  # fmt: skip
__getattr__ = names_on_use(
    "robustok.evaluation",
    "robustok.evaluation.comparison",
    "robustok.evaluation.intervals",
    "robustok.evaluation.accuracy",
    "robustok.evaluation.bound",
    "robustok.evaluation.embeddings",
    "robustok.evaluation.questions",
    "robustok.tokenizer.chat",
    names=__all__,
)
