"""Distances between the tokenizations of a word by layer: seeds merged, and the figure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from robustok.normal import Z95
from robustok.report.comparison import interval
from robustok.report.table import Row


def merged_layers(rows: Sequence[Row]) -> list[Row]:
    """One row for each model, sentence and layer, with a 95% interval over seeds and words.

    >>> layer = {"model": "canonical", "sentence": "", "layer": 0, "low": 0.3, "high": 0.5,
    ...          "words": 9, "mean": 0.4}
    >>> rows = merged_layers([{"layers": [layer]}])
    >>> rows[0]["mean"], rows[0]["seeds"]
    (0.4, 1)

    Args:
        rows: rows of results.jsonl; those with `layers` count. The number of a repeat at the end of
            a model's name, as in `canonical #1`, is left out.

    Every seed has the same words, so more seeds do not shrink the part of the words.
    """
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in {row.get("cell") or id(row): row for row in rows}.values():
        for layer in row.get("layers", ()):
            model = re.sub(r" #\d+$", "", layer["model"])
            key = (model, layer.get("sentence", ""), layer["layer"])
            groups.setdefault(key, []).append(layer)
    return [
        _one(layers) | {"model": model, "sentence": sentence, "layer": number}
        for (model, sentence, number), layers in groups.items()
    ]


def _one(layers: Sequence[Row]) -> Row:
    shared = {name: layers[0].get(name) for name in ("words", "draws")}
    means = [layer["mean"] for layer in layers]
    mean = math.fsum(means) / len(means)
    if len(layers) == 1:
        return shared | {"mean": mean, "low": layers[0]["low"], "high": layers[0]["high"],
                         "seeds": 1}  # fmt: skip
    variances = [((layer["high"] - layer["low"]) / 2 / Z95) ** 2 for layer in layers]
    words = math.fsum(variances) / len(variances)
    seeds = float(np.var(means, ddof=1)) / len(means)
    parts = [(seeds, len(means) - 1), (words, max(layers[0].get("words", 2) - 1, 1))]
    low, high, _ = interval(mean, parts)
    return shared | {"mean": mean, "low": max(low, 0.0), "high": high, "seeds": len(layers)}


def draw_layers(rows: Sequence[Row], folder: Path) -> dict[str, dict[str, str]]:
    """Write the figure of all layers; returns its SVG text, or nothing without layers."""
    layers = merged_layers(rows)
    if not layers:
        return {}
    from robustok.report.model_figures import draw_embeddings

    draw_embeddings(layers, folder / "embeddings")
    text = (folder / "embeddings.svg").read_text(encoding="utf-8")
    return {"embeddings": {"wide": text, "narrow": text}}
