"""Logits processors for transformers' ``generate``: canonical output, and healed prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.guard.continuation import Continuation, token_prefixes
from robustok.ragged import Ragged
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


class HealingProcessor(LogitsProcessor):
    """Makes completions begin with the bytes that :func:`heal` took from the ends of prompts.

    >>> ids, healing = heal(vocab, [vocab.encode("hello w")])
    >>> healing.removed
    [b' w']

    Args:
        vocab: the vocabulary of the model.
        removed: the bytes for each prompt.
        prompt_length: length of the prompts as ``generate`` gets them, padding included.
    """

    def __init__(self, vocab: Vocabulary, removed: Sequence[bytes], prompt_length: int) -> None:
        self.vocab, self.removed = check_vocabulary(vocab), list(removed)
        self.prompt_length = check_integer("prompt_length", prompt_length, 0)
        self._masks: dict[bytes, np.ndarray] = {}

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        rows = input_ids.cpu().numpy()
        if len(rows) % len(self.removed):
            raise RobustokError(
                f"{len(rows)} rows for {len(self.removed)} healed prompts: give generate the ids "
                "that heal returned"
            )
        beams = len(rows) // len(self.removed)
        masks = []
        for number, row in enumerate(rows):
            written = self.vocab.decode_bytes(row[self.prompt_length :])
            masks.append(self._mask(self.removed[number // beams][len(written) :]))
        return _masked(scores, np.stack(masks))

    def _mask(self, left: bytes) -> np.ndarray:
        """The ids that begin with ``left`` or that it begins with, bool [vocabulary]."""
        if left not in self._masks:
            ordinary = self.vocab.ordinary.tolist()
            self._masks[left] = np.array([
                not left or (text and (token.startswith(left) or left.startswith(token)))
                for token, text in zip(self.vocab.tokens, ordinary, strict=True)
            ])  # fmt: skip
        return self._masks[left]


def heal(
    vocab: Vocabulary, prompts: Sequence[Sequence[int] | np.ndarray], pad_id: int = 0
) -> tuple[np.ndarray, HealingProcessor]:
    """Take back the end of prompts that a longer token could begin with.

    A prompt that ends within a word or a run of punctuation forbids the model the token that spans
    its end (transformers #28346, llama.cpp #4778). The ids returned end before it, and the
    processor makes the completion begin with the bytes that were taken.

    >>> ids, healing = heal(vocab, [vocab.encode("hello w"), vocab.encode("the world r")])
    >>> [vocab.decode(row[row > 0]) for row in ids], healing.removed
    (['hello', 'the world'], [b' w', b' r'])

    Args:
        vocab: the vocabulary of the model.
        prompts: ids of each prompt, none empty.
        pad_id: the id that shorter prompts are padded with on the left; mask it.

    Returns ids, int64 [prompts, longest], and the processor for ``generate``. The first id and
    special ids are never taken.
    """
    rows = [check_ids(prompt, vocab.size) for prompt in prompts]
    if not rows or not all(map(len, rows)):
        raise RobustokError("heal needs prompts with at least one id each")
    kept = [row[: _healed_length(vocab, row)] for row in rows]
    removed = [vocab.decode_bytes(row[len(start) :]) for row, start in zip(rows, kept, strict=True)]
    ids = Ragged.from_rows(kept).left_padded(pad_id)
    return ids, HealingProcessor(vocab, removed, ids.shape[1])


def _healed_length(vocab: Vocabulary, ids: np.ndarray) -> int:
    """How many ids stay: the text of the others begins a token of the vocabulary."""
    prefixes = token_prefixes(vocab)
    length, text = len(ids), b""
    for position in reversed(range(1, len(ids))):
        if not vocab.ordinary[ids[position]]:
            break
        text = vocab.tokens[ids[position]] + text
        if len(text) > vocab.trie.longest:
            break
        if text in prefixes:
            length = position
    return length


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
