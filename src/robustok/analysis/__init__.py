"""The paper's distributional analyses of schemes, from draws and from theory.

All of it from a tokenizer alone; the figures are in :mod:`robustok.report.analyses`.
"""

from robustok.analysis.dropout import DropoutRow as DropoutRow
from robustok.analysis.dropout import dropout_splits as dropout_splits
from robustok.analysis.length_growth import Growth as Growth
from robustok.analysis.length_growth import growth as growth
from robustok.analysis.paper import DRAWS as DRAWS
from robustok.analysis.paper import DROPOUT as DROPOUT
from robustok.analysis.paper import SENTENCE as SENTENCE
from robustok.analysis.paper import Splits as Splits
from robustok.analysis.segmentation_counts import Segmentations as Segmentations
from robustok.analysis.segmentation_counts import segmentations as segmentations
from robustok.analysis.split_bias import SCHEMES as SCHEMES
from robustok.analysis.split_bias import Bias as Bias
from robustok.analysis.split_bias import BiasSummary as BiasSummary
from robustok.analysis.split_bias import bias as bias
from robustok.analysis.split_bias import summarize as summarize
from robustok.analysis.split_histogram import SplitCounts as SplitCounts
from robustok.analysis.split_histogram import split_counts as split_counts
