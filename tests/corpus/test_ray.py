"""Ray Data draws what the local engine draws."""

import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.corpus.conftest import SCHEME, documents, write_rows
from tests.oracles.processes import run as run_code

from robustok.corpus.run import run_on_ray
from robustok.errors import RobustokError

pytest.importorskip("ray")

CODE = """
import sys
from pathlib import Path
import ray
from robustok.corpus.run import run_on_ray
folder, tokenizer, scheme = sys.argv[1:]
try:
    ray.init(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
except Exception:  # the class that Ray raises where its servers do not start in time
    sys.exit(print("Ray did not start"))
for kind in ("parquet", "json"):
    files = sorted(Path(folder, "in").glob(f"*{kind}*"))
    run_on_ray(files, f"{folder}/{kind}", tokenizer, scheme, seed=1, draws=2, keep_columns="all")
ray.shutdown()
"""


@pytest.mark.usefixtures("inline")
def test_ray_data_draws_the_same(tmp_path: Path, run: Any, tokenizer: Path) -> None:
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
    if "did not start" in run_code(CODE, str(tmp_path), str(tokenizer), SCHEME).stdout:
        pytest.skip("Ray did not start: the machine has too much other work")
    order = [("url", "ascending"), ("draw", "ascending")]
    local = pq.read_table(tmp_path / "local" / "data").sort_by(order)
    for kind in ("parquet", "json"):
        drawn = pq.read_table(tmp_path / kind).select(local.column_names).sort_by(order)
        assert drawn.to_pylist() == local.to_pylist()
