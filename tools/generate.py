"""Writes what is made and committed, from ``bindings.h``, the tables of servers, the constants of GPU kernels and the
figures of benchmarks: ``make generate``.

Each generator gives the files of one consumer by their path in the tree, and says by patterns which files are its own,
so that one that is no longer made is removed. A test compares the tree with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from nncuda.binding import header

from . import abi_page, benchmarks_page, entries, golang, models_page, rust, serving_page, stubs, tuning_page

ROOT = Path(__file__).resolve().parents[1]
GENERATORS = (stubs, abi_page, entries, golang, rust, serving_page, tuning_page, benchmarks_page, models_page)


def made(path: Path = ROOT / "bindings.h") -> dict[str, str]:
    """The text of every generated file, by its path in the tree."""
    contract, source = header.parse(path), path.read_bytes()
    return {name: text for generator in GENERATORS for name, text in generator.files(contract, source).items()}


def left_over(root: Path, files: Mapping[str, str]) -> list[Path]:
    """Files of the tree that a generator once wrote, and that are not among `files`."""
    owned = (path for generator in GENERATORS for pattern in generator.OWNED for path in root.glob(pattern))
    return sorted(path for path in owned if path.relative_to(root).as_posix() not in files)


def write(root: Path, files: Mapping[str, str]) -> None:
    """Writes the files whose text differs, and removes those that are left over."""
    for path in left_over(root, files):
        path.unlink()
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="make generate", description=__doc__).parse_args()
    write(ROOT, made())
