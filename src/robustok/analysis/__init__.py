"""The paper's distributional analyses of schemes, from draws and from theory.

All of it from a tokenizer alone; the figures are in :mod:`robustok.report.analyses`.
"""

from robustok.analysis.lengths import DROPOUT as DROPOUT
from robustok.analysis.lengths import DropoutRow as DropoutRow
from robustok.analysis.lengths import Growth as Growth
from robustok.analysis.lengths import Splits as Splits
from robustok.analysis.lengths import dropout_splits as dropout_splits
from robustok.analysis.lengths import growth as growth
from robustok.analysis.most_probable import most_probable as most_probable
from robustok.analysis.split_bias import SCHEMES as SCHEMES
from robustok.analysis.split_bias import Bias as Bias
from robustok.analysis.split_bias import BiasSummary as BiasSummary
from robustok.analysis.split_bias import Segmentations as Segmentations
from robustok.analysis.split_bias import bias as bias
from robustok.analysis.split_bias import segmentations as segmentations
from robustok.analysis.split_bias import summarize as summarize
from robustok.analysis.splits import DRAWS as DRAWS
from robustok.analysis.splits import SENTENCE as SENTENCE
from robustok.analysis.splits import SplitCounts as SplitCounts
from robustok.analysis.splits import split_counts as split_counts
