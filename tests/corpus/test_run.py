"""Whole runs: the same rows from any number of workers and on Ray, nothing lost or doubled."""

import contextlib
import errno
import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.corpus.conftest import SCHEME, documents, write_jsonl, write_rows
from tests.oracles.processes import run as run_code
from tests.runtime.test_processes import kill_at_start

import robustok as rt
from robustok.corpus.run import TRIES, make_shard, run_on_ray
from robustok.errors import RobustokError
from robustok.runtime.records import sha256_of


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    texts = documents(120)
    write_jsonl(tmp_path / "in" / "a.jsonl", texts[:70])
    write_jsonl(tmp_path / "in" / "b.ndjson", texts[70:100])
    rows = pa.table({"text": texts[100:], "id": [f"p{i}" for i in range(20)]})
    pq.write_table(rows, tmp_path / "in" / "c.parquet", row_group_size=8)
    return tmp_path / "in"


@pytest.fixture
def run_small(run: Any, corpus: Path) -> Any:
    """`run` on the corpus, in small shards."""
    return partial(run, corpus, seed=5, shard_bytes=3000)


def files_of(out: Path) -> dict[str, str]:
    """Every file that a run leaves, but for its lock, and its checksum."""
    paths = [p for p in sorted(out.rglob("*")) if p.is_file() and p.name != ".lock"]
    return {str(p.relative_to(out)): sha256_of(p) for p in paths}


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [
        r for p in sorted((out / "data").glob("*.parquet")) for r in pq.read_table(p).to_pylist()
    ]


def test_processes_in_any_number_and_order(run_small: Any, tmp_path: Path, request) -> None:
    heard: list[tuple[int, int]] = []
    parallel = run_small(
        "two", draws=2, workers=2, progress=lambda done, total: heard.append((done, total))
    )
    request.getfixturevalue("inline")
    here = run_small("inline", draws=2)
    assert len(here.shards) > 5
    assert heard == sorted(heard)
    assert heard[-1][0] == heard[-1][1] == len(here.shards)
    assert parallel == here
    assert files_of(tmp_path / "two") == files_of(tmp_path / "inline")


@pytest.mark.usefixtures("inline")
def test_every_document_once_and_a_receipt_that_tells(
    run_small: Any, tmp_path: Path, vocab: rt.Vocabulary
) -> None:
    receipt = run_small(draws=2, epoch=1)
    rows = rows_of(tmp_path / "out")
    assert [vocab.decode(r["input_ids"]) for r in rows[::2]] == documents(120)
    assert [r["draw"] for r in rows] == [0, 1] * 120
    assert [r["id"] for r in rows[::2]][99:] == [None] + [f"p{i}" for i in range(20)]
    canonical = vocab.encode_batch(documents(120))
    total = 2 * len(canonical.values)
    assert receipt.canonical_tokens == total
    assert receipt.tokens == sum(len(r["input_ids"]) for r in rows)
    assert receipt.realized["growth"] == receipt.tokens / total
    assert receipt.realized["distance"] == sum(r["distance"] for r in rows) / total
    assert 0.4 < receipt.realized["distance"] < 0.6
    assert receipt.settings["tokenizer"] == vocab.fingerprint
    wanted = {"scheme": SCHEME, "seed": 5, "epoch": 1, "draws": 2, "column": "text"}
    assert wanted.items() <= receipt.settings.items()
    record = json.loads((tmp_path / "out" / "__run__" / "receipt.json").read_text())
    assert record["digest"] == receipt.digest
    for name, digest in (item for shard in record["shards"] for item in shard.items()):
        assert sha256_of(tmp_path / "out" / name) == digest


