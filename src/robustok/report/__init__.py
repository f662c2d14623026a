"""A study's results as something to look at: HTML, Markdown and figures."""

from robustok.report.write import write_report

__all__ = ["write_report"]
