"""Re-tokenizes corpora of any size into shards, in processes of this machine or on a Ray cluster.

Reading order: sources (files and chunks), rows, lines, parquet and read (documents), transform
(canonical ids and draws), write (shards), shard (one chunk), local and on_ray (engines), run.
"""

from robustok.corpus.run import Receipt as Receipt
from robustok.corpus.run import run_corpus as run_corpus
from robustok.corpus.transform import Retokenize as Retokenize
