"""Hidden states of the last token of many sequences, at every layer; prefixes are shared.

Their change under another tokenization is measured in units of the bound
(`robustok.evaluation.bound`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from robustok.checks import check_integer
from robustok.errors import RobustokError
from robustok.evaluation.questions import Ids, as_sampler, check_questions, item_keys
from robustok.lattice import distance
from robustok.ragged import Ragged
from robustok.runtime.display import Progress
from robustok.scoring import scoring_mode
from robustok.scoring.engine import check_sequences
from robustok.scoring.forward import TreePass, default_max_batch_tokens, halved, quiet
from robustok.scoring.modes import row_width
from robustok.scoring.tree import Ints, Sequences, TreeRows, build_tree, levels

if TYPE_CHECKING:
    from robustok.samplers import Sampler
    from robustok.tasks.item import Item
    from robustok.tokenizer.vocabulary import Vocabulary

# Reads some rows of a pass: the places of their states, and the states [reads, layers + 1, width].
Read = Callable[[slice], tuple[Ints, torch.Tensor]]


def last_states(
    model: Any, rows: Ragged, *, prefix: Any = None, max_batch_tokens: int | None = None
) -> np.ndarray:
    """The hidden state of each row's last token: float32 [layers + 1, rows, width].

    >>> last_states(model, Ragged.from_rows([[5, 6], [7]])).shape
    (4, 2, 128)

    Entry 0 is the token embedding; the last one is after the model's final norm, as
    transformers' ``output_hidden_states`` gives them. ``prefix`` is ids before every row.
    Rows that begin alike share the work, as in :func:`robustok.scoring.score`; ``max_batch_tokens``
    bounds the tokens of one forward pass (default: 1,024 on a CPU, 16,384 elsewhere).

    Raises RobustokError without rows, and for an empty one.
    """
    if not len(rows) or not rows.lengths.min():
        raise RobustokError("an empty row has no last token: give rows of at least one id")
    before = np.asarray([] if prefix is None else prefix, np.int64)
    lengths = rows.lengths
    matrix = np.zeros((len(rows), int(lengths.max(initial=1))), np.int64)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = rows.values
    sequences = Sequences(before, matrix, lengths, np.empty((3, 0), np.int64))
    check_sequences(model, sequences)
    max_batch_tokens = max_batch_tokens or default_max_batch_tokens(model)
    # The head is not needed, and for a large vocabulary it is most of a small model's work.
    states = _by_tree if scoring_mode(model) == "tree" else _by_batches
    with quiet(model):
        return states(model.base_model, sequences, max_batch_tokens)


class _StatePass(TreePass):
    """A tree's way through a model that gives hidden states [reads, layers + 1, width]."""

    def _forward(
        self, ids: torch.Tensor, positions: torch.Tensor, masks: Any, cache: Any, flat: Ints
    ) -> torch.Tensor:
        out = self.model(
            input_ids=ids, position_ids=positions, attention_mask=masks, past_key_values=cache,
            use_cache=cache is not None, output_hidden_states=True,
        )  # fmt: skip
        return _picked(out, torch.as_tensor(flat, device=ids.device))


def _picked(out: Any, flat: torch.Tensor) -> torch.Tensor:
    return torch.stack([h.flatten(0, 1)[flat].float() for h in out.hidden_states], dim=1)


def _by_tree(body: Any, sequences: Sequences, max_batch_tokens: int) -> np.ndarray:
    before, matrix, lengths, _ = sequences
    tree = build_tree(matrix, lengths)
    ends = tree.path[np.arange(len(matrix)), lengths - 1]
    wanted = np.unique(ends)
    run = _StatePass(body, tree, before, max_batch_tokens, {})
    width = min(row_width(body, len(before)), max_batch_tokens)
    cut = levels(tree, width)

    def read(rows: TreeRows, chunk: slice, keep: bool) -> tuple[Ints, torch.Tensor]:
        chosen = TreeRows(rows.nodes[chunk], rows.past[chunk])
        nodes = np.intersect1d(chosen.nodes, wanted)
        return np.searchsorted(wanted, nodes), run.run(chosen, nodes, keep)

    passes = [(len(rows.nodes), partial(read, rows, keep=rows is not cut[-1])) for rows in cut]
    states = _all_states(passes, max_batch_tokens // width, len(wanted))
    return states[:, np.searchsorted(wanted, ends)]


def _by_batches(body: Any, sequences: Sequences, max_batch_tokens: int) -> np.ndarray:
    """Right-padded batches: what follows a token changes nothing at it in a causal model."""
    before, matrix, lengths, _ = sequences
    whole = np.concatenate([np.tile(before, (len(matrix), 1)), matrix], axis=1)
    last = lengths + len(before) - 1
    order = np.argsort(-last, kind="stable")

    def read(chunk: slice) -> tuple[Ints, torch.Tensor]:
        chosen = order[chunk]
        width = int(last[chosen[0]]) + 1
        ids = torch.as_tensor(whole[chosen, :width], device=body.device)
        out = body(input_ids=ids, use_cache=False, output_hidden_states=True)
        flat = torch.as_tensor(np.arange(len(chosen)) * width + last[chosen])
        return chosen, _picked(out, flat.to(ids.device))

    return _all_states([(len(order), read)], max_batch_tokens // whole.shape[1], len(order))


def _all_states(passes: Sequence[tuple[int, Read]], size: int, count: int) -> np.ndarray:
    """The states of several passes, of so many rows each, float32 [layers + 1, count, width].

    ``size`` rows are read at a time, and fewer where memory runs out.
    """
    states: np.ndarray | None = None
    for length, read in passes:
        begin, step = 0, max(1, size)
        while begin < length:
            end = min(begin + step, length)
            try:
                at, hidden = read(slice(begin, end))
                values = hidden.cpu().numpy().swapaxes(0, 1)
            except (RuntimeError, MemoryError) as error:
                step = halved(end - begin, error)
                continue
            if states is None:
                states = np.empty((len(values), count, values.shape[2]), np.float32)
            states[:, at] = values
            begin = end
    assert states is not None
    return states


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
        parts = [f"{kind} up to {values[:, -1].max():.3g}" for kind, values in self._kinds()]
        return f"{self.model or 'model'}: change of the logits per √distance, {', '.join(parts)}"

    def _kinds(self) -> list[tuple[str, np.ndarray]]:
        both = [("sampled", self.sampled), ("adversarial", self.adversarial)]
        return [(kind, values) for kind, values in both if len(values)]

    def table(self) -> list[dict[str, Any]]:
        """One plain dictionary per kind and depth: mean, 95th percentile and maximum."""
        rows = []
        for kind, values in self._kinds():
            for at, column in enumerate(values.T):
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
    keys = item_keys(item.key for item in items)
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
