"""Runs a corpus: writes a plan, makes the shards in worker processes, and writes a receipt."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from robustok.checks import check_epoch, check_integer
from robustok.corpus.read import TEXT, Task, cut_tasks, find_fields
from robustok.corpus.shard import COUNTED, RUN, Job, make_shard
from robustok.corpus.transform import Retokenize
from robustok.errors import RobustokError
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.environment import available_cores, give_back_memory
from robustok.runtime.files import (
    JsonObject,
    clear_parts,
    disk_full_in_one_line,
    locked,
    write_json,
)
from robustok.runtime.inputs import InputFile, find_inputs
from robustok.runtime.packages import require, versions
from robustok.runtime.processes import Processes, RunTask, Worker, dispatch
from robustok.runtime.records import claim
from robustok.samplers import sampler
from robustok.tokenizer.vocabulary import Vocabulary

TRIES = 3  # attempts at a task whose process died


@dataclass(frozen=True)
class Receipt:
    """Settings and totals of a run; `__run__/receipt.json` holds the same.

    >>> from pathlib import Path
    >>> _ = Path("small.jsonl").write_text('{"text": "hello world"}\\n{"text": "a revolution"}')
    >>> receipt = run_corpus("small.jsonl", "drawn", "tokenizer.json", "uniform", seed=0)
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
        shards: the SHA-256 of each file of a shard, by its name, for every shard.
        unread: names of files in the input folders that were not read.

    It holds no time: the same job gives the same receipt.
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
    shards: tuple[dict[str, str], ...]
    unread: tuple[str, ...]


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
    workers: int | None = None,
    shard_bytes: int | None = None,
    progress: Progress = no_progress,
) -> Receipt:
    """Re-tokenize a corpus by a scheme: every document drawn ``draws`` times, into shards.

    >>> from pathlib import Path
    >>> _ = Path("corpus.jsonl").write_text('{"text": "hello world"}\\n')
    >>> receipt = run_corpus("corpus.jsonl", "out", "tokenizer.json", "uniform-k(alpha=1)", seed=0)
    >>> receipt.realized
    {'splits': 0.5, 'distance': 1.0, 'growth': 1.5}

    Args:
        inputs: files, folders or patterns of Parquet and JSON Lines, the latter also compressed.
        out: the output folder: a new or empty one, or that of a run with the same arguments, which
            continues.
        tokenizer: what :meth:`Vocabulary.load` reads: a path, a hub name or a tokenizer object.
        scheme: spec of the scheme, as ``"uniform-k(alpha=1)"``.
        seed: any integer. It, the epoch, a document and the number of a draw decide the draw.
        epoch: an int64; each value gives other draws.
        draws: tokenizations of each document, at least 1.
        column: field that holds texts or canonical ids; by default the first of text, input_ids and
            ids that the files have.
        keep_columns: names of fields to copy beside each draw, or ``"all"``.
        workers: shards in work at once, at least 1; by default one for each core.
        shard_bytes: input bytes of a shard; by default a 256th of the input, within 2 and 64 MiB.
        progress: called with (input bytes done, all input bytes).

    The files written are the same from any number of workers. A run that was stopped continues
    when called again with the same arguments; finished shards are recognized by their checksums.
    Rows that cannot be read are written to ``out/__run__/rejects``.

    Raises RobustokError for settings that are wrong or have no effect, an ``out`` that holds other
    files, input that changes during the run, a full disk, and for a run that changed nothing,
    unless its scheme is canonical.
    """
    seed, epoch = check_integer("seed", seed), check_epoch(epoch)
    draws = check_integer("draws", draws, 1)
    workers, shard_bytes = (
        None if value is None else check_integer(name, value, 1)
        for name, value in (("workers", workers), ("shard_bytes", shard_bytes))
    )
    vocab = Vocabulary.load(tokenizer)
    spec = sampler(scheme, vocab).spec
    files, unread = find_inputs(inputs)
    folder = Path(out)
    _refuse_overlap(inputs, files, folder)
    schema = find_fields(files, column, keep_columns)
    document, _, *others = schema
    kept = {name: str(schema.field(name).type) for name in _kept(keep_columns, document, others)}
    settings = {
        "tokenizer": vocab.fingerprint,
        "scheme": spec,
        "seed": seed,
        "epoch": epoch,
        "draws": draws,
        "column": document.name,
        "kind": "text" if document.type == TEXT else "ids",
        **({"keep_columns": kept} if kept else {}),
        **({"shard_bytes": shard_bytes} if shard_bytes else {}),
    }
    retokenize = Retokenize(vocab, spec, seed, epoch, draws, document.name, tuple(kept))
    with disk_full_in_one_line(folder), locked(folder):
        inputs_as_listed = [[file.name, file.size, file.modified] for file in files]
        claim(folder, f"{RUN}/plan.json", {**settings, "input files": inputs_as_listed})
        tasks = cut_tasks(files, shard_bytes)
        _clear(folder)
        try:
            manifests = _work(Job(folder.absolute(), retokenize, schema), tasks, workers, progress)
        finally:
            _clear(folder)
        receipt = _receipt(settings, tasks, manifests, unread)
        write_json(folder / RUN / "receipt.json", asdict(receipt))
    return _check_useful(receipt, folder)


