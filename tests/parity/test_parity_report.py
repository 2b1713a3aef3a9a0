"""`report`: of one run every language's page holds the same files, whatever the run is like."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import languages
import pytest
from click.testing import CliRunner
from runs import OPTIONS, Workshop

from nncuda.cli import main
from nncuda.report import report_html

USAGE, WRONG_FILE = 2, 3
HOSTILE = "</pre><script>alert(1)</script>&\"'\0\x1b\u2028\u202e\U0001f600é\ud800<!-- files -->"


class Page(HTMLParser):
    """The frame of a page, and the files of the run that stand in it, as a browser reads them."""

    def __init__(self, text: str):
        super().__init__()
        self.files: dict[str, str] = {}
        self._file: str | None = None
        self.feed(text)
        self.close()
        self.frame = re.sub(r"<pre hidden data-file=.*?</pre>\n", "", text, flags=re.S)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._file = dict(attributes).get("data-file") if tag == "pre" else None

    def handle_endtag(self, tag: str) -> None:
        self._file = None

    def handle_data(self, data: str) -> None:
        if self._file is not None:
            self.files[self._file] = self.files.get(self._file, "") + data


def compare(language: languages.Language, run: Path) -> None:
    """The page that the language makes, at its default place, and the one that this process makes."""
    out = run / "report.html"
    assert str(out) in language.run("report", run).stdout
    expected, found = Page(report_html(run)), Page(out.read_text(encoding="utf-8"))
    assert found.frame == expected.frame and list(found.files) == list(expected.files)
    for name, text in expected.files.items():
        # How many signs stand for some invalid bytes is each language's own affair.
        assert re.sub("\ufffd+", "\ufffd", found.files[name]) == re.sub("\ufffd+", "\ufffd", text), name


@pytest.mark.case("report of a training run")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_runs(workshop: Workshop, language: languages.Language, options: str) -> None:
    """Of the run that the language itself made."""
    compare(language, workshop.run(language.name, options))


def write(folder: Path, name: str, *lines: object) -> None:
    folder.mkdir(exist_ok=True)
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / name).write_text(text)


def odd_run(folder: Path) -> None:
    """Lines that are no records, bytes that are no text, texts that are hostile, files that are none."""
    lines = ["", "\x0b", "5", "{", "NaN", '{"step": 40, "loss": NaN}', HOSTILE.replace("\ud800", "")]
    write(folder, "metrics.jsonl", *lines, '{"step": 50, "loss"')
    (folder / "metrics.jsonl").write_bytes(
        b'\xef\xbb\xbf{"step": 1}\n\xff\n' + (folder / "metrics.jsonl").read_bytes()[:-1]
    )
    write(folder, "run.json", {"data": HOSTILE, "held_out": "/dev/zero", "program": [1], "abi": "é" * 1001})
    os.mkfifo(folder / "results.json")
    write(folder, "samples.jsonl", {"step": 1, "prompt": HOSTILE, "text": ""}, "{")
    for name in ("step-00000001", "step-00000002", "step-3", "step-000000010"):
        (folder / "checkpoints" / name).mkdir(parents=True)
    write(folder / "checkpoints" / "step-00000001", "training.json", {HOSTILE: 1})
    os.mkfifo(folder / "checkpoints" / "step-00000002" / "training.json")


@pytest.mark.case("report of a run that was cut off and damaged")
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_odd_run(language: languages.Language, tmp_path: Path) -> None:
    run = tmp_path / "a <run> & more é"
    odd_run(run)
    compare(language, run)


@pytest.mark.case("report of what is no run")
@pytest.mark.parametrize("language", languages.NAMES[1:], indirect=True)
def test_refusals(language: languages.Language, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    write(empty, "metrics.jsonl", "5")
    for arguments, code in (((tmp_path,), WRONG_FILE), ((empty,), WRONG_FILE),
                            ((tmp_path / "absent",), USAGE), ((empty / "metrics.jsonl",), USAGE),
                            ((empty, "--out", tmp_path), USAGE), ((), USAGE),
                            ((empty, "--out", tmp_path / "absent" / "page.html"), USAGE)):  # fmt: skip
        expected = CliRunner().invoke(main, ["report", *map(str, arguments)])
        said = language.run("report", *arguments, code=code).stderr
        assert expected.exit_code == code and said
        if code == WRONG_FILE:
            assert str(arguments[0]) in said and "metrics.jsonl" in said
        if "--out" in arguments:  # said before the run is read
            assert str(tmp_path) in said and "metrics.jsonl" not in said
