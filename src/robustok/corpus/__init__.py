"""Corpora of any size, drawn into shards: in processes here, or on a Ray cluster.

The rooms in reading order: sources (files and chunks), read (documents), encode (canonical ids),
transform (draws), write (shards), shard (one chunk, whole), local and on_ray (the engines), run.
"""

from robustok.corpus.run import Receipt as Receipt
from robustok.corpus.run import run_corpus as run_corpus
from robustok.corpus.transform import Retokenize as Retokenize
