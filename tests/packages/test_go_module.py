"""The Go module as a stranger gets it: from a proxy, by its version, into a module outside of the source tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import fenced
import pytest

from nncuda.binding import library

ROOT = Path(__file__).resolve().parents[2]
MODULE = re.findall(r"^module (\S+)$", (ROOT / "go/go.mod").read_text(), re.MULTILINE)[0]
VERSION = "v0.2.0"


def members(git: str) -> list[str]:
    """The module's files, without those that git would not have under a tag."""
    line = [git, "ls-files", "--cached", "--others", "--exclude-standard", "go"]
    listed = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name.removeprefix("go/") for name in listed if (ROOT / name).is_file()]


@pytest.fixture
def proxy(git: str, tmp_path: Path) -> Path:
    """A folder laid out as GOPROXY asks, with the zip that the go command makes of a tag: a module in a folder of the
    repository gets the licence from its root."""
    versions = tmp_path / "proxy" / MODULE / "@v"
    versions.mkdir(parents=True)
    (versions / "list").write_text(f"{VERSION}\n")
    (versions / f"{VERSION}.info").write_text(json.dumps({"Version": VERSION, "Time": "2026-01-01T00:00:00Z"}))
    (versions / f"{VERSION}.mod").write_bytes((ROOT / "go/go.mod").read_bytes())
    with zipfile.ZipFile(versions / f"{VERSION}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in members(git):
            packed.write(ROOT / "go" / name, f"{MODULE}@{VERSION}/{name}")
        packed.write(ROOT / "LICENSE", f"{MODULE}@{VERSION}/LICENSE")
    return tmp_path / "proxy"


def test_a_module_elsewhere_gets_it_builds_and_runs(go: str, proxy: Path, tmp_path: Path) -> None:
    cache = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        **os.environ,
        # What the module requires is in the cache of whoever has built it; a network is asked for the rest alone.
        "GOPROXY": f"file://{proxy},file://{cache}/cache/download,{os.environ.get('GOPROXY', 'https://proxy.golang.org')}",
        "GOMODCACHE": str(tmp_path / "modules"),
        "GOFLAGS": "-mod=mod -modcacherw",
        "GONOSUMDB": MODULE,
        "GOWORK": "off",
        library.ENVIRONMENT_VARIABLE: str(Path(library.load().path).resolve()),
    }
    program = tmp_path / "elsewhere"
    program.mkdir()
    (text,) = fenced.blocks("docs/index.md", "go")
    (program / "main.go").write_text(text)
    (program / "go.mod").write_text("module example.org/elsewhere\n\ngo 1.24\n")
    (program / "go.sum").write_bytes((ROOT / "go/go.sum").read_bytes())  # known hashes need no look-up

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=program, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
        return done.stdout

    run(go, "get", f"{MODULE}@{VERSION}")
    assert f"{MODULE} {VERSION}" in (program / "go.mod").read_text()
    run(go, "build", "-o", "program", ".")
    assert run("./program") == "[0.576 0.212 0.212 0.212 0.576 0.212]\n"
    # All packages are there, with what they embed, and so is whatever they import.
    assert f"{MODULE}/cmd/nncuda-go" in run(go, "list", "-deps", f"{MODULE}/cmd/nncuda-go").splitlines()
    files = run(go, "list", "-f", "{{.EmbedFiles}}", f"{MODULE}/report")
    assert files == "[page/charts.js page/page.css page/page.html page/page.js page/run.js]\n"
    assert run(go, "list", "-m", "-f", "{{.Dir}}", MODULE).startswith(str(tmp_path / "modules"))


def test_the_module_includes_no_header_from_outside(git: str) -> None:
    """cgo would find it in the source tree, and nowhere else."""
    sources = [name for name in members(git) if name.endswith((".go", ".c", ".h"))]
    included = {
        (name, header)
        for name in sources
        for header in re.findall(r'^#include "(.*)"', (ROOT / "go" / name).read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert ("cuda/loader.h", "bindings.h") in included
    for name, header in included:
        assert (ROOT / "go" / name).with_name(header).is_file(), f"{name} includes {header}, which is not beside it"
    assert (ROOT / "go/cuda/bindings.h").read_bytes() == (ROOT / "bindings.h").read_bytes(), "run: make generate"
