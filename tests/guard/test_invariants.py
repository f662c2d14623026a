"""The check of a tokenizer finds what is wrong, and nothing where all is right."""

import json

import pytest
from tests.guard.tokenizers_of import byte_level, metaspace_tokenizer
from tokenizers import Tokenizer, decoders
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace

import robustok as rt
from robustok.guard import invariants
from robustok.guard.invariants import check_invariants

NAMES = ["encoding", "draws", "probabilities", "guard"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level(None).data.library


@pytest.fixture(autouse=True)
def few_schemes(monkeypatch) -> None:
    monkeypatch.setattr(invariants, "SCHEMES", ("uniform", "stochastok(alpha=0.5)"))


def test_invariants_hold_for_plain_tokenizers(tokenizer) -> None:
    for source in (tokenizer, metaspace_tokenizer(prefix=True)):
        result = check_invariants(source)
        assert result.hold and not result.refused and result.texts > 200
        assert [check.name for check in result.checks] == NAMES
        assert all(check.compared > result.texts for check in result.checks)
        assert not any(check.failed or check.example for check in result.checks)


def test_another_vocabulary_has_other_ids(tokenizer) -> None:
    spec = json.loads(tokenizer.to_str())
    spec["model"]["merges"] = spec["model"]["merges"][:-20]
    other = rt.Vocabulary.load(Tokenizer.from_str(json.dumps(spec)))
    encoding, *others = check_invariants(tokenizer, other).checks
    assert encoding.failed and "is not [" in encoding.example
    assert not any(check.failed for check in others)  # right in themselves


def unigram() -> Tokenizer:
    letters = [("▁", -2.0), *((c, -3.0) for c in "abcdefghijklmnopqrstuvwxyz<>/")]
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("</s>", 0.0), *letters], 0, False))
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    return tokenizer


def test_special_tokens_that_the_model_reads_in_plain_text() -> None:
    tokenizer = unigram()
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    assert 1 in plain.encode("</s>").ids  # an end of text that anybody can write
    assert check_invariants(tokenizer).hold


def test_special_tokens_in_the_ids_of_plain_text_are_found(monkeypatch) -> None:
    encode = rt.Vocabulary.encode

    def wrong(self, text, *, parse_special=False):
        return encode(self, text, parse_special=True)

    monkeypatch.setattr(rt.Vocabulary, "encode", wrong)
    assert "has a special token" in check_invariants(unigram()).checks[0].example


def test_draws_of_another_text_are_found(tokenizer, monkeypatch) -> None:
    sample = rt.Uniform.sample

    def wrong(self, text, **settings):
        drawn = sample(self, text, **settings)
        return drawn[:-1] if len(drawn) > 5 else drawn

    monkeypatch.setattr(rt.Uniform, "sample", wrong)
    result = check_invariants(tokenizer)
    assert not result.hold
    assert "has other bytes" in result.checks[1].example


def test_improbable_draws_are_found(tokenizer, monkeypatch) -> None:
    monkeypatch.setattr(rt.Uniform, "log_prob", lambda self, ids: -float("inf"))
    check = check_invariants(tokenizer).checks[2]
    assert check.failed and "has log_prob -inf" in check.example


def test_texts_that_the_vocabulary_lacks_are_counted_by_reason(tokenizer) -> None:
    spec = json.loads(tokenizer.to_str())
    model = spec["model"]
    model["merges"] = []
    model["vocab"] = {c: i for i, c in enumerate(sorted(set("abcdefghijklmnopqrstuvwxyz")))}
    spec["added_tokens"] = []
    result = check_invariants(Tokenizer.from_str(json.dumps(spec)))
    assert result.hold and sum(result.refused.values()) > 100
    assert any("no token for" in reason for reason in result.refused)
