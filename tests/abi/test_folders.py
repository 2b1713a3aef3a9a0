"""The folders of cuda/ include each other one way; no file, and no .c with its .h, includes itself through others."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

from toolchain import ROOT

CUDA = ROOT / "cuda"

#: What files of a folder may include, besides their neighbours and interface.h.
BELOW = {
    "numbers": set(),
    "runtime": {"numbers"},
    "abi": {"runtime", "numbers"},
    "comm": {"runtime", "numbers", "abi"},
    "cpu_device": {"runtime", "comm"},
    "cpu": {"abi", "runtime", "numbers"},
    "kernels": {"abi", "runtime", "numbers", "comm"},
}


def room(path: Path) -> str:
    """The folder of cuda/ that a source is in; empty for interface.h, which every one may include."""
    return path.relative_to(CUDA).parts[0] if path.parent != CUDA else ""


def includes() -> dict[Path, set[Path]]:
    """Each source of cuda/ with the ones there that it names."""
    found = {}
    for path in sorted(path for path in CUDA.rglob("*.*") if path.suffix in (".c", ".h", ".cu", ".cuh")):
        names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
        places = {next((p for p in (path.parent / n, CUDA / n) if p.exists()), None) for n in names}
        found[path] = {place for place in places if place is not None}
    return found


def test_folders_include_what_lies_below_them():
    graph = includes()
    upward = [
        f"{path.relative_to(CUDA)} includes {other.relative_to(CUDA)}"
        for path, others in graph.items()
        for other in others
        if room(other) not in (room(path), "") and room(other) not in BELOW[room(path)]
    ]
    assert not upward
    assert sum(map(len, graph.values())) > 200  # it reads them


def test_no_file_includes_itself_through_others():
    TopologicalSorter(includes()).prepare()  # raises with the cycle


def test_no_module_of_the_runtime_includes_itself_through_others():
    """A module is x.c with x.h: what is declared in one is made in the other."""
    modules: dict[Path, set[Path]] = {}
    for path, others in includes().items():
        if room(path) in ("runtime", "cpu_device"):
            own = path.with_suffix("")
            modules.setdefault(own, set()).update(other.with_suffix("") for other in others)
            modules[own].discard(own)
    assert len(modules) > 20
    TopologicalSorter(modules).prepare()  # raises with the cycle
