"""Log-likelihood of options after many tokenizations under one prefix, and that of long texts.

Long texts are read in chunks of at most max_length tokens.

Every score is checked here. One that is not a number is an error that names the question. The
logarithm of a probability of zero (a logit of minus infinity, or out of range in half precision) is
``LOG_ZERO``, so that margins and means over it are numbers; an error where all options have it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
import torch

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.models.load import config_token, max_length_of, model_fingerprint
from robustok.models.scored import CausalModel, Ids, Request, ScoredModel, Scores
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.scoring.forward import PrefixCache, default_max_batch_tokens, quiet
from robustok.scoring.modes import log_probs, scoring_mode
from robustok.scoring.tree import Sequences

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOG_ZERO = -1e30  # logarithm of a probability of zero, in nats

_GROUP_CELLS = 4_000_000  # token cells of one joint prefix tree: bounds NumPy's share of memory

_log = logging.getLogger(__name__)
_warned_models: WeakSet[Any] = WeakSet()  # models that got the warning about too many positions


class LocalModel(ScoredModel):
    """A causal language model of transformers in this process."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.max_length = model, max_length_of(model)
        self.precision = str(model.dtype).removeprefix("torch.")

    def fingerprint(self) -> str:
        return model_fingerprint(self.model)

    def start_ids(self) -> list[int]:
        first = config_token(self.model, "bos_token_id", "eos_token_id")
        if first is None:
            raise RobustokError(
                "the model names no token that begins a text (bos_token_id), so whole sentences "
                "cannot be scored: set one in its config"
            )
        return [first]

    def score_many(
        self,
        requests: Sequence[Request],
        *,
        max_batch_tokens: int | None = None,
        prefix_cache: PrefixCache | None = None,
    ) -> list[Scores]:
        if max_batch_tokens is None:
            max_batch_tokens = default_max_batch_tokens(self.model)
        check_integer("max_batch_tokens", max_batch_tokens, 1)
        prefix_cache = {} if prefix_cache is None else prefix_cache
        results: dict[int, Scores] = {}
        for members in _groups(requests):
            group = [requests[i] for i in members]
            with quiet(self.model):
                scored = _score_group(self.model, group, max_batch_tokens, prefix_cache)
            results |= zip(members, scored, strict=True)
        return [results[i] for i in range(len(requests))]

    def losses(
        self, chunks: Sequence[np.ndarray], progress: Progress, *, max_batch_tokens: int
    ) -> np.ndarray:
        check_embedded(self.model, *chunks)
        most = max(1, min(max_batch_tokens, _MOST_LOGITS // _n_embedded(self.model)))
        losses, done = np.zeros(len(chunks)), 0
        with quiet(self.model):
            while done < len(chunks):
                batch = chunks[done : done + max(1, most // len(chunks[done]))]
                sequences = _each_next_id(batch)
                mode = scoring_mode(self.model, sequences, "plain", max_batch_tokens=most)
                values, _ = log_probs(self.model, sequences, most, mode, {})
                losses[done : done + len(batch)] = -sequences.sums(values)
                done += len(batch)
                progress(done, len(chunks))
        return losses

    def continuation(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        input_ids = torch.tensor([prompt], device=self.model.device)
        end = getattr(self.model.generation_config, "eos_token_id", None)
        generate: Any = self.model.generate
        with quiet(self.model):
            output = generate(
                input_ids=input_ids,
                attention_mask=torch.ones_like(input_ids),
                max_new_tokens=max_new_tokens,
                pad_token_id=end[0] if isinstance(end, list) else end or 0,
                logits_processor=[_checked_logits],
                do_sample=False,
                num_beams=1,
                repetition_penalty=1.0,  # as a server is asked: the greatest logit alone decides
                no_repeat_ngram_size=0,
                temperature=None,
                top_p=None,
                top_k=None,
            )
        return output[0, len(prompt) :].tolist()


def _checked_logits(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The logits of the next token as they are: a step of transformers' generation."""
    if not bool(torch.isfinite(logits.amax(dim=-1)).all()):  # NaN, or no token with a probability
        raise not_a_number(f"a prompt of {ids.shape[1]} tokens", "next-token distribution")
    return logits


def scored_model(model: CausalModel) -> ScoredModel:
    """What is asked of a model: itself where it is behind a server, else one of transformers."""
    return model if isinstance(model, ScoredModel) else LocalModel(model)


def score(
    model: CausalModel,
    questions: Ragged | Sequence[Ids],
    options: Sequence[Ids],
    prefix: Ids | None = None,
    *,
    max_batch_tokens: int | None = None,
) -> Scores:
    """Natural-log p(option | prefix, question) for every question and option.

    >>> score(model, [[5, 6, 7], [5, 8]], [[1], [2, 3]]).log_probs.shape
    (2, 2)

    Args:
        model: any causal language model of transformers, or one that is served.
        questions: token ids of each question, often many tokenizations of one text.
        options: token ids of each option, none empty.
        prefix: token ids before every question; by default none. No start token is added: give it
            here if the model needs one.
        max_batch_tokens: greatest number of tokens of one forward pass; by default 1,024 on a CPU
            and 16,384 elsewhere. Out of memory, it is halved and the pass repeated.

    Equal to scoring one sequence at a time up to rounding, however much of the work is shared.

    Raises RobustokError for what is no ids, for an empty option, for an empty question without
    prefix, for an id that the model has no embedding for, for more tokens than its learned
    positions, for a score that is not a number, and where all of several options have a probability
    of zero.
    """
    rows = questions if isinstance(questions, Ragged) else Ragged.from_rows(questions)
    request = Request(rows, options, prefix)
    return score_many(model, [request], max_batch_tokens=max_batch_tokens)[0]


def score_many(
    model: CausalModel,
    requests: Sequence[Request],
    *,
    max_batch_tokens: int | None = None,
    prefix_cache: PrefixCache | None = None,
) -> list[Scores]:
    """Score several requests; those with the same prefix are packed together.

    >>> rows = Ragged.from_rows([[5, 6], [7]])
    >>> requests = [Request(rows, [[1], [2]]), Request(rows, [[3], [4], [5]])]
    >>> [scores.log_probs.shape for scores in score_many(model, requests)]
    [(2, 2), (2, 3)]

    Args:
        model: any causal language model of transformers, or one that is served.
        requests: what to score; results are in the same order.
        max_batch_tokens: greatest number of tokens of one forward pass, as in :func:`score`.
        prefix_cache: a dictionary, empty at first, that several calls share: each prefix is
            computed in the first of them only. Drop it when the model's weights change. By default
            nothing is kept.

    The counts of one request are its share of the joint work; only their sums are exact. Raises
    RobustokError as :func:`score` does.
    """
    for request in requests:
        _check_not_empty(request)
    results = scored_model(model).score_many(
        requests, max_batch_tokens=max_batch_tokens, prefix_cache=prefix_cache
    )
    return [
        replace(scores, log_probs=_checked(scores.log_probs, request.name))
        for request, scores in zip(requests, results, strict=True)
    ]


def _check_not_empty(request: Request) -> None:
    """Raise RobustokError for an empty option, and for an empty question without a prefix."""
    if not request.options or not all(map(len, request.options)):
        raise RobustokError("every answer option needs at least one token: check the options")
    has_prefix = request.prefix is not None and len(request.prefix)
    if not has_prefix and len(request.questions) and not request.questions.lengths.min():
        raise RobustokError("an empty question follows nothing: give a prefix or a start token")


def _groups(requests: Sequence[Request]) -> list[list[int]]:
    """Requests under the same prefix, in groups of bounded size."""
    groups: list[list[int]] = []
    latest: dict[bytes, tuple[list[int], int, int]] = {}  # by prefix: group, rows, longest question
    for i, request in enumerate(requests):
        prefix = b"" if request.prefix is None else np.asarray(request.prefix, np.int64).tobytes()
        rows = len(request.questions) * len(request.options)
        width = int(request.questions.lengths.max(initial=0))
        members, n_rows, widest = latest.get(prefix, ([], 0, 0))
        if not members or (rows + n_rows) * max(width, widest) > _GROUP_CELLS:
            members, n_rows, widest = [], 0, 0
            groups.append(members)
        members.append(i)
        latest[prefix] = members, rows + n_rows, max(width, widest)
    return groups


def _sequences_of(request: Request) -> Sequences:
    """Last prefix token + question + option without its last token, after the rest of the prefix.

    The last token of an option is scored but not computed, since no later token looks back to it.
    """
    questions = request.questions
    prefix = np.asarray([] if request.prefix is None else request.prefix, np.int64)
    options = [np.asarray(o, np.int64) for o in request.options]
    last_prefix_id = prefix[-1:]  # scores the first token of an option after an empty question
    lengths = questions.lengths + len(last_prefix_id)
    n_questions, n_options = len(questions), len(options)
    width = int(lengths.max(initial=0)) + max(len(o) for o in options) - 1
    matrix = np.zeros((n_questions, n_options, width), np.int64)
    matrix[:, :, : len(last_prefix_id)] = last_prefix_id
    row = np.repeat(np.arange(n_questions), questions.lengths)
    column = np.arange(len(questions.values)) - np.repeat(questions.offsets[:-1], questions.lengths)
    matrix[row, :, column + len(last_prefix_id)] = questions.values[:, None]
    all_rows = np.arange(n_questions)
    targets = []
    for c, option in enumerate(options):
        for j, token in enumerate(option.tolist()):
            if j + 1 < len(option):
                matrix[all_rows, c, lengths + j] = token
            tokens = np.full(n_questions, token)
            targets.append(np.stack([all_rows * n_options + c, lengths + j - 1, tokens]))
    option_lengths = np.array([len(o) for o in options])
    return Sequences(
        prefix[:-1],
        matrix.reshape(n_questions * n_options, width),
        (lengths[:, None] + option_lengths - 1).ravel(),
        np.concatenate(targets, axis=1),
    )


def _score_group(
    model: PreTrainedModel,
    requests: list[Request],
    max_batch_tokens: int,
    prefix_cache: PrefixCache,
) -> list[Scores]:
    """The scores of requests of one prefix, computed as one set of sequences."""
    sequences = _concatenated([_sequences_of(request) for request in requests])
    check_sequences(model, sequences)
    mode = scoring_mode(model, sequences, max_batch_tokens=max_batch_tokens)
    of_targets, costs = log_probs(model, sequences, max_batch_tokens, mode, prefix_cache)
    values = sequences.sums(of_targets)
    tokens_naive = len(sequences.prefix) + sequences.lengths + 1
    results, begin = [], 0
    for request in requests:
        shape = len(request.questions), len(request.options)
        rows = slice(begin, begin + shape[0] * shape[1])
        results.append(
            Scores(
                log_probs=values[rows].reshape(shape),
                tokens_computed=int(costs[rows].sum()),
                tokens_naive=int(tokens_naive[rows].sum()),
                mode=mode,
            )
        )
        begin = rows.stop
    return results


def _checked(values: np.ndarray, name: str) -> np.ndarray:
    """Log-probabilities [questions, options], finite; an error where one is not a number."""
    # A sum is cheaper than a mask: NaN and infinity make it not finite.
    if not math.isfinite(float(values.sum())):
        bad_rows = np.flatnonzero((np.isnan(values) | (values == np.inf)).any(axis=1))
        if len(bad_rows):
            raise not_a_number(name or f"question {bad_rows[0]}")
    values = np.maximum(values, LOG_ZERO)
    if values.shape[1] > 1:
        zeros = np.flatnonzero(values.max(axis=1) == LOG_ZERO)
        if len(zeros):
            raise RobustokError(
                f"{name or f'question {zeros[0]}'}: the model gives all options a probability of "
                "zero, so there is nothing to choose from: leave it out"
            )
    return values


def not_a_number(name: str, what: str = "score") -> RobustokError:
    """The error for a ``what`` (score) of the question ``name`` that is not a number."""
    return RobustokError(
        f"{name}: the model's {what} is not a number (NaN): its forward pass overflows or its "
        "weights are damaged; load it in another precision, or check them"
    )


def _concatenated(many: list[Sequences]) -> Sequences:
    """The sequences of several requests with one prefix."""
    width = max(s.matrix.shape[1] for s in many)
    matrices = [np.pad(s.matrix, [(0, 0), (0, width - s.matrix.shape[1])]) for s in many]
    begins = np.cumsum([0] + [len(matrix) for matrix in matrices])
    shifts = [[[begin], [0], [0]] for begin in begins]  # of the sequence numbers
    targets = [np.add(s.targets, shift) for s, shift in zip(many, shifts, strict=False)]
    lengths = np.concatenate([s.lengths for s in many])
    return Sequences(
        many[0].prefix, np.concatenate(matrices), lengths, np.concatenate(targets, axis=1)
    )


def _n_embedded(model: PreTrainedModel) -> int:
    embedding: Any = model.get_input_embeddings()
    return embedding.num_embeddings


def check_embedded(model: PreTrainedModel, *ids: np.ndarray) -> None:
    """Raise RobustokError for ids that the model has no embedding for."""
    n_ids = _n_embedded(model)
    lowest = min(int(array.min(initial=0)) for array in ids)
    highest = max(int(array.max(initial=0)) for array in ids)
    if lowest < 0 or highest >= n_ids:
        raise RobustokError(
            f"token id {lowest if lowest < 0 else highest} for a model with ids 0..{n_ids - 1}: "
            "tokenize with the model's own vocabulary"
        )


def check_sequences(model: PreTrainedModel, sequences: Sequences) -> None:
    """Raise RobustokError for ids without an embedding and for more tokens than positions."""
    prefix, matrix, lengths, targets = sequences
    check_embedded(model, prefix, matrix, targets[2])
    limit, longest = max_length_of(model), len(prefix) + int(lengths.max(initial=0))
    if limit is None or longest <= limit:
        return
    if getattr(model.config.get_text_config(), "rope_parameters", None) is None:
        raise RobustokError(
            f"{longest} tokens are more than the model's {limit} positions: shorten the prefix"
        )
    if model not in _warned_models:
        _warned_models.add(model)
        _log.warning(
            "%d tokens are more than the %d positions that the model was made for; its scores "
            "there are unreliable",
            longest,
            limit,
        )


_MOST_LOGITS = 1 << 29  # of one forward pass, for models whose logits are not made in blocks


def text_losses(
    model: CausalModel,
    rows: Ragged,
    *,
    max_length: int,
    start: int,
    draws: int = 1,
    max_batch_tokens: int = 8192,
    progress: Progress = no_progress,
) -> np.ndarray:
    """The negative log-likelihood in nats of each row of ids after ``start``, float64 [rows].

    >>> losses = text_losses(model, vocab.encode_batch(texts), max_length=64, start=0)
    >>> losses.shape
    (2,)

    A row is read in chunks of at most ``max_length`` ids. Each id is predicted once: a chunk begins
    with the last id of the previous chunk. A forward pass reads at most ``max_batch_tokens`` ids
    with padding (fewer for a large vocabulary), or one chunk. Each text has ``draws`` rows.

    Raises RobustokError, with the number of the text, where its likelihood is not a number or zero.
    """
    chunks: list[tuple[int, np.ndarray]] = []  # (number of the row, ids)
    for number, row in enumerate(rows):
        ids = np.concatenate([[start], row])
        begins = range(0, len(ids) - 1, max_length - 1)
        chunks += [(number, ids[begin : begin + max_length]) for begin in begins]
    chunks.sort(key=lambda chunk: -len(chunk[1]))  # little padding
    numbers, parts = zip(*chunks, strict=True) if chunks else ((), ())
    losses = scored_model(model).losses(parts, progress, max_batch_tokens=max_batch_tokens)
    nats = np.bincount(np.array(numbers, int), losses, minlength=len(rows))
    for number in np.flatnonzero(~np.isfinite(nats))[:1].tolist():
        if np.isnan(nats[number]):
            raise not_a_number(f"text {number // draws}", "likelihood")
        raise RobustokError(
            f"text {number // draws}: the model gives one of its tokens a probability of zero, so "
            "its perplexity is infinite: leave it out"
        )
    return nats


def _each_next_id(chunks: Sequence[np.ndarray]) -> Sequences:
    """The chunks as sequences in which all ids but the first are scored."""
    lengths = np.array([len(chunk) - 1 for chunk in chunks])
    is_real = np.arange(lengths.max()) < lengths[:, None]
    matrix = np.zeros(is_real.shape, np.int64)
    matrix[is_real] = np.concatenate([chunk[:-1] for chunk in chunks])
    row, column = np.nonzero(is_real)
    targets = np.stack([row, column, np.concatenate([chunk[1:] for chunk in chunks])])
    return Sequences(np.zeros(0, np.int64), matrix, lengths, targets)
