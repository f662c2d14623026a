"""Reports of a study's results: HTML, Markdown and figures."""

from typing import TYPE_CHECKING

from robustok.runtime.packages import names_on_use

if TYPE_CHECKING:
    from robustok.report.frame import Results as Results
    from robustok.report.write import write_report as write_report

# Imported when one is used: pandas costs more to import than most commands take.
__all__ = ["Results", "write_report"]
__getattr__ = names_on_use("robustok.report", "robustok.report.write", names=__all__)
