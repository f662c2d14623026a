"""Distances between the tokenizations of a word by layer: seeds merged, and the figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from robustok.report.comparison import mean_over_seeds
from robustok.report.merge import distinct
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
    for row in distinct(rows):
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
    if len(layers) == 1:
        return shared | {name: layers[0][name] for name in ("mean", "low", "high")} | {"seeds": 1}
    mean, low, high = mean_over_seeds(layers, "mean", layers[0].get("words", 2))
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
