"""Runs a corpus: writes a plan, gives the chunks to an engine, and writes a receipt.

The local engine makes shards in parallel processes of this machine, the other one on the machines
of a Ray cluster that share the input and output folders.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from robustok.checks import check_epoch, check_integer
from robustok.corpus.read import find_column, find_kept
from robustok.corpus.shard import (
    COUNTED,
    RUN,
    Job,
    make_shard,
    one_thread,
)
from robustok.corpus.sources import (
    MAX_ROW_BYTES,
    TEXT,
    Chunk,
    InputFile,
    batch_schema,
    cut_chunks,
    find_sources,
)
from robustok.corpus.transform import Retokenize
from robustok.errors import RobustokError, check_choice
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.environment import available_cores, give_back_memory
from robustok.runtime.files import (
    JsonObject,
    clear_parts,
    disk_full_in_one_line,
    locked,
    read_json_or_none,
    write_json,
)
from robustok.runtime.packages import versions
from robustok.runtime.processes import Pool, Processes, RayTasks, RunTask, Worker, dispatch
from robustok.samplers import sampler
from robustok.tokenizer.vocabulary import Vocabulary

ENGINES = ("local", "ray")
TRIES = 3  # attempts at a chunk whose process died


@dataclass(frozen=True)
class Receipt:
    """Settings and totals of a run; `__run__/receipt.json` holds the same.

    >>> from pathlib import Path
    >>> _ = Path("small.txt").write_text("hello world\\nthe revolution\\n")
    >>> receipt = run_corpus("small.txt", "drawn", "tokenizer.json", "uniform", seed=0)
    >>> receipt.documents, len(receipt.shards)
    (2, 1)

    Args:
        settings: the arguments that decide the output, with the tokenizer as its fingerprint.
        versions: version of each package involved, by name.
        documents: documents read, rejects not included.
        rows: tokenizations drawn: ``documents`` times the draws of each.
        changed: rows whose ids differ from the canonical ones.
        rejects: input rows that could not be read.
        tokens: ids drawn, over all rows.
        canonical_tokens: ids of the canonical tokenizations, counted once for each row.
        input_bytes: size of the input files as stored.
        realized: splits, distance and growth (length) per canonical token, over all draws.
        digest: one SHA-256 over those of all output files.
        shards: a dictionary for each shard with the names, sizes and SHA-256 of its files.

    It holds no time and no engine: the same job gives the same receipt.
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
    realized: dict[str, float]
    digest: str
    shards: tuple[JsonObject, ...]


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
    keep_columns: Sequence[str] | str = (),
    sample_by: str = "line",
    max_row_bytes: int = MAX_ROW_BYTES,
    engine: str = "local",
    workers: int | None = None,
    shard_bytes: int | None = None,
    progress: Progress = no_progress,
) -> Receipt:
    """Re-tokenize a corpus by a scheme: every document drawn ``draws`` times, into shards.

    >>> from pathlib import Path
    >>> _ = Path("corpus.txt").write_text("hello world\\nthe revolution\\n")
    >>> receipt = run_corpus("corpus.txt", "out", "tokenizer.json", "uniform-k(alpha=1)", seed=0)
    >>> receipt.realized
    {'splits': 0.5, 'distance': 1.0, 'growth': 1.5}

    Args:
        inputs: files, folders or patterns of Parquet, JSON Lines or text, the latter two also
            compressed.
        out: the output folder. It may hold an unfinished run with the same arguments, which
            continues.
        tokenizer: what :meth:`Vocabulary.load` reads: a path, a hub name or a tokenizer object.
        scheme: spec of the scheme, as ``"uniform-k(alpha=1)"``.
        seed: any integer. It, the epoch, a document and the number of a draw decide the draw.
        epoch: an int64; each value gives other draws.
        draws: tokenizations of each document, at least 1.
        column: field that holds texts or canonical ids; by default the first of text, input_ids and
            ids that the files have.
        keep_columns: names of fields to copy beside each draw, or ``"all"``.
        sample_by: what a document of a text file is: a ``"line"`` (default), or the whole file
            (``"document"``).
        max_row_bytes: greatest size of one row, in decompressed bytes; a longer row is a reject.
            Default 16 MiB.
        engine: ``"local"`` (processes on this machine) or ``"ray"`` (a Ray cluster).
        workers: shards in work at once, at least 1; by default one for each core.
        shard_bytes: input bytes of a shard; by default a 256th of the input, within 2 and 64 MiB.
        progress: called with (input bytes done, all input bytes).

    The files written are the same from either engine and any number of workers. A run that was
    stopped continues when called again with the same arguments; finished shards are recognized by
    their checksums. Rows that cannot be read are written to ``out/__run__/rejects``.

    Raises RobustokError for settings that are wrong or have no effect, an ``out`` that holds
    another run, a full disk, and for a run that changed nothing, unless its scheme is canonical.
    """
    check_choice("engine", engine, ENGINES)
    seed, epoch = check_integer("seed", seed), check_epoch(epoch)
    draws = check_integer("draws", draws, 1)
    max_row_bytes = check_integer("max_row_bytes", max_row_bytes, 1)
    workers, shard_bytes = (
        None if value is None else check_integer(name, value, 1)
        for name, value in (("workers", workers), ("shard_bytes", shard_bytes))
    )
    vocab = Vocabulary.load(tokenizer)
    spec = sampler(scheme, vocab).spec
    sources = find_sources(inputs, sample_by)
    folder = Path(out)
    _refuse_overlap(inputs, sources, folder)
    document = find_column(sources, column, max_row_bytes)
    kept = find_kept(sources, keep_columns, document, max_row_bytes)
    settings = {
        "tokenizer": vocab.fingerprint,
        "scheme": spec,
        "seed": seed,
        "epoch": epoch,
        "draws": draws,
        "column": document.name,
        "kind": "text" if document.type == TEXT else "ids",
        "sample_by": sample_by,
        "max_row_bytes": max_row_bytes,
        **({"keep_columns": {f.name: str(f.type) for f in kept}} if kept else {}),
        **({"shard_bytes": shard_bytes} if shard_bytes else {}),
    }
    names = tuple(f.name for f in kept)
    retokenize = Retokenize(vocab, spec, seed, epoch, draws, document.name, names)
    with disk_full_in_one_line(folder), locked(folder):
        digest = _check_plan(folder, settings, sources)
        schema = batch_schema(document, kept)
        job = Job(folder.absolute(), retokenize, schema, max_row_bytes, digest)
        chunks = cut_chunks(sources, shard_bytes)
        _clear(folder)
        try:
            _work(job, chunks, engine, workers, progress)
        finally:
            _clear(folder)
        receipt = _receipt(job, chunks, settings)
        write_json(folder / RUN / "receipt.json", asdict(receipt))
    return _check_useful(receipt, folder)


