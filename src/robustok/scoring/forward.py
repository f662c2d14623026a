"""Forward passes over rows of a prefix tree: masks, cached keys and values, few outputs.

On a CPU, where a linear layer gives the logits, they are computed in blocks of columns: the
log-sum-exp of a block is taken while it is in the processor's cache, and all logits are never in
memory. Other models return their logits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn import functional
from transformers.cache_utils import Cache, DynamicLayer

from robustok.errors import RobustokError
from robustok.scoring.tree import Ints, Tree, TreeRows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

States = tuple[torch.Tensor, torch.Tensor]  # keys and values
PrefixCache = dict[bytes, list[States]]  # by the ids of the prefix, the states of every layer
_PREFIXES_KEPT = 4


@contextmanager
def quiet(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients; training mode is restored afterwards."""
    training = [module for module in model.modules() if module.training]
    if training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def default_max_batch_tokens(model: PreTrainedModel) -> int:
    """Greatest number of tokens of one forward pass where the caller gives none."""
    return 1024 if model.device.type == "cpu" else 16384


def halved(size: int, error: BaseException) -> int:
    """Half the rows if ``error`` says that memory ran out; anything else is raised."""
    text = str(error).lower()
    phrases = ("out of memory", "can't allocate memory", "not enough memory")
    is_exhausted = isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)
    if not is_exhausted or size == 1:
        raise error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return size // 2


class _Past(DynamicLayer):
    """Keys and values of one layer: a shared prefix, each row's ancestors, then the new ones."""

    def __init__(self, past: list[States], length: int) -> None:
        super().__init__()
        self.past, self.length, self.is_initialized = past, length, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.new = key_states, value_states
        rows = key_states.shape[0]
        keys = [k.expand(rows, -1, -1, -1) for k, _ in self.past] + [key_states]
        values = [v.expand(rows, -1, -1, -1) for _, v in self.past] + [value_states]
        return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)

    def get_seq_length(self) -> int:
        return self.length


