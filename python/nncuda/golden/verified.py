"""What is known of the GPU engine's kernels on real GPUs: `verified.json`, written by ``nncuda verify --record``.

For each family it holds the GPU, the counts of the last run of its golden tests there, and a hash of the sources that
ran. A family whose sources have another hash now was changed since; one that is not in the file is compiled, not
verified.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..formats.atomic import write_file

#: Beside this file in an installation: the record, and the hashes of the sources that the library was built from.
INSTALLED_RECORD = Path(__file__).with_name("verified.json")
INSTALLED_HASHES = Path(__file__).with_name("kernel_sources.json")
#: The same in the source tree.
_ROOT = Path(__file__).resolve().parents[3]
RECORD = _ROOT / "tests" / "gpu" / "verified.json"


@dataclass(frozen=True)
class Verification:
    """The last run of a family's golden tests on a GPU."""

    source: str  # hash of the sources, as `source_hashes` makes it
    gpu: str
    build: str
    date: str  # ISO 8601
    cases: int
    failed: int
    largest_share: float  # of a tolerance


def source_hashes(root: Path = _ROOT) -> dict[str, str]:
    """A hash of each family's sources: SHA-256 of the lines ``file:SHA-256`` of cuda/kernels/<family>*.cu[h],
    <family>_workspace.h, and the files there that belong to no family, in the order of their names. (cmake/python.cmake
    makes the same.)"""
    patterns = ("*.cu", "*.cuh", "*_workspace.h")
    files = sorted(file for pattern in patterns for file in (root / "cuda/kernels").glob(pattern))
    families = sorted(
        path.stem for path in (root / "cuda/abi/generated").glob("*.h") if (root / f"cuda/cpu/{path.stem}.c").exists()
    )
    owner = {
        file: next((f for f in families if file.stem == f or file.stem.startswith(f"{f}_")), None) for file in files
    }
    hashes = {}
    for family in families:
        own = [file for file in files if owner[file] in (family, None)]
        if any(owner[file] == family for file in own):
            lines = "".join(f"{file.name}:{hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in own)
            hashes[family] = hashlib.sha256(lines.encode()).hexdigest()
    return hashes


def read(path: Path) -> dict[str, Verification]:
    """The record by family; empty when there is no file."""
    if not path.exists():
        return {}
    return {family: Verification(**entry) for family, entry in json.loads(path.read_text())["families"].items()}


def write(path: Path, families: dict[str, Verification]) -> None:
    """Takes these families up into the record; the others stay as they are."""
    merged = {**read(path), **families}
    text: dict[str, Any] = {"families": {family: asdict(merged[family]) for family in sorted(merged)}}
    write_file(path, json.dumps(text, indent=2) + "\n")


def describe() -> str:
    """One line: which families were verified, on what, and which were changed since."""
    record = read(INSTALLED_RECORD if INSTALLED_RECORD.exists() else RECORD)
    now = json.loads(INSTALLED_HASHES.read_text()) if INSTALLED_HASHES.exists() else source_hashes()
    good = [name for name in now if name in record and record[name].source == now[name] and not record[name].failed]
    if not good:
        return "compiled, not verified on a GPU"
    gpus = ", ".join(sorted({record[name].gpu.split(",")[0] for name in good}))
    text = f"{len(good)} of {len(now)} families verified on {gpus}"
    rest = [name for name in now if name not in good]
    return text + (f"; compiled, not verified as they are now: {', '.join(rest)}" if rest else "")
