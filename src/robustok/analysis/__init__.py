"""The paper's distributional analyses of schemes, from draws and from theory.

All of it from a tokenizer alone; `python -m experiments split-counts` draws figures.
"""

from robustok.analysis.splits import DRAWS as DRAWS
from robustok.analysis.splits import DROPOUT as DROPOUT
from robustok.analysis.splits import SENTENCE as SENTENCE
from robustok.analysis.splits import DropoutRow as DropoutRow
from robustok.analysis.splits import Segmentations as Segmentations
from robustok.analysis.splits import SplitCounts as SplitCounts
from robustok.analysis.splits import dropout_splits as dropout_splits
from robustok.analysis.splits import segmentations as segmentations
from robustok.analysis.splits import split_counts as split_counts
