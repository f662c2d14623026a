"""Constraints: which candidate tokenizations an attack may move to; and constraints by name.

A forbidden candidate counts as scored, with minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from robustok.attack.records import Prompt
from robustok.attack.registry import Registry, function_named
from robustok.attack.settings import ObjectiveSettings
from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, item_key, sequence_log_probs, start_ids
from robustok.ragged import Ragged
from robustok.samplers import sampler

if TYPE_CHECKING:
    from robustok.tokenizer.vocabulary import Vocabulary


class Constraint(Protocol):
    """What an attack may not do.

    >>> short = lambda rows: rows.lengths < 9
    >>> short(rt.Ragged.from_rows([[5, 6], [7]])).tolist()
    [True, True]
    """

    def __call__(self, rows: Ragged, /) -> np.ndarray:
        """Whether each candidate is allowed, bool [candidates].

        Args:
            rows: the candidates, tokenizations of the text without what is around it.
        """
        ...


class WithinPerplexity:
    """Allows the candidates that a model finds at least as likely as most drawn tokenizations.

    >>> constraint = WithinPerplexity(model, vocab, "hello world", quantile=0.5, seed=0)
    >>> constraint(vocab.encode_batch(["hello world"])).tolist()
    [True]

    Args:
        model: the causal language model whose perplexity counts.
        vocab: the model's vocabulary.
        text: the attacked text.
        quantile: the limit is this quantile of the perplexities of drawn tokenizations, from 0 to
            1, by default 0.95.
        spec: the scheme of these draws, by default ``"uniform"``.
        draws: number of draws, at least 1.
        prefix: ids before the text, by default the model's start token.
        seed: any integer; it decides the draws.

    All candidates spell the same text, so perplexity is compared by the negative log-likelihood
    of the whole tokenization, in nats: its exponential by byte of text is monotone in it. The
    canonical tokenization is always allowed.

    Raises RobustokError for a quantile out of range.
    """

    name = "within perplexity"

    def __init__(
        self,
        model: Any,
        vocab: Vocabulary,
        text: str,
        *,
        quantile: float = 0.95,
        spec: str = "uniform",
        draws: int = 64,
        prefix: Ids | None = None,
        seed: int,
    ) -> None:
        if not 0 <= quantile <= 1:
            raise RobustokError(f"quantile {quantile} is not between 0 and 1")
        check_integer("draws", draws, 1)
        self.model = model
        self.prefix = prefix if prefix is not None and len(prefix) else start_ids(model)
        self.prefix_cache: dict[bytes, Any] = {}
        self.canonical = np.asarray(vocab.encode(text), np.int32)
        rows = sampler(spec, vocab).sample_batch(
            [text], seed=seed, draws=draws, keys=np.array([item_key(text)], np.int64)
        )
        self.limit = float(np.quantile(self.nats(rows), quantile))

    def nats(self, rows: Ragged) -> np.ndarray:
        """Negative log-likelihood of each tokenization after the prefix, float64 [rows].

        Args:
            rows: the tokenizations.
        """
        return -sequence_log_probs(self.model, rows, self.prefix, self.prefix_cache)

    def __call__(self, rows: Ragged) -> np.ndarray:
        """Whether each candidate is within the limit, bool [candidates].

        Args:
            rows: the candidates.
        """
        canonical = np.array([np.array_equal(row, self.canonical) for row in rows])
        return canonical | (self.nats(rows) <= self.limit)


# Constraints by name

ConstraintMaker = Callable[[Any, "Vocabulary", Prompt, ObjectiveSettings, "Ids | None"], Constraint]
CONSTRAINTS: Registry[ConstraintMaker] = Registry("constraint", "robustok.constraints")


def constraints_by_name(
    model: Any, vocab: Vocabulary, settings: ObjectiveSettings, *, prefix: Ids | None = None
) -> Callable[[Prompt], list[Constraint]]:
    """The constraints of each prompt.

    >>> settings = ObjectiveSettings(perplexity_quantile=0.9)
    >>> len(constraints_by_name(model, vocab, settings)(Prompt("a", "hello")))
    1

    Args:
        model: the attacked model.
        vocab: its vocabulary.
        settings: their names; ``perplexity_quantile`` adds ``perplexity``.
        prefix: ids before every prompt; by default none.

    Raises RobustokError for an unknown name, and for a quantile with a classifier.
    """
    names = list(settings.constraints)
    if settings.perplexity_quantile is not None:
        if settings.name == "classifier":
            raise RobustokError("a classifier gives no perplexity: leave the quantile out")
        names.append("perplexity")
    fixed: list[Any] = [function_named(name) for name in names if ":" in name]
    makers = [CONSTRAINTS[name] for name in names if ":" not in name]
    return lambda prompt: [
        *fixed, *(make(model, vocab, prompt, settings, prefix) for make in makers)
    ]  # fmt: skip


@CONSTRAINTS.register("perplexity")
def _perplexity(
    model: Any, vocab: Vocabulary, prompt: Prompt, settings: ObjectiveSettings, prefix: Ids | None
) -> Constraint:
    quantile = 0.95 if settings.perplexity_quantile is None else settings.perplexity_quantile
    return WithinPerplexity(
        model, vocab, prompt.text, quantile=quantile, prefix=prefix, seed=settings.seed
    )
