"""The page of a report: one file with its own style and script, which draws the run that stands in it as JSON.

The script, its style and the frame around them lie in `page/` and are the same for every language: Go and Rust have
copies of the whole page, which `make generate` writes. The page forbids itself, by its content security policy, to load
anything and to run anything but this script, which it knows by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from functools import cache
from pathlib import Path

from ..formats import write_file
from .run import read_run

_SOURCES = Path(__file__).parent / "page"
# JSON has these characters in texts only, and there they have another spelling. Spelled so, no text can end the element
# that it stands in.
_SPELLED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def write_report(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of the run in `folder` to `path`, by default `folder`/report.html, and returns where it is.

    Raises FormatError when the folder holds no metrics. The same folder gives the same bytes, in every language.
    """
    path = Path(folder) / "report.html" if path is None else Path(path)
    write_file(path, report_html(read_run(folder)))
    return path


def report_html(run: dict) -> str:
    """The page of a run, as `read_run` gives it."""
    text = json.dumps(run, allow_nan=False)
    for character, spelled in _SPELLED.items():
        text = text.replace(character, spelled)
    cells = (["–" if value is None else json.dumps(value) for value in row] for row in run["table"])
    rows = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    # The rows hold nothing but numbers, so the place that is found for the run is the page's own.
    return whole_page().replace("{{rows}}", rows, 1).replace("{{run}}", text, 1)


@cache
def whole_page() -> str:
    """The page without a run: {{rows}} is where rows of the table go, {{run}} where the JSON goes."""
    style = _source("page.css")
    script = '\n"use strict";\n' + _source("charts.js") + _source("page.js")
    page = _source("page.html")
    for name, text in (("style", style), ("script", script)):
        page = page.replace(f"{{{{{name} hash}}}}", _hash(text)).replace(f"{{{{{name}}}}}", text)
    return page


def _source(name: str) -> str:
    return (_SOURCES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The name of a script or style in a content security policy (W3C CSP level 2, section 4.2.5)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
