"""Training rows: draws, order, schedules, overflow, padding, and questions packed into rows."""

from itertools import islice, pairwise

import numpy as np
import pytest
import torch
from tests.training.conftest import ARCHITECTURES, ITEMS, VOCAB, architecture, data, tiny

import robustok as rt
from robustok.attack import Adversary
from robustok.errors import RobustokError
from robustok.tasks import Item
from robustok.training.rows import (
    AnswerCollator,
    PackedPrompts,
    PackedStream,
    PromptDataset,
    RowOrder,
    stack_rows,
)
from robustok.training.trainings import accepts

LENGTH = 128
MOVING = rt.schedule("stochastok(alpha=0->2)", VOCAB)


def test_a_row_is_the_perturbed_prompt_and_the_canonical_answer():
    rows = data().__getitems__(range(len(ITEMS)))
    lengths = VOCAB.encode_batch([i.question for i in ITEMS]).lengths
    for row, item in zip(rows, ITEMS, strict=True):
        split = len(row["input_ids"]) - row["answer"]
        assert VOCAB.decode_bytes(row["input_ids"][:split]) == item.question.encode()
        assert row["input_ids"][split:].tolist() == VOCAB.encode(item.answer).tolist()
    assert np.mean([len(r["input_ids"]) for r in rows]) > 1.5 * lengths.mean()


def in_epoch(dataset, epoch, row):
    return dataset[epoch * len(dataset) ** 2 + row]


def test_epochs_differ_a_seed_repeats_and_batches_do_not_matter():
    dataset = data()
    first = [r["input_ids"].tolist() for r in dataset.__getitems__([3, 5, 7])]
    second = [in_epoch(dataset, 1, i)["input_ids"].tolist() for i in (3, 5, 7)]
    assert [dataset[i]["input_ids"].tolist() for i in (3, 5, 7)] == first != second
    last, rows = len(ITEMS) - 1, len(ITEMS)
    both = dataset.__getitems__([last * rows + 3, rows * rows + 5])  # of two epochs
    assert [row["input_ids"].tolist() for row in both] == [first[0], second[1]]


def test_seed_and_epoch_alone_decide_the_order_and_every_row_comes_once():
    n, count = len(ITEMS), 2 * len(ITEMS) + 7
    order = list(RowOrder(data(), count))
    places, rows = np.divmod(order, n)
    assert len(order) == len(RowOrder(data(), count)) == count
    assert places.tolist() == list(range(count))
    first, second = rows[:n].tolist(), rows[n : 2 * n].tolist()
    assert sorted(first) == sorted(second) == list(range(n))
    assert first != second
    assert order == list(RowOrder(data("canonical", batch_size=7), count))
    assert order[:n] == list(RowOrder(data(), n)) != list(RowOrder(data(seed=1), n))


def test_fixed_draws_come_back_in_turn():
    anew, fixed = data(), data(fixed_draws=2)
    rows = []
    for epoch in range(4):
        rows.append(in_epoch(fixed, epoch, 3)["input_ids"].tolist())
        if epoch < 2:
            assert rows[-1] == in_epoch(anew, epoch, 3)["input_ids"].tolist()
    assert rows[0] == rows[2] != rows[1] == rows[3]


def test_a_prefix_stands_before_every_prompt_and_counts_as_length():
    plain, begun = data(), data(prefix=[5])
    assert begun[2]["input_ids"].tolist() == [5, *plain[2]["input_ids"].tolist()]
    length = len(plain[2]["input_ids"])
    cut = data(prefix=[5], max_length=length, overflow="left")
    assert len(cut[2]["input_ids"]) == length
    assert cut[2]["input_ids"][0] == 5


def test_a_prompt_after_ordinary_ids_continues_their_text():
    """As an evaluation and an attack read it: a token across the end of the prefix is one token."""
    word = next(t.decode() for t in VOCAB.tokens if t[1:].isalpha() and t[:1] == b" " and t[3:])
    prefix, item = VOCAB.encode(f"I{word[:2]}"), Item("a", f"{word[2:]}?", (" up", " down"), 0)
    joint = [*VOCAB.encode(f"I{word}?"), *VOCAB.encode(item.answer)]
    assert joint[: len(prefix)] != prefix.tolist()
    options = {"items": [item], "prefix": prefix.tolist(), "max_length": len(joint)}
    assert data("canonical", **options)[0]["input_ids"].tolist() == joint
    adversary = Adversary(tiny(), VOCAB, [item], every=1, max_scored=4, prefix=prefix)
    (attacked,) = data("canonical", **options | {"max_length": 99}).attacked([0], adversary)
    assert VOCAB.decode(attacked["input_ids"]) == f"I{word}? up"


