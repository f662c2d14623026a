"""Accuracy of a model over tokenizations: sampled, and the worst that a search finds."""

from robustok.evaluation.adversarial import AttackEvaluation as AttackEvaluation
from robustok.evaluation.adversarial import attack as attack
from robustok.evaluation.adversarial import attack_items as attack_items
from robustok.evaluation.chat import Frame as Frame
from robustok.evaluation.chat import chat_frame as chat_frame
from robustok.evaluation.incontext import HEADER as HEADER
from robustok.evaluation.incontext import solved_examples as solved_examples
from robustok.evaluation.intervals import clustered as clustered
from robustok.evaluation.intervals import wilson as wilson
from robustok.evaluation.random import evaluate as evaluate
from robustok.evaluation.result import Evaluation as Evaluation
from robustok.evaluation.result import Outcome as Outcome
from robustok.evaluation.search import Attack as Attack
