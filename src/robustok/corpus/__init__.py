"""Re-tokenizes corpora of any size into shards, in processes of this machine or on a Ray cluster.

Reading order: documents (files to tasks, tasks to tables, tables to draws), run (all tasks, or Ray
Data).
"""

from robustok.runtime.packages import require

require("pyarrow")

from robustok.corpus.documents import Retokenize as Retokenize
from robustok.corpus.run import Receipt as Receipt
from robustok.corpus.run import run_corpus as run_corpus
