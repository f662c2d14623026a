"""Accuracy of a model over tokenizations: sampled, and the worst that a search finds."""

from robustok.evaluation.adversarial import AttackEvaluation as AttackEvaluation
from robustok.evaluation.adversarial import attack as attack
from robustok.evaluation.adversarial import attack_items as attack_items
from robustok.evaluation.bound import Bound as Bound
from robustok.evaluation.bound import lipschitz_bound as lipschitz_bound
from robustok.evaluation.certificate import certify as certify
from robustok.evaluation.certificate import certify_items as certify_items
from robustok.evaluation.certified import Certificate as Certificate
from robustok.evaluation.certified import Certification as Certification
from robustok.evaluation.chat import Frame as Frame
from robustok.evaluation.chat import chat_frame as chat_frame
from robustok.evaluation.embeddings import EmbeddingDistances as EmbeddingDistances
from robustok.evaluation.embeddings import embedding_distances as embedding_distances
from robustok.evaluation.incontext import HEADER as HEADER
from robustok.evaluation.incontext import solved_examples as solved_examples
from robustok.evaluation.intervals import clustered as clustered
from robustok.evaluation.intervals import wilson as wilson
from robustok.evaluation.random import evaluate as evaluate
from robustok.evaluation.ratios import Ratios as Ratios
from robustok.evaluation.ratios import lipschitz_ratios as lipschitz_ratios
from robustok.evaluation.result import Evaluation as Evaluation
from robustok.evaluation.result import Outcome as Outcome
from robustok.evaluation.search import Attack as Attack
