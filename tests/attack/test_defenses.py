"""Defenses and the example that measures them, against naive loops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS, TEXT
from tests.oracles.models import tiny_model
from tests.oracles.scoring import score_naively
from tests.oracles.scripts import script

from robustok import RobustokError, distance, sampler
from robustok.attack import Adversary, search
from robustok.evaluation.questions import item_key
from robustok.scoring import score, scoring_mode
from robustok.tasks import Item
from robustok.training import finetune
from robustok.training.rows import PromptDataset

TEXTS = ["happen, glad", "glad rain: straight", "carry half garden", "Which baby starts"]
ITEMS = [Item(f"q{i}", text, tuple(OPTIONS), i % 3) for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def example() -> Any:
    """The script that measures defenses, as a module."""
    return script("examples/defenses.py")


@pytest.fixture(scope="module")
def labeled(llama, vocab) -> list[Item]:
    """The items, with the model's canonical answers as labels."""
    options = [vocab.encode(option) for option in OPTIONS]
    labels = score_naively(llama, list(vocab.encode_batch(TEXTS)), options).argmax(axis=1)
    return [replace(i, label=label) for i, label in zip(ITEMS, labels.tolist(), strict=True)]


def test_the_table_of_defenses_is_that_of_naive_loops(example, llama, vocab, labeled) -> None:
    table = example.measure_defenses(
        llama, example.Task(vocab, labeled, seed=2), draws=5, max_scored=60
    )
    rows = {row.defense: row for row in table.rows}
    assert rows["none"].accuracy == 1.0
    assert rows["none"].attacked < 1.0
    assert rows["canonicalization"].attacked == 1.0  # the guard undoes every attack
    labels = np.array([item.label for item in labeled])
    options = [vocab.encode(option) for option in OPTIONS]
    mean, vote = [], []
    for item in labeled:
        keys = np.array([item_key(item.key)], np.int64)
        draws = sampler("uniform", vocab).sample_batch([item.question], seed=2, draws=5, keys=keys)
        log_probs = score_naively(llama, list(draws), options)
        mean.append(np.exp(log_probs).mean(axis=0).argmax())
        vote.append(np.bincount(log_probs.argmax(axis=1), minlength=3).argmax())
    for name, chosen in (("mean of 5 draws", mean), ("vote of 5 draws", vote)):
        assert rows[name].accuracy == rows[name].attacked == np.mean(np.array(chosen) == labels)
        assert rows[name].tokens > 2
    # Against canonical traffic any other tokenization is flagged.
    assert rows["detection by distance"].attacked == 1.0
    assert (rows["detection by distance"].detected or 0) > 0


def test_detection_scores_are_those_of_their_definitions(example, llama, vocab) -> None:
    rows = list(vocab.lattice(TEXT).enumerate(limit=12))
    canonical = vocab.encode(TEXT)
    wanted = [float(distance(vocab, canonical, row)) for row in rows]
    assert example.distance_scores(vocab, rows).tolist() == wanted
    nats = score_naively(llama, [[0]], [canonical, *rows])[0]
    assert example.likelihood_scores(llama, vocab, rows) == pytest.approx(
        nats[0] - nats[1:], abs=1e-3
    )
    benign = sampler("stochastok-uniform(alpha=0.5)", vocab)
    uniform = -np.log(float(vocab.lattice(TEXT).count()))
    ratio = [uniform - benign.log_prob(row) for row in rows]
    scores = example.scheme_scores(vocab, rows, "stochastok-uniform(alpha=0.5)")
    assert scores == pytest.approx(ratio, abs=1e-6)
    assert np.isinf(example.scheme_scores(vocab, rows)).all()
    assert example.scheme_scores(vocab, [canonical])[0] == pytest.approx(uniform)


