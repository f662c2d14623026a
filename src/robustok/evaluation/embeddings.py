"""Hidden states of the last token of many sequences, layer by layer; prefixes are shared.

Their distance between the tokenizations of a word is the paper's measure of embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from robustok.checks import check_ids, check_integer, check_list
from robustok.errors import RobustokError
from robustok.evaluation.intervals import mean_of
from robustok.evaluation.questions import item_keys
from robustok.lattice import Lattice
from robustok.models.load import check_local
from robustok.models.scored import CausalModel, Ids
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject
from robustok.samplers import sampler
from robustok.scoring import scoring_mode
from robustok.scoring.engine import check_sequences, not_a_number
from robustok.scoring.forward import (
    Outputs,
    check_positions,
    default_max_batch_tokens,
    outputs_at,
    quiet,
)
from robustok.scoring.modes import read_outputs
from robustok.scoring.tree import Ints, Sequences
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PLACE = "{word}"
_ROWS = 512  # tokenizations between two calls of progress; bounds the states held at once


def last_states(model: Any, rows: Ragged, *, prefix: object = None) -> np.ndarray:
    """The hidden state of each row's last token: float32 [layers + 1, rows, width].

    Layers are those of transformers' ``output_hidden_states``: first the token embedding, last
    after the final norm. ``prefix`` is ids before every row.
    """
    from transformers import PreTrainedModel

    states: list[np.ndarray] = []  # one array, made when the number of layers is known

    def keep(hidden: torch.Tensor, output_rows: Ints, numbers: Ints) -> None:
        values = hidden.cpu().numpy().swapaxes(0, 1)
        if not states:
            states.append(np.empty((len(values), len(rows), values.shape[2]), np.float32))
        states[0][:, numbers] = values[:, output_rows]

    # Without the head, which with a large vocabulary is most of a small model's work. The base
    # model of one of PEFT may lack what was tuned.
    submodel = model.base_model if isinstance(model, PreTrainedModel) else model
    _read_last(model, submodel, rows, prefix, keep, _states_at)
    return states[0]


def last_logits(model: Any, rows: Ragged) -> np.ndarray:
    """The model's final logits after each row, float32 [rows, vocabulary]."""
    logits: dict[int, np.ndarray] = {}

    def keep(outputs: Outputs, output_rows: Ints, numbers: Ints) -> None:
        values, head = outputs
        all_logits = (values if head is None else head(values)).float().cpu().numpy()
        logits.update(zip(numbers.tolist(), all_logits[output_rows], strict=True))

    _read_last(model, model, rows, None, keep, outputs_at)
    return np.stack([logits[i] for i in range(len(rows))])


def _read_last(
    model: Any,
    submodel: Any,
    rows: Ragged,
    prefix: object,
    keep: Callable[..., None],
    outputs: Callable[..., object],
) -> None:
    """Call ``keep`` with the ``outputs`` of ``submodel`` at the last id of each row."""
    if not len(rows) or not rows.lengths.min():
        raise RobustokError("an empty row has no last token: give rows of at least one id")
    prefix_ids = check_ids([] if prefix is None else prefix).astype(np.int64)
    lengths = rows.lengths
    matrix = np.zeros((len(rows), int(lengths.max())), np.int64)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = rows.values
    targets = np.stack([np.arange(len(rows)), lengths - 1, np.zeros_like(lengths)])
    sequences = Sequences(prefix_ids, matrix, lengths, targets)
    check_sequences(model, sequences)
    max_batch_tokens = default_max_batch_tokens(model)
    mode = scoring_mode(model, sequences)
    with quiet(model):
        read_outputs(submodel, sequences, max_batch_tokens, mode, keep, outputs, {})


def check_states(states: np.ndarray, name: str) -> None:
    """Raise RobustokError, with the ``name`` of the text, for states that are no numbers."""
    if not np.isfinite(states).all():
        raise not_a_number(name, "hidden state")


def _states_at(model: PreTrainedModel, flat: torch.Tensor, **inputs: object) -> torch.Tensor:
    """Hidden states [positions, layers + 1, width] at ``flat``, indices into [batch · length]."""
    hidden = model(**inputs, output_hidden_states=True).hidden_states
    check_positions(hidden[0], inputs["input_ids"])
    return torch.stack([layer.flatten(0, 1)[flat].float() for layer in hidden], dim=1)


