"""Benchmarks as items: the paper's wording, the hub's schemas, wrong lines; texts of files."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import write_rows
from tests.oracles.data import data_path

from robustok.errors import RobustokError
from robustok.tasks import (
    HUB,
    Item,
    Pair,
    benchmark_files,
    read_items,
    read_questions,
    read_texts,
    write_items,
)
from robustok.tasks.benchmarks import TOKSUITE, WORDED

ROWS = {
    "copa": {"query": "It rained.", "question": "effect", "choices": ["It is wet.", "It is dry."]},
    "social_iqa": {"context": "A met B.", "question": "Why?", "choices": ["x", "y", "z"]},
    "winogrande": {"query": "A hit B as _ was angry.", "choices": ["A", "B"]},
    "cute": {"query": "Spell cat.", "task": "spell", "choices": ["c a t", "c t a"]},
    "blimp": {"query": "", "UID": "island", "choices": ["He runs.", "He run."]},
    "piqa": {"query": "To open a jar,", "choices": ["twist the lid ", "wait"]},
    "hellaswag": {"query": "Run: He", "ctx": "He", "choices": ["a", "b"]},
}
WANTED = {
    "copa": ("It rained. effect?", (" It is wet.", " It is dry.")),
    "social_iqa": (
        "Choose the most likely answer.\nContext: A met B.\nQuestion: Why?",
        (" x", " y", " z"),
    ),
    "winogrande": ("A hit B as", (" A was angry.", " B was angry.")),
    "cute": ('Spell cat. Answer: "', ('c a t"', 'c t a"')),
    "blimp": ("", ("He runs.", "He run.")),
    "piqa": ("To open a jar,", (" twist the lid", " wait")),
    "hellaswag": ("He", (" a", " b")),
}


@pytest.mark.parametrize("name", ROWS)
def test_each_has_its_wording(name: str, tmp_path: Path) -> None:
    plain = write_rows(tmp_path / f"{name}.jsonl", [{"label": 1, **ROWS[name]}])
    compressed = tmp_path / f"{name}.jsonl.gz"
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, compressed):
        (item,) = read_items(path)
        assert (item.question, item.choices) == WANTED[name]
        assert item.label == 1


def test_an_own_question_with_the_right_choice_twice_is_refused(tmp_path: Path) -> None:
    """Published benchmarks have a few, which stay in their counts."""
    row = {"question": "Which?", "choices": ["a", " a", "b"], "label": 0}
    with pytest.raises(RobustokError, match=r"own.jsonl:1: the right choice 'a' is there twice"):
        read_items(write_rows(tmp_path / "own.jsonl", [row]))
    assert len(read_items(write_rows(tmp_path / "commonsense_qa.jsonl", [row]))) == 1
    assert len(read_items(write_rows(tmp_path / "other.jsonl", [row | {"label": 2}]))) == 1


@pytest.mark.parametrize("name", [name for name in ROWS if "question" not in ROWS[name]])
def test_the_question_of_a_benchmark_may_be_under_that_name(name: str, tmp_path: Path) -> None:
    row = {"label": 1, **ROWS[name]}
    row["question"] = row.pop("query")
    (item,) = read_items(write_rows(tmp_path / f"{name}.jsonl", [row]))
    assert (item.question, item.choices) == WANTED[name]


def test_a_file_holds_the_fields_of_an_item(tmp_path: Path) -> None:
    write_items(tmp_path / "a.jsonl", [Item("a", "Which?", (" x", " y"), 1, "odd")])
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "key": "a", "question": "Which?", "choices": [" x", " y"], "label": 1, "kind": "odd",
    }  # fmt: skip


def test_a_key_of_null_is_none(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["x", "y"], "label": 0}
    lines = [{**row, "key": None}, {**row, "id": None}, {**row, "key": None, "id": 7}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [item.key for item in read_items(tmp_path / "a.jsonl")] == ["a-1", "a-2", "7"]


CHOICES = (" a", " b")


@pytest.mark.parametrize("fields", [
    *(("a", "q", CHOICES, label) for label in (True, False, 0.0, "0", None, 2, -1)),
    (1, "q", CHOICES, 0), ("a", None, CHOICES, 0), ("a", b"q", CHOICES, 0),
    ("a", "q", CHOICES, 0, None), ("a", "q", CHOICES, 0, 1),
    *(("a", "q", choices, 0) for choices in (
        " ab", None, 5, {" a", " b"}, {" a": 0, " b": 1}, iter(CHOICES), np.array(CHOICES),
        (1, 2), (" a", None), (" a",), (" a", ""),
    )),
])  # fmt: skip
def test_what_is_no_item_is_refused(fields: Any) -> None:
    with pytest.raises(RobustokError, match="item"):
        Item(*fields)


def test_an_item_has_a_tuple_and_an_int() -> None:
    item = Item("a", "q", list(CHOICES), np.int64(1))  # type: ignore[arg-type]
    assert item.choices == CHOICES and hash(item)
    assert type(item.label) is int and item.answer == " b"


@pytest.mark.parametrize("fields", [(1, "q", " a"), ("a", None, " a"), ("a", "q", 3)])
def test_the_texts_of_a_pair_are_texts(fields: Any) -> None:
    with pytest.raises(RobustokError, match=r"pair .* that is no text"):
        Pair(*fields)


HUB_ROWS: dict[str, dict[str, Any]] = {
    "arc_easy": {"question": "Q?", "answerKey": "2",
                 "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}},
    "commonsense_qa": {"question": "Q?", "answerKey": "B",
                       "choices": {"text": ["a", "b"], "label": ["A", "B"]}},
    "copa": {"premise": "It rained.", "question": "effect", "choice1": "a", "choice2": "b",
             "label": 1},
    "hellaswag": {"activity_label": "Run", "ctx": "He", "endings": ["a", "b"], "label": "1"},
    "piqa": {"goal": "G", "sol1": "a", "sol2": "b", "label": 1},
    "social_iqa": {"context": "C.", "question": "Q?", "answerA": "a", "answerB": "b",
                   "answerC": "c", "label": "2"},
    "winogrande": {"sentence": "S _ is b.", "option1": "a", "option2": "b", "answer": "2"},
    "blimp": {"UID": "u", "sentence_good": "b", "sentence_bad": "a"},
    "toksuite": {"question": " Q? ", "choices": ["a", "b"], "answer": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", HUB)
def test_the_hubs_schemas_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right answer is 'b' in each; a data set of that schema stands in for the hub."""
    import datasets

    def load(path: str, config: str, split: str, revision: str) -> Any:
        assert (path, split) == (HUB[name].path, HUB[name].split)
        assert revision == "v2"
        return datasets.Dataset.from_list([HUB_ROWS[name]])

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda path, revision: ["kind-a"])
    item, *others = read_items(f"{name}@v2")
    assert item.answer.strip().startswith("b")
    assert item.kind == {"toksuite": "abbreviations", "blimp": "u"}.get(name, "")
    assert [other.kind for other in others] == (list(TOKSUITE[1:]) if name == "toksuite" else [])
    assert name in WORDED or item.choices[0] == " a"


