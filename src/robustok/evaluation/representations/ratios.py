"""Measured change of a model's hidden states under another tokenization, in units of the bound."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, as_sampler, check_questions, item_key
from robustok.evaluation.representations.states import last_states
from robustok.lattice import distance
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.scoring.forward import quiet

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.tasks.item import Item
    from robustok.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Ratios:
    """Empirical Lipschitz ratios ‖f(u) − f(v)‖ / √d(v, u), v canonical, at the last token.

    >>> result = lipschitz_ratios(model, vocab, items, draws=4, seed=0)
    >>> result.longest, result.items
    (30, 8)

    Args:
        model: name of the model, for reports.
        sampled: ratios of drawn tokenizations, float64 [pairs, layers + 2]: after the embedding,
            after each layer, and the logits. A pair is a question and one other tokenization of it.
        adversarial: ratios of attacked tokenizations, float64 [pairs, layers + 2].
        longest: greatest number of tokens of a tokenization.
        items: number of items.
        draws: draws of each item.
        eval_scheme: spec of the scheme that drew the tokenizations.
        seed: seed of the draws and the attack.
        seconds: wall-clock time.

    Compare a column with ``bound.through(1)``: both are per square root of a distance.
    """

    model: str
    sampled: np.ndarray
    adversarial: np.ndarray
    longest: int
    items: int
    draws: int
    eval_scheme: str
    seed: int
    seconds: float

    def __str__(self) -> str:
        parts = [
            f"{kind} up to {values[:, -1].max():.3g}"
            for kind, values in (("sampled", self.sampled), ("adversarial", self.adversarial))
            if len(values)
        ]
        return f"{self.model or 'model'}: change of the logits per √distance, {', '.join(parts)}"

    def table(self) -> list[dict[str, Any]]:
        """One plain dictionary per kind and depth: mean, 95th percentile and maximum."""
        rows = []
        for kind, values in (("sampled", self.sampled), ("adversarial", self.adversarial)):
            if not len(values):
                continue
            for at in range(values.shape[1]):
                column = values[:, at]
                rows.append({
                    "model": self.model, "kind": kind, "depth": at, "pairs": len(column),
                    "mean": float(column.mean()), "p95": float(np.quantile(column, 0.95)),
                    "max": float(column.max()), "eval_scheme": self.eval_scheme, "seed": self.seed,
                })  # fmt: skip
        return rows


def lipschitz_ratios(
    model: Any,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    sampler: str | Sampler = "uniform",
    draws: int = 10,
    seed: int,
    attacked: Sequence[Ids] = (),
    name: str = "",
    max_batch_tokens: int | None = None,
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
        name: name of the model in the result, by default empty.
        max_batch_tokens: greatest number of tokens of one forward pass, as in
            :func:`robustok.scoring.score`.
        progress: called with (items done, all items).

    Raises RobustokError without items or draws, and where no tokenization differs.
    """
    began = time.perf_counter()
    check_questions(items)
    if len(attacked) not in (0, len(items)):
        raise RobustokError(f"{len(attacked)} attacks for {len(items)} items: give one for each")
    check_integer("draws", draws, 1)
    sampler = as_sampler(sampler, vocab)
    keys = np.array([item_key(item.key) for item in items], np.int64)
    drawn = sampler.sample_batch([i.question for i in items], seed=seed, draws=draws, keys=keys)
    sampled_rows: list[np.ndarray] = []
    attacked_rows: list[np.ndarray] = []
    longest = 0
    for i, item in enumerate(items):
        canonical = np.asarray(vocab.encode(item.question), np.int32)
        others = [drawn[i * draws + j] for j in range(draws)]
        rows = [canonical, *others, *(np.asarray(ids, np.int32) for ids in attacked[i : i + 1])]
        longest = max(longest, *map(len, rows))
        ratios = _ratios(model, vocab, rows, max_batch_tokens)
        sampled_rows += [r for r in ratios[:draws] if r is not None]
        attacked_rows += [r for r in ratios[draws:] if r is not None]
        if progress is not None:
            progress(i + 1, len(items))
    if not sampled_rows and not attacked_rows:
        raise RobustokError(f"{sampler.spec} changed no tokenization: choose a stronger scheme")
    depth = len((sampled_rows or attacked_rows)[0])
    return Ratios(
        model=name,
        sampled=np.array(sampled_rows).reshape(-1, depth),
        adversarial=np.array(attacked_rows).reshape(-1, depth),
        longest=longest,
        items=len(items),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
        seconds=time.perf_counter() - began,
    )


def _ratios(
    model: Any, vocab: Vocabulary, rows: list[np.ndarray], max_batch_tokens: int | None
) -> list[np.ndarray | None]:
    """The ratio of every row to the first, [layers + 2] each; None where they are the same."""
    apart = [distance(vocab, rows[0], row) for row in rows[1:]]
    states = last_states(model, Ragged.from_rows(rows), max_batch_tokens=max_batch_tokens)
    head = model.get_output_embeddings()
    with quiet(model):
        last = torch.as_tensor(states[-1], device=model.device).to(head.weight.dtype)
        logits = head(last).float().cpu().numpy()
    moved = [np.linalg.norm(s[1:] - s[:1], axis=-1) for s in [*states, logits]]
    changes = np.stack(moved, axis=1).astype(np.float64)
    return [c / np.sqrt(d) if d else None for c, d in zip(changes, apart, strict=True)]