@pytest.mark.usefixtures("inline")
def test_a_run_goes_on_and_trusts_checksums_only(
    run_small: Any, tmp_path: Path, monkeypatch
) -> None:
    out = tmp_path / "out"
    wanted = run_small("whole")
    shards = len(wanted.shards)
    written: list[int] = []

    def stops(job: Any, chunk: Any, tell: Any) -> Any:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(chunk.number)
        return make_shard(job, chunk, tell)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("tests.corpus.conftest.make_shard", stops)
        run_small()
    before = {p.name: p.stat().st_mtime_ns for p in (out / "data").iterdir()}
    assert len(before) == 3
    damaged = out / "data" / f"part-{shards - 1:06d}.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    (out / "data" / ".part-000000.parquet.0.part").write_text("left by a kill")
    assert run_small() == wanted
    kept = [n for n, t in before.items() if (out / "data" / n).stat().st_mtime_ns == t]
    assert len(kept) == 2
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.usefixtures("inline")
def test_another_run_is_not_mixed_in(
    run_small: Any, run: Any, corpus: Path, tmp_path: Path
) -> None:
    for name in ("workers", "shard_bytes"):
        with pytest.raises(RobustokError, match=f"{name}=0"):
            run_small(**{name: 0})
    with pytest.raises(RobustokError, match='keep_columns: give a list, as \\["url"\\], or "all"'):
        run_small(keep_columns="text")
    with pytest.raises(RobustokError, match=r"keep_columns: give a list, .* not one with \[\]"):
        run_small(keep_columns=[[]])
    with pytest.raises(RobustokError, match="inputs: give a list, not None"):
        run(None)
    with pytest.raises(RobustokError, match=r"inputs: give a list, .* not one with None"):
        run([None])
    run_small()
    for message, more in (("other seed", {"seed": 6}), ("other scheme", {"scheme": "uniform"}),
                       ("other draws", {"draws": 2})):  # fmt: skip
        with pytest.raises(RobustokError, match=message):
            run_small(**more)
    write_jsonl(corpus / "d.jsonl", ["more"])
    with pytest.raises(RobustokError, match="other input files"):
        run_small()
    for inside in (corpus, corpus / "drawn"):
        with pytest.raises(RobustokError, match="is in the input folder"):
            run(corpus, inside)
        with pytest.raises(RobustokError, match="is in the input folder"):
            run(iter([corpus]), inside)
    before = files_of(corpus)
    with pytest.raises(RobustokError, match=r"in holds other files \(a\.jsonl\): give a new"):
        run(corpus / "d.jsonl", corpus)
    assert files_of(corpus) == before
    plan = tmp_path / "out" / "__run__" / "plan.json"
    plan.write_text(plan.read_text().replace('"seed": 5', '"seed": 6'))
    with pytest.raises(RobustokError, match=r"plan\.json is damaged"):
        run_small(seed=6)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("change", ["digit", "[]", "{}", "", "another shard's"])
