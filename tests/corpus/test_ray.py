"""The Ray engine on a cluster of two nodes of this machine, one of which is lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.conftest import documents, write_jsonl
from tests.corpus.test_run import files_of

from robustok.corpus import run_corpus
from robustok.errors import RobustokError

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own
pytest.importorskip("ray")

SCHEME = "uniform-k(alpha=0.5)"


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


def test_two_nodes_one_of_them_lost(cluster: Any, tmp_path: Path, tokenizer: Path) -> None:
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


def test_an_error_on_a_node_is_one_line(cluster: Any, tmp_path: Path, tokenizer: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_jsonl(tmp_path / "in" / "a.jsonl", documents(5))
    pq.write_table(pa.table({"body": ["x"]}), tmp_path / "in" / "b.parquet")
    with pytest.raises(RobustokError, match=r"^[^\n]*b.parquet: no field 'text'[^\n]*$"):
        run_corpus(tmp_path / "in", tmp_path / "out", tokenizer, SCHEME, seed=0, engine="ray")
