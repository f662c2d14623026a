"""The modes of sharing work that a model supports: tested once on a tiny input, then cached."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from robustok.scoring.fallback import sequence_log_probs
from robustok.scoring.forward import attention_windows, quiet
from robustok.scoring.packed import tree_log_probs

MODES = ("tree", "cache", "plain")

_log = logging.getLogger(__name__)
_known: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()


def scoring_mode(model: Any) -> str:
    """The first of "tree", "cache" and "plain" that scores like one sequence at a time.

    >>> scoring_mode(model)  # a Llama
    'tree'

    Args:
        model: any causal language model of transformers.

    "tree" computes shared prefixes of all sequences once, by an attention mask; "cache" computes
    the common prefix once; "plain" shares nothing. Models differ in what they do with masks,
    positions and caches that are passed to them, and some ignore them silently, so a mode is tested
    on a tiny input. The answer is kept for the model.
    """
    attention = str(getattr(model.config, "_attn_implementation", ""))
    known = _known.get(model)
    if known is None or known[0] != attention:
        known = (attention, next(p for p in MODES if p == "plain" or _works(model, p, attention)))
        _known[model] = known
    return known[1]


def _works(model: Any, mode: str, attention: str) -> bool:
    if mode == "tree" and (attention not in ("sdpa", "eager") or not _known_layers(model)):
        return False
    prefix, matrix, lengths, reads = _probe(int(model.config.get_text_config().vocab_size))
    try:
        with quiet(model):
            if mode == "tree":
                values, _ = tree_log_probs(model, prefix, matrix, lengths, reads, 8, {})
            else:
                values, _ = sequence_log_probs(model, prefix, matrix, lengths, reads, 64, mode)
            wanted, _ = sequence_log_probs(model, prefix, matrix, lengths, reads, 64, "plain")
    except Exception as error:  # whatever a model raises here means that it can't
        _log.info("%s scoring is not for this model: %s", mode, error)
        return False
    # A wrong mask or position is off by about as much as the sequences differ from each other;
    # rounding, which grows with the numbers too, by a small part of that.
    share, least = (1e-3, 1e-4) if model.dtype == torch.float32 else (5e-2, 5e-2)
    difference, spread = float(np.abs(values - wanted).max()), float(np.ptp(wanted))
    good = difference <= least + share * spread
    if not good:
        _log.info("%s scoring is off by %.2g on this model", mode, difference)
    return good


def _known_layers(model: Any) -> bool:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    return kinds <= set(attention_windows(config)) | {"full_attention"}


def _probe(vocabulary: int) -> tuple[np.ndarray, ...]:
    """Six sequences that branch early and late, each read at its last tokens."""
    ids = np.arange(1, 200) * 7 % max(2, vocabulary - 1)
    matrix = np.tile(ids[10:22], (6, 1))
    matrix[1, 9:] = ids[30:33]
    matrix[2, 4:] = ids[40:48]
    matrix[3, 4:8] = ids[50:54]
    matrix[4] = ids[60:72]
    matrix[5, 1:] = ids[80:91]
    lengths = np.array([12, 12, 11, 12, 9, 12])
    rows = np.repeat(np.arange(6), 3)
    columns = (lengths[:, None] - np.arange(1, 4)).ravel()
    return ids[:5], matrix, lengths, np.stack([rows, columns, ids[100:118]])