@pytest.mark.parametrize(
    ("name", "field"),
    [("commonsense_qa", "answerKey"), ("hellaswag", "label"), ("winogrande", "answer")],
)
def test_a_split_without_answers_is_refused(
    name: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    rows = [HUB_ROWS[name] | {field: ""}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_list(rows))
    with pytest.raises(RobustokError, match=rf"^{name}-test-\w+-0 has no answer: choose a split"):
        read_items(name, split="test")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"query": "q", "choices": ["a", "b"]}, "copa.jsonl:1 lacks 'label'"),
        ({"query": "q", "label": 0}, "copa.jsonl:1 lacks 'choices'"),
        ({"query": "q", "choices": ["a", "b"], "label": 0}, "lacks 'question': give question"),
        ({"question": "q", "choices": ["a", "b"], "label": 0}, "lacks 'query': .* rename the file"),
        ({"query": "q", "question": "?", "choices": ["a", 2], "label": 0}, "copa.* no text"),
        ({"query": "q", "question": "?", "choices": ["a", "b"], "label": 5}, "label 5"),
    ],
)
def test_a_wrong_line_is_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RobustokError, match=message):
        read_items(write_rows(tmp_path / "copa.jsonl", [row]))


def test_a_text_to_ask_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """A part of copa.jsonl under another name was asked without "effect?"."""
    part = write_rows(tmp_path / "part.jsonl", [{"label": 0, **ROWS["copa"]}])
    with pytest.raises(RobustokError, match=r"part.jsonl:1: question and query differ.* name the"):
        read_items(part)
    row = {"question": "Why?", "query": "Why?", "choices": ["x", "y"], "label": 0}
    assert read_items(write_rows(part, [row]))[0].question == "Why?"
    with pytest.raises(RobustokError, match="no blank '_'"):
        read_items(write_rows(tmp_path / "winogrande.jsonl", [row]))


