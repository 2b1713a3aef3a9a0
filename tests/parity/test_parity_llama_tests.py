"""llama.cpp's own server tests on the servers of three languages: which pass, and why the others do not.

`make interop LLAMA_TESTS=PATH` runs this, with the path of llama.cpp's source. In tests/interop/clients/llama_cpp,
`external.py` has its tests ask a server that runs already, and `differs.json` says what is not as they expect, which
docs/serving-judges.md shows.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import languages
import pytest
from servers import SHAPE, served
from test_parity_lm_eval import HARNESS

from nncuda.bench.random_model import write_folder

PLUGIN = languages.ROOT / "tests" / "interop" / "clients" / "llama_cpp"
FILES: dict[str, Any] = json.loads((PLUGIN / "differs.json").read_text(encoding="utf-8"))["files"]
PAGE = languages.ROOT / "docs" / "serving-judges.md"
TESTS = os.environ.get("LLAMA_TESTS")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llama") / "model"
    write_folder(made, SHAPE)
    return made


def ask(port: int, name: str, report: Path) -> set[str]:
    """Runs a file of tests on a server; those that failed. The others passed, but for those that llama.cpp skips."""
    env = {**os.environ, "DEBUG_EXTERNAL": "1", "PORT": str(port)}
    env["PYTHONPATH"] = os.pathsep.join([str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])])
    line = [HARNESS, "-m", "pytest", "-p", "external", "-p", "no:cacheprovider", "-q", "-m", "not slow"]
    line += ["--junitxml", report, f"unit/{name}.py"]
    subprocess.run(line, cwd=Path(str(TESTS), "tools", "server", "tests"), env=env, capture_output=True, timeout=1200)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    }
    skipped = [case for case in cases if case.find("skipped") is not None]
    assert (len(cases), len(cases) - len(failed) - len(skipped)) == (FILES[name]["tests"], FILES[name]["passes"])
    return failed


def expected(failed: set[str], name: str) -> Iterator[str]:
    """Those that are said to differ, by their own names or those of their functions; each must be there."""
    for tests, _ in FILES[name]["differs"]:
        for test in tests:
            found = {one for one in failed if test in (one, one.split("[")[0])}
            assert found, f"{name}: {test} passes, or is not there"
            yield from found


@pytest.mark.case("llama.cpp's server tests (make interop LLAMA_TESTS=PATH)")
@pytest.mark.skipif(not TESTS, reason="LLAMA_TESTS does not say where llama.cpp's source is")
@pytest.mark.parametrize("language", languages.SERVING)
@pytest.mark.parametrize("name", FILES)
def test_what_passes(folder: Path, tmp_path: Path, language: str, name: str) -> None:
    options = ["--threads", 1, *FILES[name].get("options", [])]
    with served(language, folder, *options, name=FILES[name]["model"]) as server:
        failed = ask(server.port, name, tmp_path / "report.xml")
    assert failed == set(expected(failed, name))


def test_the_page_shows_it() -> None:
    rows = ["| tests of llama.cpp | pass | what differs |", "|---|---|---|"]
    for name, one in FILES.items():
        rows.append(f"| `{name}` | {one['passes']} of {one['tests']} | {'; '.join(why for _, why in one['differs'])} |")
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8"), "\n".join(rows)
