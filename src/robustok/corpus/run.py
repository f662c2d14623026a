"""Runs a corpus: writes a plan, makes the shards in worker processes, and writes a receipt.

A shard is a Parquet file with a row for each draw.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robustok.checks import check_epoch, check_integer
from robustok.corpus.documents import (
    COLUMNS,
    POSITION,
    TEXT,
    DamagedFile,
    Reject,
    Retokenize,
    Task,
    as_text,
    check_keep,
    cut_tasks,
    find_fields,
    read_task,
)
from robustok.errors import RobustokError
from robustok.runtime.display import Progress, no_progress
from robustok.runtime.environment import available_cores, give_back_memory
from robustok.runtime.files import (
    JsonObject,
    clear_parts,
    disk_full_in_one_line,
    locked,
    part_of,
    write_json,
)
from robustok.runtime.inputs import FORMATS, find_inputs, kind_of
from robustok.runtime.packages import require, versions
from robustok.runtime.processes import Processes, RunTask, Worker, dispatch
from robustok.runtime.records import (
    check_unused,
    claim,
    read_finished,
    sha256_of,
    write_record,
)
from robustok.samplers import sampler
from robustok.tokenizer.vocabulary import Vocabulary

TRIES = 3  # attempts at a task whose process died
# `datasets`, Spark and `pyarrow.dataset` skip folders whose name starts with an underscore.
RUN = "__run__"
SUMS = ("rows", "changed", "tokens", "canonical_tokens", "splits", "distance")
COUNTED = ("documents", "rejects", *SUMS)
_BATCH = 1 << 19  # bytes of text processed at once, divided by the number of draws
_LEAST = 1 << 16
_GROUP = 1 << 20  # least number of ids in a row group
_RAY_NAMES = [  # ends of the names of JSON Lines that Ray Data reads
    suffix[1:] + packing
    for suffix, kind in FORMATS.items()
    if kind == "jsonl"
    for packing in ("", ".gz", ".zst")
]


@dataclass(frozen=True)
class Receipt:
    """Settings and totals of a run; `__run__/receipt.json` holds the same.

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
        progress: called with (shards done, all shards).

    The files written are the same from any number of workers. Finished shards are recognized by
    their checksums. Rows that cannot be read are written to ``out/__run__/rejects``.

    Raises RobustokError for settings that are wrong or have no effect, an ``out`` that holds other
    files, input that changes during the run, a full disk, and a run that changed nothing, unless
    its scheme is canonical.
    """
    seed, epoch = check_integer("seed", seed), check_epoch(epoch)
    draws = check_integer("draws", draws, 1)
    workers, shard_bytes = (
        None if value is None else check_integer(name, value, 1)
        for name, value in (("workers", workers), ("shard_bytes", shard_bytes))
    )
    keep_columns = check_keep(keep_columns)
    vocab = Vocabulary.load(tokenizer)
    spec = sampler(scheme, vocab).spec
    files, unread, given = find_inputs(inputs)
    folder = Path(out)
    for read in given:
        if read.is_dir() and folder.resolve().is_relative_to(read.resolve()):
            raise RobustokError(
                f"the output folder {folder} is in the input folder {read}, which would be read "
                "again with it: give another folder"
            )
    schema = find_fields(files, column, keep_columns)
    document = schema.names[0]
    names = schema.names[2:] if keep_columns == "all" else dict.fromkeys(keep_columns)
    kept = {name: str(schema.field(name).type) for name in names}
    settings = {
        "tokenizer": vocab.fingerprint,
        "scheme": spec,
        "seed": seed,
        "epoch": epoch,
        "draws": draws,
        "column": document,
        "kind": "text" if schema.types[0] == TEXT else "ids",
        **({"keep_columns": kept} if kept else {}),
        **({"shard_bytes": shard_bytes} if shard_bytes else {}),
    }
    retokenize = Retokenize(vocab, spec, seed, epoch, draws, document, tuple(kept))
    with disk_full_in_one_line(folder), locked(folder):
        inputs_as_listed = [[file.name, file.size, file.modified] for file in files]
        claim(folder, f"{RUN}/plan.json", {**settings, "input files": inputs_as_listed})
        tasks = cut_tasks(files, shard_bytes)
        _clear(folder)
        try:
            manifests = _work(Job(folder.absolute(), retokenize, schema), tasks, workers, progress)
        finally:
            _clear(folder)
        size = sum(file.size for file in files)
        receipt = _receipt(settings, manifests, size, unread)
        write_json(folder / RUN / "receipt.json", asdict(receipt))
    return _check_useful(receipt, folder)


def _receipt(
    settings: JsonObject, manifests: Sequence[JsonObject], input_bytes: int, unread: Sequence[str]
) -> Receipt:
    """Add up the manifests, in the order of the shards."""
    totals = {name: sum(manifest[name] for manifest in manifests) for name in COUNTED}
    canonical = max(totals["canonical_tokens"], 1)
    splits, distance = totals.pop("splits"), totals.pop("distance")
    shards = tuple(manifest["files"] for manifest in manifests)
    digests = "".join(digest for shard in shards for digest in shard.values())
    return Receipt(
        settings=settings,
        versions=versions() | {"pyarrow": pa.__version__},
        **totals,
        input_bytes=input_bytes,
        realized={
            "splits": splits / canonical,
            "distance": distance / canonical,
            "growth": totals["tokens"] / canonical,
        },
        digest=hashlib.sha256(digests.encode()).hexdigest(),
        shards=shards,
        unread=tuple(unread),
    )


def _clear(folder: Path) -> None:
    """Remove temporary files of killed workers."""
    for name in ("data", RUN, f"{RUN}/manifests", f"{RUN}/rejects"):
        clear_parts(folder / name)


def _check_useful(receipt: Receipt, folder: Path) -> Receipt:
    """The receipt; raises RobustokError where the run read or changed nothing."""
    if not receipt.documents and not receipt.rejects:
        raise RobustokError("the input has no document: its files are empty")
    if not receipt.documents:
        raise RobustokError(
            f"no document could be read: all {receipt.rejects:,} rows are in {folder}/{RUN}/rejects"
            ", each with its reason"
        )
    if not receipt.changed and receipt.settings["scheme"] != "canonical":
        raise RobustokError(
            f"the run changed nothing: all {receipt.rows:,} rows in {folder} are canonical; choose"
            f" a scheme that changes something, not {receipt.settings['scheme']}"
        )
    return receipt


@dataclass(frozen=True)
class Job:
    """What all shards share: the output folder, what draws, and the fields of `find_fields`."""

    out: Path
    retokenize: Retokenize
    schema: pa.Schema


def _work(
    job: Job, tasks: Sequence[Task], workers: int | None, progress: Progress
) -> list[JsonObject]:
    """Make the shard of every task; returns the manifests."""
    manifests: dict[int, JsonObject] = {}
    deaths: Counter[Task] = Counter()

    def check_deaths(worker: Worker) -> None:
        if worker.task is None:
            return
        deaths[worker.task] += 1
        if deaths[worker.task] >= TRIES:
            raise RobustokError(
                f"the process that worked on {worker.task.file.name} died {TRIES} times, the last"
                f" time {worker.exit_reason()}: if memory was short, give fewer workers; the same"
                " command continues from the last finished shard"
            )

    count = min(workers or available_cores(), len(tasks))
    make = partial(Worker, _prepare, job)
    with Processes(make, count, lambda task, value: None, check_deaths) as pool:
        give_back_memory()  # that pickling the job took
        for task, manifest in dispatch(tasks, pool):
            manifests[task.number] = manifest
            progress(len(manifests), len(tasks))
    return [manifests[task.number] for task in tasks]


def _prepare(job: Job) -> RunTask:
    """Limit Arrow to one thread and to an allocator that returns memory to the system."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    give_back_memory()
    return partial(make_shard, job)


