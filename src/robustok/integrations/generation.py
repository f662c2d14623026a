"""A logits processor for transformers' ``generate`` that keeps the output canonical."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from robustok.checks import check_ids, check_integer
from robustok.guard.continuation import Continuation
from robustok.tokenizer.vocabulary import Vocabulary, check_vocabulary


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

    def __call__(self, input_ids: Any, scores: Any) -> Any:
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


def _masked(scores: Any, allowed: np.ndarray) -> Any:
    """Scores with -inf for ids that are not allowed, and for those beyond the vocabulary.

    A row of which nothing is left stays as it is.
    """
    mask = torch.zeros(scores.shape, dtype=torch.bool)
    width = min(allowed.shape[1], scores.shape[1])
    mask[:, :width] = torch.from_numpy(np.ascontiguousarray(allowed[:, :width]))
    masked = scores.masked_fill(~mask.to(scores.device), float("-inf"))
    left = torch.isfinite(masked).any(dim=1, keepdim=True)
    return torch.where(left, masked, scores)
