"""`uniform`: uniform over all tokenizations of the text (paper: `Uni`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from robustok.kernels.walk import draw_blocks
from robustok.lattice import Lattice
from robustok.samplers.stored import StoredSampler


class Uniform(StoredSampler):
    """Every tokenization of the text is as likely as any other.

    >>> round(float(np.exp(Uniform(vocab).log_prob(vocab.encode("the")))), 3)
    0.333

    From strings it needs no canonical encoding, only the text's bytes.
    """

    name = "uniform"
    example = "uniform"
    color = "#009e73"
    exact = True
    exact_form = {"distance": "uniform-k"}
    _skips_encoding = True
    _reads_bytes = True

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """Minus the logarithm of the number of tokenizations; minus infinity off V."""
        if not self.vocab.ordinary[ids].all():
            return -np.inf
        return -Lattice(self.vocab, ids).log_count()

    def _kernel(self) -> Any:
        return draw_blocks, self.vocab.kernel_tokens, (None,)
