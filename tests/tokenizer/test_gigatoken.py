"""gigatoken gives what ``tokenizers`` gives, on every text, or is not used."""

import json
import lzma
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.guard.tokenizers_of import LLAMA3, byte_level, metaspace, metaspace_tokenizer
from tests.oracles.data import TOKENIZERS, data_path, real
from tests.runtime.test_locks import child_succeeds, needs_fork
from tokenizers import AddedToken, Tokenizer, pre_tokenizers

from robustok.guard import Guard
from robustok.ragged import Ragged
from robustok.tokenizer import gigatoken as gigatoken_encoder
from robustok.tokenizer.comparison import KINDS, Characters
from robustok.tokenizer.data import Text
from robustok.tokenizer.gigatoken import GigatokenEncoder
from robustok.tokenizer.vocabulary import Vocabulary

pytest.importorskip("gigatoken")
documents = pytest.importorskip("tests.corpus.conftest").documents  # imports pyarrow
SPELLINGS = ["<|end|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<0x41>", "▁", "Ġ", "<|endoftext|>"]
texts = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.lists(st.sampled_from([*KINDS, *SPELLINGS]), max_size=15).map("".join)
    | st.binary(max_size=9),
    max_size=5,
)


def gemma() -> Vocabulary:
    """Spaces are marks before a pre-tokenizer that cuts at spaces."""
    tokenizer = metaspace_tokenizer(prefix=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return Vocabulary.load(tokenizer)


def matches_alone() -> Vocabulary:
    """A split removes all but its matches."""
    spec = json.loads(byte_level(LLAMA3).data.library.to_str())
    spec["pre_tokenizer"]["pretokenizers"][0] |= {"behavior": "Removed", "invert": True}
    return Vocabulary.load(Tokenizer.from_str(json.dumps(spec)))


VOCABS = {
    "gpt2": byte_level(None), "llama3": byte_level(LLAMA3), "nfc": byte_level(LLAMA3, nfc=True),
    "llama2": metaspace(prefix=True), "internlm2": metaspace(prefix=False),
    "gemma": gemma(), "matches": matches_alone(),
}  # fmt: skip


def by_tokenizer(vocab: Vocabulary, texts: Sequence[Text]) -> Ragged:
    return Ragged.from_rows(vocab._encode_by_library(list(texts), False))


def loaded(vocab: Vocabulary) -> GigatokenEncoder:
    encoder = vocab.gigatoken
    encoder.load()
    assert encoder.reason is None
    return encoder


@pytest.mark.parametrize("name", VOCABS)
@given(rows=texts)
@example(rows=["", "ſK don't  x", "a\u2028b \u00a0 1½²", b"\xff\xfe ab\xc3", "<|end|><s>"])
@example(rows=["\u0378\u0e3a\u1ac0e\u0301", "\u1100\u1161\u11a8", "\u0958\u2126"])
@settings(max_examples=100)
def test_any_text(name: str, rows: list[Text]) -> None:
    vocab = VOCABS[name]
    loaded(vocab)
    assert vocab.encode_batch(rows) == by_tokenizer(vocab, rows)


HARD = [
    "\u0c5c;d", "12&12\U00011de1's", "a\u0378b", "\u088f\u0cdc\ua7ce", "\U00010940a 1\U00011db0'S",
    "\U00016ea0\u0301 \U00018d80", "e\U0001e6c0\u0301", "\U000323b0\U000323b1", "\u1c89 \ua7cb",
    "Å\u0301 \U000105c0\u0307", "\U000113c5\U000113c2",
]  # fmt: skip


@pytest.mark.parametrize("name", TOKENIZERS)
def test_real_tokenizers_have_the_same_ids_before_and_after_it_is_loaded(name: str) -> None:
    """Texts of `HARD` had other ones."""
    hard = data_path("corpus", "hard_cases.jsonl").read_text().splitlines()
    with lzma.open(data_path("corpus", "multilingual_code.jsonl.xz"), "rt", encoding="utf8") as f:
        mixed = [line for line, _ in zip(f, range(345), strict=False)][::15]
    rows = [*HARD, *(json.loads(line)["text"] for line in [*hard, *mixed])]
    source = real(name).data.library
    added = source.get_added_tokens_decoder().values()
    rows += [f"a{token.content}b {token.content}" for token in added][:300]
    vocab = Vocabulary.load(source)
    vocab.gigatoken._left = 1 << 30
    before = Ragged.from_rows([vocab.encode(row) for row in rows])
    assert vocab.gigatoken._backend is None
    encoded = [loaded(vocab).encode(row) for row in rows]
    assert sum(row is not None for row in encoded) > 0.9 * len(rows)
    assert vocab.encode_batch(rows) == by_tokenizer(vocab, rows) == before
    assert all(Guard(vocab).check(ids).canonical for ids in list(before)[: len(HARD)])


def test_little_text_does_not_load_it() -> None:
    vocab = byte_level(None)
    vocab.encode_batch(["a few words"])
    assert vocab.gigatoken._backend is None and vocab.gigatoken.reason is None
    vocab.encode_batch(["a few words" * 1000])
    assert vocab.gigatoken._backend is not None


def test_all_text_goes_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = byte_level(LLAMA3)
    loaded(vocab)
    whole = by_tokenizer(vocab, documents(20))
    monkeypatch.setattr(vocab, "_encode_by_library", None)
    assert vocab.encode_batch(documents(20)) == whole
    assert vocab.encode(documents(1)[0]).tolist() == whole[0].tolist()
    assert len(vocab.encode_batch([])) == 0 and len(vocab.encode("")) == 0


@pytest.mark.parametrize(
    "options", [{}, {"normalized": True}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}]
)
@pytest.mark.parametrize("name", VOCABS)
def test_added_tokens(name: str, options: dict[str, bool]) -> None:
    tokenizer = Tokenizer.from_str(VOCABS[name].data.library.to_str())
    added = ["<tool>", "the", "thethe", "x y", "\u212b", "▁z"]
    tokenizer.add_tokens([AddedToken(t, **{"normalized": False, **options}) for t in added])
    vocab = Vocabulary.load(tokenizer)
    loaded(vocab)
    rows = [
        "a<tool>b <|end|>",
        " <tool> ",
        "thethethe thether",
        "x yx  y",
        "\u212b\u00c5",
        " z▁z  z",
    ]
    rows += ["".join(pair) for pair in zip(added, [*added[1:], "a"], strict=True)]
    assert vocab.encode_batch_unchecked(rows) == by_tokenizer(vocab, rows)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", VOCABS)
