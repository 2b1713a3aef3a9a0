"""What is built on one machine runs on another: no compiler is told to use what the building machine has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Of GCC and clang, of rustc, of Go's C compiler, and of what llama.cpp's builds call it.
NATIVE = re.compile(r"-(?:march|mcpu|mtune)=native|target-cpu=native|GGML_NATIVE=ON")
#: Where flags are written: build descriptions, and sources that start a compiler or carry its flags (build.rs, cgo).
NAMES = re.compile(r"CMakeLists\.txt|Makefile|Dockerfile|.*\.(?:cmake|toml|rs|go|sh|cfg|yml|yaml|in|mod)")
SKIPPED = {"build", "dist", "node_modules", "target", "site", "tests"}


def build_files() -> list[Path]:
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in ROOT.iterdir():
        if folder.is_dir() and folder.name not in SKIPPED and (not folder.name.startswith(".") or folder.name == ".ci"):
            found += folder.rglob("*")
    found += (ROOT / "tests").rglob("CMakeLists.txt")
    found += (ROOT / "tests").rglob("*.sh")
    here = [path for path in found if path.is_file() and (NAMES.fullmatch(path.name) or path.parent.name == ".ci")]
    return [path for path in here if not SKIPPED & set(path.relative_to(ROOT).parts[1:-1])]


@pytest.mark.parametrize(
    ("line", "native"),
    [
        ("cc -O3 -march=native", True),
        ('rustflags = ["-C", "target-cpu=native"]', True),
        ("// #cgo CFLAGS: -mtune=native", True),
        ("cc -mavx2 -march=x86-64-v2", False),
    ],
)
def test_what_is_looked_for(line: str, native: bool) -> None:
    assert bool(NATIVE.search(line)) == native


def test_no_build_file_names_the_building_machine() -> None:
    files = build_files()
    names = {path.name for path in files}
    assert {"CMakeLists.txt", "Makefile", "pyproject.toml", "Cargo.toml", "build.rs", "build.sh", "cuda.cmake"} <= names
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if NATIVE.search(line)
    ]
    assert not found, f"{', '.join(found)}: a build for this machine alone would not run on another"


def test_no_file_was_compiled_for_the_building_machine() -> None:
    """The flags that CMake made, with those of the environment and of scikit-build."""
    written = sorted(ROOT.glob("build/*/compile_commands.json"))
    if not written:
        pytest.skip("nothing has been built in this tree")
    for path in written:
        for entry in json.loads(path.read_text(encoding="utf-8")):
            assert not NATIVE.search(entry.get("command", "")), f"{path}: {entry['file']}"
