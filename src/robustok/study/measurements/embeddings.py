"""Distance between the tokenizations of a word, in each layer of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from robustok import evaluation
from robustok.checks import option
from robustok.runtime.display import Progress
from robustok.runtime.files import JsonFields
from robustok.study.cell import Summary
from robustok.study.measurements.base import MeasuredCell, Measurement, OpenedCell, Subject
from robustok.tasks import frequent_words, read_words


@dataclass(frozen=True, kw_only=True)
class Embeddings(Measurement):
    """Distance between the tokenizations of a word, in each layer of each model."""

    kind: ClassVar[str] = "embeddings"
    reads_weights: ClassVar[bool] = True

    words: int = option("number of the most frequent English words", default=1000, min=1)
    words_file: str | None = option("file with one word per line, instead", default=None)
    draws: int = option("draws of each word", default=50, min=1)
    sentences: tuple[str, ...] = option(
        "also measure the word in this text, as 'I said {word} twice.'", default=()
    )
    own_words: tuple[str, ...] = field(
        default=(), metadata={"description": "the words themselves, where there is no words_file"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sentences:
            from robustok.evaluation.embeddings import check_sentence  # needs torch

            for sentence in self.sentences:
                check_sentence(sentence)

    @property
    def eval_scheme(self) -> str:
        sentence = next(iter(self.sentences), "")
        return f"embeddings in {sentence!r}" if sentence else "embeddings"

    def variants(self) -> Iterator[Self]:
        words = tuple(read_words(self.words_file)) if self.words_file else self.own_words
        for sentence in ("", *self.sentences):
            changes = {"sentences": (sentence,) if sentence else (), "words_file": None}
            yield replace(self, own_words=words, **changes)

    def measured_on(self, subject: Subject) -> Iterator[JsonFields]:
        yield {}

    def tokens_read(self, cell: MeasuredCell) -> float:
        # A word has few tokens; its tokenizations share them.
        return (len(self.own_words) or self.words) * self.draws * 3

    def run(self, opened: OpenedCell) -> Summary:
        sentence = next(iter(self.sentences), "")

        def measure_group(group: Sequence[str], progress: Progress) -> Summary:
            result = evaluation.embedding_distances(
                opened.model,
                opened.vocab,
                group,
                draws=self.draws,
                seed=opened.seed,
                sentence=sentence or None,
                prefix=opened.start or None,
                progress=progress,
            )
            return {"words": result.by_word}

        groups = opened.in_groups(list(self.own_words) or frequent_words(self.words), measure_group)
        by_word = {
            word: evaluation.WordDistances(others, tuple(mean))
            for group in groups
            for word, (others, mean) in group["words"].items()
        }
        result = evaluation.EmbeddingDistances(by_word, sentence, self.draws, opened.seed)
        name = opened.cell.model.name_in_figure
        layers = [{"model": name, **layer} for layer in result.table()]
        return {"layers": layers, "precision": opened.precision}

    def line(self, row: JsonFields) -> str:
        distances = " ".join(f"{layer['mean']:.3f}" for layer in row["layers"])
        return f"{row['eval_scheme']}: {distances} by layer"
