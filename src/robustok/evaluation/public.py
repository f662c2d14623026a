"""The public names of `robustok.evaluation`, most of which need torch."""

from robustok.runtime.environment import require

require("torch", "transformers")

from robustok.evaluation.accuracy import drawn_strength as drawn_strength
from robustok.evaluation.accuracy import evaluate as evaluate
from robustok.evaluation.accuracy import evaluate_tasks as evaluate_tasks
from robustok.evaluation.bound import Bound as Bound
from robustok.evaluation.bound import lipschitz_bound as lipschitz_bound
from robustok.evaluation.embeddings import EmbeddingDistances as EmbeddingDistances
from robustok.evaluation.embeddings import (
    embedding_distances as embedding_distances,
)
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
from robustok.evaluation.results import Accuracy as Accuracy
from robustok.evaluation.results import Evaluation as Evaluation
from robustok.evaluation.results import FewShot as FewShot
from robustok.evaluation.results import ModelDifference as ModelDifference
from robustok.evaluation.results import Outcome as Outcome
from robustok.evaluation.results import Paired as Paired
from robustok.evaluation.results import TaskResult as TaskResult
from robustok.evaluation.results import compare_models as compare_models
from robustok.evaluation.results import paired as paired
from robustok.evaluation.states import Ratios as Ratios
from robustok.evaluation.states import lipschitz_ratios as lipschitz_ratios
from robustok.tokenizer.chat import Frame as Frame
from robustok.tokenizer.chat import chat_frame as chat_frame
