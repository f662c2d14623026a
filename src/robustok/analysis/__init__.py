"""The paper's distributional analyses of schemes, from draws and from theory.

All of it from a tokenizer alone; the figures are in :mod:`robustok.report.analyses`.
"""

from robustok.analysis.split_bias import (
    SCHEMES,
    Bias,
    Segmentations,
    bias,
    segmentations,
    summarize,
)
from robustok.analysis.splits import (
    DRAWS,
    DROPOUT,
    SENTENCE,
    DropoutRow,
    SplitCounts,
    dropout_splits,
    split_counts,
)

__all__ = [
    "DRAWS", "DROPOUT", "SCHEMES", "SENTENCE", "Bias", "DropoutRow", "Segmentations",
    "SplitCounts", "bias", "dropout_splits", "segmentations", "split_counts",
    "summarize",
]  # fmt: skip
