"""What every scheme promises: round trip, support, determinism, and what stays where it is."""

import inspect
import multiprocessing
import pickle
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.data import TOKENIZERS, hard_texts, real
from tests.oracles.vocabulary import canonical, cases, fitting, toy

import robustok as rt
from robustok.samplers import BUILT_IN
from robustok.samplers.parameters import REQUIRED
from robustok.samplers.spec import SCHEMES

TOY = toy([bytes([b]) for b in b"abc "] + [b"ab", b"abc", b" a", b"bc"], special=[b"<s>", b"</s>"])


def scheme_of(spec: str) -> type[rt.Sampler]:
    return SCHEMES[rt.Spec.parse(spec).name]


def toy_sampler(spec: str, vocab: rt.Vocabulary | None = None) -> rt.Sampler:
    """The sampler of a spec for a small vocabulary, with merges or scores where it needs them."""
    return rt.sampler(spec, fitting(vocab or TOY, scheme_of(spec)))


# Every scheme of the registry, with the further specs that its class lists.
SPECS = [spec for scheme in BUILT_IN for spec in (scheme.example, *scheme.variants)]
RANDOM = [spec for spec in SPECS if not scheme_of(spec).deterministic]


def test_the_metadata_of_every_scheme_is_complete() -> None:
    assert {scheme_of(spec) for spec in SPECS} == set(BUILT_IN)
    for spec in SPECS:
        assert toy_sampler(spec).spec == str(rt.Spec.parse(spec))
    for scheme in BUILT_IN:
        assert scheme.strength in (*scheme.parameters, "weight", "")
        keywords = {
            name: p.default for name, p in inspect.signature(scheme).parameters.items()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }  # fmt: skip
        assert list(keywords) == list(scheme.parameters)
        for name, default in keywords.items():
            kind = scheme.parameters[name]
            assert kind.default == default or kind.default is REQUIRED
        try:
            toy_sampler(scheme.example).log_prob(TOY.encode("abc"))
        except rt.RobustokError as error:
            assert not scheme.exact
            assert "stochastok-uniform, uniform-k" in str(error)
        else:
            assert scheme.exact


@pytest.mark.parametrize("spec", SPECS)
@given(case=cases(most=30), seed=st.integers(0, 2**64 - 1))
@settings(max_examples=25)
def test_draws_decode_to_the_text_and_hold_ordinary_tokens(spec, case, seed) -> None:
    vocab, text = case
    ids = canonical(vocab, text)
    rows = toy_sampler(spec, vocab).sample_batch([ids, [], ids], seed=seed, draws=3)
    assert len(rows) == 9
    for i, row in enumerate(rows):
        assert vocab.decode_bytes(row) == (b"" if 3 <= i < 6 else text)
        assert vocab.ordinary[row].all()


@pytest.mark.parametrize(
    "spec",
    ["stochastok(alpha=0)", "stochastok-uniform(alpha=0)", "uniform-k(alpha=0)", "uniform-k(k=0)",
     "bpe-dropout(p=0)", "maxmatch-dropout(p=0)"],
)  # fmt: skip
def test_strength_zero_is_canonical(spec: str) -> None:
    ids = TOY.encode("abc abc ab")
    assert np.array_equal(toy_sampler(spec).sample(ids, seed=5), ids)


@pytest.mark.parametrize("spec", SPECS)
def test_a_token_without_bytes_stands_in_no_text(spec: str) -> None:
    vocab = toy([b"a", b"b", b"", b"ab"])
    assert not vocab.readable[2]
    drawn = toy_sampler(spec, vocab).sample([2, 2, 3, 2, 3] + [2] * 500, seed=0)
    assert (drawn == 2).sum() == 503
    assert vocab.decode_bytes(drawn) == b"abab"


@pytest.mark.parametrize("spec", SPECS)
def test_special_ids_and_kept_spans_stay(spec: str) -> None:
    special = TOY.special
    text = TOY.encode("abc abcab").tolist()
    row = [8, *text, 9, *text, 9]
    keep = np.zeros(len(row), bool)
    keep[1 : 1 + len(text)] = True
    for seed in range(20):
        drawn = toy_sampler(spec).sample(row, seed=seed, keep=keep).tolist()
        assert [i for i in drawn if i in special] == [8, 9, 9]
        assert drawn[: 1 + len(text)] == row[: 1 + len(text)]
        assert TOY.decode_bytes(drawn) == TOY.decode_bytes(row)


