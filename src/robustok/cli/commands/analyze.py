"""robustok analyze: the paper's analyses of schemes, computed from tokenizers without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from robustok import analysis
from robustok.cli.options import (
    TOKENIZER,
    Json,
    SampleBy,
    Seed,
    Texts,
    WordOptions,
    add_commands,
    by_name,
    draws_option,
    figure_folder,
    option,
    scheme_option,
)
from robustok.cli.printing import bar, print_json, print_table, print_written
from robustok.report import analyses as figures
from robustok.runtime.display import Z95
from robustok.runtime.files import write_csv
from robustok.tasks import read_texts
from robustok.tokenizer.vocabulary import Vocabulary

app = typer.Typer(
    help="Analyze schemes without a model. The analyses of the paper's appendix, and bias.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Row = Mapping[str, Any]
PAPER = ("stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)", "uniform")
PAIR = ("uniform", "stochastok(alpha=1)")


@dataclass(frozen=True)
class AnalysisOptions:
    """The tokenizers of an analysis and its figure."""

    tokenizer: tuple[str, ...] = option(
        f"{TOKENIZER}; NAME=PATH sets its name", "--tokenizer", "-t", metavar="PATH"
    )
    out: Path | None = option(
        "folder for the figure (PNG, SVG) and the CSV", "--out", "-o", default=None,
        metavar="FOLDER", callback=figure_folder,
    )  # fmt: skip

    def vocabularies(self) -> dict[str, Vocabulary]:
        given: Any = self.tokenizer  # a str where an analysis is of one tokenizer
        paths = [given] if isinstance(given, str) else list(given)
        return {name: Vocabulary.load(path) for name, path in by_name(paths, "tokenizer").items()}

    def each(self, analyze: Callable[..., Any], *args: Any, **settings: Any) -> dict[str, Any]:
        """The analysis of each tokenizer, by its name."""
        results = {}
        for name, vocab in self.vocabularies().items():
            with bar(name) as progress:
                results[name] = analyze(vocab, *args, progress=progress, **settings)
        return results

    def show(
        self, rows: Sequence[Row], columns: Mapping[str, str], as_json: bool,
        draw: Callable[[Path], list[Path]], table: Sequence[Row] | None = None,
    ) -> None:  # fmt: skip
        """Print all rows as JSON, or a table of formats of their fields, and draw the figure.

        ``table`` has the rows of the table where they are others.
        """
        if as_json:
            print_json(list(rows))
        else:
            derived = [
                {**row, "about": "" if row.get("exact", True) else "~",
                 "plus": Z95 * row.get("error", 0)}
                for row in (rows if table is None else table)
            ]  # fmt: skip
            cells = [[text.format(**row) for text in columns.values()] for row in derived]
            print_table([*columns], cells)
        if self.out is not None:
            print_written(draw(self.out), as_json)


@dataclass(frozen=True)
class TextOptions(AnalysisOptions):
    """An analysis of a token of a text."""

    draws: int = draws_option("draws of each text", 50_000)
    text: str | None = option("[default: the paper's sentence]", default=None)

    @property
    def sentence(self) -> str:
        return self.text or analysis.SENTENCE


@dataclass(frozen=True)
class SplitCountOptions(TextOptions):
    tokenizer: str = option(TOKENIZER, "--tokenizer", "-t", metavar="PATH")  # type: ignore
    token: int = option("number of the canonical token, from 0", default=0, min=0)
    scheme: tuple[str, ...] = scheme_option(default=PAPER)


def split_counts(seed: Seed, options: SplitCountOptions, as_json: Json = False) -> None:
    """Count the splits inside one token, drawn and in theory."""
    (vocab,) = options.vocabularies().values()
    results = []
    for spec in options.scheme:
        with bar(spec) as progress:
            counts = analysis.split_counts(
                vocab, options.sentence, spec, seed=seed, token=options.token,
                draws=options.draws, progress=progress,
            )  # fmt: skip
        results.append(counts)
    columns = {"scheme": "{scheme}", "distribution": "{distribution}", "splits": "{splits}",
               "share": "{share:.2%}"}  # fmt: skip
    rows = figures.split_rows(results)
    options.show(rows, columns, as_json, partial(figures.draw_split_counts, results))


@dataclass(frozen=True)
class SegmentationOptions(TextOptions):
    token: int = option("number of the canonical token, from 0", default=0, min=0)
    scheme: tuple[str, ...] = scheme_option(default=PAIR)
    splits: int = option("greatest number of splits", default=4, min=1)


def segmentations(seed: Seed, options: SegmentationOptions, as_json: Json = False) -> None:
    """Count how often each segmentation of a token is drawn."""
    results = options.each(
        analysis.segmentations, options.sentence, list(options.scheme), seed=seed,
        token=options.token, splits=options.splits, draws=options.draws,
    )  # fmt: skip
    rows = figures.segmentation_rows(results)
    names = ("tokenizer", "splits", "scheme")
    table: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        group = {name: row[name] for name in names}
        counts = table.setdefault((*group.values(),), group | {"drawn": 0, "segmentations": 0})
        counts["drawn"] += row["share"] > 0
        counts["segmentations"] += 1
    columns = {name: f"{{{name}}}" for name in (*names, "drawn", "segmentations")}
    draw = partial(figures.draw_segmentations, results)
    options.show(rows, columns, as_json, draw, [*table.values()])


@dataclass(frozen=True)
class DropoutOptions(TextOptions):
    """Options of `dropout`; without values the library's."""

    tokenizer: str = option(TOKENIZER, "--tokenizer", "-t", metavar="PATH")  # type: ignore
    p: tuple[float, ...] = option("[default: 0.1, 0.25, 0.5, 0.75]", default=())
    rule: tuple[str, ...] = option(
        "[default: provilkov, hf, sentencepiece]", default=(), metavar="NAME"
    )