def make_shard(job: Job, task: Task, _progress: object = None) -> JsonObject:
    """Write the shard of a task, its rejects, and last its manifest, which is returned.

    A shard with a sound manifest and intact files is kept. A damaged input file is one reject.
    """
    name = f"part-{task.number:06d}"
    read = {"file": task.file.name, "start": task.start, "stop": task.stop}
    path = job.out / RUN / "manifests" / f"{name}.json"
    manifest = read_finished(path, f"shard {name}", job.out)
    if manifest is None or manifest["input"] != read:
        size = max(_BATCH // job.retokenize.draws, _LEAST)
        try:
            written = _written(job, name, task, read_task(task, job.schema, size))
        except DamagedFile as error:
            nothing = job.schema.append(POSITION).empty_table()
            written = _written(job, name, task, [(nothing, [Reject(-1, str(error))])])
        manifest = {"input": read, **written}
        write_record(path, manifest)
    return manifest


def _written(
    job: Job, name: str, task: Task, tables: Iterable[tuple[pa.Table, Sequence[Reject]]]
) -> JsonObject:
    """Write the shard of the tables of a task, and its rejects; returns digests and counts."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    data, refused = f"data/{name}.parquet", f"{RUN}/rejects/{name}.jsonl"
    schema = job.retokenize(job.schema.empty_table()).schema
    with ExitStack() as stack:
        parts = {data: stack.enter_context(part_of(job.out / data))}
        with pq.ParquetWriter(parts[data], schema, compression="zstd") as writer:
            waiting: list[pa.Table] = []  # of the next row group
            for table, rejects in tables:
                for drawn in _drawn(job.retokenize, table):
                    if isinstance(drawn, Reject):
                        rejects = [*rejects, drawn]
                        continue
                    waiting.append(drawn)
                    counts.update(_counts(drawn))
                    if sum(map(_n_ids, waiting)) >= _GROUP:
                        writer.write_table(pa.concat_tables(waiting), 1 << 30)
                        waiting = []
                if rejects:
                    if refused not in parts:
                        parts[refused] = stack.enter_context(part_of(job.out / refused))
                    lines = ({"file": task.file.name, **one._asdict()} for one in rejects)
                    with parts[refused].open("a", encoding="utf8") as file:
                        file.writelines(json.dumps(line) + "\n" for line in lines)
                    counts["rejects"] += len(rejects)
            if waiting:
                writer.write_table(pa.concat_tables(waiting), 1 << 30)
        digests = {name: sha256_of(part) for name, part in parts.items()}
    counts["documents"] = counts["rows"] // job.retokenize.draws
    return {"files": digests, **counts}


def _drawn(retokenize: Retokenize, table: pa.Table) -> Iterator[pa.Table | Reject]:
    """The draws of a table; rows that cannot be tokenized are isolated by bisection."""
    if not len(table):
        return
    try:
        drawn = retokenize(table)
    except RobustokError as error:
        if len(table) == 1:
            (position,) = table.column(POSITION.name).to_pylist()
            yield Reject(position, str(error), as_text(table.column(0)[0].as_py()))
            return
        half = len(table) // 2
        yield from _drawn(retokenize, table.slice(0, half))
        yield from _drawn(retokenize, table.slice(half))
    else:
        yield drawn


def _counts(table: pa.Table) -> Counter[str]:
    """What `SUMS` lists, of a table of draws."""
    splits, distance, canonical = (
        table.column(name).to_numpy() for name in ("splits", "distance", "canonical_tokens")
    )
    changed = np.count_nonzero(distance)
    sums = (len(table), changed, _n_ids(table), canonical.sum(), splits.sum(), distance.sum())
    return Counter(dict(zip(SUMS, map(int, sums), strict=True)))


def _n_ids(table: pa.Table) -> int:
    return sum(len(chunk.values) for chunk in table.column("input_ids").chunks)


def run_on_ray(
    inputs: Sequence[str | Path],
    out: str | Path,
    tokenizer: Any,
    scheme: str,
    *,
    seed: int,
    draws: int = 1,
    column: str | None = None,
    keep_columns: Sequence[str] | str = (),
) -> None:
    """Re-tokenize a corpus on a Ray cluster: Ray Data reads it, and writes Parquet files.

    ``run_on_ray(["s3://bucket/in"], "s3://bucket/out", "gpt2", "uniform", seed=0)``

    Args:
        inputs: files and folders of Parquet or of JSON Lines, or addresses, which Ray Data reads.
        out: the output folder, for Ray Data. It is new or empty, where it is on this machine.
        tokenizer: what :meth:`Vocabulary.load` reads.
        scheme: spec of the scheme.
        seed: any integer.
        draws: tokenizations of each document, at least 1.
        column: field that holds texts or canonical ids; by default the first of text, input_ids and
            ids that the files have.
        keep_columns: names of fields to copy beside each draw, or ``"all"``.

    Ray joins the cluster of ``RAY_ADDRESS``, or starts one here. A document has the draws that
    :func:`run_corpus` gives it. There are no rejects: a row that cannot be read ends the run.
    """
    require("ray")
    if Path(out).is_dir():
        check_unused(Path(out), sorted(Path(out).iterdir()))
    keep_columns = check_keep(keep_columns)
    vocab = Vocabulary.load(tokenizer)
    table = _ray_table(inputs)
    names = table.columns() or []
    column = column or next((name for name in COLUMNS if name in names), COLUMNS[0])
    if keep_columns == "all":
        keep_columns = [name for name in names if name not in (column, "id")]
    draw = Retokenize(vocab, scheme, seed, 0, draws, column, tuple(keep_columns))
    table.map_batches(draw, batch_format="pyarrow").write_parquet(str(out))


def _ray_table(inputs: Sequence[str | Path]) -> Any:
    """The data set of Ray Data that reads files and addresses."""
    import ray

    places = [str(place) for place in inputs]
    remote = [place for place in places if "://" in place]
    local = [place for place in places if place not in remote]
    files = find_inputs(local).files if local else []
    kinds = [(file.format, file.compression) for file in files]
    kinds += [kind_of(Path(place)) or ("parquet", "") for place in remote]
    if len(formats := {name for name, _ in kinds}) != 1:
        raise RobustokError("give Ray Data files of one kind, Parquet or JSON Lines")
    if ("jsonl", ".xz") in kinds:
        raise RobustokError("Ray Data does not read .xz: compress the files as .gz or .zst")
    paths = [*(str(file.path) for file in files), *remote]
    if formats == {"parquet"}:
        return ray.data.read_parquet(paths)
    return ray.data.read_json(paths, file_extensions=_RAY_NAMES)  # it leaves out all other files
