"""What evaluations and attacks ask of a causal language model, in this process or behind a server.

Everything above the scoring engine knows a model by this one class. What needs weights or hidden
states (training, embeddings, the bound) takes a model of transformers itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from robustok.checks import check_ids, check_list
from robustok.ragged import Ragged
from robustok.runtime.display import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from robustok.tokenizer.vocabulary import Vocabulary

CausalModel: TypeAlias = "PreTrainedModel | ScoredModel"  # what can be scored
Ids = Sequence[int] | np.ndarray


class ScoredModel(ABC):
    """A causal language model as it is scored, evaluated and attacked.

    Attributes:
        precision: the type of the weights, such as ``"float32"``.
        max_length: the longest input in tokens, or None where there is no limit.
    """

    precision: str
    max_length: int | None

    @abstractmethod
    def fingerprint(self) -> str:
        """What tells two models apart: a hash of the weights, or what a server says."""

    def check_vocabulary(self, vocab: Vocabulary) -> None:  # noqa: B027
        """Raise RobustokError where a vocabulary is not the model's; others raise for ids."""

    @abstractmethod
    def start_ids(self) -> list[int]:
        """The id that a text begins with; raises RobustokError where the model names none."""

    @abstractmethod
    def score_many(self, requests: Sequence[Request], **local: Any) -> list[Scores]:
        """The log-probability of each option of each request; minus infinity for none.

        ``local`` has what only a model of this process needs.
        """

    @abstractmethod
    def losses(self, chunks: Sequence[np.ndarray], progress: Progress, **local: Any) -> np.ndarray:
        """The negative log-likelihood in nats of each of ``chunks`` after its first id, float64.

        ``progress`` gets the chunks done and all; ``local`` is that of `score_many`.
        """

    @abstractmethod
    def continuation(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        """At most ``max_new_tokens`` ids of the greedy continuation of a prompt, up to the end."""


@dataclass(frozen=True)
class Request:
    """What to score together: each option after each question, all after one prefix.

    >>> from robustok.scoring import score_many
    >>> questions = Ragged.from_rows([[5, 6], [7]])
    >>> score_many(model, [Request(questions, options=[[8], [9, 10]])])[0].log_probs.shape
    (2, 2)

    Args:
        questions: token ids of each question, often many tokenizations of one text.
        options: token ids of each option, none empty.
        prefix: token ids before every question; by default none.
        name: what errors call it, such as "item 'q1'"; by default the number of a question.

    Raises RobustokError for options and a prefix that are no ids.
    """

    questions: Ragged
    options: Sequence[Ids]
    prefix: Ids | None = None
    name: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        options = [check_ids(ids) for ids in check_list("options", self.options, "[[5], [6, 7]]")]
        object.__setattr__(self, "options", options)
        if self.prefix is not None:
            object.__setattr__(self, "prefix", check_ids(self.prefix))


@dataclass(frozen=True, eq=False)
class Scores:
    """Log-probabilities and the work that they took.

    >>> from robustok.scoring import score
    >>> result = score(model, [[5, 6, 7], [5, 8]], [[1], [2, 3]])
    >>> result.log_probs.shape, result.mode, result.tokens_computed < result.tokens_naive
    ((2, 2), 'tree', True)

    Args:
        log_probs: natural logarithms, finite, float64 [questions, options]; ``LOG_ZERO``, -1e30,
            for a probability of zero.
        tokens_computed: positions that went through the model, padding included.
        tokens_naive: positions of one unpadded sequence for each question and option.
        mode: ``"tree"``, ``"plain"``, ``"single"`` (see :func:`~robustok.scoring.scoring_mode`) or
            ``"served"``.
    """

    log_probs: np.ndarray
    tokens_computed: int
    tokens_naive: int
    mode: str
