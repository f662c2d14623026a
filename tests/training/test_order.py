"""Training rows: their order, and schedules that move with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.training.test_finetune import ITEMS, PLAN, VOCAB, tiny

import robustok as rt
from robustok.errors import RobustokError
from robustok.training import PackedStream, PromptDataset, finetune

SCHEMES = ["canonical", "uniform-k(alpha=1)", "uniform"]
MOVING = rt.schedule("stochastok(alpha=0->2)", VOCAB)


def data(scheme: str, batch_size: int, seed: int = 0) -> PromptDataset:
    return PromptDataset(VOCAB, ITEMS, rt.sampler(scheme, VOCAB), seed=seed, batch_size=batch_size)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("batch", [1, 7, 16, 100, 1000])
def test_every_row_comes_once_in_an_epoch_and_its_number_holds_its_place(
    scheme: str, batch: int
) -> None:
    dataset = data(scheme, batch)
    places, rows = np.divmod(list(dataset.order()), len(ITEMS))
    assert places.tolist() == list(range(len(ITEMS)))
    assert sorted(rows) == list(range(len(ITEMS)))


def test_seed_and_epoch_alone_decide_the_order() -> None:
    dataset = data("uniform", 16)
    first = list(dataset.order())
    dataset.set_epoch(1)
    second = list(dataset.order())
    dataset.set_epoch(0)
    assert list(dataset.order()) == first == list(data("uniform", 16).order())
    assert first != second
    assert first != list(data("uniform", 16, seed=1).order())


def growth(row: dict[str, np.ndarray], index: int) -> float:
    """Tokens of a drawn prompt for one of its canonical ones."""
    length = len(row["input_ids"]) - int(row["answer"])
    return length / len(VOCAB.encode(ITEMS[index].question))


def test_the_strength_rises_with_the_row_and_starts_canonical() -> None:
    rows = len(ITEMS)
    data = PromptDataset(VOCAB, ITEMS, MOVING, seed=0, total=2 * rows)
    order = data.order()
    means = []
    for epoch in (0, 1):
        data.set_epoch(epoch)
        numbers = list(order)
        assert sorted(n % rows for n in numbers) == list(range(rows))
        ratios = [growth(data[n], n % rows) for n in numbers]
        means += [np.mean(part) for part in np.array_split(ratios, 3)]
    assert means[0] < 1.2
    assert all(later > earlier for earlier, later in pairwise(means))


def test_a_schedule_of_one_strength_is_its_sampler() -> None:
    data = PromptDataset(VOCAB, ITEMS, rt.schedule("uniform", VOCAB), seed=0)
    plain = PromptDataset(VOCAB, ITEMS, rt.sampler("uniform", VOCAB), seed=0)
    assert data[3]["input_ids"].tolist() == plain[3]["input_ids"].tolist()


def test_without_an_end_a_schedule_is_refused() -> None:
    with pytest.raises(RobustokError, match="over how many rows"):
        PromptDataset(VOCAB, ITEMS, MOVING, seed=0)


def test_a_stream_moves_too() -> None:
    texts = VOCAB.encode_batch([item.question for item in ITEMS] * 40)
    stream = PackedStream(texts, MOVING, seed=0, block_size=64, end=0, total=4000)
    blocks = [row["input_ids"] for row, _ in zip(stream, range(4000), strict=False)]
    size = [sum(len(VOCAB.tokens[i]) for i in block.tolist()) for block in blocks]
    assert np.mean(size[:500]) > 1.3 * np.mean(size[-500:])  # bytes in 64 tokens: fewer when split


def test_worker_processes_and_a_stop_change_nothing(tmp_path) -> None:
    def stop(step: int, total: int) -> None:
        if step == 30:
            raise KeyboardInterrupt

    whole = finetune(tiny(), VOCAB, ITEMS, sampler=MOVING, seed=0, out=tmp_path / "a", **PLAN)
    with pytest.raises(KeyboardInterrupt):
        finetune(
            tiny(), VOCAB, ITEMS, sampler=MOVING, seed=0, out=tmp_path / "b", progress=stop, **PLAN
        )
    parts = finetune(
        tiny(), VOCAB, ITEMS, sampler=MOVING, seed=0, out=tmp_path / "b", workers=2, **PLAN
    )
    assert parts.losses == whole.losses
    assert parts.tokens == whole.tokens