def test_added_tokens_that_overlap_go_to_it(name: str, normalized: bool) -> None:
    tokenizer = Tokenizer.from_str(VOCABS[name].data.library.to_str())
    added = ["\n", "\n\n", "\n\n\nb", "<x>", "<x><y>", "e\u0301"]
    tokenizer.add_tokens([AddedToken(t, normalized=normalized) for t in added])
    hidden = AddedToken("x\n\n>", normalized=normalized, special=True)
    tokenizer.add_special_tokens([hidden])
    vocab = Vocabulary.load(tokenizer)
    rows = ["a\n\n\n\na\n\n\nbx\n\n>", "x\n\n\n", "<x><x><y><y>", "\n", "b\n\n>", "<x>"]
    rows += ["a\n\x01\n\nb", "\x01\n", "the\n the<x>  \n\n\nb<x>", "\n\n"]
    encoded = [loaded(vocab).encode(row) for row in rows]
    # There they see the space before the text, or one is normalized to another text.
    if not (normalized and name in ("llama2", "nfc")):
        assert all(row is not None for row in encoded)
    assert vocab.encode_batch(rows) == by_tokenizer(vocab, rows)


def test_texts_with_tokens_over_two_words_go_to_the_library() -> None:
    spec = json.loads(VOCABS["internlm2"].data.library.to_str())
    vocab, merges = spec["model"]["vocab"], spec["model"]["merges"]
    first = max(vocab.values()) + 1
    vocab |= {"\t": first, "\t▁": first + 1, "\t▁a": first + 2}
    merges[:0] = [["\t", "▁"], ["\t▁", "a"]]
    spanning = Vocabulary.load(Tokenizer.from_str(json.dumps(spec)))
    spans = ["the\t a", "\t▁a", "a \t\t\n a"]
    rows = ["the\tthe  a", " \t  the\t a the\t a  ", *spans, *documents(5)]
    rows += ["".join(random.Random(i).choices(" \t\n▁a\u2003", k=i % 40)) for i in range(500)]
    assert [loaded(spanning).encode(row) for row in spans] == [None] * len(spans)
    assert loaded(spanning).encode("the\tthe  a\n") is not None
    assert spanning.encode_batch(rows) == by_tokenizer(spanning, rows)


@pytest.mark.parametrize("name", VOCABS)
@given(
    alphabet=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    runs=st.lists(st.tuples(st.integers(0, 2**32), st.integers(1, 900)), min_size=1, max_size=4),
    between=st.sampled_from(["", " ", "\n", "\u2003"]),
)
@example(alphabet=["the"], runs=[(0, 100_000)], between="")
@example(alphabet=["e\u0301\u0323"], runs=[(0, 100_000)], between="")
@settings(max_examples=30)
def test_a_long_text_without_words(
    name: str, alphabet: list[str], runs: list[tuple[int, int]], between: str
) -> None:
    parts = [
        "".join(random.Random(seed).choices(alphabet, k=size)) if seed % 2 else alphabet[0] * size
        for seed, size in runs
    ]
    text = between.join(parts)
    encoded = loaded(VOCABS[name]).encode(text)
    if encoded is not None:
        assert encoded.tolist() == by_tokenizer(VOCABS[name], [text])[0].tolist()


