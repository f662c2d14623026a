"""One table to one table: what is drawn, and that nothing but the document decides it."""

import hashlib
import pickle
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from tests.corpus.conftest import documents
from tests.oracles.lattice import splits

import robustok as rt
from robustok.corpus import Retokenize
from robustok.corpus.documents import SCHEMA, document_keys
from robustok.errors import RobustokError
from robustok.ragged import Ragged

SCHEME = "uniform-k(alpha=0.5)"


def table(texts: list[str]) -> pa.Table:
    return pa.table({"text": texts, "id": [f"d{i}" for i in range(len(texts))]})


def test_rows_are_the_samplers(vocab: rt.Vocabulary) -> None:
    texts = [*documents(20), ""]
    out = Retokenize(vocab, SCHEME, seed=3, epoch=2, draws=2)(table(texts))
    assert out.schema.equals(SCHEMA)
    names = [f"d{i}" for i in range(len(texts))]
    canonical = vocab.encode_batch(texts)
    keys = document_keys(names, canonical)
    drawn = rt.sampler(SCHEME, vocab).sample_batch(canonical, seed=3, epoch=2, draws=2, keys=keys)
    for i, row in enumerate(out.to_pylist()):
        ids, before = drawn[i], canonical[i // 2]
        assert row["input_ids"] == ids.tolist()
        assert (row["id"], row["draw"], row["key"]) == (names[i // 2], i % 2, keys[i // 2])
        assert vocab.decode_bytes(row["input_ids"]).decode() == texts[i // 2]
        assert row["canonical_tokens"] == len(before)
        assert row["distance"] == rt.distance(vocab, before, ids)
        assert row["splits"] == splits(vocab, before, ids)


def test_key_is_a_hash_of_id_and_canonical_ids() -> None:
    rows = Ragged.from_rows([[5, 6], [5, 6], [7]])
    keys = document_keys(["a", None, None], rows)
    wanted = hashlib.blake2b(b"a\0" + b"\x05\0\0\0\x06\0\0\0", digest_size=8).digest()
    assert keys[0] == int.from_bytes(wanted, "little", signed=True)
    assert len(set(keys.tolist())) == 3
    assert keys.tolist() == document_keys(["a", "", ""], rows).tolist()


def test_batches_and_order_change_nothing(vocab: rt.Vocabulary) -> None:
    work = Retokenize(vocab, SCHEME, seed=1, draws=3)
    whole = table(documents(30))
    out = work(whole)
    again = [pickle.loads(pickle.dumps(work))(whole.slice(i, 7)) for i in range(28, -1, -7)]
    assert pa.concat_tables(again[::-1]).equals(out)


def test_texts_and_their_ids_are_drawn_alike(vocab: rt.Vocabulary) -> None:
    texts = documents(20)
    out = Retokenize(vocab, SCHEME, seed=1)(pa.table({"text": texts}))
    ids = [ids.tolist() for ids in vocab.encode_batch(texts)]
    for kind in (pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16())):
        given = pa.table({"ids": pa.array(ids, kind)})
        assert Retokenize(vocab, SCHEME, seed=1, column="ids")(given).equals(out)
    for kind in (pa.binary(), pa.large_string()):
        given = pa.table({"text": pa.array(texts).cast(kind)})
        assert Retokenize(vocab, SCHEME, seed=1)(given).equals(out)


@pytest.mark.parametrize(("given", "message"), [
    ({"body": ["x"]}, "no column 'text': it has body"),
    ({"text": ["x", None]}, "null rows"),
    ({"text": [[1, 2**40]]}, "no token ids"),
    ({"text": [[1, 10**6]]}, "not in the vocabulary"),
    ({"text": [[1, 2], [1, None]]}, "column 'text' has a null inside a list"),
])  # fmt: skip
def test_what_cannot_be(vocab: rt.Vocabulary, given: dict, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        Retokenize(vocab, "uniform", seed=0)(pa.table(given))


@pytest.mark.parametrize(("wrong", "message"), [
    ({"vocab": "demo"}, "a Vocabulary is needed here, not str"),
    ({"seed": None}, "seed must be an integer"),
    ({"epoch": 0.5}, "epoch must be an integer"),
    ({"draws": "a"}, "draws must be an integer"),
    ({"draws": 0}, "draws=0"),
])  # fmt: skip
def test_arguments_are_checked_when_it_is_made(vocab: rt.Vocabulary, wrong, message: str) -> None:
    with pytest.raises(RobustokError, match=message):
        Retokenize(**{"vocab": vocab, "scheme": "uniform", "seed": 0, **wrong})


@pytest.mark.parametrize("form", [None, "arrow"])
def test_datasets_map_it_as_it_is(vocab: rt.Vocabulary, tmp_path: Path, form: str | None) -> None:
    datasets = pytest.importorskip("datasets")
    texts = documents(5)
    work = Retokenize(vocab, SCHEME, seed=1, draws=2)
    rows = datasets.Dataset.from_dict({"text": texts}).with_format(form)
    mapped = rows.map(
        work, batched=True, batch_size=2, cache_file_name=str(tmp_path / "cache.arrow")
    )
    expected = work(pa.table({"text": texts}))
    assert mapped.with_format(None)["input_ids"][:] == expected.column("input_ids").to_pylist()


@pytest.mark.parametrize(("given", "message"), [
    ({"id": [[1]]}, "a list<.*a document's id is a text or a number"),
    ({"id": [{"a": 1}]}, "a struct<.*a document's id is a text or a number"),
    ({"id": [date(2024, 1, 1)]}, "a date32.*a document's id is a text or a number"),
    ({"id": [b"\xff"]}, "the field 'id' is not text"),
])  # fmt: skip
def test_ids_that_are_neither_texts_nor_numbers_are_errors(
    vocab: rt.Vocabulary, given: dict, message: str
) -> None:
    with pytest.raises(RobustokError, match=message):
        Retokenize(vocab, "uniform", seed=0)(pa.table({"text": ["x"], **given}))


def test_names_of_columns_are_checked_when_it_is_made(vocab: rt.Vocabulary) -> None:
    for name in SCHEMA.names:
        with pytest.raises(RobustokError, match=f"'{name}' has the name of an output column"):
            Retokenize(vocab, "uniform", seed=0, keep=("url", name))
    with pytest.raises(RobustokError, match="cannot be in the field 'id'"):
        Retokenize(vocab, "uniform", seed=0, column="id")
    with pytest.raises(RobustokError, match="keep: give a list"):
        Retokenize(vocab, "uniform", seed=0, keep="url")  # type: ignore[arg-type]
    given = pa.table({"text": ["x"], "url": ["u"]})
    out = Retokenize(vocab, "uniform", seed=0, keep=("url", "url"))(given)
    assert out.column_names == [*SCHEMA.names, "url"]
    for name in ("text", "url"):
        twice = given.append_column(name, pa.array(["y"]))
        with pytest.raises(RobustokError, match=f"several columns '{name}'"):
            Retokenize(vocab, "uniform", seed=0, keep=("url",))(twice)


def test_draws_beyond_what_a_column_holds_are_errors(
    vocab: rt.Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("robustok.corpus.documents._MOST", 1000)
    text, long = "a b c d", "u" * 200
    work = Retokenize(vocab, SCHEME, seed=0, draws=50, keep=("url",))
    assert len(work(pa.table({"text": [text], "url": ["u"]}))) == 50
    dictionary = pa.array([long]).dictionary_encode()
    assert len(work(pa.table({"text": [text], "url": dictionary}))) == 50
    for given, what in (
        ({"text": [text * 40], "url": ["u"]}, "ids"),
        ({"text": [text], "url": [long]}, "bytes of the column 'url'"),
        ({"text": [text], "url": ["u"], "id": [long]}, "bytes of the column 'id'"),
    ):
        with pytest.raises(RobustokError, match=f"50 draws have .* {what}, more than the 1,000"):
            work(pa.table(given))


@pytest.mark.parametrize("name", ["labels", "label_ids", "targets"])
@pytest.mark.parametrize("column", ["text", "ids"])
def test_labels_beside_the_ids_are_refused_whatever_their_name(vocab, name, column) -> None:
    texts = ["hello world", "the quick brown fox"]
    ids = [row.tolist() for row in vocab.encode_batch(texts)]
    labels = [[-100] * (len(row) - 1) + row[-1:] for row in ids]
    rows = {"text": texts, "ids": ids, name: labels}
    del rows["text" if column == "ids" else "ids"]
    with pytest.raises(RobustokError, match=f"the column '{name}' holds labels"):
        Retokenize(vocab, "uniform", seed=0, column=column)(rows)
    masks = {**rows, name: [[1] * len(row) for row in ids]}
    assert len(Retokenize(vocab, "uniform", seed=0, column=column)(masks)) == 2
    with pytest.raises(RobustokError, match="a value for each id and cannot be kept"):
        Retokenize(vocab, "uniform", seed=0, column=column, keep=(name,))(masks)
    classes = {**rows, name: [[1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]] * 2}
    assert len(Retokenize(vocab, "uniform", seed=0, column=column, keep=(name,))(classes)) == 2
