"""The wording of the paper's benchmarks, and their place on the hub.

The wording is that of the paper's appendix: the question unchanged, the answer after a space. The
question of SocialIQA has no line end, which lm-eval would score with the answer. BLiMP and other
pairs of sentences have no question; their sentences are scored whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from robustok.errors import RobustokError
from robustok.runtime.files import JsonObject

Row = Mapping[str, Any]
Worded = tuple[str, list[str], str]
"""A question and its choices as the model reads them, and the kind of the question."""


class Hub(NamedTuple):
    """Where a benchmark is on the hub, and how its rows are converted.

    ``config`` is one configuration, several, or None for all; each of several is a kind. ``path``
    is a repository without a loading script, since `datasets` refuses scripts: for PIQA and
    SocialIQA a copy in Parquet. ``revision`` is a commit.
    """

    path: str
    config: str | tuple[str, ...] | None
    split: str
    row: Callable[[Row], JsonObject]
    revision: str | None

    @property
    def name(self) -> str:
        """The repository with its commit."""
        return f"{self.path}@{self.revision}" if self.revision else self.path


def _after_space(choices: Iterable[str]) -> list[str]:
    return [choice if choice[:1].isspace() else " " + choice.strip() for choice in choices]


def _kind(row: Row) -> str:
    return str(row.get("kind") or row.get("task") or "")


def _question(row: Row) -> str:
    # `query` is the field of the benchmarks' own files.
    return row["query" if "query" in row else "question"]


def as_written(row: Row) -> Worded:
    return row["question"], row["choices"], _kind(row)


def plain(row: Row) -> Worded:
    """A question and its answers, each after a space; without a question, whole sentences."""
    question = _question(row)
    # Whole sentences start a text, so nothing precedes them.
    choices = _after_space(row["choices"]) if question else [c.strip() for c in row["choices"]]
    return question, choices, _kind(row)


def _copa(row: Row) -> Worded:
    return f"{row['query']} {row['question']}?", _after_space(row["choices"]), ""


def _social_iqa(row: Row) -> Worded:
    question = f"Context: {row['context']}\nQuestion: {row['question']}"
    return f"Choose the most likely answer.\n{question}", _after_space(row["choices"]), ""


def _hellaswag(row: Row) -> Worded:
    # The context alone: the data set's own question begins with the activity's label.
    return plain({**row, "query": row["ctx"] if "ctx" in row else _question(row)})


def _winogrande(row: Row) -> Worded:
    before, blank, after = _question(row).partition("_")
    if not blank:
        raise RobustokError("the sentence has no blank '_' that a name fills: mark its place")
    return before.rstrip(), [f" {c}{after}" for c in row["choices"]], ""


def _cute(row: Row) -> Worded:
    return f'{_question(row)} Answer: "', [f'{c}"' for c in row["choices"]], _kind(row)


def _blimp(row: Row) -> Worded:
    return "", [c.strip() for c in row["choices"]], str(row.get("UID", ""))


WORDED: dict[str, Callable[[Row], Worded]] = {
    "copa": _copa,
    "balanced_copa_mirrored": _copa,
    "hellaswag": _hellaswag,
    "social_iqa": _social_iqa,
    "winogrande": _winogrande,
    "cute": _cute,
    "blimp": _blimp,
}


def _hub_letters(row: Row) -> JsonObject:
    """Choices under letters or numbers, as ARC and CommonsenseQA have them."""
    choices = row["choices"]
    label = list(choices["label"]).index(row["answerKey"])
    return {"query": row["question"], "choices": list(choices["text"]), "label": label}


def _fields(
    choices: str | tuple[str, ...], label: str, *, first: int = 0, **texts: str
) -> Callable[[Row], JsonObject]:
    """A conversion that takes each value from a field of the hub's row.

    ``choices`` is the field of a list, or a field for each choice; ``first`` is the label of the
    first choice. ``texts`` are the other fields, by our names.
    """

    def convert(row: Row) -> JsonObject:
        options = row[choices] if isinstance(choices, str) else [row[name] for name in choices]
        values = {name: row[field] for name, field in texts.items()}
        return values | {"choices": list(options), "label": int(row[label]) - first}

    return convert


def _hub_blimp(row: Row) -> JsonObject:
    # The right sentence is not always first, so a model without preference is at chance.
    label = sum(row["sentence_good"].encode()) % 2
    pair = [row["sentence_good"], row["sentence_bad"]]
    return {"UID": row["UID"], "choices": pair[::-1] if label else pair, "label": label}


def _hub_toksuite(row: Row) -> JsonObject:
    question, choices = row["question"].strip(), list(row["choices"])
    return {"query": question, "choices": choices, "label": int(row["answer"])}


# The subsets of TokSuite's English questions.
TOKSUITE = (
    "abbreviations", "canonical", "capitalization", "character_deletion", "character_substitution",
    "colloquial", "compounds", "contractions", "date_formats", "emoji_substitution",
    "grammatical_errors", "historical_spelling", "homoglyphs", "hyphenated_spelling", "inflections",
    "keyboard_proximity_errors", "letter_repetition_for_emphasis", "lowercase", "macron_diacritic",
    "ocr_errors", "orthographic_errors", "scripted_text", "similar_words", "space_removal",
    "spaced_styling", "spelled_out", "superscript_subscript_styling", "web_search_query",
    "word_reordering",
)  # fmt: skip

HUB: dict[str, Hub] = {
    "arc_easy": Hub(
        "allenai/ai2_arc", "ARC-Easy", "test", _hub_letters,
        "210d026faf9955653af8916fad021475a3f00453",
    ),
    "copa": Hub(
        "aps/super_glue", "copa", "validation",
        _fields(("choice1", "choice2"), "label", query="premise", question="question"),
        "3de24cf8022e94f4ee4b9d55a6f539891524d646",
    ),
    "commonsense_qa": Hub(
        "tau/commonsense_qa", "default", "validation", _hub_letters,
        "94630fe30dad47192a8546eb75f094926d47e155",
    ),
    "hellaswag": Hub(
        "Rowan/hellaswag", "default", "validation",
        _fields("endings", "label", query="ctx"),
        "218ec52e09a7e7462a5400043bb9a69a41d06b76",
    ),
    "piqa": Hub(
        "baber/piqa", "default", "validation",
        _fields(("sol1", "sol2"), "label", query="goal"),
        "142f6d7367fd9877f0fb3b5734ea6a545f54cdd1",
    ),
    "social_iqa": Hub(
        "lighteval/siqa", "default", "validation",
        _fields(("answerA", "answerB", "answerC"), "label", first=1, context="context",
                question="question"),
        "54c6a1f8cb6daf4f5abf24a601852612fb35eb25",
    ),
    "winogrande": Hub(
        "allenai/winogrande", "winogrande_xl", "validation",
        _fields(("option1", "option2"), "answer", first=1, query="sentence"),
        "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
    ),
    "blimp": Hub(
        "nyu-mll/blimp", None, "train", _hub_blimp,
        "877fba0801ffb7cbd8c39c1ff314a46f053f6036",
    ),
    "toksuite": Hub(
        "toksuite/toksuite_english", tuple(f"toksuite_english_{name}" for name in TOKSUITE), "test",
        _hub_toksuite, None,
    ),
}  # fmt: skip