def dropout(seed: Seed, options: DropoutOptions, as_json: Json = False) -> None:
    """Count the splits of BPE-dropout.

    The paper's table, for its sentence and Llama 3, is printed beside them.
    """
    (results,) = options.each(
        analysis.dropout_splits, options.sentence, seed=seed, draws=options.draws,
        **_given(probabilities=options.p, rules=options.rule),
    ).values()  # fmt: skip
    columns = {"rule": "{rule}", "p": "{p:g}", "mean": "{mean:.2f}", "std": "{std:.2f}",
               "min": "{min}", "max": "{max}"}  # fmt: skip
    rows = figures.dropout_rows(results)
    options.show(rows, columns, as_json, partial(figures.draw_dropout, rows))


@dataclass(frozen=True)
class BiasOptions(AnalysisOptions):
    scheme: tuple[str, ...] = scheme_option("scheme to measure  [default: all of the paper's]")
    splits: int = option("greatest number of splits", default=4, min=1)
    draws: int = draws_option(
        "draws of each word, where a scheme has no exact probabilities", 10_000
    )


def bias(seed: Seed, words: WordOptions, options: BiasOptions, as_json: Json = False) -> None:
    """Measure the bias of schemes in the segmentation of words.

    Total variation and KL from the uniform distribution over the segmentations of a word, and the
    share of them that the scheme can draw. --out also writes a row for each word to bias-words.csv.
    """
    results = options.each(
        analysis.bias, words.read(), options.scheme or analysis.SCHEMES, seed=seed,
        splits=options.splits, draws=options.draws,
    )  # fmt: skip
    rows = figures.bias_rows({name: analysis.summarize(own) for name, own in results.items()})

    def draw(folder: Path) -> list[Path]:
        each = [{"tokenizer": n, **row._asdict()} for n, own in results.items() for row in own]
        write_csv(folder / "bias-words.csv", each)
        return [*figures.draw_bias(rows, folder), folder / "bias-words.csv"]

    columns = {
        "tokenizer": "{tokenizer}", "scheme": "{scheme}", "splits": "{splits}", "words": "{words}",
        "total variation": "{about}{total_variation:.3f}", "KL, nats": "{about}{kl_divergence:.3f}",
        "support": "{about}{support:.3f}",
    }  # fmt: skip
    options.show(rows, columns, as_json, draw)


@dataclass(frozen=True)
class GrowthOptions(AnalysisOptions):
    """Options of `growth`; without values the library's."""

    scheme: tuple[str, ...] = scheme_option("name without alpha")
    alpha: tuple[float, ...] = option("[default: 0.1 to 3]", default=())
    limit: int = option("number of texts to read", default=200, min=1)


def growth(
    seed: Seed, texts: Texts, options: GrowthOptions, sample_by: SampleBy = "line",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Measure how much longer texts become, by alpha."""
    documents = list(islice(read_texts(texts, sample_by=sample_by), options.limit))
    given = _given(schemes=options.scheme, alphas=options.alpha)
    results = options.each(analysis.growth, documents, seed=seed, **given)
    columns = {"tokenizer": "{tokenizer}", "scheme": "{scheme}", "alpha": "{alpha:g}",
               "length ratio": "{ratio:.3f} ± {plus:.3f}"}  # fmt: skip
    rows = figures.growth_rows(results)
    options.show(rows, columns, as_json, partial(figures.draw_growth, rows))


def _given(**values: Sequence[Any]) -> dict[str, Any]:
    """The settings that have values; the library has defaults of the others."""
    return {name: value for name, value in values.items() if value}


add_commands(app, split_counts, segmentations, dropout, bias, growth)
