"""Schemes that walk the lattice from left to right, each with its own step distribution.

`grampa` (GRaMPa, Bauwens et al. 2025) steps by path counts, skewed by a temperature; `unigram`
(subword regularization, Kudo 2018) by the scores of a Unigram tokenizer; `maxmatch-dropout`
(Hiraoka 2022) takes the longest match and passes over matches at random.
"""

from __future__ import annotations

import numpy as np

from robustok.errors import RobustokError
from robustok.kernels.batch import Batch
from robustok.kernels.store import NO_PATH
from robustok.kernels.walk import (
    GRAMPA,
    MAXMATCH,
    UNIGRAM,
    StepRule,
    draw_blocks,
    log_prob_walk,
)
from robustok.runtime.environment import computed_once
from robustok.samplers.canonical import Canonical
from robustok.samplers.parameters import SCORES, count, probability
from robustok.samplers.parameters import temperature as temperature_range
from robustok.samplers.stored import Kernel, StoredSampler
from robustok.tokenizer.vocabulary import Vocabulary

_LARGEST_SCORE = 1e6
_UNKNOWN = 10.0  # SentencePiece scores an unknown character this far below the least score


class WalkSampler(StoredSampler):
    """A sampler with a step rule of `kernels.walk`. It reads bytes, not canonical ids."""

    _reads_bytes = True
    _reads_canonical = False
    _failures = {NO_PATH: "a text has no tokenization that this scheme allows"}

    def _step_rule(self) -> StepRule:
        raise NotImplementedError

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        """The sum over the steps. Exact."""
        v = self.vocab
        text = np.frombuffer(bytearray(v.decode_bytes(ids)), np.uint8)
        return log_prob_walk(v.trie, text, ids, v.token_offsets, self._step_rule())

    @computed_once
    def _kernel(self) -> Kernel:
        return draw_blocks, self.vocab.kernel_tokens, (self._step_rule(),)


class Grampa(WalkSampler):
    """At each position a token, in proportion to (tokenizations of the rest after it) ** (1 / T).

    >>> ids = vocab.encode("the")
    >>> round(float(np.exp(Grampa(vocab, temperature=1.0).log_prob(ids))), 3)
    0.333

    Args:
        vocab: the vocabulary whose texts are tokenized.
        temperature: T, from 1e-6 to 1e6. 1 is uniform over all tokenizations; above 1 favors long
            tokens, since the rest after a short one has more tokenizations.
        min_length: least length of a token in bytes, from 1 to 2**31 - 1. Where no token is as
            long, the longest after which the rest has a tokenization is used; T = 1 is then uniform
            over the tokenizations left.

    The walk goes from left to right, the default of the authors' code.

    In 20 lines of plain Python: grampa in ``tests/oracles/walks.py``.
    """

    name = "grampa"
    example = "grampa(temperature=2, min_length=2)"
    parameters = {"temperature": temperature_range(1.0), "min_length": count(1, least=1)}
    strength = "temperature"
    exact = True
    temperature: float
    min_length: int

    def __init__(self, vocab: Vocabulary, *, temperature: float = 1.0, min_length: int = 1) -> None:
        super().__init__(vocab, temperature=temperature, min_length=min_length)

    def _step_rule(self) -> StepRule:
        return _plain_rule(GRAMPA, self.temperature, self.min_length)