def _work(
    job: Job, chunks: Sequence[Chunk], engine: str, workers: int | None, progress: Progress
) -> None:
    """Make the shard of every chunk, and report progress in bytes.

    A worker that dies is replaced and its chunk repeated, at most twice. Ray repeats the chunks of
    a lost machine on another one, and reports finished shards only.
    """
    total = sum(chunk.size for chunk in chunks)
    done, part = 0, [0] * len(chunks)  # bytes: their sum, and those of each chunk
    deaths: Counter[int] = Counter()

    def chunk_progress(chunk: Chunk, read: int) -> None:
        nonlocal done
        done += read - part[chunk.number]
        part[chunk.number] = read
        progress(done, total)

    def check_deaths(worker: Worker) -> None:
        if worker.task is None:
            return
        chunk: Chunk = worker.task
        deaths[chunk.number] += 1
        if deaths[chunk.number] >= TRIES:
            raise RobustokError(
                f"the process that worked on {chunk.source.name} died {TRIES} times, the last time"
                f" {worker.exit_reason()}: if memory was short, give fewer workers; the same"
                " command continues from the last finished shard"
            )

    with ExitStack() as stack:
        pool: Pool
        if engine == "ray":
            pool = RayTasks(_prepare, job, threads=1, retries=TRIES, count=workers)
        else:
            pool = stack.enter_context(
                Processes(
                    partial(Worker, _prepare, job),
                    min(workers or available_cores(), len(chunks)),
                    chunk_progress,
                    check_deaths,
                )
            )
        give_back_memory()  # that pickling the job took
        for chunk, _ in dispatch(chunks, pool):
            chunk_progress(chunk, chunk.size)