@pytest.mark.parametrize("spec", [*RANDOM, "mix(0.5 uniform, 0.5 mix(0.5 canonical, 0.5 grampa))"])
def test_a_draw_depends_on_seed_epoch_key_and_number_alone(spec: str) -> None:
    """And not on the order, the batch or the object."""
    scheme = toy_sampler(spec)
    texts = ["abc abcab" * (1 + i % 5) for i in range(40)]
    keys = np.arange(100, 140)
    rows = scheme.sample_batch(texts, seed=3, draws=4, keys=keys)
    order = np.random.default_rng(0).permutation(40)
    shuffled = scheme.sample_batch([texts[i] for i in order], seed=3, draws=4, keys=keys[order])
    fresh, pickled = toy_sampler(spec), pickle.loads(pickle.dumps(scheme))
    for place, i in enumerate(order.tolist()):
        for d in range(4):
            assert np.array_equal(rows[i * 4 + d], shuffled[place * 4 + d])
        for other in (fresh, pickled):
            alone = other.sample(texts[i], seed=3, key=int(keys[i]))
            assert np.array_equal(rows[i * 4], alone)
    for seed, epoch in ((4, 0), (3, 1)):
        assert scheme.sample_batch(texts, draws=4, keys=keys, seed=seed, epoch=epoch) != rows
    assert scheme.sample_batch(texts, seed=3, draws=4, keys=keys + 1) != rows


@pytest.mark.parametrize(
    "spec", ["uniform", "stochastok(alpha=0.5)", "mix(0.5 canonical, 0.5 uniform)"]
)
def test_one_row_of_ids_is_drawn_as_in_a_batch(spec: str) -> None:
    scheme = toy_sampler(spec)
    text = TOY.encode("abc abcab").tolist()
    for ids in ([], [8], text, [*text, 8, *text], text * 15, text * 30, [*text * 30, 8]):
        row = np.array(ids, np.int32)
        batch = scheme.sample_batch([ids, ids], seed=3, keys=[5, 6])
        assert [scheme.sample(row, seed=3, key=key).tolist() for key in (5, 6)] == [
            drawn.tolist() for drawn in batch
        ]
    for wrong in (-1, TOY.size):
        with pytest.raises(rt.RobustokError, match="position 1"):
            scheme.sample([0, wrong], seed=3)


def _draw(spec: str, texts: list[str]) -> rt.Ragged:
    return rt.sampler(spec, TOY).sample_batch(texts, seed=9, threads=1)


@pytest.mark.parametrize("spec", SPECS)
def test_threads_change_nothing(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robustok.samplers.base._SMALL_BYTES", 1)  # bytes that are worth a thread
    texts = ["abc abcab cab" * (1 + 7 * i % 40) for i in range(40)]
    scheme = toy_sampler(spec)
    one = scheme.sample_batch(texts, seed=9, threads=1)
    for threads in (2, 4):
        assert scheme.sample_batch(texts, seed=9, threads=threads) == one


def test_a_spawned_process_draws_the_same() -> None:
    texts = ["abc abcab cab"] * 5
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for spec in ("uniform", "uniform-k(alpha=1)"):
            assert pool.apply(_draw, (spec, texts)) == _draw(spec, texts)


def test_no_global_generator_is_touched() -> None:
    state = str(np.random.get_state())  # noqa: NPY002
    rt.Uniform(TOY).sample_batch(["abc"] * 10, seed=0)
    assert str(np.random.get_state()) == state  # noqa: NPY002


def test_wrong_calls_are_errors() -> None:
    uniform = rt.Uniform(TOY)
    with pytest.raises(TypeError, match="seed"):
        uniform.sample("abc")  # type: ignore[call-arg]
    for call, message in (
        (lambda: uniform.sample_batch(["abc"], seed=cast(int, 1.5)), "seed must be an integer"),
        (lambda: uniform.sample_batch(["abc"], seed=0, draws=0), "draws=0"),
        (lambda: uniform.sample_batch(["abc"], seed=0, keys=[1, 2]), "2 keys for 1 rows"),
        (lambda: uniform.sample_batch(["abc"], seed=0, threads=0), "threads=0"),
        (lambda: uniform.sample_batch([[99]], seed=0), "id 99 at position 0"),
        (lambda: uniform.sample([0], seed=0, keep=np.ones(2, bool)), "one bool for each id"),
        (lambda: uniform.sample("a\ud800", seed=0), "lone surrogate"),
    ):
        with pytest.raises(rt.RobustokError, match=message):
            call()


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers_round_trip(name: str) -> None:
    vocab = real(name)
    texts = hard_texts()
    rows = vocab.encode_batch(texts)
    for spec in SPECS:
        needs = scheme_of(spec).needs
        if needs and not needs.is_met(vocab):
            continue
        scheme = rt.sampler(spec, vocab)
        draws = scheme.sample_batch(rows, seed=1)
        for drawn, ids in zip(draws, rows, strict=True):
            assert vocab.decode_bytes(drawn) == vocab.decode_bytes(ids)
            assert vocab.readable[drawn].all() or not vocab.readable[ids].all()
        assert scheme.sample_batch(texts, seed=1) == draws
