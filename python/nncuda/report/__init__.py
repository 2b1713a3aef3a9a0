"""A training run as one HTML page that needs nothing else: `nncuda report`."""

from .page import report_html, whole_page, write_report
from .run import read_run

__all__ = ["read_run", "report_html", "whole_page", "write_report"]