class Unigram(WalkSampler):
    """Tokenizations in proportion to exp(sum of the tokens' scores / temperature).

    >>> from tokenizers import Tokenizer, models
    >>> scores = [("<unk>", 0.0), ("a", -2.0), ("b", -2.0), ("ab", -3.0)]
    >>> small = rt.Vocabulary.load(Tokenizer(models.Unigram(scores, 0, False)))
    >>> round(float(np.exp(Unigram(small).log_prob([3]))), 3)
    0.731

    Args:
        vocab: the vocabulary of a Unigram tokenizer.
        temperature: from 1e-6 to 1e6. 1 (default) is the model's own distribution; 1 / temperature
            is SentencePiece's ``alpha``.

    Bytes replace characters that are no token; all bytes of one character together score 10 below
    the least token. Raises RobustokError where the tokenizer has no Unigram scores.

    In 20 lines of plain Python: unigram in ``tests/oracles/walks.py``.
    """

    name = "unigram"
    example = "unigram(temperature=2)"
    parameters = {"temperature": temperature_range(1.0)}
    strength = "temperature"
    exact = True
    needs = SCORES
    temperature: float

    def __init__(self, vocab: Vocabulary, *, temperature: float = 1.0) -> None:
        super().__init__(vocab, temperature=temperature)

    def _step_rule(self) -> StepRule:
        logs, fallback = self.vocab.derived("unigram scores", lambda: _scores(self.vocab))
        return StepRule(UNIGRAM, 1.0, 1, logs / self.temperature, fallback)


class MaxMatchDropout(WalkSampler):
    """At each position the longest token that matches, each dropped with probability p.

    >>> [vocab.tokens[i] for i in MaxMatchDropout(vocab, p=0.5).sample("hello world", seed=1)]
    [b'hello', b' wor', b'ld']

    Args:
        vocab: the vocabulary whose texts are tokenized.
        p: probability that a match is dropped, from 0 to 1.

    Where all longer matches are dropped the shortest is used. p = 0 gives the canonical ids, as
    strength 0 does in every scheme; but as p falls towards 0 the draws become greedy longest match,
    which is not what BPE or Unigram would have chosen.

    In 20 lines of plain Python: maxmatch_dropout in ``tests/oracles/walks.py``.
    """

    name = "maxmatch-dropout"
    example = "maxmatch-dropout(p=0.3)"
    parameters = {"p": probability(0.1)}
    strength = "p"
    exact = True
    p: float

    def __init__(self, vocab: Vocabulary, *, p: float = 0.1) -> None:
        super().__init__(vocab, p=p)

    @property
    def _reads_bytes(self) -> bool:  # type: ignore[override]
        """False for p = 0, which draws the canonical ids."""
        return self.p > 0.0

    @property
    def _reads_canonical(self) -> bool:  # type: ignore[override]
        return self.p == 0.0

    def _log_prob_text(self, ids: np.ndarray, canonical: np.ndarray) -> float:
        if self.p == 0.0:
            return Canonical(self.vocab)._log_prob_text(ids, canonical)
        return super()._log_prob_text(ids, canonical)

    def _step_rule(self) -> StepRule:
        return _plain_rule(MAXMATCH, self.p)

    def _draw(self, batch: Batch, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        if self.p == 0.0:
            Canonical(self.vocab)._draw(batch, first, last, out, ends)
        else:
            super()._draw(batch, first, last, out, ends)


def _plain_rule(rule: int, setting: float, min_length: int = 1) -> StepRule:
    """A step rule without weights for each token."""
    return StepRule(rule, setting, min_length, np.zeros(0), np.zeros(0, np.bool_))


def _scores(vocab: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The score of each id, and which ids are byte fallbacks."""
    data = vocab.data
    scores, fallback = np.zeros(vocab.size), np.zeros(vocab.size, np.bool_)
    for i, score in (data.scores or {}).items():
        scores[i] = score
    fallback[list(data.byte_fallback)] = True
    for i in data.ordinary:
        if not abs(scores[i]) < _LARGEST_SCORE:
            raise RobustokError(
                f"unigram: the token {vocab.tokens[i].decode(errors='replace')!r} has a score of "
                f"{scores[i]:g}, beside which other scores have no precision: use another scheme"
            )
    scored = [i for i in data.ordinary if not fallback[i]]
    unknown_score = min((scores[i] for i in scored), default=0.0) - _UNKNOWN
    for i in data.byte_fallback:  # the first byte of a character has the whole score
        is_continuation = 0x80 <= vocab.tokens[i][0] < 0xC0
        scores[i] = 0.0 if is_continuation else unknown_score
    return scores, fallback