def test_a_split_of_a_file_and_a_line_of_another_kind_are_refused(tmp_path: Path) -> None:
    row = {"question": "Q?", "choices": ["a", "b"], "label": 0, "answer": " a"}
    with pytest.raises(RobustokError, match="no split 'train'"):
        read_items(write_rows(tmp_path / "own.jsonl", [row]), split="train")
    path = write_rows(tmp_path / "mixed.jsonl", [{"prompt": "Q?", "answer": " a"}, row])
    with pytest.raises(RobustokError, match=r"mixed\.jsonl:2 has choices"):
        read_questions(path)


def test_an_unknown_name_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(RobustokError, match="did you mean 'hellaswag'"):
        read_items("helaswag")
    with pytest.raises(RobustokError, match=r"holds no \.jsonl"):
        benchmark_files(tmp_path)
    (tmp_path / "config.json").touch()
    with pytest.raises(RobustokError, match="is the folder of a model"):
        benchmark_files(tmp_path)


def test_the_ten_at_hand_are_read_whole() -> None:
    folder = data_path("benchmarks")
    sizes = {name: len(read_items(path)) for name, path in benchmark_files(folder).items()}
    assert len(sizes) == 10
    assert (sizes["copa"], sizes["blimp"], sizes["cute"]) == (500, 3350, 1050)
    assert all(not item.question for item in read_items(folder / "blimp.jsonl", limit=9))


def test_a_hub_out_of_reach_is_one_line(monkeypatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise ConnectionError("Couldn't reach the Hub")

    for name in ("load_dataset", "get_dataset_config_names"):
        monkeypatch.setattr(f"datasets.{name}", load)
    for name in ("copa", "blimp"):  # all configurations of blimp are asked for first
        with pytest.raises(RobustokError, match=rf"connect, or give a file {name}\.jsonl"):
            read_items(name, limit=1)


DOCUMENTS = ["one\ntwo", "naïve\u2028 🦜", ""]
LINES = "".join(json.dumps({"text": d}, ensure_ascii=False) + "\n" for d in DOCUMENTS)


def test_documents_come_from_every_kind_of_file(tmp_path):
    (tmp_path / "a.jsonl").write_text(LINES, encoding="utf-8")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))
    (tmp_path / "c.jsonl.xz").write_bytes(lzma.compress(LINES.encode()))
    pq.write_table(pa.table({"text": DOCUMENTS}), tmp_path / "d.parquet")
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.xz", "d.parquet"):
        assert list(read_texts(tmp_path / name)) == DOCUMENTS
    (tmp_path / "e.txt").write_bytes(b"a\r\nb")
    both = [tmp_path / "e.txt", tmp_path / "a.jsonl"]
    assert list(read_texts(both)) == ["a", "b", *DOCUMENTS]
    assert list(read_texts(both, sample_by="document")) == ["a\r\nb", *DOCUMENTS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is not read: give .parquet, .jsonl"),
        ("a.jsonl", b'{"text": 3}', "a.jsonl:1 has no text in the field 'text'"),
        ("a.jsonl", b'{"text": "x"}\n{', "a.jsonl:2 is not JSON"),
        ("a.txt", b"\xff", "a.txt is not UTF-8 text"),
        ("a.jsonl.gz", b"no", r"a\.jsonl\.gz cannot be read after line 0"),
        ("a.jsonl.xz", b"no", r"a\.jsonl\.xz cannot be read after line 0"),
        ("a.parquet", b"PAR1", r"a\.parquet: the file cannot be read as Parquet"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RobustokError, match=message):
        list(read_texts(tmp_path / name))
    with pytest.raises(RobustokError, match="no such file"):
        list(read_texts(tmp_path / "none.txt"))
