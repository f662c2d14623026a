"""Red team and defense: attacks through tokenization for any objective, and what helps."""

from robustok.extras import require

require("torch", "transformers")

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
from robustok.redteam.classifier import special_frame as special_frame
from robustok.redteam.objective import FunctionObjective as FunctionObjective
from robustok.redteam.objective import Objective as Objective
from robustok.redteam.objective import as_objective as as_objective
from robustok.redteam.perplexity import WithinPerplexity as WithinPerplexity
