"""Certificates against every tokenization, found and scored one by one."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from tests.attack.conftest import OPTIONS, TEXT
from tests.oracles.chi_square import assert_distribution
from tests.oracles.lattice import Path as Ids
from tests.oracles.lattice import distance, tokenizations
from tests.oracles.scoring import score_naively

from robustok.attack import CertifySettings, Prompt, attack, certify, certify_items
from robustok.attack import certificates as certification
from robustok.attack.certificates import VERDICTS, Certificate
from robustok.evaluation.intervals import clopper_pearson_upper

Answers = dict[Ids, tuple[int, int]]


@pytest.fixture(scope="module")
def reference(vocab, log_probs) -> Answers:
    """Distance from the canonical one, and answer, of every tokenization of TEXT."""
    canonical = tuple(vocab.encode(TEXT).tolist())
    return {
        path: (distance(vocab, canonical, path), int(scored.argmax()))
        for path, scored in log_probs.items()
    }


@pytest.mark.parametrize("within", [1, 2, 3, 5, 8, None])
def test_enumeration_scores_every_tokenization_within(model, vocab, reference, within) -> None:
    canonical = tuple(vocab.encode(TEXT).tolist())
    answer = reference[canonical][1]
    inside = [path for path, (d, _) in reference.items() if within is None or d <= within]
    flipped = {path: reference[path][0] for path in inside if reference[path][1] != answer}
    result = certify(model, vocab, TEXT, OPTIONS, distance=within, seed=0, attack=False)
    assert (result.method, result.confidence, result.answer) == ("enumeration", 1.0, answer)
    assert result.tokenizations == result.n_scored == len(inside)
    assert result.flips == len(flipped)
    assert result.upper == len(flipped) / len(inside)
    assert result.verdict == ("flips" if flipped else "same")
    assert (result.margin > 0) == bool(flipped)
    if flipped:
        assert result.witness in flipped
        assert result.witness_distance == min(flipped.values())
    assert pickle.loads(pickle.dumps(result)).as_row() == result.as_row()
    assert Certificate.from_row(json.loads(json.dumps(result.as_row()))).witness == result.witness


def test_some_answers_are_certified_and_some_are_broken(model, vocab, items) -> None:
    """The matrix above is of one text; here both verdicts must come up, and agree by distance."""
    result = certify_items(model, vocab, items, distances=(2, 1, 4), seed=0)
    assert result.settings.distances == (1, 2, 4)
    rows = result.table()
    assert [sum(row[v] for v in VERDICTS) for row in rows] == [len(items)] * 3
    assert rows[-1]["same"] < rows[0]["same"] <= len(items)
    assert rows[-1]["attacked"] > 0
    for i in range(0, len(result.certificates), 3):
        one, two, four = result.certificates[i : i + 3]
        assert one.key == four.key
        assert one.tokenizations <= two.tokenizations <= four.tokenizations
        assert (one.witness is None) >= (two.witness is None) >= (four.witness is None)


def draw(
    model: Any, vocab: Any, text: str, within: int | None, draws: int
) -> tuple[list[Ids], int]:
    """The drawn tokenizations within a distance, and how many there are."""
    prompt = Prompt("a", text, {"choices": OPTIONS, "label": 0})
    question = certification.AttackedModel(model, vocab, None, None, "drop").text(prompt)
    settings = CertifySettings(distances=(within,), limit=10, draws=draws)
    rows, (scored,) = certification.tokenizations_to_score(question, settings, 0)
    assert tuple(rows[0].tolist()) == tuple(vocab.encode(text).tolist())
    assert len(scored.members) == draws == len(rows) - 1
    return [tuple(rows[i].tolist()) for i in scored.members.tolist()], scored.size


@pytest.mark.parametrize("within", [4, None])
def test_draws_are_uniform_over_the_tokenizations_within(llama, vocab, within) -> None:
    canonical, paths = tuple(vocab.encode(TEXT).tolist()), tokenizations(vocab, TEXT.encode())
    inside = [p for p in paths if within is None or distance(vocab, canonical, p) <= within]
    drawn, size = draw(llama, vocab, TEXT, within, 6000)
    assert size == len(inside)
    assert_distribution(drawn, dict.fromkeys(inside, 1 / len(inside)))


def test_draws_of_two_levels_are_independent(llama, vocab) -> None:
    text = "straight garden happen differ carry"
    canonical = tuple(vocab.encode(text).tolist())
    levels: dict[int, list[Ids]] = {k: [] for k in range(7)}
    for row in draw(llama, vocab, text, 6, 4000)[0]:
        levels[distance(vocab, canonical, row)].append(row[:3])
    five, six = levels[5][:900], levels[6][:900]
    alike = [np.mean([a == b for a, b in zip(five, six[lag:], strict=False)]) for lag in (0, 1)]
    assert abs(alike[0] - alike[1]) < 0.1


def test_a_sampled_bound_is_clopper_and_pearsons_and_holds(model, vocab, reference) -> None:
    answer = reference[tuple(vocab.encode(TEXT).tolist())][1]
    share = np.mean([a != answer for d, a in reference.values() if d <= 6])
    held = []
    for seed in range(30):
        result = certify(
            model, vocab, TEXT, OPTIONS, distance=6, limit=3, draws=40, confidence=0.8, seed=seed,
            attack=False,
        )  # fmt: skip
        assert result.upper == clopper_pearson_upper(result.flips, 40, 0.8)
        assert (result.method, result.n_scored, result.confidence) == ("sampling", 40, 0.8)
        held.append(result.upper >= share)
    # 30 bounds at 80%: fewer than 17 hold with a chance of 1 in 1,000 (the seeds are fixed).
    assert sum(held) >= 17
    assert 0 < share < 1


def test_the_attack_stays_within_the_distance_and_aims_at_another_answer(
    model, vocab, reference
) -> None:
    canonical = vocab.encode(TEXT)
    answer = reference[tuple(canonical.tolist())][1]
    for within in (1, 2, 3, 4, 6):
        # One draw cannot find what the search does, so a witness is the search's.
        result = certify(model, vocab, TEXT, OPTIONS, distance=within, limit=1, draws=1, seed=0)
        step = min(2, within)
        limits: dict[str, Any] = {"distances": (step,), "steps": within // step}
        alone = attack(model, vocab, TEXT, OPTIONS, answer, objective="log-probability", **limits)
        assert (result.attacked, result.attack_n_scored) == (alone.success, alone.n_scored)
        assert reference[tuple(alone.ids.tolist())][0] <= within
        if result.attacked:
            assert result.verdict == "attacked"
            assert result.witness is not None and reference[result.witness][1] != answer
            assert result.witness_distance is not None and result.witness_distance <= within


def test_an_attack_with_options_that_underflow_gives_a_tokenization_with_another_answer(
    llama, vocab
) -> None:
    """The probability of each option is 0 in float64, and so is every margin."""
    options = [" up" * 170, " baby" * 170]
    encoded = [vocab.encode(option) for option in options]
    successes = 0
    for text in ("happen, glad", "glad rain", "differ", "straight up", "baby half"):
        answer = int(score_naively(llama, [vocab.encode(text)], encoded).argmax())
        certificate = certify(llama, vocab, text, options, distance=2, limit=1, draws=1, seed=0)
        with pytest.warns(UserWarning, match="probability 0"):
            found = attack(llama, vocab, text, options, answer, seed=0)
        results = ((certificate.attacked, certificate.witness), (found.success, found.ids))
        for ids in (ids for success, ids in results if success):
            assert ids is not None
            assert int(score_naively(llama, [list(ids)], encoded).argmax()) != answer
            successes += 1
        assert found.success == (found.reached_at is not None)
    assert successes > 2


def test_items_certified_together_fare_as_alone(model, vocab, items) -> None:
    settings: dict[str, Any] = {"limit": 60, "draws": 50, "seed": 4}
    together = certify_items(model, vocab, items[:3], distances=(2, 4, None), **settings)
    assert {c.method for c in together.certificates} == {"enumeration", "sampling"}
    for i, item in enumerate(items[:3]):
        (alone,) = certify_items(model, vocab, [item], distances=(4,), **settings).certificates
        inside = together.certificates[3 * i + 1]
        for name in ("answer", "tokenizations", "flips", "attacked", "attack_n_scored", "upper"):
            assert getattr(inside, name) == getattr(alone, name), name


def test_what_is_kept_around_the_text_is_scored_with_it(model, vocab) -> None:
    prefix, suffix = vocab.encode("which baby?"), vocab.encode(" Answer:")
    result = certify(
        model, vocab, "rain", OPTIONS, distance=None, seed=0, prefix=prefix, suffix=suffix
    )
    paths = tokenizations(vocab, b"rain")
    questions = [[*path, *suffix] for path in paths]
    options = [vocab.encode(o).tolist() for o in OPTIONS]
    answers = score_naively(model, questions, options, prefix).argmax(axis=1)
    assert result.tokenizations == len(paths)
    assert result.flips == int((answers != result.answer).sum())
