from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from robustok.scoring.tree import Tree, build_tree, levels

sequences = st.lists(
    st.lists(st.integers(0, 3) | st.sampled_from([255, 256, 70000]), min_size=1, max_size=9),
    min_size=1,
    max_size=14,
)


def padded(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    matrix = np.full((len(rows), max(map(len, rows))), 7, np.int64)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = row
    return matrix, np.array([len(row) for row in rows])


def spelled(tree: Tree, node: int) -> tuple[int, ...]:
    ids: list[int] = []
    while node >= 0:
        ids.append(int(tree.tokens[node]))
        node = int(tree.parent[node])
    return tuple(reversed(ids))


@given(sequences)
@settings(max_examples=60)
def test_nodes_are_the_distinct_prefixes(rows: list[list[int]]) -> None:
    tree = build_tree(*padded(rows))
    prefixes = {tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)}
    nodes = [spelled(tree, node) for node in range(len(tree.tokens))]
    assert sorted(nodes) == sorted(prefixes)
    for i, row in enumerate(rows):
        for d in range(len(row)):
            assert nodes[tree.path[i, d]] == tuple(row[: d + 1])
    for node, prefix in enumerate(nodes):
        assert tree.depth[node] == len(prefix) - 1
        below = [other for other, longer in enumerate(nodes) if longer[: len(prefix)] == prefix]
        assert below == list(range(node, tree.end[node]))
        assert tuple(rows[tree.owner[node]][: len(prefix)]) == prefix


@given(sequences, st.integers(1, 12))
@settings(max_examples=100)
def test_rows_hold_every_node_once_after_all_its_ancestors(
    rows: list[list[int]], width: int
) -> None:
    tree = build_tree(*padded(rows))
    seen: set[int] = set()
    for level in levels(tree, width):
        computed_before = set(seen)
        for nodes, past in zip(level.nodes.tolist(), level.past.tolist(), strict=True):
            used = [n for n in nodes if n >= 0]
            known = {p for p in past if p >= 0}
            assert used
            assert known <= computed_before
            assert not seen & set(used)
            seen |= set(used)
            for node in used:
                parent = int(tree.parent[node])
                while parent >= 0:
                    assert parent in known or parent in used
                    parent = int(tree.parent[parent])
    assert seen == set(range(len(tree.tokens)))
