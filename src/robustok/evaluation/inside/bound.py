"""The paper's robustness bound from a model's weights.

What the bound assumes, and what therefore it does not say of a model in use:

- *One layer.* The theorem is about a 1-layer Transformer. ``log10_gamma(layer=ℓ)`` reads layer ℓ
  as such a model; without ``layer`` the layers' factors are multiplied, which is our composition.
- *1-Lipschitz activations.* SiLU and GELU have slopes up to 1.10 and 1.13. A gated block
  multiplies two linear maps, so it has no Lipschitz constant at all on unbounded inputs; ‖W_FFN‖
  is read as the product of its three norms, which is its order on inputs of norm 1.
- *Bounded embeddings* (in [0, 1]). ``largest_embedding`` is the greatest norm of a token's
  embedding, for comparison. Deeper layers' inputs are not bounded by anything here.
- *Normalization.* The factor (d/(d−1))² stands for layer norms. Their learned gains, and that
  dividing by a small norm stretches, are not in it; nor are position embeddings or query norms.
- *Substitutions.* ‖H(s₁) − H(s₂)‖ ≤ √(2k) counts k columns that differ where they stand. A split
  moves every later token one place on, so two tokenizations at distance k in fact differ in more
  columns, and in length.

So the measured ratio may exceed the number in principle, and is far below it in practice. It is
for comparing models of one shape, which is what the paper uses it for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log10, sqrt
from typing import Any

from robustok.errors import RobustokError, nearest
from robustok.evaluation.inside.norms import LayerNorms, layer_norms, spectral_norm

READINGS = ("theorem", "proof")


@dataclass(frozen=True)
class Bound:
    """The norms that the bound is made of, and the bound.

    >>> from robustok.evaluation import lipschitz_bound
    >>> bound = lipschitz_bound(model)
    >>> len(bound.layers), bound.width, bound.heads
    (3, 128, 4)

    Args:
        model: name of the model, for reports.
        layers: norms of the matrices of each layer.
        embedding: ‖W‖, the norm of the embedding.
        head: ‖W_out‖, the norm of the output layer.
        largest_embedding: greatest Euclidean norm of one token's embedding, for comparison only.
        width: d, the size of a hidden state.
        heads: H, the number of attention heads.
        head_width: size of one head's queries.
        tolerance: relative error of every norm.

    Norms are spectral. The two readings differ in C₁ alone: the appendix's proof has a factor n,
    the number of tokens, that the theorem does not have.
    """

    model: str
    layers: tuple[LayerNorms, ...]
    embedding: float
    head: float
    largest_embedding: float
    width: int
    heads: int
    head_width: int
    tolerance: float

    def c1(self, layer: int, *, reading: str = "theorem", tokens: int | None = None) -> float:
        """C₁ = 1 + ‖W_O‖ √H max_h ‖W^V,h‖ (4·n/√(d/H) ‖W^Q,h‖ ‖W^K,h‖ + 1) of one layer.

        Args:
            layer: index of the layer, from 0.
            reading: ``"theorem"`` (default; n is 1) or ``"proof"`` (n is ``tokens``).
            tokens: number of tokens of the text, at least 1; used by the reading "proof" only.

        √(d/H) is the square root of the width of a head. Raises RobustokError for an unknown
        reading, and for "proof" without ``tokens``.
        """
        if reading not in READINGS:
            raise RobustokError(f"unknown reading '{reading}': {nearest(reading, READINGS)}")
        if reading == "proof" and (tokens is None or tokens < 1):
            raise RobustokError("the proof's reading has the number of tokens in it: give tokens")
        n = tokens if reading == "proof" and tokens is not None else 1
        norms = self.layers[layer]
        worst = max(
            v * (4 * n / sqrt(self.head_width) * q * k + 1)
            for q, k, v in zip(norms.query, norms.key, norms.value, strict=True)
        )
        return 1 + norms.output * sqrt(self.heads) * worst

    def c2(self, layer: int) -> float:
        """C₂ = (1 + ‖W_FFN‖) ‖W_out‖, with the feed-forward block of one layer.

        Args:
            layer: index of the layer, from 0.
        """
        return (1 + self.layers[layer].feed_forward) * self.head

    def log10_gamma(
        self,
        distance: int = 1,
        *,
        reading: str = "theorem",
        tokens: int | None = None,
        layer: int | None = None,
    ) -> float:
        """log₁₀ of γ = √2 ‖W‖ (d/(d−1))² C₁ C₂ √k at a distance k; a logarithm, since it is huge.

        >>> bound = lipschitz_bound(model)
        >>> bound.log10_gamma(2, layer=0) < bound.log10_gamma(2)
        True

        Args:
            distance: k, the distance of the tokenizations, at least 1.
            reading: ``"theorem"`` (default) or ``"proof"``, as in :meth:`c1`.
            tokens: number of tokens of the text, needed by the reading "proof".
            layer: index of the layer, from 0, to read as the theorem's one-layer model. By default
                the factors (d/(d−1))² C₁ (1 + ‖W_FFN‖) of all layers are multiplied.

        Raises RobustokError for a distance below 1, and as :meth:`c1` does.
        """
        chosen = range(len(self.layers)) if layer is None else [layer]
        inner = sum(self._log10_factor(i, reading, tokens) for i in chosen)
        return self._log10_start(distance) + inner + log10(self.head)

    def through(
        self, distance: int = 1, *, reading: str = "theorem", tokens: int | None = None
    ) -> list[float]:
        """log₁₀ of the bound on the change after the embedding, each layer, and the head.

        Args:
            distance: k, the distance of the tokenizations, at least 1.
            reading: ``"theorem"`` (default) or ``"proof"``, as in :meth:`c1`.
            tokens: number of tokens of the text, needed by the reading "proof".

        Of length layers + 2; the last one is :meth:`log10_gamma` of the whole model.
        """
        powers = [self._log10_start(distance)]
        for layer in range(len(self.layers)):
            powers.append(powers[-1] + self._log10_factor(layer, reading, tokens))
        return [*powers, powers[-1] + log10(self.head)]

    def _log10_start(self, distance: int) -> float:
        if distance < 1:
            raise RobustokError(f"distance={distance}: the bound is about a distance from 1 on")
        return log10(sqrt(2 * distance) * self.embedding)

    def _log10_factor(self, layer: int, reading: str, tokens: int | None) -> float:
        first = self.c1(layer, reading=reading, tokens=tokens)
        normalization = (self.width / (self.width - 1)) ** 2
        return log10(normalization * first * (1 + self.layers[layer].feed_forward))

    def table(self, distance: int = 1, *, tokens: int | None = None) -> list[dict[str, Any]]:
        """A row for each layer and one for the whole model: C₁, C₂ and log₁₀ γ by reading.

        Args:
            distance: k, the distance of the tokenizations, at least 1.
            tokens: number of tokens of the text. With it, there are columns for the reading "proof"
                too.

        The row of the whole model has no C₁ and C₂.
        """
        readings = READINGS if tokens else READINGS[:1]
        rows: list[dict[str, Any]] = []
        for layer in [*range(len(self.layers)), None]:
            row: dict[str, Any] = {"layer": "whole" if layer is None else layer + 1}
            row["c2"] = None if layer is None else self.c2(layer)
            for reading in readings:
                options: dict[str, Any] = {"reading": reading, "tokens": tokens}
                row[f"c1_{reading}"] = None if layer is None else self.c1(layer, **options)
                row[f"log10_gamma_{reading}"] = self.log10_gamma(distance, layer=layer, **options)
            rows.append(row)
        return rows


def lipschitz_bound(
    model: Any,
    *,
    tolerance: float = 1e-3,
    name: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> Bound:
    """Compute the bound from a causal language model's weights.

    >>> bound = lipschitz_bound(model)
    >>> bound.log10_gamma(2) > bound.log10_gamma(1)
    True

    Args:
        model: a Llama-like model or a GPT-2 of transformers.
        tolerance: relative error of every spectral norm, at least 1e-5 and below 1.
        name: name of the model in the result, by default empty.
        progress: called with (steps done, all steps): a step for each layer, and one for the
            embedding with the head.

    The head of this module lists what the bound leaves out. Raises RobustokError for a model whose
    matrices are not found.
    Source: the paper's theorem on the upper bound and its proof in the appendix.
    """
    if model.get_output_embeddings() is None:
        raise RobustokError("the model has no output head: give a causal language model")

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total + 1)

    layers = layer_norms(model, tolerance=tolerance, progress=tell)
    config = model.config.get_text_config()
    table, head = model.get_input_embeddings(), model.get_output_embeddings().weight
    embedding = table.weight
    scale = float(getattr(table, "embed_scale", 1.0))  # Gemma's
    norm = float(spectral_norm(embedding, tolerance=tolerance))
    head_norm = norm if head is embedding else float(spectral_norm(head, tolerance=tolerance))
    tell(len(layers) + 1, len(layers))
    heads = int(config.num_attention_heads)
    width = int(embedding.shape[1])
    return Bound(
        model=name,
        layers=layers,
        embedding=norm * scale,
        head=head_norm,
        largest_embedding=float(embedding.detach().float().norm(dim=1).max()) * scale,
        width=width,
        heads=heads,
        head_width=int(getattr(config, "head_dim", None) or width // heads),
        tolerance=tolerance,
    )
