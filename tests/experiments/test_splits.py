"""Laws of split counts against counting by hand and the paper's numbers, and their tables."""

import csv
import itertools
import sys
from collections import Counter
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import byte_level
from tests.oracles.data import real
from tests.oracles.lattice import distance, splits, tokenizations
from tests.oracles.samplers import stochastok_uniform
from tests.oracles.vocabulary import cases, toy
from tests.report.test_report import check

import robustok as rt
from experiments import __main__, analyses
from experiments.splits import (
    DROPOUT,
    SENTENCE,
    binomial,
    by_distance_within,
    by_splits,
    clipped,
    dirichlet_multinomial,
    dropout_splits,
    exactly,
    segmentation_counts,
    segmentations,
    split_counts,
)
from robustok.lattice import Lattice
from robustok.tokenizer.vocabulary import Vocabulary


def cuts_inside(vocab: Vocabulary, path: tuple[int, ...], begin: int, end: int) -> int:
    ends = itertools.accumulate(len(vocab.tokens[i]) for i in path)
    return sum(begin < at < end for at in ends)


def shares(counts: Counter[int]) -> list[float]:
    return [counts[s] / counts.total() for s in range(max(counts) + 1)]


@pytest.mark.parametrize(("splits", "tokens"), [(0, 3), (4, 1), (5, 2), (4, 4), (7, 3)])
def test_polya_urns_are_those_of_all_compositions(splits: int, tokens: int) -> None:
    first = Counter(
        share[0] for share in itertools.product(range(splits + 1), repeat=tokens)
        if sum(share) == splits
    )  # fmt: skip
    distribution = dirichlet_multinomial(splits, tokens)
    assert len(distribution) == splits + 1
    assert distribution == pytest.approx([first[s] / first.total() for s in range(splits + 1)])


@settings(max_examples=40)
@given(case=cases(most=7), data=st.data())
def test_uniform_laws_are_those_of_all_tokenizations(
    case: tuple[Vocabulary, bytes], data: st.DataObject
) -> None:
    vocab, text = case
    assume(text)
    canonical = vocab.encode(text)
    lattice = Lattice(vocab, canonical)
    token = data.draw(st.integers(0, len(canonical) - 1))
    begin = sum(len(vocab.tokens[i]) for i in canonical[:token])
    end = begin + len(vocab.tokens[canonical[token]])
    paths = tokenizations(vocab, text)
    all_of_them = Counter(cuts_inside(vocab, path, begin, end) for path in paths)
    assert exactly(lattice, begin, end) == pytest.approx(shares(all_of_them))
    for k in {distance(vocab, tuple(canonical.tolist()), path) for path in paths}:
        at_k = Counter(
            cuts_inside(vocab, path, begin, end) for path in paths
            if distance(vocab, tuple(canonical.tolist()), path) == k
        )  # fmt: skip
        assert exactly(lattice, begin, end, distance=k) == pytest.approx(shares(at_k))


@pytest.mark.parametrize("measure", ["splits", "distance"])
@settings(max_examples=40)
@given(case=cases(most=7), k=st.integers(0, 9), data=st.data())
def test_laws_within_the_tokens_are_those_of_every_way_to_cut_them(
    measure: str, case: tuple[Vocabulary, bytes], k: int, data: st.DataObject
) -> None:
    vocab, text = case
    assume(text)
    canonical = vocab.encode(text)
    token = data.draw(st.integers(0, len(canonical) - 1))
    within = [tokenizations(vocab, vocab.tokens[i]) for i in canonical]
    if measure == "distance":  # where no segment is a space
        within = [
            [cut for cut in cuts if len(cut) == 1 or b" " not in [vocab.tokens[j] for j in cut]]
            for cuts in within
        ]
    counts: dict[int, Counter[int]] = {}
    for choice in itertools.product(*within):
        sizes = [len(cut) for cut in choice]
        strength = sum(size - 1 if measure == "splits" else size * (size > 1) for size in sizes)
        counts.setdefault(strength, Counter())[sizes[token] - 1] += 1
    distribution_of = by_splits if measure == "splits" else by_distance_within
    most = max(strength for strength in counts if strength <= k)
    assert distribution_of(vocab, canonical, token, k) == pytest.approx(shares(counts[most]))


