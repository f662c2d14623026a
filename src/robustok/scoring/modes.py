"""The three modes of scoring many sequences, and the first one that is right for a model.

"tree" computes each node of a prefix tree once, "plain" every sequence whole, in padded batches,
and "single" one sequence after another, which is what the others are compared with. Logits are
computed only where they are read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from robustok.models.served import ServedModel
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

    from robustok.models.served import CausalModel


_log = logging.getLogger(__name__)
MODES = ("tree", "plain", "single")
# The attention implementation of each model that was tested, and for each size of a probe and each
# mode whether its scores are right.
_known: WeakKeyDictionary[Any, tuple[str, dict[tuple[int, int, str], bool]]] = WeakKeyDictionary()
_slow: WeakSet[Any] = WeakSet()  # models with the mode "single": each is named once
_overflowing: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
# Called with outputs of one forward pass, and for some of the reads of the sequences the number of
# the output and that of the read.
Use = Callable[[Any, Ints, Ints], None]


def log_probs(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    mode: str,
    prefix_cache: PrefixCache,
) -> tuple[np.ndarray, Ints]:
    """Sum of the read log-probabilities of each sequence, float64 [sequences], and its costs.

    The costs are those of :func:`read_outputs`.
    """
    if mode == "single":
        sequences = _with_last_tokens(model, sequences)
    owners, _, tokens = sequences.reads
    of_reads = np.zeros(len(tokens))
    pending: list[tuple[Outputs, Ints, Ints]] = []

    def run_head() -> None:
        """The log-probabilities at the outputs of several passes, by one run through the head.

        Out of memory, fewer outputs go through at a time.
        """
        outputs, numbers, reads = zip(*pending, strict=True)
        begins = np.cumsum([0] + [len(one.values) for one in outputs])
        which = np.concatenate([n + begin for n, begin in zip(numbers, begins, strict=False)])
        read = np.concatenate(reads)
        # One alone may be as large as memory allows, so it is not copied.
        states = torch.cat([one.values for one in outputs]) if outputs[1:] else outputs[0].values
        begin, size = 0, len(states)
        while begin < len(states):
            here = np.flatnonzero((which >= begin) & (which < begin + size))
            part = Outputs(states[begin : begin + size], outputs[0].head)
            try:
                read_here = log_probs_of(part, which[here] - begin, tokens[read[here]])
            except (RuntimeError, MemoryError) as error:
                size = halved(size, error)
                continue
            of_reads[read[here]] = read_here
            begin += size
        pending.clear()

    def use(outputs: Outputs, which: Ints, read: Ints) -> None:
        pending.append((outputs, which, read))
        n_states = sum(len(one.values) for one, *_ in pending)
        if outputs.head is None or n_states >= max_batch_tokens:
            try:
                run_head()
            except (RuntimeError, MemoryError):
                pending.pop()  # its reads come again, in a smaller pass
                raise

    costs = read_outputs(model, sequences, max_batch_tokens, mode, use, outputs_at, prefix_cache)
    if pending:
        run_head()
    return np.bincount(owners, of_reads, minlength=len(sequences.matrix)), costs


def read_outputs(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    mode: str,
    use: Use,
    outputs_at: Callable[..., object],
    prefix_cache: PrefixCache,
) -> Ints:
    """Call ``use`` with the outputs that ``outputs_at`` gives at all reads of the sequences.

    Out of memory, fewer rows go through at a time, and some reads come twice. Returns int64
    [sequences], the tokens that each one added, padding included.
    """
    if not len(sequences.matrix):
        return np.zeros(0, np.int64)
    if mode == "tree" and not _rope_groups(model, sequences).any():
        return _read_tree(model, sequences, max_batch_tokens, use, outputs_at, prefix_cache)
    size = 1 if mode == "single" else max_batch_tokens
    return _read_padded(model, sequences, size, use, outputs_at)


def _with_last_tokens(model: PreTrainedModel, sequences: Sequences) -> Sequences:
    """The sequences with the token that is read at the end of each, for a model that looks ahead.

    A causal model need not compute it, so it is left out where it would change the rotations.
    """
    prefix, matrix, lengths, (owners, columns, tokens) = sequences
    matrix = np.pad(matrix, [(0, 0), (0, 1)])
    at_end = columns == lengths[owners] - 1
    matrix[owners[at_end], columns[at_end] + 1] = tokens[at_end]
    longer = lengths.copy()
    longer[owners[at_end]] += 1
    result = Sequences(prefix, matrix, longer, sequences.reads)
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
    """Each node of the prefix tree once, in rows, shorter ones where one alone is too much."""
    prefix, matrix, lengths, reads = sequences
    tree = build_tree(matrix, lengths)
    node_of_read = tree.path[reads[0], reads[1]]
    width = min(row_width(model, len(prefix)), max_batch_tokens)
    while True:
        try:
            tree_pass = TreePass(model, tree, prefix, max_batch_tokens, prefix_cache, outputs_at)
            return _run_tree(tree_pass, node_of_read, width, max_batch_tokens, use)
        except (RuntimeError, MemoryError) as error:
            width = max_batch_tokens = halved(width, error)


def _run_tree(
    tree_pass: TreePass, node_of_read: Ints, width: int, max_batch_tokens: int, use: Use
) -> Ints:
    tree = tree_pass.tree
    costs = np.bincount(tree.owner, minlength=len(tree.path))
    costs[0] += tree_pass.prefix_computed
    cut = levels(tree, width)
    for rows in cut:
        fill = (rows.nodes >= 0).sum(axis=1)
        order = np.argsort(-fill, kind="stable")
        begin, size = 0, max(1, max_batch_tokens // width)
        while begin < len(order):
            # Rows much emptier than the first wait for a pass of their own: they would be padding.
            full = int((fill[order[begin:]] >= 0.9 * fill[order[begin]]).sum())
            chunk = _take(rows, order[begin : begin + min(size, full)])
            nodes = chunk.nodes[chunk.nodes >= 0]
            read = np.flatnonzero(np.isin(node_of_read, nodes))
            wanted, which = np.unique(node_of_read[read], return_inverse=True)
            try:
                outputs = tree_pass.run(chunk, wanted, keep=rows is not cut[-1])
            except (RuntimeError, MemoryError) as error:
                size = halved(len(chunk.nodes), error)
                continue
            use(outputs, which, read)
            costs[0] += chunk.nodes.size - len(nodes)
            begin += len(chunk.nodes)
    return costs


def row_width(model: PreTrainedModel, prefix: int) -> int:
    """How many nodes a row may hold.

    Every node attends to its whole row and masks most of it, which costs about
    width / (6 · hidden size) of the rest of a layer, more where attention is slower than
    the rest; a narrow row fills less well. A long prefix is copied for each row, so rows
    grow with it.
    """
    hidden = int(model.config.get_text_config().hidden_size)
    return max(min(512, max(112, hidden // 5)), min(1024, prefix))


def _take(rows: TreeRows, chosen: Ints) -> TreeRows:
    """Some of the rows, without the columns that are padding in all of them."""
    nodes, past = rows.nodes[chosen], rows.past[chosen]
    width = int((nodes >= 0).sum(axis=1).max())
    return TreeRows(nodes[:, :width], past[:, : int((past >= 0).sum(axis=1).max(initial=0))])


def _read_padded(
    model: PreTrainedModel,
    sequences: Sequences,
    max_batch_tokens: int,
    use: Use,
    outputs_at: Callable[..., object],
) -> Ints:
    """Right-padded batches: what follows a token changes nothing at it in a causal model.

    A sequence that begins another one is read in the row of that one. Batches of one token hold one
    sequence each, as it is.
    """
    prefix, matrix, lengths, reads = sequences
    whole = np.concatenate([np.tile(prefix, (len(matrix), 1)), matrix], axis=1)
    lengths = lengths + len(prefix)
    group = _rope_groups(model, sequences)
    if max_batch_tokens == 1:
        carrier = np.arange(len(matrix))
    else:
        carrier = _carriers(np.column_stack([group, whole]), lengths + 1)
    costs = np.zeros(len(matrix), np.int64)
    order = np.unique(carrier)
    order = order[np.lexsort([-lengths[order], group[order]])]
    if group.any():
        # Dynamic NTK keeps the base of the longest sequence so far, which a short one resets.
        model(input_ids=torch.as_tensor(whole[:1, :1], device=model.device), use_cache=False)
    host, column, begin = carrier[reads[0]], reads[1] + len(prefix), 0
    size = max(1, max_batch_tokens // int(lengths.max()))
    while begin < len(order):
        chosen = order[begin : begin + size]
        chosen = chosen[group[chosen] == group[chosen[0]]]
        widest = int(lengths[chosen].max())
        row_of = np.full(len(matrix), -1, np.int64)
        row_of[chosen] = np.arange(len(chosen))
        read = np.flatnonzero(row_of[host] >= 0)
        wanted, which = np.unique(row_of[host[read]] * widest + column[read], return_inverse=True)
        try:
            ids = torch.as_tensor(whole[chosen, :widest], device=model.device)
            flat = torch.as_tensor(wanted, device=model.device)
            use(outputs_at(model, flat, input_ids=ids, use_cache=False), which, read)
        except (RuntimeError, MemoryError) as error:
            size = halved(size, error)
            continue
        costs[chosen] += widest
        begin += len(chosen)
    return costs


def _carriers(whole: Ints, lengths: Ints) -> Ints:
    """For each sequence, one that starts with it (itself, or a longer one): the one to compute."""
    tree = build_tree(whole, lengths)
    last = tree.path[np.arange(len(whole)), lengths - 1]
    leaf = tree.end - 1  # in preorder the last node of a subtree is a leaf
    return tree.owner[leaf[last]]


def scoring_mode(
    model: CausalModel, sequences: Sequences | None = None, first: str = "tree"
) -> str:
    """The first mode, of "tree", "plain" and "single", that scores like one sequence at a time.

    >>> scoring_mode(model)  # a Llama
    'tree'

    Args:
        model: any causal language model of transformers, or a served one, whose mode is "served".
        sequences: what is scored; by default something of 17 tokens.
        first: the first mode to try.

    "tree" computes shared prefixes of all sequences once, by an attention mask; "plain" shares
    nothing; "single" does not even share a batch. Models differ in what they do with masks,
    positions, padding and keys that are passed to them, some silently, and some only with many
    tokens. So a mode is tested on random ids of about the lengths at hand, once for a model.
    """
    if isinstance(model, ServedModel):
        return model.mode
    attention = str(getattr(model.config, "_attn_implementation", ""))
    known = _known.get(model)
    if known is None or known[0] != attention:
        known = _known[model] = attention, {}
        overflows_silently(model)  # all tests of a model at once
    sizes = {_SMALLEST, *([] if sequences is None else [_size_at_hand(model, sequences)])}
    for mode in MODES[MODES.index(first) : -1]:
        for size in sorted(sizes):
            if (*size, mode) not in known[1]:
                known[1][*size, mode] = _is_right(model, mode, size)
            if not known[1][*size, mode]:
                break
        else:
            return mode
    if model not in _slow:
        _slow.add(model)
        _log.warning(
            "the model's scores depend on padding or on later tokens: each sequence is scored on "
            "its own, which is slow"
        )
    return MODES[-1]


def _size_at_hand(model: PreTrainedModel, sequences: Sequences) -> tuple[int, int]:
    """Lengths of a prefix and of sequences after it, for a probe of what is scored.

    The sequences are twice as long, since few tokens beyond a window change little. Both are
    rounded up, by at most a quarter, so that there are few sizes. Where the sum passes a limit at
    which the model does something else, they are those at hand.
    """
    lengths = len(sequences.prefix), int(sequences.lengths.max(initial=1))
    rounded = _rounded(max(lengths[0], _SMALLEST[0])), _rounded(2 * max(lengths[1], 8))
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    limits = (
        getattr(config, "max_position_embeddings", None),
        rope.get("original_max_position_embeddings"),
    )
    # One more token is read where each sequence is on its own.
    exceeds = [limit and sum(lengths) < limit <= sum(rounded) + 1 for limit in limits]
    prefix, length = lengths if any(exceeds) else rounded
    return prefix, length


def _rounded(length: int) -> int:
    step = max(8, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


# What norms are made of: an infinite mean of squares scales a state to zero.
_SQUARES = {"pow", "__pow__", "square", "mean", "var"}
_NORMS = {"layer_norm", "rms_norm"}


class _OverflowWatch(TorchFunctionMode):
    """Notes whether a product of a query and a key, or the squares that a norm adds, may be beyond
    the range of float32.
    """

    overflows = False

    def __torch_function__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: Mapping | None = None
    ) -> Any:
        given = {} if kwargs is None else kwargs
        name = getattr(func, "__name__", "")
        result = func(*args, **given)
        if func is functional.scaled_dot_product_attention:
            values = {**dict(zip(("query", "key"), args, strict=False)), **given}
            query, key = (float(values[name].abs().amax()) for name in ("query", "key"))
            product = query * key * values["query"].shape[-1]
            self.overflows |= not product <= torch.finfo(torch.float32).max
        elif name in _NORMS:
            squares = (args[0] if args else given["input"]).float().square().sum(-1)
            self.overflows |= not bool(squares.isfinite().all())
        elif name in _SQUARES and result.dtype in (torch.float32, torch.bfloat16):
            self.overflows |= bool(result.isposinf().any())
        return result


def overflows_silently(model: PreTrainedModel) -> bool:
    """Whether the attention or a norm of a model overflows on a tiny input; kept for the model.

    PyTorch's attention gives zeros for a query whose products with all keys are no numbers, by some
    of its kernels and lengths, and a norm gives zeros for a state whose squares are infinite. The
    scores are then numbers too, and say nothing.
    """
    known = _overflowing.get(model)
    if known is None:
        watch = _OverflowWatch()
        vocabulary = int(model.config.get_text_config().vocab_size)
        # Whatever a model raises here, it raises again where it is used.
        with suppress(Exception), quiet(model), watch:
            log_probs(model, _probe(vocabulary), 64, "plain", {})
        known = _overflowing[model] = watch.overflows
    return known


def _is_right(model: PreTrainedModel, mode: str, size: tuple[int, int]) -> bool:
    """Whether a mode scores a probe of a size as one sequence at a time does."""
    attention = getattr(model.config, "_attn_implementation", "")
    if mode == "tree" and (attention not in ("sdpa", "eager") or not _known_layers(model)):
        return False
    vocabulary = int(model.config.get_text_config().vocab_size)
    if size == _SMALLEST:  # in several levels of narrow rows
        probe, tokens = _probe(vocabulary), 8 if mode == "tree" else 64
    else:
        probe = _probe(vocabulary, *size, row_width(model, size[0]))
        tokens = default_max_batch_tokens(model)
    some = np.array([0, 2, len(probe.matrix) - 1])
    is_read = np.isin(probe.reads[0], some)
    owners = np.searchsorted(some, probe.reads[0, is_read])
    reads = np.stack([owners, *probe.reads[1:, is_read]])
    # Each ends at its last read: what follows it in the probe must change nothing.
    ends = np.array([reads[1, owners == i].max() + 1 for i in range(len(some))])
    alone = Sequences(probe.prefix, probe.matrix[some], ends, reads)
    try:
        with quiet(model):
            wanted, _ = log_probs(model, alone, tokens, "single", {})
            values, _ = log_probs(model, probe, tokens, mode, {})
    except Exception as error:  # whatever a model raises here means that it can't
        _log.info("scoring mode %s is not for this model: %s", mode, error)
        return False
    if not np.isfinite(wanted).all():
        return True  # an error wherever it is scored
    # A wrong mask or position is off by about as much as the sequences differ from each other;
    # rounding, which grows with the numbers too, by a small part of that.
    share, least = (2e-4, 1e-4) if model.dtype == torch.float32 else (5e-2, 5e-2)
    difference, spread = float(np.abs(values[some] - wanted).max()), float(np.ptp(wanted))
    good = difference <= least + share * spread
    if not good:
        _log.info("scoring mode %s is off by %.2g on this model at %s", mode, difference, size)
    return good


def _known_layers(model: PreTrainedModel) -> bool:
    """Whether the masks of a :class:`TreePass` cover every kind of layer of the model.

    GPT-Neo's local layers, which its ``attention_layers`` names, look back by the place in a row
    and not by the position, over windows that are longer than the tiny input.
    """
    config = model.config.get_text_config()
    named = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None)
    kinds = set(named or ())
    return kinds <= set(attention_windows(config)) | {"full_attention"}


_SMALLEST = 5, 12  # the size of the first probe of every model
_PROBE_READS = 6


def _probe(
    vocabulary: int, prefix: int = _SMALLEST[0], length: int = _SMALLEST[1], width: int = 0
) -> Sequences:
    """Sequences that branch early and late, each read at some tokens, not all at its end.

    They have together at least ``width`` tokens after the prefix.
    """
    count = max(6, -(-width // length))
    drawn = np.random.default_rng(0).integers(1, max(2, vocabulary), (count + 1, prefix + length))
    matrix = drawn[:count, :length].copy()
    for row, kept in ((1, length * 3 // 4), (2, length // 3), (3, length // 3), (5, 1)):
        matrix[row, :kept] = matrix[0, :kept]
    matrix[3, length * 2 // 3 :] = matrix[0, length * 2 // 3 :]
    lengths = np.full(count, length)
    lengths[2] -= 1
    lengths[4] -= length // 4
    rows = np.repeat(np.arange(count), _PROBE_READS)
    ends = lengths.copy()
    ends[0], ends[2] = length // 2, length * 3 // 4
    columns = (ends[:, None] - np.arange(1, _PROBE_READS + 1)).ravel()
    tokens = np.resize(drawn[count], len(rows))
    return Sequences(drawn[count, :prefix], matrix, lengths, np.stack([rows, columns, tokens]))
