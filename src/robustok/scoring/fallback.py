"""Scoring for models without tree masks: padded batches, after a cached prefix or in full."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from robustok.scoring.forward import halved
from robustok.scoring.head import log_probs_of, outputs_at
from robustok.scoring.tree import Ints, build_tree


def sequence_log_probs(
    model: Any,
    prefix: Ints,
    matrix: Ints,
    lengths: Ints,
    reads: Ints,
    max_batch_tokens: int,
    mode: str,
) -> tuple[np.ndarray, Ints]:
    """Sum of the read log-probabilities of each sequence, from right-padded batches.

    With ``mode`` "cache" the prefix and what all sequences start with is computed once
    and its keys and values reused; with "plain" every sequence is computed whole.
    Sequences that begin another one ride along with it in both. Returns float64
    [sequences] and int64 [sequences], the tokens computed, padding included.
    """
    whole = np.concatenate([np.tile(prefix, (len(matrix), 1)), matrix], axis=1)
    lengths = lengths + len(prefix)
    carrier = _carriers(whole, lengths)
    shared = _common_prefix(whole, lengths) if mode == "cache" else 0
    values, costs = np.zeros(len(matrix)), np.zeros(len(matrix), np.int64)
    cache = None
    if shared:
        ids = torch.as_tensor(whole[:1, :shared], device=model.device)
        cache = model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
        costs[0] += shared
    order = np.unique(carrier)
    order = order[np.argsort(-lengths[order], kind="stable")]
    host, column, begin = carrier[reads[0]], reads[1] + len(prefix), 0
    size = max(1, max_batch_tokens // int(lengths.max()))
    while begin < len(order):
        chosen = order[begin : begin + size]
        widest = int(lengths[chosen].max())
        row_of = np.full(len(matrix), -1, np.int64)
        row_of[chosen] = np.arange(len(chosen))
        read = np.flatnonzero(row_of[host] >= 0)
        flat = row_of[host[read]] * (widest - shared) + column[read] - shared
        wanted, which = np.unique(flat, return_inverse=True)
        try:
            inputs: dict[str, Any] = {"use_cache": False}
            if cache is not None:
                past = copy.deepcopy(cache)
                past.batch_repeat_interleave(len(chosen))
                inputs = {"past_key_values": past, "use_cache": True}
            ids = torch.as_tensor(whole[chosen, shared:widest], device=model.device)
            flat_ids = torch.as_tensor(wanted, device=model.device)
            outputs = outputs_at(model, flat_ids, input_ids=ids, **inputs)
            log_probs = log_probs_of(outputs, which, reads[2, read])
        except (RuntimeError, MemoryError) as error:
            size = halved(size, error)
            continue
        np.add.at(values, reads[0, read], log_probs)
        costs[chosen] += widest - shared
        begin += size
    return values, costs


def _carriers(whole: Ints, lengths: Ints) -> Ints:
    """For each sequence, one that starts with it (itself, or a longer one): the one to compute."""
    tree = build_tree(whole, lengths)
    last = tree.path[np.arange(len(whole)), lengths - 1]
    leaf = tree.end - 1  # in preorder the last node of a subtree is a leaf
    return tree.owner[leaf[last]]


def _common_prefix(whole: Ints, lengths: Ints) -> int:
    """How many tokens all sequences start with, one of each left to be computed."""
    shortest = int(lengths.min()) - 1
    same = (whole[:, :shortest] == whole[0, :shortest]).all(axis=0)
    return int(same.argmin()) if not same.all() else shortest