def test_a_manifest_that_has_changed_is_made_again(
    run_small: Any, tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = run_small()
    path = tmp_path / "out" / "__run__" / "manifests" / "part-000002.json"
    content = path.read_text()
    if change == "digit":
        documents = json.loads(content)["documents"]
        change = content.replace(f'"documents": {documents}', f'"documents": {documents + 1}')
    elif change == "another shard's":
        path.with_name("part-000003.json").write_text(change := content)
        path = path.with_name("part-000003.json")
    path.write_text(change)
    assert run_small() == receipt
    assert "is done again" in caplog.text or change == content
    assert files_of(tmp_path / "out")["__run__/manifests/part-000002.json"]


@pytest.mark.usefixtures("inline")
def test_files_that_are_not_read_are_in_the_receipt(run: Any, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "A.JSONL", documents(3))
    for name in ("b.jsonl.bz2", "c.arrow", "d.txt", "_e.jsonl", ".f.jsonl"):
        (tmp_path / "in" / name).write_text("x")
    receipt = run(tmp_path / "in")
    assert (receipt.documents, receipt.unread) == (3, ("b.jsonl.bz2", "c.arrow", "d.txt"))


def test_an_input_that_changes_during_a_run_ends_it(run_small: Any, corpus: Path) -> None:
    def replace(done: int, total: int) -> None:
        write_jsonl(corpus / "a.jsonl", documents(20))

    with pytest.raises(RobustokError, match=r"a\.jsonl has changed during the run"):
        run_small(workers=1, progress=replace)


@pytest.mark.usefixtures("inline")
def test_rows_that_cannot_be_tokenized_are_set_aside(
    run: Any, tmp_path: Path, vocab: rt.Vocabulary
) -> None:
    rows = [ids.tolist() for ids in vocab.encode_batch(documents(20))]
    rows[4], rows[11] = [3, 10**6], "text"  # type: ignore[call-overload]
    source = write_jsonl(tmp_path / "a.jsonl", rows, "input_ids")
    receipt = run(source)
    assert (receipt.documents, receipt.rejects) == (18, 2)
    lines = (tmp_path / "out/__run__/rejects/part-000000.jsonl").read_text().splitlines()
    rejects = {r["position"]: r for r in map(json.loads, lines)}
    assert len(rejects) == 2
    reasons = [rejects[at]["reason"] for at in sorted(rejects)]
    assert "id 1000000 at position 1 is not in the vocabulary" in reasons[0]
    assert "not a list of ids" in reasons[1]
    assert rejects[min(rejects)]["row"] == [3, 10**6]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz"])
@pytest.mark.parametrize("damage", ["changed", "cut", "another file"])
def test_a_file_whose_checksum_fails_has_no_row_in_its_shard(
    run: Any, tmp_path: Path, inline: None, suffix: str, damage: str
) -> None:
    """Its checksum stands at its end, which is read after rows were drawn and written."""
    folder, texts = tmp_path / "in", documents(1000)
    folder.mkdir()
    compress = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    }[suffix]
    content = compress("\n".join(json.dumps({"text": text}) for text in texts).encode())
    at = len(content) - {".gz": 8, ".xz": 40, ".zst": 2}[suffix]
    damaged = {
        "changed": content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        "cut": content[: len(content) // 2],
        "another file": content[:4] + b"#" * 100,
    }[damage]
    (folder / f"damaged.jsonl{suffix}").write_bytes(damaged)
    write_jsonl(folder / "whole.jsonl", texts[:5])
    receipt = run(folder)
    assert (receipt.documents, receipt.rejects) == (5, 1)
    reject = json.loads((tmp_path / "out/__run__/rejects/part-000000.jsonl").read_text())
    assert "no row of this part is kept" in reject["reason"] and reject["position"] == -1
    shards = sorted((tmp_path / "out/data").iterdir())
    assert [len(pq.read_table(shard)) for shard in shards] == [0, 5]


@pytest.mark.usefixtures("inline")
def test_a_run_that_changed_nothing_fails_unless_it_is_canonical(
    run: Any, tmp_path: Path, vocab: rt.Vocabulary
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents(5))
    with pytest.raises(RobustokError, match="the run changed nothing: all 5 rows"):
        run(source, "0", "uniform-k(alpha=0)")
    receipt = run(source, "out", "canonical")
    assert (receipt.rows, receipt.changed) == (5, 0)
    ids = [row["input_ids"] for row in rows_of(tmp_path / "out")]
    assert ids == [vocab.encode(text).tolist() for text in documents(5)]
    empty = tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), empty)
    with pytest.raises(RobustokError, match="the input has no document: its files are empty"):
        run(empty, "empty")
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"text": "\\ud800"}\n')
    with pytest.raises(RobustokError, match="no document could be read: all 1 rows"):
        run(bad, "none")


