"""Hidden states of last tokens, and the ratios measured from them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from tests.evaluation.conftest import draws_of
from tests.oracles.lattice import distance
from tests.oracles.models import ARCHITECTURES, FALLBACKS, tiny_model
from tests.oracles.scoring import outputs_naively

from robustok import Ragged, RobustokError
from robustok.attack import attack_items
from robustok.evaluation import embeddings, lipschitz_ratios
from robustok.evaluation.embeddings import last_states


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FALLBACKS, "longrope"])
@pytest.mark.parametrize("prefix", [None, [*range(40, 47)], [*range(40, 78)]])
@pytest.mark.filterwarnings("ignore")  # mamba's, about kernels that are not installed
def test_states_are_those_of_one_sequence_at_a_time(
    name: str, prefix: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "default_max_batch_tokens", lambda model: 32)
    model = tiny_model(name)
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 9, rng.integers(1, 9)).tolist() for _ in range(40)]
    result = last_states(model, Ragged.from_rows(rows), prefix=prefix)
    for i, row in enumerate(rows):
        wanted = np.stack(outputs_naively(model, [*(prefix or []), *row])[:-1])
        assert np.abs(result[:, i] - wanted).max() < 1e-4 * max(1, np.abs(wanted).max())


def test_ids_that_the_model_does_not_know_and_empty_rows_are_errors() -> None:
    model = tiny_model("llama")
    for rows, message in (([[1], []], "at least one id"), ([], "at least one"), ([[120]], "own")):
        with pytest.raises(RobustokError, match=message):
            last_states(model, Ragged.from_rows(rows))


def test_ratios_are_changes_over_the_root_of_the_distance(model, vocab, items) -> None:
    items = items[:3]
    seen: list[tuple[int, int]] = []
    attacks = attack_items(model, vocab, items, seed=5).attacks
    result = lipschitz_ratios(
        model, vocab, items, draws=4, seed=5, attacked=[attack.ids for attack in attacks],
        progress=lambda d, t: seen.append((d, t)),
    )  # fmt: skip
    wanted: dict[str, list[list[float]]] = {"sampled": [], "adversarial": []}
    for item, attack in zip(items, attacks, strict=True):
        canonical = vocab.encode(item.question).tolist()
        base = outputs_naively(model, canonical)
        drawn = draws_of(vocab, item, 4, 5)
        for kind, rows in (("sampled", drawn), ("adversarial", [attack.ids])):
            for row in rows:
                apart = distance(vocab, tuple(canonical), tuple(row.tolist()))
                moved = zip(outputs_naively(model, row), base, strict=True)
                if apart:
                    wanted[kind].append([np.linalg.norm(a - b) / apart**0.5 for a, b in moved])
    assert result.sampled == pytest.approx(np.array(wanted["sampled"]), abs=1e-4)
    assert result.adversarial == pytest.approx(np.array(wanted["adversarial"]), abs=1e-4)
    assert result.sampled.shape[1] == model.config.num_hidden_layers + 2
    assert seen[-1] == (3, 3) and [d for d, _ in seen] == sorted(d for d, _ in seen)
    rows = result.table()
    assert {row["kind"] for row in rows} == {"sampled", "adversarial"}
    assert rows[-1]["max"] == result.adversarial[:, -1].max()
    assert pickle.loads(pickle.dumps(result)).longest == result.longest


def test_a_scheme_that_changes_nothing_is_an_error(model, vocab, items) -> None:
    with pytest.raises(RobustokError, match="stronger"):
        lipschitz_ratios(model, vocab, items[:2], sampler="canonical", seed=0)
    with pytest.raises(RobustokError, match="1 attacks for 2 items"):
        lipschitz_ratios(model, vocab, items[:2], attacked=[[5]], seed=0)
    with pytest.raises(RobustokError, match="1 or more"):
        lipschitz_ratios(model, vocab, items[:2], draws=0, seed=0)
