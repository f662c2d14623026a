"""Ray: a cluster that we start is local, and one of two nodes runs corpora and studies.

One of its nodes is lost on the way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import documents, write_jsonl
from tests.corpus.conftest import tokenizer as tokenizer
from tests.corpus.test_run import files_of

from robustok.corpus import run_corpus
from robustok.errors import RobustokError
from robustok.runtime.processes import connect

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
pytest.importorskip("ray")

SCHEME = "uniform-k(alpha=0.5)"

DRIVER = """
import sys, time
if sys.argv[1] == "imported":
    import ray
from robustok.runtime.processes import connect
connect()
import ray
assert ray.get(ray.remote(lambda: 7).remote()) == 7
print("started", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("before", ["imported", "new"])
def test_a_cluster_of_ours_is_local(tmp_path: Path, before: str, monkeypatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    with subprocess.Popen(
        [sys.executable, str(script), before], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as driver:
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline() == b"started\n"
            processes = psutil.Process(driver.pid).children(recursive=True)
            agents = [p for p in processes if p.name().startswith("ray::")]
            addresses = [a for p in [*processes, psutil.Process(driver.pid)] for a in listening(p)]
        finally:
            driver.kill()
    try:
        assert len(addresses) >= 4, "nothing was seen to listen: this test could not fail"
        assert set(addresses) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        servers = [process for process in processes if process not in agents]
        assert not psutil.wait_procs(servers, timeout=60)[1]
    finally:
        for process in processes:
            if process.is_running():
                process.kill()


def listening(process: psutil.Process) -> list[str]:
    try:
        connections = process.net_connections("inet")
    except psutil.Error:  # It has ended.
        return []
    return [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    store = 80 << 20
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": store, "include_dashboard": False},
    )
    node = cluster.add_node(num_cpus=1, object_store_memory=store)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=40)
    yield cluster, node
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.usefixtures("cluster")
def test_an_error_on_a_node_is_one_line(cluster: Any, tmp_path: Path, tokenizer: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", documents(5))
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "in" / "b.parquet")
    with pytest.raises(RobustokError, match=r"^[^\n]*b.parquet: no field 'text'[^\n]*$"):
        run_corpus(tmp_path / "in", tmp_path / "out", tokenizer, SCHEME, seed=0, engine="ray")


def test_a_corpus_is_the_same_where_a_node_is_lost(
    cluster: Any, tmp_path: Path, tokenizer: Path
) -> None:
    import ray

    nodes, second = cluster
    assert ray.cluster_resources()["CPU"] == 2
    for i in range(3):
        write_jsonl(tmp_path / "in" / f"{i}.jsonl", documents(60, seed=i))
    settings: dict[str, Any] = {"seed": 5, "shard_bytes": 2000, "draws": 3}
    local = run_corpus(tmp_path / "in", tmp_path / "local", tokenizer, SCHEME, **settings)
    lost: list[int] = []

    def lose_it(done: int, total: int) -> None:
        if not lost and done > total // 10:
            lost.append(done)
            nodes.remove_node(second, allow_graceful=False)

    remote = run_corpus(
        tmp_path / "in", tmp_path / "ray", tokenizer, SCHEME, engine="ray", progress=lose_it,
        **settings,
    )  # fmt: skip
    assert lost[0] < remote.input_bytes // 2
    assert remote == local
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "local")


@pytest.mark.parametrize("address", ["", "127.0.0.1:6379"])
def test_a_cluster_that_does_not_start_is_one_line(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def times_out(**_: Any) -> None:
        raise Exception("The current node timed out during startup. This could happen because\n…")

    monkeypatch.setattr(ray, "init", times_out)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", address)
    message = r"cluster 127\.0\.0\.1:6379 .*: The current" if address else "did not start: The"
    with pytest.raises(RobustokError, match=f"{message} .*timed out during startup") as error:
        connect()
    assert "\n" not in str(error.value)
