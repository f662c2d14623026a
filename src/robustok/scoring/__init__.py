"""Log-likelihood of many tokenizations that share prefixes, each node of the prefix tree once."""

from robustok.extras import require

require("torch", "transformers")

from robustok.scoring.capability import scoring_mode as scoring_mode
from robustok.scoring.engine import Request as Request
from robustok.scoring.engine import Scores as Scores
from robustok.scoring.engine import score as score
from robustok.scoring.engine import score_many as score_many
