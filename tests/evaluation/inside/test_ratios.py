"""Measured ratios against one forward pass a tokenization, and under the bound."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tests.oracles.lattice import distance

from robustok import RobustokError, sampler
from robustok.evaluation import attack_items, lipschitz_ratios
from robustok.evaluation.questions import item_key


def outputs(model: Any, ids: list[int]) -> list[np.ndarray]:
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return [t[0, -1].double().numpy() for t in (*output.hidden_states, output.logits)]


def test_ratios_are_changes_over_the_root_of_the_distance(model, vocab, items) -> None:
    items = items[:3]
    seen: list[tuple[int, int]] = []
    result = lipschitz_ratios(
        model, vocab, items, draws=4, seed=5, progress=lambda d, t: seen.append((d, t))
    )
    attacked = attack_items(model, vocab, items, seed=5).attacks
    wanted: dict[str, list[list[float]]] = {"sampled": [], "adversarial": []}
    for item, attack in zip(items, attacked, strict=True):
        canonical = vocab.encode(item.question).tolist()
        keys = [item_key(item.key)]
        drawn = sampler("uniform", vocab).sample_batch([item.question], seed=5, draws=4, keys=keys)
        base = outputs(model, canonical)
        for kind, rows in (("sampled", list(drawn)), ("adversarial", [attack.ids])):
            for row in rows:
                apart = distance(vocab, tuple(canonical), tuple(row.tolist()))
                moved = zip(outputs(model, row.tolist()), base, strict=True)
                if apart:
                    wanted[kind].append([np.linalg.norm(a - b) / apart**0.5 for a, b in moved])
    assert result.sampled == pytest.approx(np.array(wanted["sampled"]), abs=1e-4)
    assert result.adversarial == pytest.approx(np.array(wanted["adversarial"]), abs=1e-4)
    assert result.sampled.shape[1] == model.config.num_hidden_layers + 2
    assert seen[-1] == (6, 6) and [d for d, _ in seen] == sorted(d for d, _ in seen)
    rows = result.table()
    assert {row["kind"] for row in rows} == {"sampled", "adversarial"}
    assert rows[-1]["max"] == result.adversarial[:, -1].max()
    assert pickle.loads(pickle.dumps(result)).longest == result.longest


def test_a_scheme_that_changes_nothing_is_an_error(model, vocab, items) -> None:
    with pytest.raises(RobustokError, match="stronger"):
        lipschitz_ratios(model, vocab, items[:2], sampler="canonical", seed=0, adversarial=False)
    with pytest.raises(RobustokError, match="at least 1"):
        lipschitz_ratios(model, vocab, items[:2], draws=0, seed=0)
