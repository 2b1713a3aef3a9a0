"""What a session ends with. It stands here since a session of several workers reads no conftest further down."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The golden tests: how much of a tolerance the worst output used, on each instruction set."""
    worst: dict[str, tuple[float, str]] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, value in getattr(report, "user_properties", ()):
            if name == "share of a tolerance":
                isa, share, kernel = value
                worst[isa] = max(worst.get(isa, (0.0, "")), (share, kernel))
    for isa, (share, kernel) in worst.items():
        terminalreporter.write_line(f"golden fixtures, {isa}: at most {share:.0%} of a tolerance was used ({kernel})")
