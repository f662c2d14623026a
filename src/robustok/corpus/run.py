"""A whole corpus: plan it, give the chunks to an engine, and leave a receipt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from robustok.corpus.read import find_column
from robustok.corpus.shard import COUNTED, Job
from robustok.corpus.sources import Chunk, Source, cut_chunks, find_sources
from robustok.corpus.transform import Retokenize
from robustok.corpus.write import FORMATS
from robustok.errors import RobustokError, nearest
from robustok.files import clear_parts, is_disk_full, locked, read_json_or_none, write_json
from robustok.processes import available_cores
from robustok.samplers import sampler
from robustok.special_tokens import end_of_text
from robustok.versions import versions
from robustok.vocabulary import Vocabulary

ENGINES = ("local", "ray")

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Receipt:
    """What a run did; `receipt.json` holds the same.

    >>> from pathlib import Path
    >>> _ = Path("small.txt").write_text("hello world\\nthe revolution\\n")
    >>> receipt = run_corpus("small.txt", "drawn", "tokenizer.json", "uniform", seed=0)
    >>> receipt.documents, len(receipt.shards)
    (2, 1)

    ``realised`` are splits, distance and growth (length) per canonical token, over all draws.
    ``shards`` have a row each with the names, sizes and SHA-256 of its files, ``digest`` is one
    SHA-256 over all of these. No time and no engine is in it: the same job leaves the same receipt.
    """

    settings: dict[str, Any]
    versions: dict[str, str]
    documents: int
    rows: int
    changed: int
    rejects: int
    tokens: int
    canonical_tokens: int
    input_bytes: int
    realised: dict[str, float]
    digest: str
    shards: tuple[dict[str, Any], ...]


def run_corpus(
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: Any,
    scheme: str,
    *,
    seed: int,
    epoch: int = 0,
    draws: int = 1,
    column: str | None = None,
    format: str = "parquet",
    context: int = 2048,
    end: str | int | None = None,
    engine: str = "local",
    workers: int | None = None,
    shard_bytes: int | None = None,
    progress: Progress | None = None,
) -> Receipt:
    """Re-tokenize a corpus by a scheme: every document drawn ``draws`` times, into shards.

    >>> from pathlib import Path
    >>> _ = Path("corpus.txt").write_text("hello world\\nthe revolution\\n")
    >>> receipt = run_corpus("corpus.txt", "out", "tokenizer.json", "uniform-k(alpha=1)", seed=0)
    >>> receipt.realised
    {'splits': 0.5, 'distance': 1.0, 'growth': 1.5}

    ``inputs`` are files, folders or patterns of Parquet, JSON Lines or text (a document a line),
    the latter two also compressed; ``column`` is the field that holds texts or canonical ids (the
    first there is of text, input_ids and ids). ``format`` is ``"parquet"``, with a row a draw (see
    :class:`~robustok.corpus.transform.Retokenize`), or ``"packed"``: `.npy` files of rows of
    ``context`` ids, documents ended by ``end``. ``engine`` is ``"local"``, with ``workers``
    processes (default: a core each), or ``"ray"``. ``progress`` hears the input bytes that are
    done, and all.

    The files written are the same from either engine and any number of workers. A run that was
    stopped, however, goes on when called again with the same arguments; finished shards are known
    by their checksums. Rows that cannot be read are set aside in ``out/rejects``.

    Raises RobustokError for settings that cannot be, an ``out`` that holds another run, a full
    disk, and for a run that changed nothing.
    """
    _check(engine, format, draws=draws, context=context, workers=workers)
    vocab = Vocabulary.load(tokenizer)
    spec = sampler(scheme, vocab).spec
    sources = find_sources(inputs)
    folder = Path(out)
    _refuse_overlap(sources, folder)
    found = find_column(sources, column)
    last = end_of_text(vocab, end) if format == "packed" else -1
    settings = {
        "tokenizer": vocab.fingerprint, "scheme": spec, "seed": seed, "epoch": epoch,
        "draws": draws, "column": found.name, "kind": found.kind, "format": format,
        **({"context": context, "end": last} if format == "packed" else {}),
        **({"shard_bytes": shard_bytes} if shard_bytes else {}),
    }  # fmt: skip
    retokenize = Retokenize(vocab, spec, seed, epoch, draws, found.name)
    try:
        with locked(folder):
            digest = _hold_to_plan(folder, settings, sources)
            job = Job(folder.absolute(), retokenize, found, format, context, last, digest)
            chunks = cut_chunks(sources, shard_bytes)
            _clear(folder)
            try:
                _work(job, chunks, engine, workers, progress or _nobody)
            finally:
                _clear(folder)
            receipt = _receipt(job, chunks, settings)
            write_json(folder / "receipt.json", asdict(receipt))
    except Exception as error:
        if not is_disk_full(error):
            raise
        raise RobustokError(
            f"the disk that holds {folder} is full; free some space and give the same command"
            " again: it goes on from the last finished shard"
        ) from error
    return _useful(receipt, folder)


def _check(engine: str, format: str, **counts: int | None) -> None:
    if engine not in ENGINES:
        raise RobustokError(f"unknown engine '{engine}': {nearest(engine, ENGINES)}")
    if format not in FORMATS:
        raise RobustokError(f"unknown format '{format}': {nearest(format, FORMATS)}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise RobustokError(f"{name}={value}: ask for at least 1")


def _work(
    job: Job, chunks: Sequence[Chunk], engine: str, workers: int | None, progress: Progress
) -> None:
    """Run the engine to its end, and tell how far it is, whatever order the chunks come in."""
    total = sum(chunk.size for chunk in chunks)
    done, part = 0, dict[int, int]()

    def told(number: int, read: int) -> None:
        part[number] = read
        progress(done + sum(part.values()), total)

    for manifest in _manifests(job, chunks, engine, workers, told):
        number = manifest["shard"]
        part.pop(number, None)
        done += chunks[number].size
        progress(done + sum(part.values()), total)


def _manifests(
    job: Job, chunks: Sequence[Chunk], engine: str, workers: int | None, told: Progress
) -> Iterator[dict[str, Any]]:
    if engine == "ray":
        from robustok.corpus.on_ray import run_on_ray

        return run_on_ray(job, chunks, workers, told)
    from robustok.corpus.local import run_local

    return run_local(job, chunks, workers or available_cores(), told)


def _hold_to_plan(folder: Path, settings: Mapping[str, Any], sources: Sequence[Source]) -> str:
    """Write down what this run is, or make sure that the folder holds this very run."""
    plan = {
        "settings": dict(settings),
        "inputs": [[source.name, source.size, source.modified] for source in sources],
    }
    path = folder / "plan.json"
    before = read_json_or_none(path)
    if before is None:
        if any((folder / "data").glob("*")):
            raise RobustokError(f"{folder}/data holds files of something else; give another folder")
        write_json(path, plan)
    elif before != plan:
        changed = [k for k, v in settings.items() if before.get("settings", {}).get(k) != v]
        what = f"other {', '.join(changed)}" if changed else "other input files"
        raise RobustokError(
            f"{folder} holds a run with {what}; give another folder, or remove this one"
        )
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _clear(folder: Path) -> None:
    """Remove what workers left that were killed."""
    for name in ("data", "manifests", "rejects"):
        clear_parts(folder / name)


def _receipt(job: Job, chunks: Sequence[Chunk], settings: dict[str, Any]) -> Receipt:
    """Add up the manifests, in the order of the shards."""
    totals = dict.fromkeys(("documents", "rejects", *COUNTED), 0)
    shards: list[dict[str, Any]] = []
    for chunk in chunks:
        manifest = read_json_or_none(job.manifest(chunk))
        if manifest is None or manifest["job"] != job.digest:
            raise RobustokError(
                f"{job.manifest(chunk)} is missing, though its shard was reported done: do the "
                "machines share this folder? The same command goes on from there"
            )
        for name in totals:
            totals[name] += manifest[name]
        shards.append({"shard": chunk.number, "files": manifest["files"]})
    canonical = max(totals["canonical_tokens"], 1)
    realised = {
        "splits": totals.pop("splits") / canonical,
        "distance": totals.pop("distance") / canonical,
        "growth": totals["tokens"] / canonical,
    }
    digests = "".join(file["sha256"] for shard in shards for file in shard["files"])
    return Receipt(
        settings=settings,
        versions=versions() | {"pyarrow": pa.__version__},
        **totals,
        input_bytes=sum(chunk.size for chunk in chunks),
        realised=realised,
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        shards=tuple(shards),
    )


def _useful(receipt: Receipt, folder: Path) -> Receipt:
    """The receipt of a run that did something."""
    if not receipt.documents:
        raise RobustokError(
            f"not one document could be read: all {receipt.rejects:,} rows are in {folder}/rejects,"
            " each with its reason"
        )
    if not receipt.changed:
        raise RobustokError(
            f"the run changed nothing: all {receipt.rows:,} rows in {folder} are canonical; choose"
            f" a scheme that changes something, not {receipt.settings['scheme']}"
        )
    return receipt


def _refuse_overlap(sources: Sequence[Source], folder: Path) -> None:
    here = folder.resolve()
    for source in sources:
        if source.path.resolve().is_relative_to(here):
            raise RobustokError(
                f"the input {source.path} lies in the output folder {folder}; give another folder"
            )


def _nobody(done: int, total: int) -> None: ...
