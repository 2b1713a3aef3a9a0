"""A training run as one HTML page that needs nothing else: `nncuda report`."""

from .page import report_html, write_report
from .run import ReportedRun, read_run

__all__ = ["ReportedRun", "read_run", "report_html", "write_report"]
