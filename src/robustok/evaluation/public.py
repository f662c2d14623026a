"""The public names of `robustok.evaluation`, most of which need torch."""

from robustok.runtime.environment import require

require("torch", "transformers")

from robustok.evaluation.accuracy import drawn_strength as drawn_strength
from robustok.evaluation.accuracy import evaluate as evaluate
from robustok.evaluation.comparison import FewShot as FewShot
from robustok.evaluation.comparison import ModelDifference as ModelDifference
from robustok.evaluation.comparison import Paired as Paired
from robustok.evaluation.comparison import TaskResult as TaskResult
from robustok.evaluation.comparison import compare_models as compare_models
from robustok.evaluation.comparison import paired as paired
from robustok.evaluation.ensemble import EnsembleAnswer as EnsembleAnswer
from robustok.evaluation.ensemble import SmoothedCertificate as SmoothedCertificate
from robustok.evaluation.ensemble import certify_smoothed as certify_smoothed
from robustok.evaluation.ensemble import choose as choose
from robustok.evaluation.ensemble import choose_many as choose_many
from robustok.evaluation.ensemble import generate as generate
from robustok.evaluation.intervals import clustered as clustered
from robustok.evaluation.intervals import wilson as wilson
from robustok.evaluation.likelihood import Marginal as Marginal
from robustok.evaluation.likelihood import TextPerplexity as TextPerplexity
from robustok.evaluation.likelihood import marginal as marginal
from robustok.evaluation.likelihood import perplexity as perplexity
from robustok.evaluation.questions import HEADER as HEADER
from robustok.evaluation.questions import solved_examples as solved_examples
from robustok.evaluation.representations.bound import Bound as Bound
from robustok.evaluation.representations.bound import lipschitz_bound as lipschitz_bound
from robustok.evaluation.representations.embeddings import EmbeddingDistances as EmbeddingDistances
from robustok.evaluation.representations.embeddings import (
    embedding_distances as embedding_distances,
)
from robustok.evaluation.representations.ratios import Ratios as Ratios
from robustok.evaluation.representations.ratios import lipschitz_ratios as lipschitz_ratios
from robustok.evaluation.result import Accuracy as Accuracy
from robustok.evaluation.result import Evaluation as Evaluation
from robustok.evaluation.result import Outcome as Outcome
from robustok.evaluation.tasks import evaluate_tasks as evaluate_tasks
from robustok.tokenizer.chat import Frame as Frame
from robustok.tokenizer.chat import chat_frame as chat_frame
