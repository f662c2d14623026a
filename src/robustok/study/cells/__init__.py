"""The kinds of cells of a study, each one frozen dataclass with a method to run it."""

from robustok.study.cells.base import Cell, Summary
from robustok.study.cells.corpus import CorpusCell
from robustok.study.cells.data import BenchmarkCell, DataCell, QuestionsCell
from robustok.study.cells.embeddings import EmbeddingsCell
from robustok.study.cells.examples import ExamplesCell
from robustok.study.cells.measurement import MeasurementCell
from robustok.study.cells.models import BaseCell, FinetuneCell, ModelCell, PretrainCell
from robustok.study.cells.perplexity import PerplexityCell
from robustok.study.cells.questions import AccuracyCell, AttackCell, EvaluateCell, FewShot
from robustok.study.cells.tokenizer import (
    ExistingTokenizerCell,
    TokenizerCell,
    TrainedTokenizerCell,
)
from robustok.study.cells.transfer import TransferCell

__all__ = [
    "AccuracyCell",
    "AttackCell",
    "BaseCell",
    "BenchmarkCell",
    "Cell",
    "CorpusCell",
    "DataCell",
    "EmbeddingsCell",
    "EvaluateCell",
    "ExamplesCell",
    "ExistingTokenizerCell",
    "FewShot",
    "FinetuneCell",
    "MeasurementCell",
    "ModelCell",
    "PerplexityCell",
    "PretrainCell",
    "QuestionsCell",
    "Summary",
    "TokenizerCell",
    "TrainedTokenizerCell",
    "TransferCell",
]