@pytest.mark.parametrize("support", ["all", "pairwise"])
@pytest.mark.parametrize("alpha", [0.5, 1.5])
def test_clipping_is_the_distribution_of_stochastok_uniform(alpha: float, support: str) -> None:
    vocab = toy([b"a", b"b", b"c", b"abc", b"ab", b"bcab"])
    canonical = vocab.encode("abcbcab")
    distribution = stochastok_uniform(vocab, tuple(canonical.tolist()), alpha, support)
    expected: Counter[int] = Counter()
    for path, p in distribution.items():
        expected[cuts_inside(vocab, path, 0, 3)] += p  # type: ignore[assignment]
    urn = dirichlet_multinomial(ceil(alpha * len(canonical)), len(canonical))
    clipped_urn = clipped(urn, segmentation_counts(vocab, int(canonical[0]), support))
    assert clipped_urn == pytest.approx([float(expected[s]) for s in range(len(clipped_urn))])
    assert clipped_urn.sum() == pytest.approx(1)


def test_a_vocabulary_with_every_string_gives_the_binomial() -> None:
    text = b"abcdefg"
    tokens = [text[i:j] for i in range(7) for j in range(i + 1, 8)]
    vocab = toy(tokens)
    assert exactly(Lattice(vocab, vocab.encode(text)), 0, 7) == pytest.approx(binomial(7))


# The paper's figures: bars of 50,000 draws (5,000 for uniform-k), and its theoretical lines.
PAPER_STOKUNI = [.487179487179487, .256410256410257, .131670131670132, .0658350658350659,
                 .0319770319770321, .015048015048015, .00684000684000683, .00299250299250299,
                 .00125492060975932]  # fmt: skip
PAPER_UNIK = [0.6398, 0.067, 0.0906, 0.0914, 0.0696, 0.0314, 0.0084, 0.0016, 0.0002]
PAPER_UNIK_LINE = [0.534650371237025, 0.0706293793255496, 0.0991915408245849, 0.118997610239912,
                   0.102309618289508, 0.0546286257842331, 0.0164454219615871, 0.00289582436475047,
                   0.000243762433954433]  # fmt: skip
PAPER_UNI = [0.00478, 0.0042, 0.01904, 0.06432, 0.16654, 0.27416, 0.27356, 0.14596, 0.04304, 0.0044]
PAPER_BINOMIAL = [0.001953125, .017578125, .0703125, .1640625, .24609375, .24609375, .1640625,
                  .0703125, .017578125, .001953125]  # fmt: skip


def assert_drawn_from(bars: list[float], distribution: np.ndarray, draws: int) -> None:
    """No bar is further than five standard deviations from the law."""
    distribution = np.pad(distribution, (0, max(len(bars) - len(distribution), 0)))
    for p, bar in zip(distribution, bars, strict=False):
        assert abs(bar - p) < 5 * (p * (1 - p) / draws) ** 0.5 + 1 / draws, (p, bar)


def test_the_papers_bars_and_lines_on_gpt2() -> None:
    vocab = real("gpt2")
    canonical = vocab.encode(SENTENCE)
    lattice = Lattice(vocab, canonical)
    assert (len(canonical), vocab.decode(canonical[:1])) == (20, "revolution")
    assert dirichlet_multinomial(20, 20)[:9] == pytest.approx(PAPER_STOKUNI, rel=1e-6)
    assert_drawn_from(PAPER_UNIK, exactly(lattice, 0, 10, distance=20), 5_000)
    assert_drawn_from(PAPER_UNI, exactly(lattice, 0, 10), 50_000)
    # Within a point of the line; that of splits is 14 points away.
    near = by_distance_within(vocab, canonical, 0, 20)[:9]
    assert near == pytest.approx(PAPER_UNIK_LINE, abs=0.01)
    assert near[:4] == pytest.approx([0.5257, 0.0713, 0.1009, 0.1215], abs=5e-5)
    assert abs(by_splits(vocab, canonical, 0, 20)[0] - PAPER_UNIK_LINE[0]) > 0.13
    # The paper's line is one split ahead: it gives 0 splits the probability 0.
    assert binomial(10).tolist() == PAPER_BINOMIAL