def test_overflow_is_explicit():
    max_length = int(VOCAB.encode_batch([i.question for i in ITEMS]).lengths.max()) + 3
    with pytest.raises(RobustokError, match="choose overflow"):
        data(max_length=max_length).__getitems__(range(50))
    for policy in ("drop", "left", "canonical"):
        dataset = data(max_length=max_length, overflow=policy)
        rows = dataset.__getitems__(range(50))
        assert any(row["overflowed"] for row in rows)
        assert all(len(r["input_ids"]) <= max_length for r in rows)
        empty = sum(r["answer"] == 0 for r in rows)
        assert (empty > 0) == (policy == "drop")
        labels = AnswerCollator(pad_id=0)(rows)["labels"]
        assert int((labels != -100).any(dim=1).sum()) == 50 - empty


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_padding_and_short_labels_leave_the_loss_as_it_is(kind, short):
    rows, model = data().__getitems__([0, 1, 2, 3]), architecture(kind)
    short = short and accepts(model, "logits_to_keep")
    collate = AnswerCollator(0, short_labels=short, positions=accepts(model, "position_ids"))
    with torch.inference_mode():
        loss = model(**collate(rows)).loss.item()
        alone, count = 0.0, 0
        for row in rows:
            ids = torch.from_numpy(row["input_ids"])[None]
            log_probs = model(ids).logits[0].log_softmax(-1)
            for position in range(ids.shape[1] - row["answer"], ids.shape[1]):
                alone -= log_probs[position - 1, ids[0, position]].item()
                count += 1
    assert loss == pytest.approx(alone / count, rel=1e-4)


def data_of(sampler, **options):
    return PromptDataset(VOCAB, ITEMS, sampler, seed=0, **options)


def growth(row, index):
    """Tokens of a drawn prompt for one of its canonical ones."""
    length = len(row["input_ids"]) - int(row["answer"])
    return length / len(VOCAB.encode(ITEMS[index].question))


def test_the_strength_rises_with_the_row_and_starts_canonical():
    rows = len(ITEMS)
    moving = PromptDataset(VOCAB, ITEMS, MOVING, seed=0, total=2 * rows)
    ratios = [growth(moving[n], n % rows) for n in RowOrder(moving, 2 * rows)]
    means = [np.mean(part) for part in np.array_split(ratios, 6)]
    assert means[0] < 1.2
    assert all(later > earlier for earlier, later in pairwise(means))
    with pytest.raises(RobustokError, match="over how many rows"):
        PromptDataset(VOCAB, ITEMS, MOVING, seed=0)


def strengths(monkeypatch, rows):
    """The strengths that rows are drawn at, in order, once each."""
    used = []
    draw = MOVING.at(0.5).__class__.sample_batch

    def noted(self, *args, **kwargs):
        used.append(self.alpha)
        return draw(self, *args, **kwargs)

    monkeypatch.setattr(MOVING.at(0.5).__class__, "sample_batch", noted)
    for _ in rows:
        pass
    return list(dict.fromkeys(used))


def test_all_rows_of_a_step_have_one_strength_and_those_of_the_last_step_the_last(monkeypatch):
    steps, batch = 5, 24
    moving = PromptDataset(
        VOCAB, ITEMS[:20], MOVING, seed=0, total=(steps - 1) * batch, batch_size=batch
    )
    order = list(RowOrder(moving, steps * batch))
    for size in (batch, 12, 1):  # one, two and all passes of a step
        parts = (moving.__getitems__(order[i : i + size]) for i in range(0, len(order), size))
        with monkeypatch.context() as patched:
            assert strengths(patched, parts) == [0, 0.5, 1, 1.5, 2]


@pytest.mark.parametrize("packed", [True, False])
def test_a_schedule_moves_in_a_short_training_too(monkeypatch, packed):
    if packed:
        source = PackedPrompts(data_of(MOVING, total=20, max_length=LENGTH))
    else:
        documents = VOCAB.encode_batch([item.question for item in ITEMS])
        source = PackedStream(documents, MOVING, seed=0, block_size=64, end=0, total=20)
    used = strengths(monkeypatch, islice(source, 21))
    assert used == sorted(used)
    assert used[0] == 0 and used[-1] > 1.8
    assert len(used) >= 12


def test_a_schedule_of_one_strength_is_its_sampler():
    constant = PromptDataset(VOCAB, ITEMS, rt.schedule("uniform", VOCAB), seed=0)
    assert constant[3]["input_ids"].tolist() == data()[3]["input_ids"].tolist()


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
        for number in range(len(ITEMS)):
            row = in_epoch(dataset, epoch, number)
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


def test_rows_are_nearly_full():
    rows = list(islice(packed(), 24))
    used = [sum(len(ids) for ids, _ in questions_of(row)) for row in rows]
    longest = max(len(ids) for row in rows for ids, _ in questions_of(row))
    assert min(used) > LENGTH - longest


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "gemma3"])
def test_questions_of_a_row_do_not_attend_to_each_other(kind):
    """The loss of packed rows is that of the same questions in rows of their own."""
    rows, model = list(islice(packed(), 3)), architecture(kind)
    alone = [
        {"input_ids": ids, "answer": int((labels >= 0).sum())}
        for row in rows
        for ids, labels in questions_of(row)
    ]
    with torch.inference_mode():
        together = model(**stack_rows(rows), use_cache=False).loss.item()
        apart = model(**AnswerCollator(0, short_labels=False)(alone)).loss.item()
    assert together == pytest.approx(apart, rel=1e-4)


def test_a_schedule_moves_over_the_packed_rows():
    moving = data(max_length=LENGTH, total=60)
    moving.sampler = rt.schedule("stochastok(alpha=0->3)", VOCAB)
    lengths = [len(questions_of(row)) for row in islice(PackedPrompts(moving), 60)]
    assert np.mean(lengths[:15]) > 1.2 * np.mean(lengths[-15:])  # longer questions: fewer a row


def test_a_row_without_room_for_any_question_is_one_line():
    none_fits = PackedPrompts(data(max_length=12, overflow="drop"))
    with pytest.raises(RobustokError, match="no question fits into a row of 12 tokens"):
        next(iter(none_fits))
