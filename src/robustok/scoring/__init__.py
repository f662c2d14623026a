"""Log-likelihood of many tokenizations that share prefixes, each node of the prefix tree once."""

from robustok.runtime.packages import require

require("torch", "transformers")

from robustok.models.scored import Request as Request
from robustok.models.scored import Scores as Scores
from robustok.scoring.engine import score as score
from robustok.scoring.engine import score_many as score_many
from robustok.scoring.modes import scoring_mode as scoring_mode
