"""Last-token states in packed trees and batches, against one forward pass a sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.oracles.models import ARCHITECTURES, FALLBACKS, tiny_model

from robustok import Ragged, RobustokError
from robustok.evaluation.inside.states import last_states


@pytest.mark.parametrize("name", [*ARCHITECTURES, *FALLBACKS])
@pytest.mark.parametrize("prefix", [None, [40, 41, 42, 43, 44, 45, 46]])
@pytest.mark.filterwarnings("ignore")  # mamba's, about kernels that are not installed
def test_states_are_those_of_one_sequence_at_a_time(name: str, prefix: list[int] | None) -> None:
    model = tiny_model(name)
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 9, rng.integers(1, 9)).tolist() for _ in range(40)]
    result = last_states(model, Ragged.from_rows(rows), prefix=prefix, max_batch_tokens=32)
    for i, row in enumerate(rows):
        with torch.no_grad():
            ids = torch.tensor([[*(prefix or []), *row]])
            states = model(input_ids=ids, output_hidden_states=True).hidden_states
        wanted = np.stack([s[0, -1].numpy() for s in states])
        assert np.abs(result[:, i] - wanted).max() < 1e-4 * max(1, np.abs(wanted).max())


def test_ids_that_the_model_does_not_know_and_empty_rows_are_errors() -> None:
    model = tiny_model("llama")
    for rows, message in (([[1], []], "at least one id"), ([], "at least one"), ([[120]], "own")):
        with pytest.raises(RobustokError, match=message):
            last_states(model, Ragged.from_rows(rows))
