"""Hidden states of the last token of many sequences, at every layer; prefixes are shared.

Their change under another tokenization is measured in units of the bound
(`robustok.evaluation.bound`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, as_sampler, check_questions, item_keys
from robustok.lattice import distance
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonObject
from robustok.samplers import Sampler
from robustok.scoring import scoring_mode
from robustok.scoring.engine import check_no_overflow, check_sequences, not_a_number
from robustok.scoring.forward import default_max_batch_tokens, quiet
from robustok.scoring.modes import read_outputs
from robustok.scoring.tree import Ints, Sequences
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def last_states(model: Any, rows: Ragged, *, prefix: object = None) -> np.ndarray:
    """The hidden state of each row's last token: float32 [layers + 1, rows, width].

    >>> last_states(model, Ragged.from_rows([[5, 6], [7]])).shape
    (4, 2, 128)

    Entry 0 is the token embedding; the last one is after the model's final norm, as
    transformers' ``output_hidden_states`` gives them. ``prefix`` is ids before every row.
    Rows that begin alike share the work, as in :func:`robustok.scoring.score`.

    Raises RobustokError without rows, and for an empty one.
    """
    if not len(rows) or not rows.lengths.min():
        raise RobustokError("an empty row has no last token: give rows of at least one id")
    before = np.asarray([] if prefix is None else prefix, np.int64)
    lengths = rows.lengths
    matrix = np.zeros((len(rows), int(lengths.max())), np.int64)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = rows.values
    ends = np.stack([np.arange(len(rows)), lengths - 1, np.zeros_like(lengths)])
    sequences = Sequences(before, matrix, lengths, ends)
    check_sequences(model, sequences)
    states: list[np.ndarray] = []  # one array, once its number of layers is known

    def keep(hidden: torch.Tensor, which: Ints, read: Ints) -> None:
        values = hidden.cpu().numpy().swapaxes(0, 1)
        if not states:
            states.append(np.empty((len(values), len(rows), values.shape[2]), np.float32))
        states[0][:, read] = values[:, which]

    max_batch_tokens = default_max_batch_tokens(model)
    mode = scoring_mode(model)
    with quiet(model):
        # The head is not needed, and for a large vocabulary it is most of a small model's work.
        read_outputs(model.base_model, sequences, max_batch_tokens, mode, keep, _states_at, {})
    return states[0]


def check_states(states: np.ndarray, name: str) -> None:
    """Raise RobustokError, with the ``name`` of what was read, for states that are no numbers."""
    if not np.isfinite(states).all():
        raise not_a_number(name, "hidden state")


def _states_at(model: PreTrainedModel, flat: torch.Tensor, **inputs: object) -> torch.Tensor:
    """Hidden states [positions, layers + 1, width] at ``flat``, indices into [batch · length]."""
    hidden = model(**inputs, output_hidden_states=True).hidden_states
    return torch.stack([layer.flatten(0, 1)[flat].float() for layer in hidden], dim=1)


@dataclass(frozen=True, eq=False)
class Ratios:
    """Empirical Lipschitz ratios ‖f(u) − f(v)‖ / √d(v, u), v canonical, at the last token.

    >>> result = lipschitz_ratios(model, vocab, items, draws=4, seed=0)
    >>> result.longest, result.items
    (30, 8)

    Args:
        sampled: ratios of drawn tokenizations, float64 [pairs, layers + 2]: after the embedding,
            after each layer, and the logits. A pair is a question and one other tokenization of it.
        adversarial: ratios of attacked tokenizations, float64 [pairs, layers + 2].
        longest: greatest number of tokens of a tokenization.
        items: number of items.
        draws: draws of each item.
        eval_scheme: spec of the scheme that drew the tokenizations.
        seed: seed of the draws and the attack.

    Compare a column with ``bound.through(1)``: both are per square root of a distance.
    """

    sampled: np.ndarray
    adversarial: np.ndarray
    longest: int
    items: int
    draws: int
    eval_scheme: str
    seed: int

    def table(self) -> list[JsonObject]:
        """One plain dictionary per kind and depth: mean, 95th percentile and maximum."""
        return [
            {
                "kind": kind,
                "depth": depth,
                "pairs": len(column),
                "mean": float(column.mean()),
                "p95": float(np.quantile(column, 0.95)),
                "max": float(column.max()),
                "eval_scheme": self.eval_scheme,
                "seed": self.seed,
            }
            for kind, values in (("sampled", self.sampled), ("adversarial", self.adversarial))
            if len(values)
            for depth, column in enumerate(values.T)
        ]


def lipschitz_ratios(
    model: PreTrainedModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    sampler: str | Sampler = "uniform",
    draws: int = 10,
    seed: int,
    attacked: Sequence[Ids] = (),
    progress: Progress | None = None,
) -> Ratios:
    """Measure the ratio over drawn tokenizations of each item's question, and over attacked ones.

    >>> from robustok.attack import attack_items
    >>> attacks = attack_items(model, vocab, items, seed=0).attacks
    >>> attacked = [attack.ids for attack in attacks]
    >>> result = lipschitz_ratios(model, vocab, items, draws=4, attacked=attacked, seed=0)
    >>> result.sampled.shape, result.adversarial.shape
    ((31, 5), (4, 5))

    Args:
        model: any causal language model of transformers.
        vocab: the model's vocabulary.
        items: the questions, each with its own key and none empty.
        sampler: a spec or a sampler. Draws that are the canonical tokenization are left out.
        draws: draws of each question, at least 1.
        seed: any integer. A draw depends on it, the item's key and the number of the draw alone.
        attacked: an attacked tokenization of each question, in the order of the items, such as
            those of :func:`robustok.attack.attack_items`; by default none.
        progress: called with (items done, all items).

    Raises RobustokError without items or draws, and where no tokenization differs.
    """
    check_questions(items)
    if len(attacked) not in (0, len(items)):
        raise RobustokError(f"{len(attacked)} attacks for {len(items)} items: give one for each")
    check_integer("draws", draws, 1)
    sampler = as_sampler(sampler, vocab)
    keys = item_keys(item.key for item in items)
    samples = sampler.sample_batch([i.question for i in items], seed=seed, draws=draws, keys=keys)
    sampled_rows: list[np.ndarray] = []
    attacked_rows: list[np.ndarray] = []
    longest = 0
    for i, item in enumerate(items):
        others = [*samples.between(i * draws, (i + 1) * draws), *attacked[i : i + 1]]
        rows = [np.asarray(ids, np.int32) for ids in (vocab.encode(item.question), *others)]
        longest = max(longest, *map(len, rows))
        ratios = _ratios(model, vocab, rows, f"item '{item.key}'")
        sampled_rows += [r for r in ratios[:draws] if r is not None]
        attacked_rows += [r for r in ratios[draws:] if r is not None]
        if progress is not None:
            progress(i + 1, len(items))
    if not sampled_rows and not attacked_rows:
        raise RobustokError(f"{sampler.spec} changed no tokenization: choose a stronger scheme")
    depth = len((sampled_rows or attacked_rows)[0])
    return Ratios(
        sampled=np.array(sampled_rows).reshape(-1, depth),
        adversarial=np.array(attacked_rows).reshape(-1, depth),
        longest=longest,
        items=len(items),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
    )


def _ratios(
    model: Any, vocab: Vocabulary, rows: list[np.ndarray], name: str
) -> list[np.ndarray | None]:
    """The ratio of every row to the first, [layers + 2] each; None where they are the same."""
    check_no_overflow(model, name)
    apart = [distance(vocab, rows[0], row) for row in rows[1:]]
    states = last_states(model, Ragged.from_rows(rows))
    head = model.get_output_embeddings()
    with quiet(model):
        last = torch.as_tensor(states[-1], device=model.device).to(head.weight.dtype)
        logits = head(last).float().cpu().numpy()
    for values in (states, logits):
        check_states(values, name)
    moved = [np.linalg.norm(s[1:] - s[:1], axis=-1) for s in [*states, logits]]
    changes = np.stack(moved, axis=1).astype(np.float64)
    return [c / np.sqrt(d) if d else None for c, d in zip(changes, apart, strict=True)]