def test_an_adversary_scores_other_neighbors_in_another_epoch(
    llama, vocab, items, monkeypatch
) -> None:
    scored: list[frozenset[bytes]] = []
    score_many = search.score_many

    def spy(model: Any, requests: Any, **settings: Any) -> Any:
        scored.append(frozenset(row.tobytes() for row in requests[0].questions))
        return score_many(model, requests, **settings)

    monkeypatch.setattr(search, "score_many", spy)
    adversary = Adversary(llama, vocab, items, max_scored=16, seed=0)
    second_batches = []  # four of the many neighbors of the canonical tokenization
    for epoch in (0, 0, 1, 2):
        scored.clear()
        adversary([0], epoch)
        second_batches.append(scored[1])
    first, again, *later = second_batches
    assert first == again
    assert len({first, *later}) == 3


def test_an_adversary_attacks_every_nth_batch(vocab, tmp_path) -> None:
    """Here the first and the third of four batches of two questions."""
    numbers: list[list[int]] = []

    class Spy(Adversary):
        def __call__(self, own: Any, epoch: int = 0) -> Any:
            numbers.append(list(own))
            return super().__call__(own, epoch)

    model = tiny_model("llama", vocab.size, seed=1)
    spy = Spy(model, vocab, ITEMS, every=2, max_scored=20, seed=0)
    finetune(
        model, vocab, ITEMS, sampler=sampler("canonical", vocab), adversary=spy, steps=4,
        batch_size=2, learning_rate=1e-2, seed=0, out=tmp_path,
    )  # fmt: skip
    assert [len(own) for own in numbers] == [2, 2]
    assert 0 < spy.n_scored <= 4 * 20
    dataset = PromptDataset(vocab, ITEMS, sampler("canonical", vocab), seed=0, batch_size=2)
    attacked = dataset.attacked([0, 1], spy)
    canonical = dataset.__getitems__([0, 1])
    for rows, equal in ((attacked, False), (canonical, True)):
        wanted = [[*vocab.encode(i.question), *vocab.encode(i.answer)] for i in ITEMS[:2]]
        assert ([row["input_ids"].tolist() for row in rows] == wanted) is equal


def test_scores_beside_and_after_a_training_in_bfloat16_are_those_of_float32(
    vocab, tmp_path
) -> None:
    model, twin = (tiny_model("llama", vocab.size, seed=1) for _ in range(2))
    rows, options = list(vocab.encode_batch(TEXTS)), list(vocab.encode_batch(OPTIONS))

    def check_scores() -> None:
        twin.load_state_dict(model.state_dict())
        wanted = score_naively(twin, rows, options)
        assert score(model, rows, options).log_probs == pytest.approx(wanted, abs=1e-4)
        assert scoring_mode(model) == "tree"

    class Spy(Adversary):
        def __call__(self, own: Any, epoch: int = 0) -> Any:
            check_scores()
            return super().__call__(own, epoch)

    done = finetune(
        model, vocab, ITEMS, sampler=sampler("canonical", vocab), steps=2, batch_size=2,
        adversary=Spy(model, vocab, ITEMS, every=1, max_scored=4), learning_rate=1e-2, seed=0,
        precision="bfloat16", out=tmp_path,
    )  # fmt: skip
    assert done.precision == "bfloat16"
    check_scores()


def test_a_training_takes_an_adversary_that_can_attack(vocab, tmp_path) -> None:
    model = tiny_model("llama", vocab.size, seed=1)

    def train(adversary: Adversary, **more: Any) -> Any:
        return finetune(
            model, vocab, ITEMS, sampler=sampler("canonical", vocab), adversary=adversary, steps=1,
            batch_size=2, learning_rate=1e-2, seed=0, out=tmp_path, **more,
        )  # fmt: skip

    adversary = Adversary(model, vocab, ITEMS, every=1, max_scored=12)
    with pytest.raises(RobustokError, match="leave pack"):
        train(adversary, pack=20)
    assert adversary.n_scored == 0
    assert train(adversary).steps == 1 and adversary.n_scored > 0
    model.config.max_position_embeddings = 40
    long = replace(ITEMS[0], question="a long question " * 40)
    scored = Adversary(model, vocab, [long], every=1, max_scored=12)
    (row,) = scored([0])
    assert (row.tolist(), scored.n_scored) == (vocab.encode(long.question).tolist(), 0)
    with pytest.raises(RobustokError, match="every must be"):
        Adversary(model, vocab, ITEMS, every=0)
