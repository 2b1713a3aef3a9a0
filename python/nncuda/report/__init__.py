"""A training run as one HTML page that needs nothing else: `nncuda report`."""

from .page import report_html, write_report

__all__ = ["report_html", "write_report"]
