"""Uniform draws at an exact distance from the reference (paper: Uni-k).

The paper's table of positions by distances is not built.

1. The text is cut into blocks of its lattice, between positions that no token spans. Equal blocks
   are one type, whose counts by distance are in the store; large blocks are `longs`.
2. Every token that is not the reference's has weight z, chosen by Newton's method such that the
   expected distance is k (`distances`). Blocks are independent under the product of weights.
3. Each block draws its own distance. A draw whose distances sum to k is uniform over distance k,
   whatever z is; others are rejected. To reject few, the last blocks are drawn given their sum,
   from convolutions (`convolve_group`), or the last part of the unbroken blocks is
   (`draw_by_tail`).
4. Each block draws a tokenization of its distance.

Every loop of rejections is bounded. Where one uses up its tries (the distance is feasible but very
rare for every z), the text is drawn from a table of positions by distances (`draw_by_table`).

Arguments of one meaning, unless documented otherwise: ``types``: `distances.Types` of the text.
``longs``: a list of `lattice.Edges`, one for each unbroken block; None where the kernel is compiled
without the code for them and for other rare cases. ``kind``: int64 [blocks], the type of each
block, or -1 - i for the i-th of ``longs``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robustok.kernels.batch import copy_to, spell
from robustok.kernels.blocks import index_blocks, new_text_blocks
from robustok.kernels.compiler import borrow, njit
from robustok.kernels.conditional import (
    Draws,
    Target,
    convolve_group,
    draw_by_table,
    draw_by_tail,
    draw_distances,
    group_size,
    largest,
)
from robustok.kernels.distances import accumulate, read_types, solve, solve_unbroken
from robustok.kernels.feasible import feasible, largest_feasible
from robustok.kernels.lattice import backward, draw_long, edges_of
from robustok.kernels.numbers import ceil_of, stream, uniform
from robustok.kernels.store import DISTANCE, DRAWN, NOT_DRAWN, RARE, draw, priced_edges

STAGED = 1024  # bytes of unbroken blocks beyond which their last part is drawn by stages
TRIES = 4096  # of a draw by group; the longest texts expect some 100


class Goal(NamedTuple):
    """The distance that texts are drawn at."""

    ratio: np.float64  # at least 0; the distance of a text of m tokens is ceil(ratio * m),
    fixed: np.int64  # or this one where it is not negative


class Paths(NamedTuple):
    """A path through each unbroken block; that of the i-th one is ids[ends[i]:ends[i + 1]]."""

    ids: np.ndarray  # int32 [at least their bytes]
    ends: np.ndarray  # int64 [unbroken blocks + 1], from 0 on


@njit()
def _last_group(kind):
    """The blocks of the group that is drawn last; int64, in order.

    The group is of `group_size` blocks without the unbroken ones. ``kind``: int64 [blocks].
    """
    typed = 0
    for w in range(len(kind)):
        typed += kind[w] >= 0
    blocks = np.empty(group_size(typed), np.int64)
    left, w = len(blocks), len(kind)
    while left > 0:
        w -= 1
        if kind[w] >= 0:
            left -= 1
            blocks[left] = w
    return blocks


@njit()
def _draw_group(types, kind, blocks, sums, rest, state, distance):
    """Draw the distances of a group's blocks given that they sum to ``rest``; returns the state.

    ``blocks``: int64 [n], which blocks of the text, none of them unbroken; ``kind``: int64 [blocks
    of the text]. ``types``: those of the text. ``sums`` are those of `convolve_group` of these
    blocks, with a positive probability of ``rest`` in row 0. Block t's ``distance`` (int64) is
    written to distance[blocks[t]].
    """
    types, sums, distance = borrow(types), borrow(sums), borrow(distance)
    table, base, low, high = sums
    for t in range(len(blocks)):
        x = kind[blocks[t]]
        begin, most = types.start[x], types.start[x + 1] - types.start[x] - 1
        u, state = uniform(state)
        left = u * table[base[t] + rest - low[t]]
        chosen = np.int64(0)
        for d in range(min(most, rest) + 1):
            s = rest - d
            if low[t + 1] <= s <= high[t + 1]:
                p = types.probability[begin + d] * table[base[t + 1] + s - low[t + 1]]
                if p > 0.0:
                    chosen = d
                    left -= p
                    if left < 0.0:
                        break
        distance[blocks[t]] = chosen
        rest -= chosen
    return state


@njit()
def _size_of(longs):
    """The bytes of all ``longs``, int64."""
    size = np.int64(0)
    for x in range(len(longs)):
        size += len(longs[x].first) - 1
    return size


@njit()
def _draw_unbroken(longs, weights, z, state, paths):
    """Draw a path through each of ``longs``; returns the sum of their distances and the state.

    ``weights``: a list of the results of `backward` for ``z`` (float64). ``paths``: `Paths`.
    """
    distance = np.int64(0)
    for x in range(len(longs)):
        mantissa, exponent = weights[x]
        paths.ends[x + 1], drawn, state = draw_long(
            longs[x], z, mantissa, exponent, state, paths.ids, paths.ends[x]
        )
        distance += drawn
    return distance, state


@njit()
def _append_draw(store, kind, types, distance, paths, state, out, at):
    """Append a tokenization of the drawn distance of each block; returns the end and the state.

    ``distance``: int64 [blocks], those of the blocks that have a type. ``paths``: `Paths`, or None
    where all blocks have one. ``out``: int32, with space for an id a byte from index ``at`` on.
    """
    store, types, kind = borrow(store), borrow(types), borrow(kind)
    distance, out = borrow(distance), borrow(out)
    for w in range(len(kind)):
        x = kind[w]
        if x >= 0:
            at, state = draw(store, types.record[x], distance[w], state, out, at)
        elif paths is not None:
            for p in range(paths.ends[-x - 1], paths.ends[-x]):
                out[at] = paths.ids[p]
                at += 1
    return at, state


@njit()
def _draw_by_group(store, kind, types, longs, target, draws, at):
    """Draws at the target distance whose last group of blocks is drawn given the others' sum.

    ``types``: after `accumulate`. ``target``: `Target`. ``draws``: `Draws`, appended to
    ``draws.ids`` from ``at`` on. Returns the end, and how many draws there are: fewer than
    ``draws`` has states where one used up its tries.
    """
    store, types, kind = borrow(store), borrow(types), borrow(kind)
    out = borrow(draws.ids)
    group = _last_group(kind)
    before = group[0] if len(group) else len(kind)  # blocks that draw their own distance
    sums = convolve_group(types, kind[group], target.k)
    best = largest(sums)
    base, low, high = sums.base[0], sums.low[0], sums.high[0]  # of all blocks of the group
    distance = np.empty(len(kind), np.int64)
    paths = (
        None
        if longs is None
        else Paths(np.empty(_size_of(longs), np.int32), np.zeros(len(longs) + 1, np.int64))
    )
    weights = None if longs is None else [backward(longs[x], target.z) for x in range(len(longs))]
    for d in range(len(draws.states)):
        state = draws.states[d]
        accepted = False
        for _ in range(TRIES):
            rest = target.k
            if longs is not None:
                drawn, state = _draw_unbroken(longs, weights, target.z, state, paths)
                rest -= drawn
            total, state = draw_distances(kind[:before], types, state, distance)
            rest -= total
            if low <= rest <= high:
                u, state = uniform(state)
                if u * best < sums.table[base + rest - low]:
                    accepted = True
                    break
        if not accepted:
            return at, d
        state = _draw_group(types, kind, group, sums, rest, state, distance)
        at, state = _append_draw(store, kind, types, distance, paths, state, out, at)
        draws.ends[d] = at
    return at, len(draws.states)


@njit()
def _draw_text(tokens, store, kind, types, longs, k, draws, at):
    """Draws of one text at distance ``k``; returns as `_draw_by_group`.

    ``types``: those of the text, whose probabilities are set here. ``k``: a distance of at least 1
    that some tokenization has. ``draws``: `Draws`, appended to ``draws.ids`` from ``at`` on.
    """
    if longs is not None and _size_of(longs) > STAGED:
        slope, var_blocks, var_longs = solve_unbroken(types, longs, k)
        accumulate(types)
        target = Target(np.int64(k), np.exp(slope))
        if var_longs > var_blocks or len(kind) == len(longs):
            return draw_by_tail(tokens, store, kind, types, longs, target, draws, at)
        return _draw_by_group(store, kind, types, longs, target, draws, at)
    slope = solve(types, longs, k)
    accumulate(types)
    return _draw_by_group(store, kind, types, longs, Target(np.int64(k), np.exp(slope)), draws, at)


@njit()
def _whole(tokens, ids, start, end, text):
    """The lattice of the text ids[start:end], where an edge costs its distance.

    ``ids``: int32 [ids]. ``text``: uint8 [capacity], scratch with space for its bytes.
    """
    size = spell(tokens.bytes, tokens.offsets, ids, start, end, text, 0)
    return priced_edges(tokens, DISTANCE, ids, start, end, text, size)


@njit()
def _wanted(goal, m):
    """The distance that a text of ``m`` tokens (int64) should have; ``goal``: `Goal`."""
    return np.int64(goal.fixed) if goal.fixed >= 0 else np.int64(ceil_of(goal.ratio, m))


@njit()
def _copy_text(ids, ends, out, at):
    """Write ``ids`` once for each draw to ``out`` from index ``at`` on; returns the end.

    ``ends``: int64 [draws], written. ``out``: int32, with space for all draws.
    """
    for d in range(len(ends)):
        copy_to(ids, len(ids), out, at)
        at += len(ids)
        ends[d] = at
    return at


@njit()
def draw_uniform_k(tokens, store, batch, goal, every, first, last, rows):
    """Draw texts first..last at the distance of ``goal``, or at the next one below that exists.

    Returns the text reached and a code of `store`: ``last`` and DRAWN, or the first text that was
    not drawn and why. ``goal``: `Goal`. ``every``: True: draw all texts. None: stop at a text that
    is not ordinary (code RARE). Its code is left out of this kernel, which takes half the time to
    compile. Both kernels draw the same.
    """
    tokens, store = borrow(tokens), borrow(store)
    batch, rows = borrow(batch), borrow(rows)
    blocks = new_text_blocks(tokens, batch, first, last)
    states = np.empty(batch.draws, np.uint64)
    at = np.int64(0)
    for t in range(first, last):
        b, e = batch.offsets[t], batch.offsets[t + 1]
        k = _wanted(goal, e - b)
        ends = rows.ends[(t - first) * batch.draws : (t - first + 1) * batch.draws]
        if every is None:
            longs = None
        else:  # an empty list, whose type follows from the element that it had
            longs = [edges_of(tokens.trie, blocks.text, 0, 0)]
            longs.pop()
        if k > 0:
            count, distinct = index_blocks(tokens, store, batch.values, b, e, blocks, longs)
            if distinct < 0:
                return np.int64(t), distinct
            types = read_types(store, blocks.record[:distinct], blocks.times[:distinct])
            wanted, k = k, feasible(types, longs, k)
            if k < 0:
                if every is None:
                    return np.int64(t), np.int64(RARE)
                edges = _whole(tokens, batch.values, b, e, blocks.text)
                k = largest_feasible(edges, wanted)
                if k < 0:
                    return np.int64(t), np.int64(NOT_DRAWN)
        if k == 0:
            at = _copy_text(batch.values[b:e], ends, rows.ids, at)
            continue
        for d in range(batch.draws):
            states[d] = stream(batch.seed, batch.epoch, batch.keys[t], d, batch.parts[t])
        at, done = _draw_text(
            tokens, store, blocks.kind[:count], types, longs, k, Draws(states, rows.ids, ends), at
        )
        if done < batch.draws:
            if every is None:
                return np.int64(t), np.int64(RARE)
            edges = _whole(tokens, batch.values, b, e, blocks.text)
            left = Draws(states[done:], rows.ids, ends[done:])
            at = draw_by_table(edges, k, left, at)
            if at < 0:
                return np.int64(t), np.int64(NOT_DRAWN)
    return np.int64(last), np.int64(DRAWN)
