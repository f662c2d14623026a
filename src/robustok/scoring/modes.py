"""The three modes of scoring many sequences, and the first one that is right for a model.

"tree" computes each node of a prefix tree once, "plain" every sequence whole, in padded batches,
and "single" one sequence after another; the others are compared with "single". Logits are computed
only where they are needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch

from robustok.models.load import max_length_of
from robustok.scoring.forward import (
    Outputs,
    PrefixCache,
    TreePass,
    attention_windows,
    default_max_batch_tokens,
    halved,
    log_probs_of,
    outputs_at,
    quiet,
)
from robustok.scoring.tree import Ints, Sequences, TreeRows, build_tree, levels

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_log = logging.getLogger(__name__)
MODES = ("tree", "plain", "single")
# By tested model: its attention implementation, and by size of the probe, max_batch_tokens and mode
# whether the scores are right.
_Tests = dict[tuple[tuple[int, int], int, str], bool]
_tested: WeakKeyDictionary[Any, tuple[str, _Tests]] = WeakKeyDictionary()
_warned_models: WeakSet[Any] = WeakSet()  # models that got the warning about the mode "single"
# Called with the outputs of a forward pass, and for some targets of the sequences the number of the
# output and the number of the target.
Use = Callable[[Any, Ints, Ints], None]


def log_probs(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    mode: str,
    prefix_cache: PrefixCache,
) -> tuple[np.ndarray, Ints]:
    """The log-probability of each target, float64 [targets], and the cost of each sequence.

    The costs are those of :func:`read_outputs`.
    """
    if mode == "single":
        sequences = _with_last_tokens(model, sequences)
    tokens = sequences.targets[2]
    target_log_probs = np.zeros(len(tokens))
    pending: list[tuple[Outputs, Ints, Ints]] = []

    def run_head() -> None:
        """Run the head over the pending outputs of several passes; out of memory, over fewer."""
        outputs, rows, targets = zip(*pending, strict=True)
        begins = np.cumsum([0] + [len(o.values) for o in outputs])
        row = np.concatenate([n + begin for n, begin in zip(rows, begins, strict=False)])
        target = np.concatenate(targets)
        # A single one may be as large as memory allows, so it is not copied.
        states = torch.cat([o.values for o in outputs]) if outputs[1:] else outputs[0].values
        begin, size = 0, len(states)
        while begin < len(states):
            in_chunk = np.flatnonzero((row >= begin) & (row < begin + size))
            chunk = Outputs(states[begin : begin + size], outputs[0].head)
            try:
                values = log_probs_of(chunk, row[in_chunk] - begin, tokens[target[in_chunk]])
            except (RuntimeError, MemoryError) as error:
                size = halved(size, error)
                continue
            target_log_probs[target[in_chunk]] = values
            begin += size
        pending.clear()

    def use(outputs: Outputs, rows: Ints, targets: Ints) -> None:
        pending.append((outputs, rows, targets))
        n_states = sum(len(o.values) for o, *_ in pending)
        if outputs.head is None or n_states >= max_batch_tokens:
            try:
                run_head()
            except (RuntimeError, MemoryError):
                pending.pop()  # its targets come again, in a smaller pass
                raise

    costs = read_outputs(model, sequences, max_batch_tokens, mode, use, outputs_at, prefix_cache)
    if pending:
        run_head()
    return target_log_probs, costs


def read_outputs(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    mode: str,
    use: Use,
    outputs_at: Callable[..., object],
    prefix_cache: PrefixCache,
) -> Ints:
    """Call ``use`` with the outputs of ``outputs_at`` for all targets of the sequences.

    Out of memory, fewer rows go through at a time, and some targets come twice. Returns int64
    [sequences], the tokens that each sequence added, padding included.
    """
    if not len(sequences.matrix):
        return np.zeros(0, np.int64)
    if mode == "tree" and not _rope_groups(model, sequences).any():
        return _read_tree(model, sequences, max_batch_tokens, use, outputs_at, prefix_cache)
    size = 1 if mode == "single" else max_batch_tokens
    return _read_padded(model, sequences, size, use, outputs_at)


def _with_last_tokens(model: PreTrainedModel, sequences: Sequences) -> Sequences:
    """The sequences with the last target of each appended, for a model that looks ahead.

    A causal model need not compute it, so it is left out where it would change the rotations.
    """
    prefix, matrix, lengths, (owners, columns, tokens) = sequences
    matrix = np.pad(matrix, [(0, 0), (0, 1)])
    is_last = columns == lengths[owners] - 1
    matrix[owners[is_last], columns[is_last] + 1] = tokens[is_last]
    new_lengths = lengths.copy()
    new_lengths[owners[is_last]] += 1
    result = Sequences(prefix, matrix, new_lengths, sequences.targets)
    groups = _rope_groups(model, sequences), _rope_groups(model, result)
    return result if np.array_equal(*groups) else sequences


def _rope_groups(model: PreTrainedModel, sequences: Sequences) -> Ints:
    """Groups of sequences that may share a forward pass, int64 [sequences]; 0 for short ones.

    LongRoPE and dynamic NTK rotate by the longest sequence of a pass: LongRoPE has other factors
    beyond a limit, dynamic NTK a base of its own for each length from the limit on.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    lengths = len(sequences.prefix) + sequences.lengths
    if rope.get("rope_type") == "longrope":
        return (lengths > rope["original_max_position_embeddings"]).astype(np.int64)
    if rope.get("rope_type") == "dynamic":
        return np.where(lengths >= config.max_position_embeddings, lengths, 0)
    return np.zeros(len(lengths), np.int64)


