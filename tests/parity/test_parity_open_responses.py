"""Open Responses' compliance tests on the servers of three languages: which pass, and why the others do not.

`make interop OPEN_RESPONSES=PATH` runs this, with the path of that project's source, by the bun and zod that the lock
file in tests/interop/clients/open_responses names. `differs.json` there says what is not as they expect, which
docs/serving-judges.md shows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import languages
import pytest
from scripted_model import write_scripted
from servers import served
from tool_scripts import TEMPLATES

RUNNER = languages.ROOT / "tests" / "interop" / "clients" / "open_responses"
EXPECTED: dict[str, Any] = json.loads((RUNNER / "differs.json").read_text(encoding="utf-8"))
PAGE = languages.ROOT / "docs" / "serving-judges.md"
TESTS = os.environ.get("OPEN_RESPONSES")

#: What the model writes: a call where it is shown tools, otherwise a text that ends.
SCRIPTS = {
    "<call>": ['<tool_call>{"name": "get_weather",', ' "arguments": {"location":', ' "San Francisco, CA"',
               "}}</tool_call>"],
    "<text>": ["Hello", " to", " you."],
}  # fmt: skip
TEMPLATE = TEMPLATES["hermes"].removesuffix("{{ messages[-1].content }}") + "{{ '<call>' if tools else '<text>' }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("open_responses") / "model"
    write_scripted(made, SCRIPTS, TEMPLATE, [])
    return made


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that run the tests, installed from their lock file."""
    installed = tmp_path_factory.mktemp("open_responses_packages")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(RUNNER / name, installed)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=installed, check=True)
    return installed / "node_modules"


@pytest.mark.case("Open Responses' compliance tests (make interop OPEN_RESPONSES=PATH)")
@pytest.mark.skipif(not TESTS, reason="OPEN_RESPONSES does not say where that project's source is")
@pytest.mark.parametrize("language", languages.SERVING)
def test_what_passes(folder: Path, modules: Path, language: str) -> None:
    bun = next(modules.glob("@oven/*/bin/bun"))
    with served(language, folder, "--threads", 1) as server:
        line = [bun, "run", "bin/compliance-test.ts", "--json", "--model", "small", "--api-key", "none"]
        line += ["--base-url", f"http://127.0.0.1:{server.port}/v1"]
        env = {**os.environ, "NODE_PATH": str(modules)}
        done = subprocess.run(line, cwd=str(TESTS), env=env, capture_output=True, text=True, timeout=600)
    results = {one["id"]: one for one in json.loads(done.stdout)["results"]}
    found = {
        status: sorted(name for name, one in results.items() if one["status"] == status)
        for status in ("passed", "failed", "skipped")
    }
    failed = sorted(name for names, _ in EXPECTED["differs"] for name in names)
    why = {name: one["errors"] for name, one in results.items()}
    assert found == {"passed": sorted(EXPECTED["passes"]), "failed": failed, "skipped": []}, why


def test_the_page_shows_it() -> None:
    rows = ["| tests of Open Responses | pass | why not |", "|---|---|---|"]
    rows.append(f"| {', '.join(f'`{name}`' for name in EXPECTED['passes'])} | yes | |")
    for names, why in EXPECTED["differs"]:
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | no | {why} |")
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8"), "\n".join(rows)