class WordDistances(NamedTuple):
    """Distances between the canonical tokenization of one word and drawn others.

    >>> embedding_distances(model, vocab, ["hello"], draws=8, seed=0).by_word["hello"].others
    0.8333333333333334

    Attributes:
        others: share of the word's tokenizations that are not canonical.
        mean: mean distance of the drawn ones, [layers + 1]; empty for a single tokenization.
    """

    others: float
    mean: tuple[float, ...]


@dataclass(frozen=True)
class EmbeddingDistances:
    """Mean distance between the canonical and a uniformly drawn tokenization of a word, per layer.

    >>> result = embedding_distances(model, vocab, ["hello", "revolution"], draws=8, seed=0)
    >>> result.words, result.single, len(result.table())
    (2, 0, 4)

    Args:
        by_word: the distances of each word.
        sentence: the sentence around each word; empty where the words stand alone.
        draws: draws of each word.
        seed: seed of the draws.

    The paper's formula draws from all tokenizations, at distance 0 for the canonical one; its text
    names the non-canonical ones. ``mean`` of :meth:`table` is the first reading (which gives the
    1.24 of its figure's layer 0 where embeddings are near orthogonal), ``mean_of_others`` the
    second. Both use draws of non-canonical tokenizations; ``mean`` adds the canonical one by its
    exact weight.
    """

    by_word: dict[str, WordDistances]
    sentence: str
    draws: int
    seed: int

    @property
    def words(self) -> int:
        """Number of words."""
        return len(self.by_word)

    @property
    def single(self) -> int:
        """Number of words that have one tokenization only."""
        return sum(not word.mean for word in self.by_word.values())

    def table(self) -> list[JsonObject]:
        """One plain dictionary per layer: ``mean`` over the words, its 95% bounds, and the rest.

        Layer 0 is the token embedding. Distances are between unit vectors, so from 0 to 2; the
        bounds ``low`` and ``high`` have words as clusters. ``mean_of_others`` is over the words
        that have other tokenizations.

        Raises RobustokError where no word has any.
        """
        with_others = [word for word in self.by_word.values() if word.mean]
        if not with_others:
            raise RobustokError("no word has a second tokenization: give longer words")
        distances = np.array([word.mean for word in with_others])
        weighted = np.zeros((self.words, distances.shape[1]))
        weighted[: len(distances)] = distances * [[word.others] for word in with_others]
        mean, half_width = mean_of(weighted)
        columns = {
            "mean": mean,
            "low": np.maximum(mean - half_width, 0),
            "high": np.minimum(mean + half_width, 2),
            "mean_of_others": distances.mean(axis=0),
        }
        shared = {
            name: getattr(self, name) for name in ("sentence", "words", "single", "draws", "seed")
        }
        return [
            {
                "layer": layer,
                **{name: float(values[layer]) for name, values in columns.items()},
                **shared,
            }
            for layer in range(len(mean))
        ]


class Spelling(NamedTuple):
    """A word's own canonical ids, and the ids before and after it; int32."""

    before: np.ndarray
    ids: np.ndarray
    after: np.ndarray


