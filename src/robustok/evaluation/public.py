"""The public names of `robustok.evaluation`, most of which need torch."""

from robustok.evaluation.accuracy import evaluate as evaluate
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
from robustok.evaluation.likelihood import TextPerplexity as TextPerplexity
from robustok.evaluation.likelihood import perplexity as perplexity
from robustok.evaluation.questions import HEADER as HEADER
from robustok.evaluation.questions import after_prefix as after_prefix
from robustok.evaluation.questions import solved_examples as solved_examples
from robustok.tokenizer.chat import Frame as Frame
from robustok.tokenizer.chat import chat_frame as chat_frame
