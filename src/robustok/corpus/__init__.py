"""Re-tokenizes corpora of any size into shards, in processes of this machine or on a Ray cluster.

Reading order: read (files to tasks and documents), transform (canonical ids and draws), run (all
tasks, or Ray Data).
"""

from robustok.runtime.packages import require

require("pyarrow")

from robustok.corpus.run import Receipt as Receipt
from robustok.corpus.run import run_corpus as run_corpus
from robustok.corpus.transform import Retokenize as Retokenize
