"""Attacks through tokenization: objectives, searches, adversaries.

Names are imported when one of them is used, so that `robustok.attack.settings` needs no torch.
"""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.attack.engine import (
        Adversary,
        AttackEvaluation,
        attack,
        attack_items,
        attack_prompts,
        summaries,
    )
    from robustok.attack.objectives import (
        CausalObjective,
        LogOdds,
        Margin,
        NamedObjective,
        Objective,
        TargetLikelihood,
        as_objective,
    )
    from robustok.attack.records import (
        Answers,
        Attack,
        Prompt,
        Step,
        generate_answers,
        greedy_answer,
        read_attacks,
        read_prompts,
        worst_attacks,
        write_attacks,
    )
    from robustok.attack.search import SEARCHES
    from robustok.attack.settings import AttackSettings, ObjectiveSettings

__all__ = [
    "SEARCHES", "Adversary", "Answers", "Attack", "AttackEvaluation", "AttackSettings",
    "CausalObjective", "LogOdds", "Margin", "NamedObjective", "Objective", "ObjectiveSettings",
    "Prompt", "Step", "TargetLikelihood", "as_objective", "attack", "attack_items",
    "attack_prompts", "generate_answers", "greedy_answer", "read_attacks", "read_prompts",
    "summaries", "worst_attacks", "write_attacks",
]  # fmt: skip
__getattr__ = names_on_use(
    "robustok.attack",
    "robustok.attack.settings",
    "robustok.attack.records",
    "robustok.attack.objectives",
    "robustok.attack.search",
    "robustok.attack.engine",
    names=__all__,
)
