"""Red team and defense: attacks through tokenization for any objective, and what helps."""

from robustok.extras import require

require("torch", "transformers")

from robustok.redteam.adversarial_training import Adversary as Adversary
from robustok.redteam.attack_records import AttackRecord as AttackRecord
from robustok.redteam.attack_records import Replay as Replay
from robustok.redteam.attack_records import as_records as as_records
from robustok.redteam.attack_records import carried as carried
from robustok.redteam.attack_records import complete_on_server as complete_on_server
from robustok.redteam.attack_records import read_attacks as read_attacks
from robustok.redteam.attack_records import replay as replay
from robustok.redteam.attack_records import write_attacks as write_attacks
from robustok.redteam.attacks import Prompt as Prompt
from robustok.redteam.attacks import PromptAttack as PromptAttack
from robustok.redteam.attacks import PromptStep as PromptStep
from robustok.redteam.attacks import attack_prompt as attack_prompt
from robustok.redteam.attacks import attack_prompts as attack_prompts
from robustok.redteam.attacks import success_curve as success_curve
from robustok.redteam.causal import LogOdds as LogOdds
from robustok.redteam.causal import Margin as Margin
from robustok.redteam.causal import TargetLikelihood as TargetLikelihood
from robustok.redteam.causal import guard_probability as guard_probability
from robustok.redteam.causal import refusal_suppression as refusal_suppression
from robustok.redteam.classifier import ClassifierLogit as ClassifierLogit
from robustok.redteam.classifier import load_classifier as load_classifier
from robustok.redteam.classifier import special_frame as special_frame
from robustok.redteam.defenses import Defense as Defense
from robustok.redteam.defenses import DefenseTable as DefenseTable
from robustok.redteam.defenses import measure_defenses as measure_defenses
from robustok.redteam.detection import Roc as Roc
from robustok.redteam.detection import distance_scores as distance_scores
from robustok.redteam.detection import likelihood_scores as likelihood_scores
from robustok.redteam.detection import roc as roc
from robustok.redteam.detection import scheme_scores as scheme_scores
from robustok.redteam.generation import Answers as Answers
from robustok.redteam.generation import generate as generate
from robustok.redteam.generation import generate_answers as generate_answers
from robustok.redteam.objective import FunctionObjective as FunctionObjective
from robustok.redteam.objective import Objective as Objective
from robustok.redteam.objective import as_objective as as_objective
from robustok.redteam.perplexity import WithinPerplexity as WithinPerplexity
from robustok.redteam.prompts import ObjectiveOptions as ObjectiveOptions
from robustok.redteam.prompts import function_named as function_named
from robustok.redteam.prompts import objective_by_name as objective_by_name
from robustok.redteam.prompts import read_prompts as read_prompts
from robustok.redteam.rules import JointAttack as JointAttack
from robustok.redteam.rules import attack_jointly as attack_jointly
from robustok.redteam.smoothing import SmoothedCertificate as SmoothedCertificate
from robustok.redteam.smoothing import certify_smoothed as certify_smoothed
from robustok.redteam.suite import SuiteResult as SuiteResult
from robustok.redteam.suite import run_suite as run_suite
from robustok.redteam.suite import suite_settings as suite_settings
