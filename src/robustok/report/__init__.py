"""Reports of a study's results: HTML, Markdown and figures."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from robustok.report.frame import Results as Results
    from robustok.report.headlines import Headline as Headline
    from robustok.report.headlines import find_headlines as find_headlines
    from robustok.report.tables import write_table as write_table
    from robustok.report.write import write_report as write_report

# Loaded on first use: pandas costs more to import than most commands take.
_MODULES = {
    "Headline": "headlines",
    "Results": "frame",
    "find_headlines": "headlines",
    "write_report": "write",
    "write_table": "tables",
}
__all__ = ["Headline", "Results", "find_headlines", "write_report", "write_table"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
