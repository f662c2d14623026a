"""Scoring over a prefix tree: each node computed once, logits only where they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from robustok.scoring.forward import PrefixCache, TreePass, halved
from robustok.scoring.head import Outputs, log_probs_of
from robustok.scoring.tree import Ints, Rows, build_tree, levels


def tree_log_probs(
    model: Any,
    prefix: Ints,
    matrix: Ints,
    lengths: Ints,
    reads: Ints,
    max_batch_tokens: int,
    prefix_cache: PrefixCache,
) -> tuple[np.ndarray, Ints]:
    """Sum of the read log-probabilities of each sequence, each tree node computed once.

    Returns float64 [sequences] and int64 [sequences], the tokens each one added. Out of
    memory, fewer rows go through at a time, and shorter ones where one alone is too much.
    """
    tree = build_tree(matrix, lengths)
    width = min(row_width(model, len(prefix)), max_batch_tokens)
    while True:
        try:
            run = TreePass(model, tree, prefix, max_batch_tokens, prefix_cache)
            return _tree_log_probs(run, reads, width, max_batch_tokens)
        except (RuntimeError, MemoryError) as error:
            width = max_batch_tokens = halved(width, error)


def _tree_log_probs(
    run: TreePass, reads: Ints, width: int, max_batch_tokens: int
) -> tuple[np.ndarray, Ints]:
    tree = run.tree
    node_of_read = tree.path[reads[0], reads[1]]
    by_node = np.argsort(node_of_read, kind="stable")
    values = np.zeros(len(tree.path))
    costs = np.bincount(tree.owner, minlength=len(tree.path))
    costs[0] += run.prefix_computed
    cut = levels(tree, width)
    pending: list[tuple[Outputs, Ints, Ints]] = []
    for level, rows in enumerate(cut):
        keep = level + 1 < len(cut)
        fill = (rows.nodes >= 0).sum(axis=1)
        order = np.argsort(-fill, kind="stable")
        begin, size = 0, max(1, max_batch_tokens // width)
        while begin < len(order):
            # Rows much emptier than the first wait for a pass of their own: they would be padding.
            full = int((fill[order[begin:]] >= 0.9 * fill[order[begin]]).sum())
            chunk = _take(rows, order[begin : begin + min(size, full)])
            nodes = np.sort(chunk.nodes[chunk.nodes >= 0])
            read = by_node[_members(node_of_read[by_node], nodes)]
            wanted, which = np.unique(node_of_read[read], return_inverse=True)
            try:
                outputs = run.run(chunk, wanted, keep)
            except (RuntimeError, MemoryError) as error:
                size = halved(len(chunk.nodes), error)
                continue
            pending.append((outputs, which, read))
            if outputs.head is None or sum(len(o.values) for o, *_ in pending) >= max_batch_tokens:
                _add(values, reads, pending)
                pending = []
            costs[0] += chunk.nodes.size - len(nodes)
            begin += len(chunk.nodes)
    _add(values, reads, pending)
    return values, costs


def _add(values: np.ndarray, reads: Ints, pending: list[tuple[Outputs, Ints, Ints]]) -> None:
    """Add the log-probabilities at the outputs of several passes, by one run through the head.

    Each pass has its outputs, and for each read (a column of ``reads``) the number of its output.
    """
    if not pending:
        return
    states = torch.cat([outputs.values for outputs, _, _ in pending])
    begins = np.cumsum([0] + [len(outputs.values) for outputs, _, _ in pending])
    which = np.concatenate([w + b for (_, w, _), b in zip(pending, begins, strict=False)])
    read = np.concatenate([read for _, _, read in pending])
    log_probs = log_probs_of(Outputs(states, pending[0][0].head), which, reads[2, read])
    np.add.at(values, reads[0, read], log_probs)


def row_width(model: Any, prefix: int) -> int:
    """How many nodes a row may hold.

    Every node attends to its whole row and masks most of it, which costs about
    width / (6 · hidden size) of the rest of a layer, more where attention is slower than
    the rest; a narrow row fills less well. A long prefix is copied for each row, so rows
    grow with it.
    """
    hidden = int(model.config.get_text_config().hidden_size)
    return max(min(512, max(112, hidden // 5)), min(1024, prefix))


def _take(rows: Rows, chosen: Ints) -> Rows:
    """Some of the rows, without the columns that are padding in all of them."""
    nodes, past = rows.nodes[chosen], rows.past[chosen]
    width = int((nodes >= 0).sum(axis=1).max())
    return Rows(nodes[:, :width], past[:, : int((past >= 0).sum(axis=1).max(initial=0))])


def _members(ordered: Ints, nodes: Ints) -> Ints:
    """Positions in ``ordered`` (ascending) whose value is among ``nodes`` (ascending)."""
    at = np.searchsorted(nodes, ordered)
    return np.flatnonzero(nodes[np.minimum(at, len(nodes) - 1)] == ordered)
