"""Reports of a study's results: HTML, Markdown and figures."""

from robustok.report.accuracies import write_table
from robustok.report.merge import merged
from robustok.report.statements import findings
from robustok.report.table import Results
from robustok.report.write import write_report

__all__ = ["Results", "findings", "merged", "write_report", "write_table"]
