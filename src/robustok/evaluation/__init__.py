"""Accuracy of a model over tokenizations: sampled, and the worst that a search finds."""

from robustok.extras import require

require("torch", "transformers")

from robustok.attack_settings import AttackSettings as AttackSettings
from robustok.evaluation.accuracy import drawn_strength as drawn_strength
from robustok.evaluation.accuracy import evaluate as evaluate
from robustok.evaluation.adversarial.attacks import AttackEvaluation as AttackEvaluation
from robustok.evaluation.adversarial.attacks import attack as attack
from robustok.evaluation.adversarial.attacks import attack_items as attack_items
from robustok.evaluation.adversarial.certificate_result import Certificate as Certificate
from robustok.evaluation.adversarial.certificate_result import Certification as Certification
from robustok.evaluation.adversarial.certification import certify as certify
from robustok.evaluation.adversarial.certification import certify_items as certify_items
from robustok.evaluation.adversarial.search import Attack as Attack
from robustok.evaluation.chat import Frame as Frame
from robustok.evaluation.chat import chat_frame as chat_frame
from robustok.evaluation.comparison import Paired as Paired
from robustok.evaluation.comparison import paired as paired
from robustok.evaluation.incontext import HEADER as HEADER
from robustok.evaluation.incontext import solved_examples as solved_examples
from robustok.evaluation.inside.bound import Bound as Bound
from robustok.evaluation.inside.bound import lipschitz_bound as lipschitz_bound
from robustok.evaluation.inside.embeddings import EmbeddingDistances as EmbeddingDistances
from robustok.evaluation.inside.embeddings import embedding_distances as embedding_distances
from robustok.evaluation.inside.ratios import Ratios as Ratios
from robustok.evaluation.inside.ratios import lipschitz_ratios as lipschitz_ratios
from robustok.evaluation.intervals import clustered as clustered
from robustok.evaluation.intervals import wilson as wilson
from robustok.evaluation.likelihood import Marginal as Marginal
from robustok.evaluation.likelihood import TextPerplexity as TextPerplexity
from robustok.evaluation.likelihood import marginal as marginal
from robustok.evaluation.likelihood import perplexity as perplexity
from robustok.evaluation.result import Evaluation as Evaluation
from robustok.evaluation.result import Outcome as Outcome
from robustok.evaluation.tasks import FewShot as FewShot
from robustok.evaluation.tasks import TaskResult as TaskResult
from robustok.evaluation.tasks import evaluate_tasks as evaluate_tasks