def _read_tree(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    use: Use,
    outputs_at: Callable[..., object],
    prefix_cache: PrefixCache,
) -> Ints:
    """Compute each node of the prefix tree once, in rows that are shortened when memory is out."""
    prefix, matrix, lengths, targets = sequences
    tree = build_tree(matrix, lengths)
    target_nodes = tree.path[targets[0], targets[1]]
    width = min(row_width(model, len(prefix)), max_batch_tokens)
    while True:
        try:
            tree_pass = TreePass(model, tree, prefix, max_batch_tokens, prefix_cache, outputs_at)
            return _run_tree(tree_pass, target_nodes, width, max_batch_tokens, use)
        except (RuntimeError, MemoryError) as error:
            width = max_batch_tokens = halved(width, error)


def _run_tree(
    tree_pass: TreePass, target_nodes: Ints, width: int, max_batch_tokens: int, use: Use
) -> Ints:
    tree = tree_pass.tree
    costs = np.bincount(tree.owner, minlength=len(tree.path))
    costs[0] += tree_pass.prefix_computed
    cuts = levels(tree, width)
    for rows in cuts:
        n_nodes = (rows.nodes >= 0).sum(axis=1)
        order = np.argsort(-n_nodes, kind="stable")
        begin, size = 0, max(1, max_batch_tokens // width)
        while begin < len(order):
            # Rows much emptier than the first would be mostly padding: they wait for another pass.
            n_full = int((n_nodes[order[begin:]] >= 0.9 * n_nodes[order[begin]]).sum())
            chunk = _take(rows, order[begin : begin + min(size, n_full)])
            nodes = chunk.nodes[chunk.nodes >= 0]
            numbers = np.flatnonzero(np.isin(target_nodes, nodes))
            output_nodes, output_rows = np.unique(target_nodes[numbers], return_inverse=True)
            try:
                outputs = tree_pass.run(chunk, output_nodes, keep_states=rows is not cuts[-1])
            except (RuntimeError, MemoryError) as error:
                size = halved(len(chunk.nodes), error)
                continue
            use(outputs, output_rows, numbers)
            costs[0] += chunk.nodes.size - len(nodes)
            begin += len(chunk.nodes)
    return costs


def row_width(model: PreTrainedModel, prefix: int) -> int:
    """The greatest number of nodes of a row.

    Every node attends to its whole row and masks most of it, which costs about
    width / (6 · hidden size) of the rest of a layer, more where attention is slow; a narrow row
    fills less well. A long prefix is copied for each row, so rows grow with it.
    """
    hidden = int(model.config.get_text_config().hidden_size)
    return max(min(512, max(112, hidden // 5)), min(1024, prefix))


def _take(rows: TreeRows, index: Ints) -> TreeRows:
    """Some of the rows, without the columns that are padding in all of them."""
    nodes, past = rows.nodes[index], rows.past[index]
    width = int((nodes >= 0).sum(axis=1).max())
    return TreeRows(nodes[:, :width], past[:, : int((past >= 0).sum(axis=1).max(initial=0))])


def _read_padded(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    use: Use,
    outputs_at: Callable[..., object],
) -> Ints:
    """Compute right-padded batches: in a causal model later tokens do not change earlier outputs.

    A sequence that is the beginning of another is read in the row of the other. A batch of one
    token holds one sequence.
    """
    prefix, matrix, lengths, targets = sequences
    padded = np.concatenate([np.tile(prefix, (len(matrix), 1)), matrix], axis=1)
    lengths = lengths + len(prefix)
    rope_group = _rope_groups(model, sequences)
    if max_batch_tokens == 1:
        carrier = np.arange(len(matrix))
    else:
        carrier = _carriers(np.column_stack([rope_group, padded]), lengths + 1)
    costs = np.zeros(len(matrix), np.int64)
    order = np.unique(carrier)
    order = order[np.lexsort([-lengths[order], rope_group[order]])]
    if rope_group.any():
        # Dynamic NTK keeps the base of the longest sequence so far, which a short one resets.
        model(input_ids=torch.as_tensor(padded[:1, :1], device=model.device), use_cache=False)
    target_rows, target_columns, begin = carrier[targets[0]], targets[1] + len(prefix), 0
    size = max(1, max_batch_tokens // int(lengths.max()))
    while begin < len(order):
        batch = order[begin : begin + size]
        batch = batch[rope_group[batch] == rope_group[batch[0]]]
        widest = int(lengths[batch].max())
        place = np.full(len(matrix), -1, np.int64)
        place[batch] = np.arange(len(batch))
        numbers = np.flatnonzero(place[target_rows] >= 0)
        positions = place[target_rows[numbers]] * widest + target_columns[numbers]
        positions, output_rows = np.unique(positions, return_inverse=True)
        try:
            ids = torch.as_tensor(padded[batch, :widest], device=model.device)
            flat = torch.as_tensor(positions, device=model.device)
            use(outputs_at(model, flat, input_ids=ids, use_cache=False), output_rows, numbers)
        except (RuntimeError, MemoryError) as error:
            size = halved(size, error)
            continue
        costs[batch] += widest
        begin += len(batch)
    return costs


def _carriers(padded: Ints, lengths: Ints) -> Ints:
    """For each sequence, the sequence to compute: itself, or a longer one that starts with it."""
    tree = build_tree(padded, lengths)
    last = tree.path[np.arange(len(padded)), lengths - 1]
    leaf = tree.end - 1  # in preorder the last node of a subtree is a leaf
    return tree.owner[leaf[last]]


def scoring_mode(
    model: PreTrainedModel,
    sequences: Sequences | None = None,
    first: str = "tree",
    *,
    max_batch_tokens: int | None = None,
) -> str:
    """The first mode, of "tree", "plain" and "single", that scores like one sequence at a time.

    >>> scoring_mode(model)  # a Llama
    'tree'

    Args:
        model: any causal language model of transformers.
        sequences: the sequences to score; by default a probe of 17 tokens.
        first: the first mode to try.
        max_batch_tokens: greatest number of tokens of one forward pass, as in :func:`score`; those
            of the probe have no more, or one sequence.

    "tree" computes shared prefixes of all sequences once, by an attention mask; "plain" shares
    nothing; "single" does not even share a batch. Models treat masks, positions, padding and cached
    keys differently, some only with many tokens. So a mode is tested once a model, on random ids of
    about the lengths at hand. In half precision a fault shows that moves the log-probabilities by a
    tenth of their spread; a smaller one is not told from rounding.
    """
    attention = str(getattr(model.config, "_attn_implementation", ""))
    tested = _tested.get(model)
    if tested is None or tested[0] != attention:
        tested = _tested[model] = attention, {}
    if max_batch_tokens is None:
        max_batch_tokens = default_max_batch_tokens(model)
    sizes = {_SMALLEST, *([] if sequences is None else [_size_at_hand(model, sequences)])}
    for mode in MODES[MODES.index(first) : -1]:
        for size in sorted(sizes):
            test = size, max_batch_tokens, mode
            if test not in tested[1]:
                tested[1][test] = _is_right(model, mode, size, max_batch_tokens)
            if not tested[1][test]:
                break
        else:
            return mode
    if model not in _warned_models:
        _warned_models.add(model)
        _log.warning(
            "the model's scores depend on padding or on later tokens: each sequence is scored on "
            "its own, which is slow"
        )
    return MODES[-1]


def _size_at_hand(model: PreTrainedModel, sequences: Sequences) -> tuple[int, int]:
    """Lengths of the prefix and of the sequences of a probe for these sequences.

    Twice as long, since few tokens beyond a window change little, and rounded up by at most a
    quarter, for few sizes; unchanged where that would pass a limit beyond which the model differs.
    """
    lengths = len(sequences.prefix), int(sequences.lengths.max(initial=1))
    rounded = _rounded(max(lengths[0], _SMALLEST[0])), _rounded(2 * max(lengths[1], 8))
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    limits = max_length_of(model), rope.get("original_max_position_embeddings")
    # One more token is read where each sequence is on its own.
    exceeds = [limit and sum(lengths) < limit <= sum(rounded) + 1 for limit in limits]
    prefix, length = lengths if any(exceeds) else rounded
    return prefix, length


def _rounded(length: int) -> int:
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


def _is_right(
    model: PreTrainedModel, mode: str, size: tuple[int, int], max_batch_tokens: int
) -> bool:
    """Whether a mode scores a probe of a size as one sequence at a time does."""
    attention = getattr(model.config, "_attn_implementation", "")
    if mode == "tree" and (attention not in ("sdpa", "eager") or not _masks_all_layers(model)):
        return False
    vocabulary = int(model.config.get_text_config().vocab_size)
    if size == _SMALLEST:  # in several levels of narrow rows
        probe, tokens = _probe(vocabulary), min(8 if mode == "tree" else 64, max_batch_tokens)
    else:
        tokens = max_batch_tokens
        probe = _probe(vocabulary, *size, min(tokens, row_width(model, size[0])))
    sampled = np.unique([*range(6), len(probe.matrix) - 1])
    is_read = np.isin(probe.targets[0], sampled)
    owners = np.searchsorted(sampled, probe.targets[0, is_read])
    targets = np.stack([owners, *probe.targets[1:, is_read]])
    # Each ends at its last target: later tokens of the probe must change nothing.
    ends = np.array([targets[1, owners == i].max() + 1 for i in range(len(sampled))])
    single = Sequences(probe.prefix, probe.matrix[sampled], ends, targets)
    try:
        with quiet(model):
            expected, _ = log_probs(model, single, tokens, "single", {})
            values, _ = log_probs(model, probe, tokens, mode, {})
    except Exception as error:  # any exception means that the mode does not work
        _log.info("scoring mode %s is not for this model: %s", mode, error)
        return False
    if not np.isfinite(expected).all():
        return True  # scoring raises the error
    difference = float(np.sqrt(np.mean((values[is_read] - expected) ** 2)))
    relative, absolute = _TOLERANCE[model.dtype == torch.float32]
    is_close = difference <= absolute + relative * float(expected.std())
    if not is_close:
        _log.info("scoring mode %s is off by %.2g on this model at %s", mode, difference, size)
    return is_close


def _masks_all_layers(model: PreTrainedModel) -> bool:
    """Whether the masks of a :class:`TreePass` cover every kind of layer: not GPT-Neo's local ones.

    These (``attention_layers``) look back by the place in a row and not by the position.
    """
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    types = set(layer_types or ())
    return types <= set(attention_windows(config)) | {"full_attention"}


# Greatest root mean square of the differences: a fraction of the spread of the log-probabilities,
# and nats; by whether the precision is float32. In SmolLM2, rounding is 0.02 to 0.05 of the spread
# in bfloat16 and 1e-5 in float32; wrong positions and windows and visible padding are 0.4 to 2.
_TOLERANCE = {True: (1e-4, 1e-5), False: (0.1, 0.01)}
_SMALLEST = 5, 12  # the size of the first probe of every model
_PROBE_READS = 6


def _probe(
    vocabulary: int, prefix: int = _SMALLEST[0], length: int = _SMALLEST[1], width: int = 0
) -> Sequences:
    """Sequences that branch early and late, with targets inside and at the end.

    Together they have at least ``width`` tokens after the prefix.
    """
    count = max(6, -(-width // length))
    ids = np.random.default_rng(0).integers(1, max(2, vocabulary), (count + 1, prefix + length))
    matrix = ids[:count, :length].copy()
    for row, n_shared in ((1, length * 3 // 4), (2, length // 3), (3, length // 3), (5, 1)):
        matrix[row, :n_shared] = matrix[0, :n_shared]
    matrix[3, length * 2 // 3 :] = matrix[0, length * 2 // 3 :]
    lengths = np.full(count, length)
    lengths[2] -= 1
    lengths[4] -= length // 4
    reads = min(_PROBE_READS, length // 2)
    rows = np.repeat(np.arange(count), reads)
    ends = lengths.copy()
    ends[0], ends[2] = length // 2, length * 3 // 4
    columns = (ends[:, None] - np.arange(1, reads + 1)).ravel()
    tokens = np.resize(ids[count], len(rows))
    return Sequences(ids[count, :prefix], matrix, lengths, np.stack([rows, columns, tokens]))
