"""Studies: read from YAML, planned as cells, and run with results that survive interruption."""

from robustok.runtime.files import studies
from robustok.runtime.packages import require

require("pydantic", "yaml")

from robustok.study.cell import Cell
from robustok.study.config import find_study, load_study
from robustok.study.planner import plan
from robustok.study.run import Row, Run, Watch, run_study
from robustok.study.schema import Study

__all__ = [
    "Cell",
    "Row",
    "Run",
    "Study",
    "Watch",
    "find_study",
    "load_study",
    "plan",
    "run_study",
    "studies",
]
