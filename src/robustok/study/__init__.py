"""A study as YAML, its plan of cells, and a run that goes on where it stopped."""

from robustok.study.catalog import find_study, studies
from robustok.study.config import load_study
from robustok.study.plan import Cell, plan
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
