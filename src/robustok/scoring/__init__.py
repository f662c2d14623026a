"""Log-likelihood of many tokenizations that share prefixes, each node of the prefix tree once."""

from robustok.runtime.environment import require

require("torch", "transformers")

from robustok.scoring.engine import Request, Scores, score, score_many
from robustok.scoring.modes import scoring_mode

__all__ = ["Request", "Scores", "score", "score_many", "scoring_mode"]