def _kept(keep: Sequence[str] | str, document: pa.Field, others: Sequence[pa.Field]) -> list[str]:
    """The names of the columns to keep; the documents are among them where they were named."""
    return [field.name for field in others] if keep == "all" else list(dict.fromkeys(keep))


def _work(
    job: Job, tasks: Sequence[Task], workers: int | None, progress: Progress
) -> list[JsonObject]:
    """Make the shard of every task; returns the manifests. Reports progress in bytes.

    A worker that dies is replaced and its task repeated, at most twice.
    """
    total = sum(task.size for task in tasks)
    done, part = 0, [0] * len(tasks)  # bytes: their sum, and those of each task
    manifests: dict[int, JsonObject] = {}
    deaths: Counter[int] = Counter()

    def task_progress(task: Task, read: int) -> None:
        nonlocal done
        done += read - part[task.number]
        part[task.number] = read
        progress(done, total)

    def check_deaths(worker: Worker) -> None:
        if worker.task is None:
            return
        task: Task = worker.task
        deaths[task.number] += 1
        if deaths[task.number] >= TRIES:
            raise RobustokError(
                f"the process that worked on {task.file.name} died {TRIES} times, the last time"
                f" {worker.exit_reason()}: if memory was short, give fewer workers; the same"
                " command continues from the last finished shard"
            )

    count = min(workers or available_cores(), len(tasks))
    with Processes(partial(Worker, _prepare, job), count, task_progress, check_deaths) as pool:
        give_back_memory()  # that pickling the job took
        for task, manifest in dispatch(tasks, pool):
            manifests[task.number] = manifest
            task_progress(task, task.size)
    return [manifests[task.number] for task in tasks]


def _prepare(job: Job) -> RunTask:
    """Limit Arrow to one thread and to an allocator that returns memory to the system."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    give_back_memory()
    return partial(make_shard, job)


def _clear(folder: Path) -> None:
    """Remove temporary files of killed workers."""
    for name in ("data", RUN, f"{RUN}/manifests", f"{RUN}/rejects"):
        clear_parts(folder / name)


def _receipt(
    settings: dict[str, Any],
    tasks: Sequence[Task],
    manifests: Sequence[JsonObject],
    unread: Sequence[str],
) -> Receipt:
    """Add up the manifests, in the order of the shards."""
    totals = {
        name: sum(manifest[name] for manifest in manifests) for name in ("documents", *COUNTED)
    }
    canonical = max(totals["canonical_tokens"], 1)
    realized = {
        "splits": totals.pop("splits") / canonical,
        "distance": totals.pop("distance") / canonical,
        "growth": totals["tokens"] / canonical,
    }
    shards = tuple(manifest["files"] for manifest in manifests)
    digests = "".join(digest for files in shards for digest in files.values())
    return Receipt(
        settings=settings,
        versions=versions() | {"pyarrow": pa.__version__},
        **totals,
        input_bytes=sum(task.size for task in tasks),
        realized=realized,
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        shards=shards,
        unread=tuple(unread),
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


def _refuse_overlap(inputs: Any, files: Sequence[InputFile], folder: Path) -> None:
    here = folder.resolve()
    for read in map(Path, [inputs] if isinstance(inputs, (str, Path)) else inputs):
        if read.is_dir() and here.is_relative_to(read.resolve()):
            raise RobustokError(
                f"the output folder {folder} is in the input folder {read}, which would be read "
                "again with it: give another folder"
            )
    for file in files:
        if file.path.resolve().is_relative_to(here):
            raise RobustokError(
                f"the input {file.path} is in the output folder {folder}; give another folder"
            )


def run_on_ray(
    inputs: Sequence[str | Path],
    out: str | Path,
    tokenizer: Any,
    scheme: str,
    *,
    seed: int,
    draws: int = 1,
    column: str = "text",
    keep_columns: Sequence[str] = (),
) -> None:
    """Re-tokenize a corpus on a Ray cluster: Ray Data reads it, and writes Parquet files.

    ``run_on_ray(["s3://bucket/in"], "s3://bucket/out", "gpt2", "uniform", seed=0)``

    Args:
        inputs: files and folders of Parquet or of JSON Lines, or what else Ray Data reads.
        out: the output folder, for Ray Data. It is new or empty, where it is on this machine.
        tokenizer: what :meth:`Vocabulary.load` reads.
        scheme: spec of the scheme.
        seed: any integer.
        draws: tokenizations of each document, at least 1.
        column: field that holds texts or canonical ids.
        keep_columns: names of fields to copy beside each draw.

    Ray joins the cluster of ``RAY_ADDRESS``, or starts one here. A document has the draws that
    :func:`run_corpus` gives it. There are no rejects: a row that cannot be read ends the run.
    """
    require("ray")
    import ray

    if Path(out).is_dir() and any(Path(out).iterdir()):
        raise RobustokError(f"{out} holds other files: give a new or empty folder")
    draw = Retokenize(
        Vocabulary.load(tokenizer), scheme, seed, 0, draws, column, tuple(keep_columns)
    )
    places = [str(place) for place in inputs]
    is_json = any(".json" in place.lower() for place in places)
    read = ray.data.read_json if is_json else ray.data.read_parquet
    read(places).map_batches(draw, batch_format="pyarrow").write_parquet(str(out))
