"""Hooks of transformers: a logits processor for canonical output, and drift in a trainer's log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor, TrainerCallback

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.guard import Guard
from robustok.guard.continuation import Continuation
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary

_NAMES = ("drift/sequences", "drift/ids", "drift/changed")


class CanonicalProcessor(LogitsProcessor):
    """Forbids ids after which the output could not be canonical any more.

    >>> from transformers import LogitsProcessorList
    >>> ids = torch.tensor([vocab.encode("the").tolist()])
    >>> canonical = CanonicalProcessor(vocab, prompt_length=ids.shape[1])
    >>> out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8,
    ...                      do_sample=False, logits_processor=LogitsProcessorList([canonical]))
    >>> rt.Guard(vocab, allow_special=True).check(out[0].tolist()).canonical
    True

    Args:
        vocab: the vocabulary of the model.
        prompt_length: length of the prompts as ``generate`` gets them, padding included.

    The ids after the last special id decide, those of the prompt included. Where these do not begin
    a canonical encoding themselves, the completion alone is held canonical. Special ids, such as
    the end of the text, are allowed where the text does not end within a character. It works with
    batches, beams and sampling. Each new context costs an encoding of the ids that could continue
    its last pre-token; masks of the last 512 contexts are kept. Where other processors leave no
    allowed id, this one yields. Source: arXiv 2506.07956.
    """

    def __init__(self, vocab: Vocabulary, *, prompt_length: int) -> None:
        self.vocab = check_vocabulary(vocab)
        self.prompt_length = check_integer("prompt_length", prompt_length, 0)
        self._continuation = Continuation(vocab)
        self._whole: dict[bytes, bool] = {}  # whether a prompt can be continued canonically

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        masks = [self._allowed(row) for row in input_ids.cpu().numpy()]
        return _masked(scores, np.stack(masks))

    def _allowed(self, row: np.ndarray) -> np.ndarray:
        prompt = row[: self.prompt_length]
        key = prompt.tobytes()
        if key not in self._whole:
            special = np.flatnonzero(~self.vocab.ordinary[check_ids(prompt, self.vocab.size)])
            tail = prompt[special[-1] + 1 :] if len(special) else prompt
            self._whole[key] = self._continuation.is_start(tail)
        return self._continuation.allowed(row if self._whole[key] else row[self.prompt_length :])


def _masked(scores: torch.Tensor, allowed: np.ndarray) -> torch.Tensor:
    """Scores with -inf for ids that are not allowed, and for those beyond the vocabulary.

    A row of which nothing is left stays as it is.
    """
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    width = min(allowed.shape[1], scores.shape[1])
    mask[:, :width] = torch.from_numpy(np.ascontiguousarray(allowed[:, :width]))
    masked = scores.masked_fill(~mask.to(scores.device), float("-inf"))
    left = torch.isfinite(masked).any(dim=1, keepdim=True)
    return torch.where(left, masked, scores)


class DriftCallback(TrainerCallback):
    """Reports how many sampled ids a decoding and encoding would change, in a trainer's logs.

    >>> drift = DriftCallback(vocab)
    >>> reward = drift.observed(lambda completions, **_: [0.0 for _ in completions])
    >>> reward(completions=["the"], completion_ids=[[*vocab.encode("t"), *vocab.encode("he")]])
    [0.0]
    >>> drift.metrics()
    {'drift/sequences': 1.0, 'drift/ids': 1.0, 'drift/changed': 1.0}

    Args:
        vocab: the vocabulary of the policy's tokenizer.

    With TRL, wrap a reward function and give the callback to the trainer::

        drift = DriftCallback(vocab)
        GRPOTrainer(..., reward_funcs=drift.observed(reward), callbacks=[drift])

    In a loop of one's own, call :meth:`add` with each batch. The metrics are shares from 0 to 1
    since the last log: ``drift/sequences`` of the sequences that are not canonical, ``drift/ids``
    of the ids that the encoder would not give, ``drift/changed`` of the sequences that decoding and
    encoding changes (those that are not canonical, not UTF-8, or spell a special token).
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self._guard = Guard(vocab, allow_special=True, max_length=None)
        self._totals = np.zeros((len(_NAMES), 2), np.int64)

    def add(self, completion_ids: Iterable[Any]) -> dict[str, float]:
        """Check a batch and return its metrics.

        Args:
            completion_ids: the sampled ids of each completion.
        """
        verdicts = self._guard.check_batch([_as_list(row) for row in completion_ids])
        sequences, ids = len(verdicts), len(verdicts.given)
        not_canonical, changed = (~verdicts.canonical).sum(), (~verdicts.round_trip).sum()
        drifted = verdicts.deviates.sum()
        counts = np.array([[not_canonical, sequences], [drifted, ids], [changed, sequences]])
        self._totals += counts
        return _shares(counts)

    def metrics(self) -> dict[str, float]:
        """The metrics of all batches since the last log; empty without one."""
        return _shares(self._totals)

    def observed(self, reward: Callable[..., Any]) -> Callable[..., Any]:
        """A TRL reward function that also measures the drift of the completions.

        Args:
            reward: a reward function with TRL's signature; it is called unchanged.

        Metrics go through TRL's ``log_metric`` where the trainer passes it, so that every reporter
        has them, and into the next log otherwise.
        """

        def with_drift(*args: Any, completion_ids: Any = None, **kwargs: Any) -> Any:
            if completion_ids is None:
                raise RobustokError(
                    "the trainer passes no completion_ids to reward functions: upgrade trl, or "
                    "call DriftCallback.add in the training loop"
                )
            metrics = self.add(completion_ids)
            log_metric = kwargs.get("log_metric")
            if log_metric is not None:
                for name, value in metrics.items():
                    log_metric(name, value)
            return reward(*args, completion_ids=completion_ids, **kwargs)

        with_drift.__name__ = getattr(reward, "__name__", type(reward).__name__)
        return with_drift

    def on_log(self, args, state, control, logs=None, **kwargs) -> None:  # type: ignore[override]
        metrics = self.metrics()
        self._totals[:] = 0
        for target in (logs, state.log_history[-1] if state.log_history else None):
            if target is not None:
                for name, value in metrics.items():
                    target.setdefault(name, value)


def _as_list(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row  # a tensor on any device


def _shares(counts: np.ndarray) -> dict[str, float]:
    """The metrics of counts, int64 [metrics, 2]: how many, and of how many."""
    rows = zip(_NAMES, counts.tolist(), strict=True)
    return {name: part / whole for name, (part, whole) in rows if whole}