def embedding_distances(
    model: CausalModel,
    vocab: Vocabulary,
    words: Sequence[str],
    *,
    draws: int = 50,
    seed: int,
    sentence: str | None = None,
    prefix: Ids | None = None,
    progress: Progress = no_progress,
) -> EmbeddingDistances:
    """L2 distance between unit-normalized last-token states of a word's tokenizations.

    >>> words = ["hello", "world", "revolution"]
    >>> result = embedding_distances(model, vocab, words, draws=8, seed=0)
    >>> len(result.table())
    4

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        words: the words.
        draws: tokenizations of each word, uniform among its non-canonical ones, at least 1.
        seed: any integer. A draw depends on it and the word alone.
        sentence: a text with ``{word}`` once, as "I said {word} twice.". The tokens that hold the
            word are drawn, the others stay canonical, and the state is that of the sentence's last
            token. By default the words stand alone.
        prefix: ids before everything, such as the model's start token, int32 [n]; by default none.
        progress: called with (words done, all words with a second tokenization).

    Layers are those of :func:`last_states`. How a value rounds depends on all words of a call.

    Raises RobustokError without words or draws, and for a sentence without {word}.
    Source: the paper's appendix "Distances of Representations".
    """
    local_model = check_local(model, "distances of embeddings need")
    draws, seed = check_integer("draws", draws, 1), check_integer("seed", seed)
    words = check_list("words", words)
    if not words:
        raise RobustokError("there are no words to measure: give at least one")
    spellings = {word: spell(vocab, word, sentence) for word in words}
    counts = {word: Lattice(vocab, spelling.ids).count() for word, spelling in spellings.items()}
    drawn_words = [word for word in spellings if counts[word] > 1]
    means: dict[str, np.ndarray] = {}
    step = max(1, _ROWS // (draws + 1))
    for begin in range(0, len(drawn_words), step):
        chunk = drawn_words[begin : begin + step]
        samples = draw_others(vocab, {word: spellings[word].ids for word in chunk}, draws, seed)
        spelled = {word: (spellings[word], samples[word]) for word in chunk}
        means |= _measure(local_model, spelled, prefix)
        progress(len(means), len(drawn_words))
    by_word = {
        word: WordDistances(1 - 1 / counts[word], tuple(means.get(word, np.empty(0)).tolist()))
        for word in spellings
    }
    return EmbeddingDistances(by_word, sentence or "", draws, seed)


def check_sentence(sentence: str) -> None:
    """Raise RobustokError unless the sentence has exactly one place for the word."""
    if sentence.count(PLACE) != 1:
        raise RobustokError(f"the sentence {sentence!r} must hold {PLACE} once")


def spell(vocab: Vocabulary, word: str, sentence: str | None = None) -> Spelling:
    """The canonical ids of a word; in a sentence the fewest tokens with all its bytes."""
    if sentence is None:
        ids, empty = np.asarray(vocab.encode(word), np.int32), np.empty(0, np.int32)
        return Spelling(empty, ids, empty)
    check_sentence(sentence)
    _, _, after = sentence.partition(PLACE)
    ids = np.asarray(vocab.encode(sentence.replace(PLACE, word)), np.int32)
    # From the end, since some encoders put a space before the text.
    end = len(vocab.decode_bytes(ids)) - len(after.encode())
    begin = end - len(word.encode())
    if vocab.decode_bytes(ids)[begin:end] != word.encode():
        raise RobustokError(f"the tokenizer changes the text around {word!r}: give another word")
    ends = np.cumsum(vocab.token_lengths[ids])
    first, last = (int(np.searchsorted(ends, byte, "right")) for byte in (begin, end - 1))
    return Spelling(ids[:first], ids[first : last + 1], ids[last + 1 :])


def draw_others(
    vocab: Vocabulary, texts: dict[str, np.ndarray], draws: int, seed: int
) -> dict[str, Ragged]:
    """Uniform draws of each text's tokenizations except the given ids; a text has at least two."""
    uniform = sampler("uniform", vocab)
    others: dict[str, list[np.ndarray]] = {text: [] for text in texts}
    unfinished, epoch = list(texts), 0
    while unfinished:
        rows = uniform.sample_batch(
            Ragged.from_rows([texts[text] for text in unfinished]),
            seed=seed,
            draws=2 * draws,
            keys=item_keys(unfinished),
            epoch=epoch,
        )
        for i, text in enumerate(unfinished):
            samples = rows[2 * draws * i : 2 * draws * (i + 1)]
            others[text] += [row for row in samples if not np.array_equal(row, texts[text])]
        unfinished = [text for text in unfinished if len(others[text]) < draws]
        epoch += 1
    return {text: Ragged.from_rows(rows[:draws]) for text, rows in others.items()}


def _measure(
    model: PreTrainedModel, words: dict[str, tuple[Spelling, Ragged]], prefix: Ids | None
) -> dict[str, np.ndarray]:
    """Mean distance per layer of each word's draws from its canonical tokenization."""
    rows = [
        np.concatenate([spelling.before, ids, spelling.after])
        for spelling, samples in words.values()
        for ids in (spelling.ids, *samples)
    ]
    states = last_states(model, Ragged.from_rows(rows), prefix=prefix).astype(np.float64)
    for word, word_states in zip(words, np.split(states, len(words), axis=1), strict=True):
        check_states(word_states, f"the word {word!r}")
    norms = np.linalg.norm(states, axis=-1, keepdims=True)
    units = np.divide(states, norms, out=states, where=norms > 0)
    by_word = np.split(units, len(words), axis=1)  # every word has as many draws
    return {
        word: np.linalg.norm(vectors[:, 1:] - vectors[:, :1], axis=-1).mean(axis=1)
        for word, vectors in zip(words, by_word, strict=True)
    }
