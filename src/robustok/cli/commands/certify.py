"""robustok certify, embeddings and bound: what all tokenizations of a text have in common.

`certify`: is the answer the same under every tokenization within a distance? `embeddings`: the
distances between tokenizations inside a model. `bound`: the paper's robustness bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from robustok.cli.measuring import ChatRunOptions, RunOptions, measure
from robustok.cli.options import option
from robustok.errors import RobustokError
from robustok.study.measurements import Bound, Certify, Embeddings
from robustok.study.sections import QuestionsSection, Sources


def certify(
    models: list[str],
    questions: Annotated[dict, QuestionsSection],
    measurement: Annotated[dict, Certify],
    options: ChatRunOptions,
) -> None:
    """Certify the answers of MODELS against retokenization.

    Scores all tokenizations within a distance if they are few enough. Otherwise uniform draws
    bound the share that changes the answer. The result of the greedy attack is printed beside it.
    """
    measure(models, "certify", options, questions=questions, certify=measurement)


def embeddings(
    models: list[str],
    measurement: Annotated[dict, Embeddings],
    options: RunOptions,
) -> None:
    """Compare the tokenizations of a word inside MODELS.

    Prints the mean distance between unit-normalized last-token states of the canonical and of
    uniformly drawn tokenizations, per layer. The report in --out has one figure of all models and
    sentences.
    """
    measure(models, "embeddings", options, embeddings=measurement)


@dataclass(frozen=True, kw_only=True)
class BoundOptions(RunOptions):
    """How a study runs that draws nothing without questions, and reads no start token."""

    seed: int | None = option("of the draws, with --items", default=None)  # type: ignore[assignment]
    start_token: None = None


def bound(
    models: list[str],
    questions: Annotated[dict, Sources],
    measurement: Annotated[dict, Bound],
    options: BoundOptions,
) -> None:
    """Compute the bound of MODELS from their weights.

    Prints C1, C2 and the bound by layer and for the whole model, as in the theorem and as in its
    proof. --items adds the measured ratio, over drawn and over attacked tokenizations.
    """
    if questions and options.seed is None:
        raise RobustokError("--items draws tokenizations: give a --seed")
    options = replace(options, seed=options.seed or 0)
    measure(models, "bound", options, bound=measurement, questions=questions or None)
