"""The wheel of nncuda_rs for other machines. `make rust-wheel-release` sets NNCUDA_RUST_WHEEL to its folder."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import fenced
import pytest

FOLDER = os.environ.get("NNCUDA_RUST_WHEEL", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="needs an optimised build: run `make rust-wheel-release`")


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = Path(FOLDER).glob("*.whl")
    return found


def test_it_is_for_every_python_on_many_systems(wheel: Path) -> None:
    name, _, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("nncuda_rs", "cp310", "abi3")
    assert platform.startswith("manylinux_")


def test_what_it_says_of_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(packed.read(metadata))
    assert (about["Name"], about["License-Expression"], about["Requires-Python"]) == (
        "nncuda-rs",
        "Apache-2.0",
        ">=3.10",
    )
    assert about["Version"] == wheel.stem.split("-")[1]
    assert {url.partition(",")[0] for url in about.get_all("Project-URL", [])} >= {
        "Homepage",
        "Documentation",
        "Changelog",
    }
    assert about["Summary"] and about["Description-Content-Type"].startswith("text/markdown")
    assert any(name.endswith("/LICENSE") for name in names)
    assert {"nncuda_rs/__init__.pyi", "nncuda_rs/py.typed"} <= set(names)


def test_no_path_of_this_tree_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            assert str(fenced.ROOT).encode() not in packed.read(name), name


def test_the_first_program_of_its_page_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    (text,) = fenced.blocks("rust/nn-py/README.md", "python")
    program = text + f"\nassert nncuda_rs.__file__.startswith({str(tmp_path)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 21  # a loss a step, then the tokens