def test_the_table_is_replaced_after_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gigatoken_encoder, "TABLE", 1000)
    vocab, rows = byte_level(None), documents(20)
    backends = [loaded(vocab)._backend]
    for _ in range(4):
        assert vocab.encode_batch(rows) == by_tokenizer(vocab, rows)
        backends.append(vocab.gigatoken._backend)
    assert len({*map(id, backends)}) > 1 and None not in backends


def test_another_result_is_a_reason_not_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    vocab = byte_level(None)
    monkeypatch.setattr(gigatoken_encoder, "check_texts", lambda: iter(["never seen"]))
    right = vocab.data.encoder.encode_batch
    monkeypatch.setattr(
        type(vocab.data.encoder), "encode_batch",
        lambda self, texts, parse_special: [[*row, 5] for row in right(texts, parse_special)],
    )  # fmt: skip
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason == "gigatoken gives other ids for 'never seen'"
    assert vocab.gigatoken.encode("the") is None


def test_a_failure_is_a_reason_not_to_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(_: str) -> Any:
        raise PanicException("index out of bounds")

    vocab = byte_level(None)
    encoder = loaded(vocab)
    monkeypatch.setattr(encoder, "_backend", panic)
    assert vocab.encode_batch(["the"]) == by_tokenizer(vocab, ["the"])
    assert encoder.reason == "gigatoken failed (index out of bounds)"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: byte_level(None, prefix=True), "adds a space"),
        (lambda: byte_level(r"(?<=a)b|."), "gigatoken"),
        (lambda: byte_level(r"\d+|\D"), "gigatoken"),
    ],
)
def test_others_are_left_to_the_tokenizer(make: Callable[[], Vocabulary], reason: str) -> None:
    vocab = make()
    vocab.gigatoken.load()
    assert vocab.gigatoken.reason is not None and reason in vocab.gigatoken.reason
    assert vocab.encode_batch(["the rest", ""]) == by_tokenizer(vocab, ["the rest", ""])


def test_several_threads_share_it() -> None:
    vocab = byte_level(None)
    loaded(vocab)
    batches = [documents(40)[i::4] for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(vocab.encode_batch, batches * 20))
    assert results == [by_tokenizer(vocab, batch) for batch in batches] * 20


@needs_fork
def test_a_child_forked_amid_a_call_encodes() -> None:
    vocab = byte_level(None)
    encoder, text = loaded(vocab), " ".join(map(str, range(40_000)))
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            encoder.encode(text)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while not encoder._running:
            time.sleep(0)
        for _ in range(5):
            assert child_succeeds(lambda: len(vocab.encode("the rest")) > 0)
    finally:
        ending.set()
        thread.join()


BESIDE = "aA124!'sS/ \n"  # what every character is compared beside


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.sets(st.characters(exclude_characters=BESIDE)),
)
def test_each_character_is_compared_once_before_a_text_with_it(
    texts: list[str], others: set[str]
) -> None:
    compared: list[str] = []

    def differ(text: str) -> bool:
        compared.append(text)
        return not others.isdisjoint(text)

    characters = Characters(differ)
    for text in texts:
        assert characters.has_other(text) == (not others.isdisjoint(text))
        before = len(compared)
        characters.has_other(text)
        assert len(compared) == before


def test_a_text_of_very_many_new_characters_is_not_compared() -> None:
    compared: list[str] = []
    characters = Characters(lambda text: bool(compared.append(text)))
    before = len(compared)
    assert characters.has_other("".join(map(chr, range(0x4E00, 0x4E00 + 5000))))
    assert len(compared) == before
    assert not characters.has_other("".join(map(chr, range(0x4E00, 0x4E00 + 4000))))


def test_a_character_that_another_release_cuts_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a release of one of the libraries had changed the class of a character."""
    right = gigatoken_encoder._differ
    monkeypatch.setattr(
        gigatoken_encoder, "_differ", lambda pre: lambda text: "ж" in text or right(pre)(text)
    )
    vocab = byte_level(LLAMA3)
    assert loaded(vocab).encode("a ж") is None
    row = vocab.gigatoken.encode("a й")
    assert row is not None and row.tolist() == vocab.encode("a й").tolist()