@pytest.mark.usefixtures("inline")
def test_a_full_disk_is_one_line_and_costs_nothing(
    run_small: Any, tmp_path: Path, monkeypatch
) -> None:
    wanted = run_small("whole")
    calls = [0]

    def full(handle: int) -> None:
        calls[0] += 1
        if calls[0] > 9:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(RobustokError, match="free some space"):
        patch.setattr(os, "fsync", full)
        run_small()
    assert not list((tmp_path / "out").rglob("*.part"))
    assert run_small() == wanted
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def start(corpus: Path, out: Path, tokenizer: Path) -> subprocess.Popen[str]:
    code = (
        "import sys; from robustok.corpus import run_corpus\n"
        "if __name__ == '__main__': run_corpus(sys.argv[1], sys.argv[2], sys.argv[3], "
        f"{SCHEME!r}, workers=2, draws=20, seed=5, shard_bytes=3000)"
    )
    script = out.parent / "script.py"
    script.write_text(code)
    return subprocess.Popen(
        [sys.executable, str(script), str(corpus), str(out), str(tokenizer)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    while len(list(folder.glob("*.json"))) < count:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)


def worker_of(pid: int) -> int:
    """The process id of a running worker of a process; children that have ended are skipped."""
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                return child.pid
    raise AssertionError("the run has no worker")


def test_killed_run_and_killed_workers(
    run_small: Any, corpus: Path, tmp_path: Path, tokenizer: Path
) -> None:
    """SIGKILL to the run, then, after the restart, to two of its workers in turn."""
    for i in range(8):
        write_jsonl(corpus / f"more{i}.jsonl", documents(70, seed=i))
    out = tmp_path / "out"
    process = start(corpus, out, tokenizer)
    wait_for(process, out / "__run__" / "manifests", 2)
    helpers = psutil.Process(process.pid).children()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(helpers, timeout=20)
    assert not alive, "a worker outlived the run that started it"
    finished = len(list((out / "__run__" / "manifests").glob("*.json")))

    process = start(corpus, out, tokenizer)
    for more in (2, 4):
        wait_for(process, out / "__run__" / "manifests", finished + more)
        os.kill(worker_of(process.pid), signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    whole = run_small("whole", workers=2, draws=20)
    assert finished + 6 < len(whole.shards), "it was done before it could be killed"
    assert files_of(out) == files_of(tmp_path / "whole")


def test_a_worker_killed_at_every_start_ends_the_run(
    run_small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = kill_at_start(monkeypatch, times=100)
    with pytest.raises(RobustokError, match=r"a.jsonl died 3 times, the last time killed by S"):
        run_small(workers=1)
    assert len(kills) == TRIES


ON_RAY = """
import sys
from pathlib import Path
import ray
from robustok.corpus.run import run_on_ray
folder, tokenizer, scheme = sys.argv[1:]
try:
    ray.init(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
except Exception as error:  # the class that Ray raises where its servers do not start in time
    sys.exit(print("Ray did not start:", error))
for kind in ("parquet", "json"):
    files = sorted(Path(folder, "in").glob(f"*{kind}*"))
    run_on_ray(files, f"{folder}/{kind}", tokenizer, scheme, seed=1, draws=2, keep_columns="all")
ray.shutdown()
"""


@pytest.mark.usefixtures("inline")
def test_ray_data_draws_the_same(tmp_path: Path, run: Any, tokenizer: Path) -> None:
    pytest.importorskip("ray")
    source = tmp_path / "in"
    for part in range(2):
        texts = enumerate(documents(20, seed=part))
        rows: list[dict[str, Any]] = [{"ids": t, "url": f"{part}/{i}"} for i, t in texts]
        write_rows(source / ("0.jsonl", "1.ndjson")[part], rows)
        pq.write_table(pa.Table.from_pylist(rows), source / f"{part}.parquet")
    run(f"{source}/*.parquet", "local", draws=2, keep_columns=["url"])
    with pytest.raises(RobustokError, match="holds other files"):
        run_on_ray([source], source, tokenizer, SCHEME, seed=1)
    with pytest.raises(RobustokError, match="keep_columns: give a list"):
        run_on_ray([source], tmp_path / "out", tokenizer, SCHEME, seed=1, keep_columns="url")
    with pytest.raises(RobustokError, match="of one kind"):
        run_on_ray([source], tmp_path / "out", tokenizer, SCHEME, seed=1)
    packed = tmp_path / "a.jsonl.xz"
    packed.write_bytes(lzma.compress(b'{"text": "a"}'))
    with pytest.raises(RobustokError, match=r"does not read \.xz"):
        run_on_ray([packed], tmp_path / "out", tokenizer, SCHEME, seed=1)
    output = run_code(ON_RAY, str(tmp_path), str(tokenizer), SCHEME).stdout
    if "Ray did not start" in output:
        pytest.skip(output)
    order = [("url", "ascending"), ("draw", "ascending")]
    local = pq.read_table(tmp_path / "local" / "data").sort_by(order)
    for kind in ("parquet", "json"):
        drawn = pq.read_table(tmp_path / kind).select(local.column_names).sort_by(order)
        assert drawn.to_pylist() == local.to_pylist()