TOKENS = [b"a", b"b", b"c", b"d", b"ab", b"bc", b"abc", b"cd", b"bcd"]
TEXT = "abcdabcabc"
DRAWS = 4_000


@pytest.fixture(scope="module")
def vocab() -> rt.Vocabulary:
    return toy(TOKENS)


def by_hand(vocab: rt.Vocabulary, spec: str, begin: int, end: int) -> list[list[int]]:
    """Boundaries strictly between two positions, of each draw."""
    canonical = vocab.encode(TEXT)
    rows = rt.sampler(spec, vocab).sample_batch([canonical.tolist()] * DRAWS, seed=5)
    counts = []
    for row in rows:
        ends = np.cumsum([len(vocab.tokens[i]) for i in row])
        counts.append([int(at) for at in ends if begin < at < end])
    return counts


@pytest.mark.parametrize(
    "spec", ["uniform", "uniform-k(alpha=1)", "stochastok-uniform(alpha=1)", "grampa"]
)
def test_draws_are_counted_and_laws_hold(vocab: rt.Vocabulary, spec: str) -> None:
    result = split_counts(vocab, TEXT, spec, token=2, seed=5, draws=DRAWS)
    assert (result.token, result.draws) == ("abc", DRAWS)
    assert vocab.encode(TEXT).tolist() == [6, 3, 6, 6]
    seen = Counter(len(inside) for inside in by_hand(vocab, result.scheme, 4, 7))
    assert result.observed == pytest.approx([seen[s] / DRAWS for s in range(len(result.observed))])
    exact = [distribution for name, distribution in result.distributions.items() if "exact" in name]
    assert len(exact) == (spec != "grampa")
    for distribution in exact:
        for p, share in zip(distribution, result.observed, strict=False):
            assert abs(p - share) < 5 * (p * (1 - p) / DRAWS) ** 0.5 + 1e-9


def test_stochastok_has_the_papers_distribution_only(vocab: rt.Vocabulary) -> None:
    result = split_counts(vocab, TEXT, "stochastok(alpha=0.5)", seed=0, draws=10)
    assert list(result.distributions) == ["Dirichlet-multinomial (paper)"]
    assert len(result.distributions["Dirichlet-multinomial (paper)"]) == 3
    assert not split_counts(vocab, TEXT, "stochastok(ways=3)", seed=0, draws=10).distributions


