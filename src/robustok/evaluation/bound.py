"""The paper's robustness bound from a model's weights, and the measured changes that it bounds.

Assumptions of the bound, which limit what it says of a model in use:

- *One layer.* The theorem is about a 1-layer Transformer. ``log10_gamma(layer=ℓ)`` reads layer ℓ
  as such a model; without ``layer`` the layers' factors are multiplied, which is our composition.
- *1-Lipschitz activations.* SiLU and GELU have slopes up to 1.10 and 1.13. A gated block
  multiplies two linear maps, so it has no Lipschitz constant at all on unbounded inputs; ‖W_FFN‖
  is read as the product of its three norms, which is its order on inputs of norm 1.
- *Bounded embeddings* (in [0, 1]). ``largest_embedding`` is the greatest norm of a token's
  embedding, for comparison. Deeper layers' inputs are not bounded by anything here.
- *Normalization.* The factor (d/(d−1))² stands for layer norms. It leaves out their learned gains,
  the division by a small norm, position embeddings and query norms.
- *Substitutions.* ‖H(s₁) − H(s₂)‖ ≤ √(2k) counts k columns that differ where they stand. A split
  moves every later token one place on, so two tokenizations at distance k in fact differ in more
  columns, and in length.

So the measured ratio may exceed the bound in principle, and is far below it in practice. As in the
paper, it compares models of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.pytorch_utils import Conv1D

from robustok.checks import check_ids, check_integer
from robustok.errors import RobustokError
from robustok.evaluation.embeddings import check_states, last_logits, last_states
from robustok.evaluation.questions import check_questions, item_keys
from robustok.lattice import distance
from robustok.models.load import check_local
from robustok.models.scored import Ids
from robustok.ragged import Ragged
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.files import JsonObject
from robustok.samplers import Sampler
from robustok.samplers import sampler as as_sampler
from robustok.tasks import Item
from robustok.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class LayerNorms:
    """‖·‖₂ of one layer's matrices; of query, key and value one per attention head.

    A head that shares keys and values has the norms of its group. ``feed_forward`` is the product
    of the norms of the block's matrices: two, or three if it is gated.
    """

    query: tuple[float, ...]
    key: tuple[float, ...]
    value: tuple[float, ...]
    output: float
    feed_forward: float


def spectral_norm(matrix: torch.Tensor) -> torch.Tensor:
    """The largest singular value of a matrix [..., m, n]: float64 [...], right to six digits.

    It is the root of the largest eigenvalue of AᵀA, which is small for a long matrix, such as an
    embedding; singular values would need the whole matrix.
    """
    tall = matrix.detach().float()
    if not bool(torch.isfinite(tall).all()):
        raise RobustokError("a weight matrix holds numbers that are not finite: is it trained?")
    if tall.shape[-2] < tall.shape[-1]:
        tall = tall.mT
    products = tall.mT @ tall
    if not bool(torch.isfinite(products).all()):
        raise RobustokError("the products of a weight matrix overflow: check the weights")
    return torch.linalg.eigvalsh(products.double())[..., -1].clamp(min=0).sqrt()


def _layer_norms(model: PreTrainedModel, block: object) -> LayerNorms:
    """The norms of one layer; its matrices have the names of transformers."""
    attention: Any = getattr(block, "self_attn", getattr(block, "attn", None))
    mlp: Any = getattr(block, "mlp", None)
    if hasattr(attention, "q_proj") and hasattr(attention, "o_proj"):
        projections = [_matrix(getattr(attention, f"{n}_proj")) for n in "qkv"]
        output = _matrix(attention.o_proj)
    elif isinstance(getattr(attention, "c_attn", None), Conv1D):  # others order the rows otherwise
        projections = _matrix(attention.c_attn).chunk(3)
        output = _matrix(attention.c_proj)
    else:
        raise _unknown(model)
    if hasattr(mlp, "gate_proj"):
        feed_forward = [_matrix(m) for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)]
    elif hasattr(mlp, "c_fc"):
        feed_forward = [_matrix(mlp.c_fc), _matrix(mlp.c_proj)]
    else:
        raise _unknown(model)
    width = len(projections[0]) // int(model.config.get_text_config().num_attention_heads)
    query, key, value = (spectral_norm(stack.unflatten(0, (-1, width))) for stack in projections)
    group_size = len(query) // len(key)
    return LayerNorms(
        query=tuple(query.tolist()),
        key=tuple(key.repeat_interleave(group_size).tolist()),
        value=tuple(value.repeat_interleave(group_size).tolist()),
        output=float(spectral_norm(output)),
        feed_forward=prod(float(spectral_norm(m)) for m in feed_forward),
    )


def _matrix(layer: torch.nn.Module) -> torch.Tensor:
    """The matrix of a linear layer, [outputs, inputs]."""
    if type(layer) is torch.nn.Linear:
        return layer.weight
    if type(layer) is Conv1D:
        return layer.weight.T
    raise RobustokError(
        f"the model has a layer {type(layer).__name__}, whose matrix is not its weight alone, as "
        "with LoRA or in a quantized model: merge the adapter, or load the model without quantizing"
    )


def _unknown(model: PreTrainedModel) -> RobustokError:
    return RobustokError(
        f"a {type(model).__name__} keeps its weights under other names: the bound is read from "
        "Llama-like models (q_proj … down_proj) and GPT-2"
    )


@dataclass(frozen=True)
class Bound:
    """The norms of a model's matrices, and the bound that they give.

    >>> from robustok.evaluation import lipschitz_bound
    >>> bound = lipschitz_bound(model)
    >>> len(bound.layers), bound.width, bound.heads
    (3, 128, 4)

    Args:
        layers: norms of the matrices of each layer.
        embedding: ‖W‖, the norm of the embedding.
        head: ‖W_out‖, the norm of the output layer.
        largest_embedding: greatest Euclidean norm of one token's embedding, for comparison only.
        width: d, the size of a hidden state.
        heads: H, the number of attention heads.
        head_width: size of one head's queries.

    Norms are spectral. The two readings differ in C₁ alone: the appendix's proof has a factor n,
    the number of tokens, that the theorem does not have.
    """

    layers: tuple[LayerNorms, ...]
    embedding: float
    head: float
    largest_embedding: float
    width: int
    heads: int
    head_width: int

    def c1(self, layer: int, *, tokens: int | None = None) -> float:
        """C₁ = 1 + ‖W_O‖ √H max_h ‖W^V,h‖ (4·n/√(d/H) ‖W^Q,h‖ ‖W^K,h‖ + 1) of ``layer``, from 0.

        ``tokens`` is n of the proof, the number of tokens of the text, at least 1; by default the
        theorem's reading, where n is 1. √(d/H) is the square root of the width of a head.
        """
        n = 1 if tokens is None else check_integer("tokens", tokens, 1)
        norms = self.layers[layer]
        largest = max(
            v * (4 * n / sqrt(self.head_width) * q * k + 1)
            for q, k, v in zip(norms.query, norms.key, norms.value, strict=True)
        )
        return 1 + norms.output * sqrt(self.heads) * largest

    def c2(self, layer: int) -> float:
        """C₂ = (1 + ‖W_FFN‖) ‖W_out‖, with the feed-forward block of ``layer``, from 0."""
        return (1 + self.layers[layer].feed_forward) * self.head

    def log10_gamma(
        self, distance: int = 1, *, tokens: int | None = None, layer: int | None = None
    ) -> float:
        """log₁₀ of γ = √2 ‖W‖ (d/(d−1))² C₁ C₂ √k at a distance k; a logarithm, since it is huge.

        >>> bound = lipschitz_bound(model)
        >>> bound.log10_gamma(2, layer=0) < bound.log10_gamma(2)
        True

        Args:
            distance: k, the distance of the tokenizations, at least 1.
            tokens: n of the proof, as in :meth:`c1`.
            layer: index of the layer, from 0, to read as the theorem's one-layer model. By default
                the factors (d/(d−1))² C₁ (1 + ‖W_FFN‖) of all layers are multiplied.

        Raises RobustokError for a distance or a number of tokens below 1.
        """
        if distance < 1:
            raise RobustokError(f"distance={distance}: the bound is about a distance from 1 on")
        normalization = (self.width / (self.width - 1)) ** 2
        factors = [
            normalization * self.c1(i, tokens=tokens) * (1 + self.layers[i].feed_forward)
            for i in (range(len(self.layers)) if layer is None else [layer])
        ]
        start = log10(sqrt(2 * distance) * self.embedding)
        return start + sum(map(log10, factors)) + log10(self.head)

    def table(self, distance: int = 1, *, tokens: int | None = None) -> list[JsonObject]:
        """A row for each layer and one for the whole model: C₁, C₂ and log₁₀ γ by reading.

        ``distance`` and ``tokens`` are those of :meth:`log10_gamma`; without ``tokens`` there are
        no columns for the proof's reading. The row of the whole model has no C₁ and C₂.
        """
        readings = {"theorem": None} | ({"proof": tokens} if tokens else {})
        rows: list[JsonObject] = []
        for layer in [*range(len(self.layers)), None]:
            row: JsonObject = {"layer": "whole" if layer is None else layer + 1}
            row["c2"] = None if layer is None else self.c2(layer)
            for reading, n in readings.items():
                row[f"c1_{reading}"] = None if layer is None else self.c1(layer, tokens=n)
                row[f"log10_gamma_{reading}"] = self.log10_gamma(distance, layer=layer, tokens=n)
            rows.append(row)
        return rows


def lipschitz_bound(model: Any, *, progress: Progress = no_progress) -> Bound:
    """Compute the bound from a causal language model's weights.

    >>> bound = lipschitz_bound(model)
    >>> bound.log10_gamma(2) > bound.log10_gamma(1)
    True

    Args:
        model: a Llama-like model or a GPT-2 of transformers.
        progress: called with (steps done, all steps): a step for each layer, and one for the
            embedding with the head.

    The head of this module lists what the bound leaves out. Raises RobustokError for a model whose
    matrices are not found.
    Source: the paper's theorem on the upper bound and its proof in the appendix.
    """
    check_local(model, "the bound needs")
    if model.get_output_embeddings() is None:
        raise RobustokError("the model has no output head: give a causal language model")

    blocks = getattr(model.base_model, "layers", getattr(model.base_model, "h", None))
    if blocks is None or not len(blocks):
        raise _unknown(model)
    layers = []
    for block in blocks:
        layers.append(_layer_norms(model, block))
        progress(len(layers), len(blocks) + 1)
    config = model.config.get_text_config()
    table, head = model.get_input_embeddings(), _matrix(model.get_output_embeddings())
    embedding = table.weight
    scale = float(getattr(table, "embed_scale", 1.0))  # Gemma's
    norm = float(spectral_norm(embedding))
    head_norm = norm if head is embedding else float(spectral_norm(head))
    progress(len(blocks) + 1, len(blocks) + 1)
    heads = int(config.num_attention_heads)
    width = int(embedding.shape[1])
    return Bound(
        layers=tuple(layers),
        embedding=norm * scale,
        head=head_norm,
        largest_embedding=float(embedding.detach().float().norm(dim=1).max()) * scale,
        width=width,
        heads=heads,
        head_width=int(getattr(config, "head_dim", None) or width // heads),
    )


@dataclass(frozen=True, eq=False)
class Ratios:
    """Empirical Lipschitz ratios ‖f(u) − f(v)‖ / √d(v, u), v canonical, at the last token.

    >>> result = lipschitz_ratios(model, vocab, items, draws=4, seed=0)
    >>> result.longest, result.items
    (30, 8)

    Args:
        sampled: ratios of drawn tokenizations, float64 [pairs, layers + 2]: after the embedding,
            after each layer, and the logits. A pair is a question and one other tokenization of it.
        adversarial: ratios of attacked tokenizations, float64 [pairs, layers + 2].
        longest: greatest number of tokens of a tokenization.
        items: number of items.
        draws: draws of each item.
        eval_scheme: spec of the scheme that drew the tokenizations.
        seed: seed of the draws and the attack.

    Like ``bound.log10_gamma(1)``, they are per square root of a distance.
    """

    sampled: np.ndarray
    adversarial: np.ndarray
    longest: int
    items: int
    draws: int
    eval_scheme: str
    seed: int

    def table(self) -> list[JsonObject]:
        """One plain dictionary per kind and depth: mean, 95th percentile and maximum."""
        return [
            {
                "kind": kind,
                "depth": depth,
                "pairs": len(column),
                "mean": float(column.mean()),
                "p95": float(np.quantile(column, 0.95)),
                "max": float(column.max()),
                "eval_scheme": self.eval_scheme,
                "seed": self.seed,
            }
            for kind, values in (("sampled", self.sampled), ("adversarial", self.adversarial))
            if len(values)
            for depth, column in enumerate(values.T)
        ]


def lipschitz_ratios(
    model: PreTrainedModel,
    vocab: Vocabulary,
    items: Sequence[Item],
    *,
    sampler: str | Sampler = "uniform",
    draws: int = 10,
    seed: int,
    attacked: Sequence[Ids] = (),
    progress: Progress = no_progress,
) -> Ratios:
    """Measure the ratio over drawn tokenizations of each item's question, and over attacked ones.

    >>> from robustok.attack import attack_items
    >>> attacks = attack_items(model, vocab, items, seed=0).attacks
    >>> attacked = [attack.ids for attack in attacks]
    >>> result = lipschitz_ratios(model, vocab, items, draws=4, attacked=attacked, seed=0)
    >>> result.sampled.shape, result.adversarial.shape
    ((31, 5), (4, 5))

    Args:
        items: the questions, each with its own key and none empty.
        sampler: a spec or a sampler. Draws that are the canonical tokenization are left out.
        attacked: an attacked tokenization of each question, in the order of the items, such as
            those of :func:`robustok.attack.attack_items`; by default none.

    ``model``, ``vocab``, ``draws``, ``seed`` and ``progress`` are as in
    :func:`~robustok.evaluation.evaluate`. A question is read alone: without a start token, a prompt
    around it or its options. Raises RobustokError without items or draws, and where no tokenization
    differs.
    """
    check_questions(items)
    if len(attacked) not in (0, len(items)):
        raise RobustokError(f"{len(attacked)} attacks for {len(items)} items: give one for each")
    check_integer("draws", draws, 1)
    sampler = as_sampler(sampler, vocab)
    keys = item_keys(item.key for item in items)
    samples = sampler.sample_batch([i.question for i in items], seed=seed, draws=draws, keys=keys)
    sampled_rows: list[np.ndarray] = []
    attacked_rows: list[np.ndarray] = []
    longest = 0
    for i, item in enumerate(items):
        others = [*samples[i * draws : (i + 1) * draws], *attacked[i : i + 1]]
        rows = [check_ids(ids) for ids in (vocab.encode(item.question), *others)]
        longest = max(longest, *map(len, rows))
        ratios = _ratios(model, vocab, rows, f"item '{item.key}'")
        sampled_rows += [r for r in ratios[:draws] if r is not None]
        attacked_rows += [r for r in ratios[draws:] if r is not None]
        progress(i + 1, len(items))
    if not sampled_rows and not attacked_rows:
        raise RobustokError(f"{sampler.spec} changed no tokenization: choose a stronger scheme")
    depth = len((sampled_rows or attacked_rows)[0])
    return Ratios(
        sampled=np.array(sampled_rows).reshape(-1, depth),
        adversarial=np.array(attacked_rows).reshape(-1, depth),
        longest=longest,
        items=len(items),
        draws=draws,
        eval_scheme=sampler.spec,
        seed=seed,
    )


def _ratios(
    model: Any, vocab: Vocabulary, rows: list[np.ndarray], name: str
) -> list[np.ndarray | None]:
    """The ratio of every row to the first, [layers + 2] each; None for an equal row."""
    distances = [distance(vocab, rows[0], row) for row in rows[1:]]
    states = last_states(model, Ragged.from_rows(rows))
    logits = last_logits(model, Ragged.from_rows(rows))
    for values in (states, logits):
        check_states(values, name)
    norms = [np.linalg.norm(s[1:] - s[:1], axis=-1) for s in [*states, logits]]
    changes = np.stack(norms, axis=1).astype(np.float64)
    return [c / np.sqrt(d) if d else None for c, d in zip(changes, distances, strict=True)]
