"""Accuracy of a model over tokenizations, its intervals, and answers from many tokenizations.

Names are imported when one of them is used, so that the statistics (`intervals`, `comparison`)
need no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.evaluation.accuracy import TextPerplexity as TextPerplexity
    from robustok.evaluation.accuracy import evaluate as evaluate
    from robustok.evaluation.accuracy import perplexity as perplexity
    from robustok.evaluation.bound import Bound as Bound
    from robustok.evaluation.bound import Ratios as Ratios
    from robustok.evaluation.bound import lipschitz_bound as lipschitz_bound
    from robustok.evaluation.bound import lipschitz_ratios as lipschitz_ratios
    from robustok.evaluation.comparison import Accuracy as Accuracy
    from robustok.evaluation.comparison import Difference as Difference
    from robustok.evaluation.comparison import Evaluation as Evaluation
    from robustok.evaluation.comparison import Outcome as Outcome
    from robustok.evaluation.comparison import paired as paired
    from robustok.evaluation.embeddings import EmbeddingDistances as EmbeddingDistances
    from robustok.evaluation.embeddings import WordDistances as WordDistances
    from robustok.evaluation.embeddings import embedding_distances as embedding_distances
    from robustok.evaluation.intervals import clustered as clustered
    from robustok.evaluation.intervals import wilson as wilson
    from robustok.evaluation.questions import HEADER as HEADER
    from robustok.evaluation.questions import after_prefix as after_prefix
    from robustok.evaluation.questions import solved_examples as solved_examples
    from robustok.tokenizer.chat import Frame as Frame
    from robustok.tokenizer.chat import chat_frame as chat_frame

__getattr__ = names_on_use(
    "robustok.evaluation",
    "robustok.evaluation.comparison",
    "robustok.evaluation.intervals",
    "robustok.evaluation.accuracy",
    "robustok.evaluation.bound",
    "robustok.evaluation.embeddings",
    "robustok.evaluation.questions",
    "robustok.tokenizer.chat",
)
