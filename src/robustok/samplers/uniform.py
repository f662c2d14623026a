"""`uniform`: uniform over all tokenizations of the text (paper: `Uni`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from robustok.kernels.batch import Rows, spelled
from robustok.kernels.uniform import draw_uniform
from robustok.samplers.tabled import TabledSampler

if TYPE_CHECKING:
    from robustok.lattice import Lattice


class Uniform(TabledSampler):
    """Every tokenization of the text is as likely as any other.

    >>> round(float(np.exp(Uniform(vocab).log_prob(vocab.encode("the")))), 3)
    0.333

    From strings it needs no canonical encoding, only the text's bytes.
    """

    name = "uniform"
    example = "uniform"
    color = "#009e73"
    exact = True
    given = {"distance": "uniform-k"}
    _from_bytes = True
    _only_bytes = True

    def _log_prob_text(self, ids: np.ndarray) -> float:
        """Minus the logarithm of the number of tokenizations; minus infinity off V."""
        from robustok.lattice import Lattice

        if not self.vocab.ordinary[ids].all():
            return -np.inf
        return -Lattice(self.vocab, ids).log_count()

    def segmentation_weights(
        self, lattice: Lattice, segmentations: list[tuple[int, ...]]
    ) -> dict[tuple[int, ...], float]:
        """Uniform among segmentations with as many splits."""
        return dict.fromkeys(segmentations, 1.0)

    def split_distributions(self, canonical: np.ndarray, token: int) -> dict[str, np.ndarray]:
        """The exact one, and the paper's binomial."""
        from robustok.lattice import Lattice
        from robustok.samplers.split_distributions import binomial, exactly, span_of

        begin, end = span_of(self.vocab, canonical, token)
        lattice = Lattice(self.vocab, canonical)
        return {"exact": exactly(lattice, begin, end), "binomial (paper)": binomial(end - begin)}

    def _prepare(self, batch: Any) -> Any:
        if batch.values.dtype == np.uint8:
            return batch
        return spelled(batch, self.vocab.token_bytes, self.vocab.token_offsets)

    def _draw(self, batch: Any, first: int, last: int, out: np.ndarray, ends: np.ndarray) -> None:
        tokens = self.vocab.kernel_tokens

        def kernel(store: Any, first: int, rows: Any) -> int:
            return draw_uniform(tokens, store, batch, first, last, rows)

        self._with_store(kernel, first, last, batch.draws, Rows(out, ends))
