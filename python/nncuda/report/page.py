"""The page of a report: one file with its own style and script, which draws the files of the run that stand in it.

Frame, style and scripts lie in `page/` and are the same for every language. The page forbids itself, by its content
security policy, to load anything and to run anything but these scripts, which it knows by their hash.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from pathlib import Path

from ..formats import FormatError, write_file
from ..formats.errors import missing_file
from ..formats.json_values import json_lines
from ..formats.regular import present, read_regular
from ..formats.run_folder import list_checkpoints

_PAGE = Path(__file__).parent / "page"
_PARTS = ("page.css", "run.js", "charts.js", "page.js")
_FILES = ("run.json", "results.json", "samples.jsonl", "metrics.jsonl")


def write_report(folder: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Writes the page of the run in `folder` to `path`, by default `folder`/report.html, and returns where it is.

    Raises FormatError when the folder holds no metrics. The same folder gives the same bytes.
    """
    path = Path(folder) / "report.html" if path is None else Path(path)
    write_file(path, report_html(folder))
    return path


def report_html(folder: str | os.PathLike[str]) -> str:
    """The page of the run in `folder`. Raises FormatError when it holds no metrics."""
    page = (_PAGE / "page.html").read_text(encoding="utf-8")
    for name in _PARTS:
        page = page.replace(f"<!-- {name} -->", (_PAGE / name).read_text(encoding="utf-8"))
    files = (
        f'<pre hidden data-file="{name}">\n{html.escape(text.decode("utf-8", "replace"), quote=False)}</pre>\n'
        for name, text in _run_files(Path(folder))
    )
    return page.replace("<!-- files -->", "".join(files), 1)


def _run_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a run that the page reads, by name; of a folder its name ("."), or the bytes of what it holds."""
    metrics = folder / "metrics.jsonl"
    if not present(metrics):
        raise missing_file(folder, "is no training run: it holds no metrics.jsonl")
    if not any(record is not None and type(record.get("step")) is int for _, record in json_lines(metrics)):
        raise FormatError(metrics, "holds no record of a step yet; the first comes after `log_every` steps")
    yield ".", os.fsencode(folder.resolve().name)
    for name in _FILES:
        if present(folder / name):
            yield name, _content(folder / name)
    for checkpoint in list_checkpoints(folder / "checkpoints"):
        name = f"checkpoints/{checkpoint.name}/"
        try:
            size = sum(file.stat().st_size for file in checkpoint.iterdir())
        except FileNotFoundError:  # the run removed it meanwhile
            continue
        yield name, str(size).encode()
        yield name + "training.json", _content(checkpoint / "training.json")


def _content(path: Path) -> bytes:
    """The bytes of a file; none when it cannot be read, of which the page then says so."""
    try:
        return read_regular(path)
    except FormatError:
        return b""
