"""Forward passes over rows of a prefix tree: masks, cached keys and values, few outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

from robustok.scoring.tree import Ints, Tree, TreeRows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

States = tuple[torch.Tensor, torch.Tensor]  # keys and values
PrefixCache = dict[bytes, list[States]]  # those of every layer, by the prefix's ids
_PREFIXES_KEPT = 4


@contextmanager
def quiet(model: PreTrainedModel) -> Iterator[None]:
    """Evaluation mode without gradients; put back afterwards."""
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
    exhausted = isinstance(error, MemoryError) or "out of memory" in text
    exhausted = exhausted or "can't allocate memory" in text or "not enough memory" in text
    if not exhausted or size == 1:
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
    to (``stored``, where node ``n`` is at ``slot[n]``, -1 for none). ``prefix`` is int64 [tokens],
    maybe none, read ``max_batch_tokens`` tokens at a time where ``prefix_cache`` does not hold it
    from an earlier pass; ``prefix_computed`` counts the tokens read. ``outputs_at`` is called with
    the model, positions and inputs.
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
            new = [_concatenated(a, b, -2) for a, b in zip(self.cached, new, strict=True)]
        self.cached = new

    def run(self, rows: TreeRows, reads: Ints, keep: bool) -> Any:
        """Compute some rows; the model's outputs at the nodes ``reads``.

        ``reads`` must be among the rows' nodes; with ``keep``, what later rows need
        of these nodes is stored.
        """
        tree, real = self.tree, rows.nodes >= 0
        ids = np.where(real, tree.tokens[rows.nodes], 0)
        positions = np.where(real, tree.depth[rows.nodes], 0) + len(self.prefix)
        masks = self._masks(positions, *self._keys(rows))
        n_past = len(self.prefix) + rows.past.shape[1]
        cache = self._cache(rows.past, n_past) if keep or n_past else None
        nodes, flat = rows.nodes[real], np.flatnonzero(real.ravel())
        by_node = np.argsort(nodes)
        at = flat[by_node[np.searchsorted(nodes, reads, sorter=by_node)]]
        outputs = self._forward(ids, positions, masks, cache, at)
        if keep and cache is not None:
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
            parts = self.cached[layer : layer + 1]
            if past.shape[1]:
                keys, values = self.stored[layer]
                parts = [*parts, (_gather(keys, index), _gather(values, index))]
            layers.append(_Past(parts, length))
        return Cache(layers=layers)

    def _store(self, nodes: Ints, flat: Ints, cache: Any) -> None:
        """Keep the new keys and values of ``nodes``, which are at ``flat`` (row, position)."""
        where = torch.as_tensor(flat, device=self.model.device)
        new = []
        for layer in cache.layers:
            keys, values = layer.new
            new.append((_select(keys, where), _select(values, where)))
        if self.stored:
            new = [_concatenated(a, b, 1) for a, b in zip(self.stored, new, strict=True)]
        self.stored = new
        self.slot[nodes] = self.stored_count + np.arange(len(nodes))
        self.stored_count += len(nodes)

    def _keys(self, rows: TreeRows) -> tuple[Ints, np.ndarray]:
        """Positions of the keys [rows, keys], and which queries see them [rows, queries, keys]."""
        tree, nodes = self.tree, rows.nodes
        keys = np.concatenate([rows.past, nodes], axis=1)
        ends = np.where(keys >= 0, tree.end[keys], -1)
        seen = (keys[:, None, :] <= nodes[:, :, None]) & (nodes[:, :, None] < ends[:, None, :])
        seen |= nodes[:, :, None] < 0  # padding sees all: a softmax over nothing is no number
        before = np.broadcast_to(np.arange(len(self.prefix)), (len(nodes), len(self.prefix)))
        everyone = np.ones((*nodes.shape, len(self.prefix)), bool)
        positions = np.where(keys >= 0, tree.depth[keys], 0) + len(self.prefix)
        return np.concatenate([before, positions], 1), np.concatenate([everyone, seen], 2)

    def _masks(self, queries: Ints, keys: Ints, seen: np.ndarray) -> Any:
        """Additive masks [rows, 1, queries, keys]: one, or one for each kind of layer."""
        masks, dtype = {}, self.model.dtype
        for kind, window in self.windows.items():
            near = seen
            if window is not None:
                near = seen & (queries[:, :, None] - keys[:, None, :] < window)
            hidden = torch.as_tensor(~near, device=self.model.device)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            masks[kind] = mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None]
        return masks.get("", masks)


def attention_windows(config: object) -> dict[str, int | None]:
    """How far each kind of layer looks back; the key "" means that all layers are alike.

    Models whose layers differ take one mask for each of their ``layer_types``.
    """
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return {"": window}
    if set(kinds) == {"full_attention"}:
        return {"": None}
    return {"full_attention": None, "sliding_attention": window}


def _concatenated(first: States, then: States, dim: int) -> States:
    return torch.cat([first[0], then[0]], dim), torch.cat([first[1], then[1]], dim)


def _gather(stored: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """[heads, stored, size] at [rows, past] as [rows, heads, past, size]."""
    return stored[:, index.reshape(-1)].unflatten(1, tuple(index.shape)).transpose(0, 1)


def _select(states: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
    """[rows, heads, length, size] at flat (row, position) as [heads, selected, size]."""
    return states.transpose(1, 2).flatten(0, 1)[flat].transpose(0, 1).contiguous()
