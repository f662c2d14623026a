"""The prefix tree of many token sequences, and how it is cut into rows for a model.

Nodes are numbered in preorder, so a subtree is a range of numbers and "is an
ancestor of" is two comparisons. Everything here is NumPy: no model, no torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_OPEN_ROWS = 8  # rows that a subtree may still be put into


class Sequences(NamedTuple):
    """Token sequences after one prefix, and the tokens in them to score; all int64.

    ``prefix`` is [tokens] and ``matrix`` [sequences, longest], padded with anything beyond
    ``lengths``. ``targets`` is [3, scored]: sequence, column of the token before, token.
    """

    prefix: Ints
    matrix: Ints
    lengths: Ints
    targets: Ints

    def sums(self, values: np.ndarray) -> np.ndarray:
        """The sum of a value of each target, float64 [scored], by sequence: [sequences]."""
        return np.bincount(self.targets[0], values, minlength=len(self.matrix))


class Tree(NamedTuple):
    """A prefix tree in preorder; one entry per node.

    ``tokens``, ``depth``, ``parent`` (-1 at a root), ``end`` (one past the last
    node of the subtree) and ``owner`` (the sequence that brought the node) are
    int64 of shape [nodes]; ``path[s, d]`` is the node of sequence ``s`` at depth ``d``.
    """

    tokens: Ints
    depth: Ints
    parent: Ints
    end: Ints
    owner: Ints
    path: Ints


def build_tree(matrix: Ints, lengths: Ints) -> Tree:
    """Merge the common prefixes of all sequences.

    ``matrix`` is int64 [sequences, longest], padded with anything beyond ``lengths``.
    """
    width = matrix.shape[1]
    columns = np.arange(width)
    is_token = columns < lengths[:, None]
    keys = np.where(is_token, matrix + 1, 0).astype(">u4")
    order = np.argsort(np.ascontiguousarray(keys).view(f"V{4 * width}").ravel(), kind="stable")
    keys, is_token = keys[order], is_token[order]

    is_new = is_token.copy()  # a node is new from the first column that differs from the row before
    is_new[1:] &= np.logical_or.accumulate(keys[1:] != keys[:-1], axis=1)
    first_column = np.where(is_new.any(axis=1), is_new.argmax(axis=1), width)
    rows, depth = np.nonzero(is_new)
    nodes = np.cumsum(is_new).reshape(is_new.shape) - 1
    path = np.maximum.accumulate(np.where(is_new, nodes, -1), axis=0)

    total = len(rows)
    starts = np.concatenate([[0], np.cumsum(is_new.sum(axis=1))])[:-1]
    ends = np.where(first_column[:, None] <= columns, starts[:, None], total)
    ends = np.minimum.accumulate(ends[::-1], axis=0)[::-1]
    ends = np.vstack([ends, np.full((1, width), total)])
    unsorted = np.empty_like(path)
    unsorted[order] = path
    return Tree(
        tokens=keys[rows, depth].astype(np.int64) - 1,
        depth=depth,
        parent=np.where(depth > 0, path[rows, depth - 1], -1),
        end=ends[rows + 1, depth],
        owner=order[rows],
        path=unsorted,
    )


class TreeRows(NamedTuple):
    """Nodes to compute together: one row per batch entry of a forward pass.

    ``nodes`` is int64 [rows, width] and ``past`` int64 [rows, ancestors]: the nodes
    computed earlier that the row looks back to. Both are padded with -1.
    """

    nodes: Ints
    past: Ints


def levels(tree: Tree, width: int) -> list[TreeRows]:
    """Cut a tree into rows of at most ``width`` nodes, in the order to compute them.

    A subtree of at most half a row stays in one row. The nodes above are cut the same way and
    computed before, so each node is computed once and a row looks back only to its ancestors.
    """
    result: list[TreeRows] = []
    level = np.arange(len(tree.tokens))
    while len(level):
        size = np.searchsorted(level, tree.end[level]) - np.arange(len(level))
        is_small = size <= max(1, width // 2)
        above = level[~is_small]
        parent = tree.parent[level]
        is_root = is_small & ~np.isin(parent, level[is_small])
        result.append(_rows(tree, level, np.flatnonzero(is_root), size[is_root], width, above))
        level = above
    return result[::-1]


def _pack(sizes: Ints, width: int) -> Ints:
    """The row of each subtree: rows about equally full, neighbors in the tree mostly together.

    Best fit among a few open rows, the large subtrees of each chunk of the tree first. Rows fill
    well, and the subtrees of a row still share most of their ancestors.
    """
    total = int(sizes.sum())
    chunk = np.cumsum(sizes) // (_OPEN_ROWS * width)
    min_rows = -(-total // width)
    capacity = max(int(sizes.max()), -(-total // min_rows) + width // 50)
    groups = np.empty(len(sizes), np.int64)
    open_rows: dict[int, int] = {}  # row -> room left
    n_rows = 0
    for index in np.lexsort((-sizes, chunk)).tolist():
        size = int(sizes[index])
        fitting = [(room, row) for row, room in open_rows.items() if room >= size]
        if fitting:
            _, row = min(fitting)
        else:
            if len(open_rows) == _OPEN_ROWS:
                del open_rows[min(open_rows, key=lambda r: open_rows[r])]
            row, n_rows = n_rows, n_rows + 1
            open_rows[row] = capacity
        open_rows[row] -= size
        groups[index] = row
    return groups


def _rows(tree: Tree, level: Ints, roots: Ints, sizes: Ints, width: int, above: Ints) -> TreeRows:
    groups = _pack(sizes, width)
    order = np.argsort(groups, kind="stable")
    groups, roots, sizes = groups[order], roots[order], sizes[order]
    subtrees = zip(roots.tolist(), sizes.tolist(), strict=True)
    members = np.concatenate([level[root : root + size] for root, size in subtrees])
    nodes = _by_group(members, np.repeat(groups, sizes), int(groups[-1]) + 1)
    if not len(above):
        return TreeRows(nodes, np.empty((len(nodes), 0), np.int64))
    starts = level[roots]
    owners, ancestors = [], []
    for row, row_starts in enumerate(np.split(starts, np.flatnonzero(np.diff(groups)) + 1)):
        is_ancestor = np.searchsorted(row_starts, tree.end[above]) > np.searchsorted(
            row_starts, above
        )
        ancestors.append(above[is_ancestor])
        owners.append(np.full(int(is_ancestor.sum()), row))
    past = _by_group(np.concatenate(ancestors), np.concatenate(owners), len(nodes))
    return TreeRows(nodes, past)


def _by_group(values: Ints, groups: Ints, count: int) -> Ints:
    """Values of ascending groups as a matrix [count, longest], padded with -1."""
    lengths = np.bincount(groups, minlength=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    out = np.full((count, int(lengths.max(initial=0))), -1, np.int64)
    out[groups, np.arange(len(values)) - offsets[groups]] = values
    return out
