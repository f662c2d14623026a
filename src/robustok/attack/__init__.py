"""Attacks through tokenization: objectives, searches, adversaries.

Names are imported when one of them is used, so that `robustok.attack.settings` needs no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.attack.engine import Adversary as Adversary
    from robustok.attack.engine import AttackEvaluation as AttackEvaluation
    from robustok.attack.engine import attack as attack
    from robustok.attack.engine import attack_items as attack_items
    from robustok.attack.engine import attack_prompts as attack_prompts
    from robustok.attack.engine import summaries as summaries
    from robustok.attack.objectives import CausalObjective as CausalObjective
    from robustok.attack.objectives import LogOdds as LogOdds
    from robustok.attack.objectives import Margin as Margin
    from robustok.attack.objectives import NamedObjective as NamedObjective
    from robustok.attack.objectives import Objective as Objective
    from robustok.attack.objectives import TargetLikelihood as TargetLikelihood
    from robustok.attack.objectives import as_objective as as_objective
    from robustok.attack.records import Answers as Answers
    from robustok.attack.records import Attack as Attack
    from robustok.attack.records import Prompt as Prompt
    from robustok.attack.records import Step as Step
    from robustok.attack.records import generate_answers as generate_answers
    from robustok.attack.records import greedy_answer as greedy_answer
    from robustok.attack.records import read_attacks as read_attacks
    from robustok.attack.records import read_prompts as read_prompts
    from robustok.attack.records import worst_attacks as worst_attacks
    from robustok.attack.records import write_attacks as write_attacks
    from robustok.attack.search import SEARCHES as SEARCHES
    from robustok.attack.settings import AttackSettings as AttackSettings
    from robustok.attack.settings import ObjectiveSettings as ObjectiveSettings

__getattr__ = names_on_use(
    "robustok.attack",
    "robustok.attack.settings",
    "robustok.attack.records",
    "robustok.attack.objectives",
    "robustok.attack.search",
    "robustok.attack.engine",
)