def _prepare(job: Job) -> RunTask:
    one_thread()
    give_back_memory()
    return partial(make_shard, job)


def _check_plan(folder: Path, settings: Mapping[str, object], sources: Sequence[InputFile]) -> str:
    """Write the plan of a new run, or check that the folder holds a run with the same plan."""
    plan = {
        "settings": dict(settings),
        "inputs": [[source.name, source.size, source.modified] for source in sources],
    }
    path = folder / RUN / "plan.json"
    before = read_json_or_none(path)
    if before is None:
        if any((folder / "data").glob("*")):
            raise RobustokError(f"{folder}/data holds other files; give another folder")
        write_json(path, plan)
    elif before != plan:
        changed = [k for k, v in settings.items() if before.get("settings", {}).get(k) != v]
        what = f"other {', '.join(changed)}" if changed else "other input files"
        raise RobustokError(
            f"{folder} holds a run with {what}; give another folder, or remove this one"
        )
    return hashlib.sha256(json.dumps(plan).encode()).hexdigest()


def _clear(folder: Path) -> None:
    """Remove temporary files of killed workers."""
    for name in ("data", RUN, f"{RUN}/manifests", f"{RUN}/rejects"):
        clear_parts(folder / name)


def _receipt(job: Job, chunks: Sequence[Chunk], settings: dict[str, Any]) -> Receipt:
    """Add up the manifests, in the order of the shards."""
    totals = dict.fromkeys(("documents", "rejects", *COUNTED), 0)
    shards: list[JsonObject] = []
    for chunk in chunks:
        manifest = read_json_or_none(job.manifest(chunk))
        if manifest is None or manifest["job"] != job.digest:
            raise RobustokError(
                f"{job.manifest(chunk)} is missing, though its shard was reported done: do the "
                "machines share this folder? The same command continues from there"
            )
        for name in totals:
            totals[name] += manifest[name]
        shards.append({"shard": chunk.number, "files": manifest["files"]})
    canonical = max(totals["canonical_tokens"], 1)
    realized = {
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
        realized=realized,
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        shards=tuple(shards),
    )


def _check_useful(receipt: Receipt, folder: Path) -> Receipt:
    """The receipt; raises RobustokError where the run read or changed nothing."""
    if not receipt.documents and not receipt.rejects:
        raise RobustokError("the input has no document: its files are empty")
    if not receipt.documents:
        raise RobustokError(
            f"no document could be read: all {receipt.rejects:,} rows are in"
            f" {folder}/{RUN}/rejects,"
            " each with its reason"
        )
    if not receipt.changed and receipt.settings["scheme"] != "canonical":
        raise RobustokError(
            f"the run changed nothing: all {receipt.rows:,} rows in {folder} are canonical; choose"
            f" a scheme that changes something, not {receipt.settings['scheme']}"
        )
    return receipt


def _refuse_overlap(inputs: Any, sources: Sequence[InputFile], folder: Path) -> None:
    here = folder.resolve()
    for read in map(Path, [inputs] if isinstance(inputs, (str, Path)) else inputs):
        if read.is_dir() and here.is_relative_to(read.resolve()):
            raise RobustokError(
                f"the output folder {folder} is in the input folder {read}, which would be read "
                "again with it: give another folder"
            )
    for source in sources:
        if source.path.resolve().is_relative_to(here):
            raise RobustokError(
                f"the input {source.path} is in the output folder {folder}; give another folder"
            )
