"""robustok analyze: the paper's analyses of schemes, computed from tokenizers without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from robustok.cli.options import (
    Draws,
    Json,
    SampleBy,
    Seed,
    Tokenizer,
    Words,
    WordsFile,
    print_json,
)
from robustok.cli.outputs import output_folder
from robustok.cli.progress import bar
from robustok.cli.tabled import table
from robustok.errors import RobustokError
from robustok.normal import Z95

NAME = "analyze"
app = typer.Typer(
    help="Analyze schemes without a model: the analyses of the paper's appendix, and bias.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Tokenizers = Annotated[
    list[str],
    typer.Option("--tokenizer", "-t", help="may be given more than once; NAME=PATH sets its name"),
]


def _folder(out: Path | None) -> Path | None:
    """Check that figures can be drawn and that the folder can be written."""
    if out is not None:
        import matplotlib  # noqa: F401
    return output_folder(out)


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        callback=_folder,
        help="folder for the figure (PNG, SVG) and the CSV",
    ),
]
Sentence = Annotated[str | None, typer.Option("--text", help="[the paper's sentence]")]
Token = Annotated[int, typer.Option("--token", min=0, help="number of the canonical token, from 0")]


@app.command("split-counts")
def split_counts_command(
    tokenizer: Tokenizer,
    seed: Seed,
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", "-s", help="[the paper's four at alpha 1]")
    ] = None,
    text: Sentence = None,
    token: Token = 0,
    draws: Draws = 50_000,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Count the splits inside one token, drawn and in theory."""
    from robustok.analysis import SENTENCE, split_counts
    from robustok.report.analyses import draw_split_counts, split_rows
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    specs = scheme or [
        "stochastok(alpha=1)", "stochastok-uniform(alpha=1)", "uniform-k(alpha=1)", "uniform",
    ]  # fmt: skip
    results = []
    for spec in specs:
        with bar(spec) as progress:
            results.append(
                split_counts(
                    vocab, text or SENTENCE, spec, seed=seed, token=token, draws=draws,
                    progress=progress,
                )
            )  # fmt: skip
    rows = split_rows(results)
    wide = []
    for counts in results:
        columns = [counts.observed, *counts.distributions.values()]
        wide.append([counts.scheme, "drawn", *counts.distributions])
        wide += [
            [f"{s} splits", *(f"{100 * c[s]:.2f}%" if s < len(c) else "" for c in columns)]
            for s in range(len(counts.observed))
        ]
        wide.append([])
    _tell(rows, as_json, ["", "", "", ""], wide)
    _draw(out, as_json, lambda folder: draw_split_counts(results, folder))


@app.command("segmentations")
def segmentations_command(
    tokenizer: Tokenizers,
    seed: Seed,
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", "-s", help="[uniform, stochastok(alpha=1)]")
    ] = None,
    text: Sentence = None,
    token: Token = 0,
    splits: Annotated[int, typer.Option("--splits", min=1, help="greatest number of splits")] = 4,
    draws: Draws = 50_000,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Count how often each segmentation of a token is drawn."""
    from robustok.analysis import SENTENCE, segmentations
    from robustok.report.analyses import draw_segmentations, segmentation_rows

    specs = scheme or ["uniform", "stochastok(alpha=1)"]
    by_name = {}
    for name, vocab in _vocabularies(tokenizer).items():
        with bar(name) as progress:
            by_name[name] = segmentations(
                vocab, text or SENTENCE, specs, seed=seed, token=token, splits=splits, draws=draws,
                progress=progress,
            )  # fmt: skip
    wide = [
        [name, str(level + 1), str(len(cuts)),
         *(f"{sum(1 for x in s[level] if x)}" for s in counts.shares.values())]
        for name, counts in by_name.items() for level, cuts in enumerate(counts.by_splits)
    ]  # fmt: skip
    schemes = [f"drawn by {spec}" for spec in next(iter(by_name.values())).shares]
    _tell(
        segmentation_rows(by_name),
        as_json,
        ["tokenizer", "splits", "segmentations", *schemes],
        wide,
    )
    _draw(out, as_json, lambda folder: draw_segmentations(by_name, folder))


@app.command("dropout")
def dropout_command(
    tokenizer: Tokenizer,
    seed: Seed,
    p: Annotated[list[float] | None, typer.Option("--p", help="[0.1, 0.25, 0.5, 0.75]")] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help="[provilkov, hf, sentencepiece]")
    ] = None,
    text: Sentence = None,
    draws: Draws = 50_000,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Count the splits of BPE-dropout.

    The paper's table, for its sentence and Llama 3, is printed beside them.
    """
    from robustok.analysis import SENTENCE, dropout_splits
    from robustok.analysis.dropout import RULES
    from robustok.report.analyses import draw_dropout, dropout_rows
    from robustok.vocabulary import Vocabulary

    vocab = Vocabulary.load(tokenizer)
    with bar("dropout") as progress:
        results = dropout_splits(
            vocab, text or SENTENCE, seed=seed, probabilities=p or (0.1, 0.25, 0.5, 0.75),
            rules=rule or RULES, draws=draws, progress=progress,
        )  # fmt: skip
    rows = dropout_rows(results)
    wide = [
        [r["rule"], f"{r['p']:g}", f"{r['mean']:.2f}", f"{r['std']:.2f}", r["min"], r["max"]]
        for r in rows
    ]
    _tell(rows, as_json, ["rule", "p", "mean", "std", "min", "max"], wide)
    _draw(out, as_json, lambda folder: draw_dropout(results, folder))


