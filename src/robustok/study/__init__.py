"""Studies: read from YAML, planned as cells, and run with results that survive interruption."""

from robustok.study.catalog import find_study, studies
from robustok.study.cells import Cell
from robustok.study.config import load_study
from robustok.study.planner import plan
from robustok.study.run import Run, Watch, run_study
from robustok.study.schema import Study

__all__ = [
    "Cell",
    "Run",
    "Study",
    "Watch",
    "find_study",
    "load_study",
    "plan",
    "run_study",
    "studies",
]
