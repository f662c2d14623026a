"""The paper's distributional analyses of schemes, from draws and from theory.

All of it from a tokenizer alone; the figures are in :mod:`robustok.report.analyses`.
"""

from robustok.analysis.lengths import DROPOUT, DropoutRow, Growth, Splits, dropout_splits, growth
from robustok.analysis.most_probable import most_probable
from robustok.analysis.split_bias import (
    SCHEMES,
    Bias,
    BiasSummary,
    Segmentations,
    bias,
    segmentations,
    summarize,
)
from robustok.analysis.splits import DRAWS, SENTENCE, SplitCounts, split_counts

__all__ = [
    "DRAWS", "DROPOUT", "SCHEMES", "SENTENCE", "Bias", "BiasSummary", "DropoutRow", "Growth",
    "Segmentations", "SplitCounts", "Splits", "bias", "dropout_splits", "growth", "most_probable",
    "segmentations", "split_counts", "summarize",
]  # fmt: skip