@app.command("bias")
def bias_command(
    tokenizer: Tokenizers,
    seed: Seed,
    words: Words = 1000,
    words_file: WordsFile = None,
    scheme: Annotated[
        list[str] | None, typer.Option("--scheme", "-s", help="[all of the paper's]")
    ] = None,
    splits: Annotated[int, typer.Option("--splits", min=1, help="greatest number of splits")] = 4,
    draws: Annotated[
        int,
        typer.Option(
            "--draws", "-n", min=1, help="for each word, where a scheme has no exact probabilities"
        ),
    ] = 10_000,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure the bias of schemes in the segmentation of words.

    Total variation and KL from the uniform distribution over the segmentations of a word, and the
    share of them that the scheme can draw. --out also writes a row for each word to bias-words.csv.
    """
    from robustok.analysis import SCHEMES, bias, summarize
    from robustok.files import write_csv
    from robustok.report.analyses import bias_rows, draw_bias
    from robustok.tasks import frequent_words, read_words

    chosen = read_words(words_file) if words_file else frequent_words(words)
    summaries, each = {}, []
    for name, vocab in _vocabularies(tokenizer).items():
        with bar(name) as progress:
            biases = bias(
                vocab, chosen, scheme or SCHEMES, seed=seed, splits=splits, draws=draws,
                progress=progress,
            )  # fmt: skip
        summaries[name] = summarize(biases)
        each += [{"tokenizer": name, **row._asdict()} for row in biases]
    rows = bias_rows(summaries)
    wide = [
        [r["tokenizer"], r["scheme"], r["splits"], r["words"],
         *(f"{'' if r['exact'] else '~'}{r[field]:.3f}"
           for field in ("total_variation", "kl_divergence", "support"))]
        for r in rows
    ]  # fmt: skip
    titles = ["tokenizer", "scheme", "splits", "words", "total variation", "KL, nats", "support"]
    _tell(rows, as_json, titles, wide)

    def draw(folder: Path) -> list[Path]:
        write_csv(folder / "bias-words.csv", each)
        return [*draw_bias(summaries, folder), folder / "bias-words.csv"]

    _draw(out, as_json, draw)


@app.command("growth")
def growth_command(
    tokenizer: Tokenizers,
    seed: Seed,
    texts: Annotated[
        list[Path], typer.Option("--texts", help="text files, or JSON Lines with the field text")
    ],
    scheme: Annotated[
        list[str] | None,
        typer.Option("--scheme", "-s", help="name without alpha; may be given more than once"),
    ] = None,
    alpha: Annotated[
        list[float] | None, typer.Option("--alpha", help="may be given more than once [0.1 to 3]")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="number of texts to read")] = 200,
    sample_by: SampleBy = "line",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Measure how much longer texts become, by alpha."""
    from robustok.analysis import growth
    from robustok.report.analyses import draw_growth, growth_rows
    from robustok.tasks import read_texts

    documents = list(islice(read_texts(texts, sample_by=sample_by), limit))
    settings: dict[str, Any] = {"alphas": alpha} if alpha else {}
    by_name = {}
    for name, vocab in _vocabularies(tokenizer).items():
        with bar(name) as progress:
            by_name[name] = growth(
                vocab, documents, *([scheme] if scheme else []), seed=seed, progress=progress,
                **settings,
            )  # fmt: skip
    rows = growth_rows(by_name)
    wide = [
        [
            r["tokenizer"],
            r["scheme"],
            f"{r['alpha']:g}",
            f"{r['ratio']:.3f} ± {Z95 * r['error']:.3f}",
        ]
        for r in rows
    ]
    _tell(rows, as_json, ["tokenizer", "scheme", "alpha", "length ratio"], wide)
    _draw(out, as_json, lambda folder: draw_growth(by_name, folder))


def _vocabularies(given: list[str]) -> dict[str, Any]:
    """Vocabularies by name; a tokenizer.json has the name of its folder."""
    from robustok.vocabulary import Vocabulary

    vocabularies: dict[str, Any] = {}
    for path in given:
        name, mark, place = path.partition("=")
        if not mark or "/" in name:
            place, name = path, Path(path).name
            if name.startswith("tokenizer."):
                name = Path(path).resolve().parent.name
        if name in vocabularies:
            raise RobustokError(f"two tokenizers are called '{name}': write NAME={place} for one")
        vocabularies[name] = Vocabulary.load(place)
    return vocabularies


def _tell(
    rows: Sequence[Mapping[str, Any]], as_json: bool, titles: list[str], wide: list[list[Any]]
) -> None:
    if as_json:
        print_json(list(rows))
    else:
        table(titles, wide)


def _draw(out: Path | None, as_json: bool, draw: Any) -> None:
    if out is None:
        return
    paths = draw(out)
    if not as_json:
        typer.echo("written: " + ", ".join(str(path) for path in paths))
