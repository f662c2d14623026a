"""Questions packed into rows: nothing crosses between them, and each has the draw of its epoch."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from tests.training.test_finetune import ARCHITECTURES, ITEMS, PLAN, UNIFORM, VOCAB, data, tiny
from transformers import AutoConfig, AutoModelForCausalLM

from robustok.errors import RobustokError
from robustok.samplers import schedule
from robustok.training import AnswerCollator, finetune
from robustok.training.prompts import PackedPrompts, packed_batch
from robustok.training.run import dropout_of

LENGTH = 128


def packed(**options):
    return PackedPrompts(data(max_length=LENGTH, **options))


def questions_of(row):
    """Ids and labels of each question of a row."""
    begins = np.flatnonzero(row["position_ids"] == 0).tolist()
    spans = zip(begins, [*begins[1:], LENGTH], strict=True)
    parts = [(row["input_ids"][b:e], row["labels"][b:e]) for b, e in spans]
    return [(ids, labels) for ids, labels in parts if (labels >= 0).any()]


def test_a_row_holds_whole_questions_with_the_draws_of_their_epoch():
    dataset, epochs = data(max_length=LENGTH), {0: {}, 1: {}}
    for epoch, rows in epochs.items():
        dataset.set_epoch(epoch)
        for number in range(len(ITEMS)):
            row = dataset[number]
            rows[tuple(row["input_ids"].tolist())] = row["answer"]
    seen = []
    for row in islice(packed(), 200):
        assert row["input_ids"].shape == (LENGTH,)
        seen += questions_of(row)
    assert len(seen) > 2 * len(ITEMS)
    for epoch in (0, 1):
        part = seen[epoch * len(ITEMS) : (epoch + 1) * len(ITEMS)]
        for ids, labels in part[:-1]:
            answer = epochs[epoch][tuple(ids.tolist())]
            assert (labels[:-answer] == -100).all()
            assert labels[-answer:].tolist() == ids[-answer:].tolist()


def test_rows_are_nearly_full_and_do_not_depend_on_workers():
    rows = list(islice(packed(), 24))
    used = [sum(len(ids) for ids, _ in questions_of(row)) for row in rows]
    longest = max(len(ids) for row in rows for ids, _ in questions_of(row))
    assert min(used) > LENGTH - longest
    source = PackedPrompts(data(max_length=LENGTH), batch_size=4)
    for workers in (0, 2):
        loader = torch.utils.data.DataLoader(
            source, batch_size=4, collate_fn=packed_batch, num_workers=workers
        )
        for number, batch in enumerate(islice(loader, 4)):
            for one, row in zip(batch["input_ids"], rows[4 * number :], strict=False):
                assert one.tolist() == row["input_ids"].tolist()


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "gemma3_text"])
def test_questions_of_a_row_do_not_attend_to_each_other(kind):
    """The loss of packed rows is that of the same questions in rows of their own."""
    rows = list(islice(packed(), 3))
    alone = []
    for row in rows:
        for ids, labels in questions_of(row):
            alone.append({"input_ids": ids, "answer": int((labels >= 0).sum())})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **ARCHITECTURES[kind])
        model = AutoModelForCausalLM.from_config(config).eval()
    with torch.inference_mode():
        together = model(**packed_batch(rows), use_cache=False).loss.item()
        apart = model(**AnswerCollator(0, short_labels=False)(alone)).loss.item()
    assert together == pytest.approx(apart, rel=1e-4)


def test_training_on_packed_rows_learns_and_is_a_run_of_its_own(tmp_path):
    run = {"sampler": UNIFORM, "seed": 0, "out": tmp_path, **PLAN}
    done = finetune(tiny(), VOCAB, ITEMS, pack=LENGTH, **run)
    assert done.losses[-1][1] < 0.8 * done.losses[0][1]
    assert done.tokens == PLAN["steps"] * PLAN["batch_size"] * LENGTH
    with pytest.raises(RobustokError, match="pack = 128, not None"):
        finetune(tiny(), VOCAB, ITEMS, **run)


def test_a_schedule_moves_over_the_packed_rows():
    spec = "stochastok(alpha=0->3)"
    moving = data(max_length=LENGTH, total=60)
    moving.sampler = schedule(spec, VOCAB)
    lengths = [len(questions_of(row)) for row in islice(PackedPrompts(moving), 60)]
    assert np.mean(lengths[:15]) > 1.2 * np.mean(lengths[-15:])  # longer questions: fewer a row


def test_what_cannot_be_packed_is_one_line(tmp_path):
    for pack in (1, 257):
        with pytest.raises(RobustokError, match=f"pack is {pack}"):
            finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, pack=pack, **PLAN)
    none_fits = PackedPrompts(data(max_length=12, overflow="drop"))
    with pytest.raises(RobustokError, match="no question fits into a row of 12 tokens"):
        next(iter(none_fits))


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "gemma3_text"])
def test_dropout_is_on_in_training_only_and_gone_afterwards(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **ARCHITECTURES[kind]))
    ids = torch.arange(40)[None]

    def same() -> bool:
        with torch.no_grad():
            return torch.equal(model(ids).logits, model(ids).logits)

    model.train()
    with dropout_of(model, 0.0):
        assert same()
    with dropout_of(model, 0.1):
        assert not same()
        model.eval()
        assert same()
        model.train()
    with dropout_of(model, 0.0):
        assert same()
    before = model.eval()(ids).logits
    with dropout_of(model, 0.5):
        assert torch.equal(model(ids).logits, before)


def test_dropout_of_a_recipe_changes_the_training(tmp_path, straight):
    losses = [
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path / str(share),
                 dropout=share, **PLAN).losses
        for share in (0.0, 0.1)
    ]  # fmt: skip
    assert straight[0].losses == losses[0] != losses[1]
    with pytest.raises(RobustokError, match="dropout is 1"):
        finetune(tiny(), VOCAB, ITEMS, sampler=UNIFORM, seed=0, out=tmp_path, dropout=1, **PLAN)
