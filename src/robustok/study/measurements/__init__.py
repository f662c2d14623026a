"""Measurements of a model, one class and one file each.

A new kind of measurement is a subclass of :class:`Measurement` and a field of
:class:`robustok.study.Study`. Every cell of a measurement has a row in results.jsonl.
"""

from robustok.study.measurements.accuracy import Evaluate
from robustok.study.measurements.attacks import Attack
from robustok.study.measurements.base import MeasuredCell, Measurement, OnQuestions, Subject
from robustok.study.measurements.bound import Bound
from robustok.study.measurements.embeddings import Embeddings
from robustok.study.measurements.perplexity import Perplexity

__all__ = [
    "Attack",
    "Bound",
    "Embeddings",
    "Evaluate",
    "MeasuredCell",
    "Measurement",
    "OnQuestions",
    "Perplexity",
    "Subject",
]