def test_blocks_change_nothing(vocab: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = split_counts(vocab, TEXT, "uniform", seed=1, draws=1000)
    monkeypatch.setattr("experiments.splits.CHUNK", 300)
    parts = split_counts(vocab, TEXT, "uniform", seed=1, draws=1000)
    assert parts.observed.tolist() == whole.observed.tolist()


def test_segmentations_are_those_between_two_boundaries(vocab: rt.Vocabulary) -> None:
    result = segmentations(vocab, TEXT, ["uniform", "stochastok(alpha=1)"], seed=5, draws=DRAWS,
                          splits=3)  # fmt: skip
    assert result.token == "abc"
    assert [set(level) for level in result.by_splits] == [{"a-bc", "ab-c"}, {"a-b-c"}, set()]
    for spec, levels in result.shares.items():
        assert [x.sum() for x in levels] == pytest.approx([1, 1, 0])
        rows = rt.sampler(spec, vocab).sample_batch([vocab.encode(TEXT).tolist()] * DRAWS, seed=5)
        names = ["-".join(vocab.decode([i]) for i in row) + "-" for row in rows]
        for level, cuts in enumerate(result.by_splits):
            count = [sum(name.startswith(f"{cut}-") for name in names) for cut in cuts]
            assert result.draws[spec][level] == sum(count)
            assert result.shares[spec][level] == pytest.approx(
                [c / max(sum(count), 1) for c in count]
            )


def test_a_missing_token_is_an_error(vocab: rt.Vocabulary) -> None:
    with pytest.raises(rt.RobustokError, match="no canonical token 4: it has 0 to 3"):
        split_counts(vocab, TEXT, "uniform", seed=0, token=4)
    with pytest.raises(rt.RobustokError, match="no canonical token 0: it is empty"):
        segmentations(vocab, "", ["uniform"], seed=0)
    with pytest.raises(rt.RobustokError, match="draws=0"):
        split_counts(vocab, TEXT, "uniform", seed=0, draws=0)


WORDS = "the theater is there, then rest"


@pytest.fixture(scope="module")
def bpe() -> rt.Vocabulary:
    return byte_level(None)


def test_dropout_splits_are_counted(bpe: rt.Vocabulary) -> None:
    rows = dropout_splits(
        bpe, WORDS, seed=3, probabilities=[0.0, 0.3, 1.0], rules=["hf", "provilkov"], draws=300,
    )  # fmt: skip
    assert [(r.rule, r.p) for r in rows] == [
        (rule, p) for rule in ("hf", "provilkov") for p in (0.0, 0.3, 1.0)
    ]
    canonical = bpe.encode(WORDS)
    assert rows[0][2:6] == (0, 0, 0, 0)
    assert rows[2][2:4] == (len(WORDS) - len(canonical), 0)
    texts = [canonical.tolist()] * 300
    drawn = rt.sampler("bpe-dropout(p=0.3, rule=hf)", bpe).sample_batch(texts, seed=3)
    counts = [splits(bpe, canonical, row) for row in drawn]
    s = rows[1]
    assert (s.min, s.max) == (min(counts), max(counts))
    assert (s.mean, s.std) == pytest.approx((np.mean(counts), np.std(counts)))


def test_the_papers_table_is_tokenizers_dropout_at_small_p() -> None:
    rows = dropout_splits(
        real("llama3"), SENTENCE, seed=0, probabilities=[0.1, 0.25], rules=["hf"], draws=4000
    )
    for row, paper in zip(rows, DROPOUT, strict=False):
        assert row.p == paper.p
        assert row.mean == pytest.approx(paper.mean, abs=5 * paper.std / 4000**0.5)
        assert row.std == pytest.approx(paper.std, rel=0.07)


WORDY = "the theater is there"


@pytest.fixture(scope="module")
def trained() -> rt.Vocabulary:
    return byte_level(None)


def test_split_counts(trained: rt.Vocabulary, tmp_path: Path) -> None:
    specs = ["stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform"]
    for draws, schemes in ((200, specs), (5, ["stochastok(alpha=2000)"])):  # too flat to see
        result = [split_counts(trained, WORDY, spec, seed=0, draws=draws) for spec in schemes]
        wanted = [row for one in result for row in one.table()]
        rows = check(analyses.draw_split_counts(result, tmp_path), wanted)
        drawn = [float(r["share"]) for r in rows if r["distribution"] == f"{draws} draws"]
        assert sum(drawn) == pytest.approx(len(schemes))


def test_segmentations(trained: rt.Vocabulary, tmp_path: Path) -> None:
    result = {
        name: segmentations(trained, WORDY, ["uniform", "stochastok"], seed=0, draws=200, splits=n)
        for name, n in (("one", 2), ("two", 5))
    }
    rows = [{"tokenizer": name, **row} for name, one in result.items() for row in one.table()]
    check(analyses.draw_segmentations(result, tmp_path), rows)


@pytest.mark.parametrize(
    ("name", "column"), [("split-counts", "share"), ("segmentations", "share"), ("dropout", "mean")]
)
def test_each_analysis_is_a_command(
    name: str,
    column: str,
    trained: rt.Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained.data.library.save(str(tmp_path / "tokenizer.json"))
    line = f"{name} -t {tmp_path}/tokenizer.json --draws 20 --out {tmp_path}/out --text"
    monkeypatch.setattr(sys, "argv", ["experiments", *line.split(), WORDY])
    __main__.main()
    with (tmp_path / "out" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    head, *lines = capsys.readouterr().out.splitlines()
    assert column in head.split() and len(lines) == len(rows) > 3