class TreePass:
    """The forward passes of one prefix tree, under one cached prefix.

    Holds the keys and values of the prefix (``cached``) and of every node that later rows look back
    to (``stored``; node ``n`` is at ``slot[n]``, -1 for none). ``prefix`` is int64 [tokens], maybe
    empty; unless ``prefix_cache`` has it, it is read ``max_batch_tokens`` tokens at a time, and
    ``prefix_computed`` counts them. ``outputs_at`` is called with model, positions and inputs.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tree: Tree,
        prefix: Ints,
        max_batch_tokens: int,
        prefix_cache: PrefixCache,
        outputs_at: Callable[..., object],
    ) -> None:
        self.model, self.tree, self.prefix, self.outputs_at = model, tree, prefix, outputs_at
        text_config = model.config.get_text_config()
        self.windows = attention_windows(text_config)
        self.layer_count = int(text_config.num_hidden_layers)
        self.stored: list[States] = []
        self.slot = np.full(len(tree.tokens), -1, np.int64)
        self.stored_count = 0
        self.cached = prefix_cache.get(prefix.tobytes(), [])
        self.prefix_computed = 0 if self.cached else len(prefix)
        for begin in range(0, self.prefix_computed, max_batch_tokens):
            self._read_prefix(begin, min(begin + max_batch_tokens, len(prefix)))
        if self.prefix_computed:
            while len(prefix_cache) >= _PREFIXES_KEPT:
                del prefix_cache[next(iter(prefix_cache))]
            prefix_cache[prefix.tobytes()] = self.cached

    def _read_prefix(self, begin: int, end: int) -> None:
        queries, keys = np.arange(begin, end)[None], np.arange(end)[None]
        masks = self._masks(queries, keys, queries[:, :, None] >= keys[:, None, :])
        cache = self._cache(np.empty((1, 0), np.int64), begin)
        ids = self.prefix[None, begin:end]
        self._forward(ids, queries, masks, cache, np.zeros(1, np.int64))
        new = [layer.new for layer in cache.layers]
        if self.cached:
            new = [_joined(a, b, -2) for a, b in zip(self.cached, new, strict=True)]
        self.cached = new

    def run(self, rows: TreeRows, output_nodes: Ints, keep_states: bool) -> Any:
        """Compute rows and return the model's outputs at ``output_nodes``, which are in them.

        ``keep_states`` stores the keys and values of the rows' nodes for later rows.
        """
        tree, is_node = self.tree, rows.nodes >= 0
        ids = np.where(is_node, tree.tokens[rows.nodes], 0)
        positions = np.where(is_node, tree.depth[rows.nodes], 0) + len(self.prefix)
        masks = self._masks(positions, *self._keys(rows))
        n_past = len(self.prefix) + rows.past.shape[1]
        cache = self._cache(rows.past, n_past) if keep_states or n_past else None
        nodes, flat = rows.nodes[is_node], np.flatnonzero(is_node.ravel())
        by_node = np.argsort(nodes)
        index = flat[by_node[np.searchsorted(nodes, output_nodes, sorter=by_node)]]
        outputs = self._forward(ids, positions, masks, cache, index)
        if keep_states and cache is not None:
            self._store(nodes, flat, cache)
        return outputs

    def _forward(self, ids: Ints, positions: Ints, masks: object, cache: object, flat: Ints) -> Any:
        device = self.model.device
        return self.outputs_at(
            self.model,
            torch.as_tensor(flat, device=device),
            input_ids=torch.as_tensor(ids, device=device),
            position_ids=torch.as_tensor(positions, device=device),
            attention_mask=masks,
            past_key_values=cache,
            use_cache=cache is not None,
        )

    def _cache(self, past: Ints, length: int) -> Any:
        """The keys and values of the prefix and of the nodes ``past``, ``length`` in all."""
        index = torch.as_tensor(np.where(past >= 0, self.slot[past], 0), device=self.model.device)
        layers = []
        for layer in range(self.layer_count):
            states = self.cached[layer : layer + 1]
            if past.shape[1]:
                keys, values = self.stored[layer]
                states = [*states, (_gather(keys, index), _gather(values, index))]
            layers.append(_Past(states, length))
        return Cache(layers=layers)

    def _store(self, nodes: Ints, flat: Ints, cache: Any) -> None:
        """Store the new keys and values of ``nodes``, which are at ``flat`` (row, position)."""
        index = torch.as_tensor(flat, device=self.model.device)
        new = []
        for layer in cache.layers:
            keys, values = layer.new
            new.append((_select(keys, index), _select(values, index)))
        if self.stored:
            new = [_joined(a, b, 1) for a, b in zip(self.stored, new, strict=True)]
        self.stored = new
        self.slot[nodes] = self.stored_count + np.arange(len(nodes))
        self.stored_count += len(nodes)

    def _keys(self, rows: TreeRows) -> tuple[Ints, np.ndarray]:
        """Positions of the keys [rows, keys], whether a query sees a key [rows, queries, keys]."""
        tree, nodes = self.tree, rows.nodes
        keys = np.concatenate([rows.past, nodes], axis=1)
        ends = np.where(keys >= 0, tree.end[keys], -1)
        is_seen = (keys[:, None, :] <= nodes[:, :, None]) & (nodes[:, :, None] < ends[:, None, :])
        is_seen |= nodes[:, :, None] < 0  # padding sees all: a softmax over nothing is no number
        before = np.broadcast_to(np.arange(len(self.prefix)), (len(nodes), len(self.prefix)))
        all_seen = np.ones((*nodes.shape, len(self.prefix)), bool)
        positions = np.where(keys >= 0, tree.depth[keys], 0) + len(self.prefix)
        return np.concatenate([before, positions], 1), np.concatenate([all_seen, is_seen], 2)

    def _masks(self, queries: Ints, keys: Ints, is_seen: np.ndarray) -> Any:
        """Additive masks [rows, 1, queries, keys]: one for all layers, or by type of layer."""
        masks, dtype = {}, self.model.dtype
        for layer_type, window in self.windows.items():
            is_near = is_seen
            if window is not None:
                is_near = is_seen & (queries[:, :, None] - keys[:, None, :] < window)
            is_hidden = torch.as_tensor(~is_near, device=self.model.device)
            mask = torch.zeros(is_hidden.shape, dtype=dtype, device=is_hidden.device)
            masks[layer_type] = mask.masked_fill_(is_hidden, torch.finfo(dtype).min)[:, None]
        return masks.get("", masks)


def attention_windows(config: object) -> dict[str, int | None]:
    """How far each type of layer looks back; the key "" means that all layers are alike.

    Models with different layers take a mask for each of their ``layer_types``.
    """
    window = getattr(config, "sliding_window", None)
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        return {"": window}
    if set(layer_types) == {"full_attention"}:
        return {"": None}
    return {"full_attention": None, "sliding_attention": window}


def _joined(old: States, new: States, dim: int) -> States:
    return torch.cat([old[0], new[0]], dim), torch.cat([old[1], new[1]], dim)


def _gather(stored: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """[heads, stored, size] at [rows, past] as [rows, heads, past, size]."""
    return stored[:, index.reshape(-1)].unflatten(1, tuple(index.shape)).transpose(0, 1)


def _select(states: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """[rows, heads, length, size] at flat (row, position) as [heads, selected, size]."""
    return states.transpose(1, 2).flatten(0, 1)[flat].transpose(0, 1).contiguous()


_BLOCK = 1 << 18  # logits of a block, 1 MB in float32
_COLUMNS = (1024, 4096)  # least and most columns of a block
_linear_heads: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class Outputs(NamedTuple):
    """Outputs of a model at some positions: [positions, size].

    ``values`` are hidden states before ``head``; float32 logits where it is None.
    """

    values: torch.Tensor
    head: torch.nn.Linear | None


def outputs_at(model: PreTrainedModel, flat: torch.Tensor, **inputs: object) -> Outputs:
    """Outputs at the positions ``flat`` only, indices into [batch · length].

    The hidden states are picked before the output layer. What the model does to its logits
    afterwards (scaling, soft-capping) is still done.
    """
    head = model.get_output_embeddings()
    if head is None:
        logits = model(**inputs).logits
        check_positions(logits, inputs["input_ids"])
        return Outputs(logits.reshape(-1, logits.shape[-1])[flat].float(), None)
    uses_blocks = _uses_blocks(model, head)
    picked: list[torch.Tensor] = []

    def pick(_module: object, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        hidden = args[0]
        check_positions(hidden, inputs["input_ids"])
        picked.append(hidden.reshape(-1, hidden.shape[-1])[flat][None])
        return (picked[0][:, :0] if uses_blocks else picked[0],)

    hook = head.register_forward_pre_hook(pick)
    try:
        logits = model(**inputs).logits
    finally:
        hook.remove()
    return Outputs(picked[0][0], head) if uses_blocks else Outputs(logits[0].float(), None)


def check_positions(outputs: torch.Tensor, input_ids: Any) -> None:
    """Raise RobustokError where a model has not one output for each id, but others among them.

    Prompt tuning, for example, puts outputs of its own before those of the ids.
    """
    n_outputs = outputs.shape[:-1].numel()
    if n_outputs != input_ids.numel():
        raise RobustokError(
            f"the model has {n_outputs} outputs for {input_ids.numel()} ids, as with prompt tuning,"
            " so it is not known which belongs to which id: give a model without such tokens"
        )


def log_probs_of(outputs: Outputs, rows: Ints, tokens: Ints) -> np.ndarray:
    """log p(token) at an output as float64, for each pair of int64 [pairs]."""
    values, head = outputs
    vocabulary = values.shape[-1] if head is None else head.weight.shape[0]
    if int(tokens.max(initial=0)) >= vocabulary:
        raise RobustokError(
            f"an option holds token {int(tokens.max())}, but the model scores only "
            f"{vocabulary}: use the model's own vocabulary"
        )
    if head is not None:
        return _by_blocks(values, head, rows, tokens)
    row = torch.as_tensor(rows, device=values.device)
    token = torch.as_tensor(tokens, device=values.device)
    log_probs = values[row, token] - torch.logsumexp(values, dim=-1)[row]
    return log_probs.double().cpu().numpy()


def _by_blocks(states: torch.Tensor, head: torch.nn.Linear, rows: Ints, tokens: Ints) -> np.ndarray:
    """The log-probabilities of :func:`log_probs_of`, without all logits in memory.

    Pairs are sorted by token, so the pairs of a block of columns are a slice.
    """
    by_token = np.argsort(tokens, kind="stable")
    row, token = torch.as_tensor(rows[by_token]), torch.as_tensor(tokens[by_token])
    blocks = _column_blocks(len(states), len(head.weight), tokens[by_token])
    logit_of_pair = torch.empty(len(tokens), dtype=torch.float32)
    sums = torch.empty(len(blocks), len(states), dtype=torch.float32)  # log-sum-exp of each block
    for (columns, pairs), block_sums in zip(blocks, sums, strict=True):
        bias = None if head.bias is None else head.bias[columns]
        logits = functional.linear(states, head.weight[columns], bias).float()
        if pairs.start < pairs.stop:
            logit_of_pair[pairs] = logits[row[pairs], token[pairs] - columns.start]
        _log_sum_exp_(logits, block_sums)
    log_probs = np.empty(len(tokens))
    log_probs[by_token] = (logit_of_pair - torch.logsumexp(sums, dim=0)[row]).numpy()
    return log_probs


def _column_blocks(n_states: int, vocabulary: int, ordered: Ints) -> list[tuple[slice, slice]]:
    """(columns, pairs): blocks of columns whose logits fit the cache, and their sorted tokens."""
    width = int(np.clip(_BLOCK // max(1, n_states), *_COLUMNS)) & -64
    edges = [*range(0, vocabulary, width), vocabulary]
    bounds = np.searchsorted(ordered, edges).tolist()
    columns, pairs = (itertools.starmap(slice, itertools.pairwise(x)) for x in (edges, bounds))
    return list(zip(columns, pairs, strict=True))


def _log_sum_exp_(logits: torch.Tensor, out: torch.Tensor) -> None:
    """The log-sum-exp of each row of ``logits``, which it overwrites.

    PyTorch vectorizes 2 ** x itself and leaves e ** x to MKL, which is four times as slow on
    processors of AMD. A row of -inf gives -inf.
    """
    highest = logits.amax(dim=-1, keepdim=True).clamp_min_(torch.finfo(logits.dtype).min)
    torch.sum(logits.sub_(highest).mul_(1 / math.log(2)).exp2_(), dim=-1, out=out)
    out.log_().add_(highest[:, 0])


def _uses_blocks(model: PreTrainedModel, head: object) -> bool:
    """Whether logits come from ``head`` alone and in several blocks; cached by model."""
    if type(head) is not torch.nn.Linear or head.weight.device.type != "cpu":
        return False
    if len(head.weight) <= _COLUMNS[1]:
        return False
    is_linear = _linear_heads.get(model)
    if is_linear is None:
        is_linear = _linear_heads[model] = _logits_are_of(model, head)
    return is_linear


def _logits_are_of(model: PreTrainedModel, head: torch.nn.Linear) -> bool:
    """Whether the model returns its head's outputs, tested with large values in their place."""
    head_outputs: list[torch.Tensor] = []

    def replace(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
        values = torch.linspace(-100, 100, output.shape[-1], dtype=output.dtype)
        head_outputs.append(values.expand_as(output))
        return values.repeat(*output.shape[:-1], 1)

    hook = head.register_forward_hook(replace)
    try:
        logits = model(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False).logits
    finally:
        hook.remove()
    return len(head_outputs) == 1 and bool((logits == head_outputs[0]).all())
