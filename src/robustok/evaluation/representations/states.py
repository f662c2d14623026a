"""Hidden states of the last token of many sequences, at every layer; prefixes are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from robustok.errors import RobustokError
from robustok.ragged import Ragged
from robustok.scoring import scoring_mode
from robustok.scoring.engine import check_sequences
from robustok.scoring.forward import TreePass, default_max_batch_tokens, halved, quiet
from robustok.scoring.modes import row_width
from robustok.scoring.tree import Ints, Sequences, TreeRows, build_tree, levels

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
