"""Fixtures of the comparisons between languages, and the table that they end with."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator

import languages
import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text
from runs import Workshop

REPORT = languages.ROOT / "build" / "parity" / "report.txt"

#: What a test's report says of it in the table: the row, and the languages. Reports reach the process that writes the
#: table from whichever worker ran the test.
CASE = "case of the parity table"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "case(title, *languages): the row of the parity table that a test belongs to")


@pytest.fixture(params=languages.NAMES)
def language(request: pytest.FixtureRequest) -> languages.Language:
    """Each language in turn."""
    return find(request.param)


def find(name: str) -> languages.Language:
    """A language; when it is missing the test is skipped, or fails where all languages are required."""
    try:
        return languages.find(name)
    except languages.MissingLanguageError as error:
        if languages.required():
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def workshop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    return Workshop((base.parent if hasattr(request.config, "workerinput") else base) / "parity")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    marker = item.get_closest_marker("case")
    if marker is None or (report.when != "call" and report.outcome == "passed"):
        return
    parameters = getattr(item, "callspec", None)
    found = [value for value in parameters.params.values() if value in languages.NAMES] if parameters else []
    # Of an ordered pair, the second language is the one that is tried.
    names = marker.args[1:] or found[-1:] or languages.NAMES
    report.user_properties.append((CASE, [marker.args[0], *names]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted = outcomes(report for reports in terminalreporter.stats.values() for report in reports)
    if not counted:
        return
    table = Table("case", *languages.NAMES, title="Parity", title_justify="left")
    for case, cells in counted.items():
        table.add_row(case, *(_cell(cells.get(name, Counter())) for name in languages.NAMES))
    text = io.StringIO()
    Console(file=text, width=100).print(table)
    terminalreporter.write_line("")
    terminalreporter.write(text.getvalue())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(text.getvalue(), encoding="utf-8")


def outcomes(reports: Iterable[object]) -> dict[str, dict[str, Counter[str]]]:
    """By case and language, how many tests ended how; the cases as they stand in the files."""
    found = [report for report in reports if isinstance(report, pytest.TestReport)]
    counted: dict[str, dict[str, Counter[str]]] = {}
    for report in sorted(found, key=lambda report: (report.location[0], report.location[1] or 0)):
        for name, value in report.user_properties:
            if name == CASE:
                case, *names = value  # type: ignore[misc]
                for language in names:
                    counted.setdefault(case, {}).setdefault(language, Counter())[report.outcome] += 1
    return counted


def _cell(counts: Counter[str]) -> Text:
    if counts["failed"]:
        return Text(f"{counts['failed']} of {counts.total()} FAILED")
    if counts["skipped"]:
        return Text("not built" if not counts["passed"] else f"{counts['passed']} equal, {counts['skipped']} skipped")
    return Text(f"{counts['passed']} equal" if counts["passed"] else "-")
