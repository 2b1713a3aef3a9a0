"""What the library under test says of its GPU engine, and what it asks of the machine that it runs on."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import fatbin
import pytest

from nncuda.binding import library

PATH = Path(library.load().path).resolve()
CLAIM = re.search(r"; CUDA: (.*)$", library.load().build_info)


def output(*command: str | Path) -> str:
    if not shutil.which(str(command[0])):
        pytest.skip(f"needs {command[0]}, which is not installed")
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def claimed() -> list[str]:
    """The architectures that nncuda_build_info names."""
    assert CLAIM is not None
    if CLAIM[1] == "none":
        return []
    match = re.fullmatch(r"((?:(?:sm|compute)_\d+a? )*(?:sm|compute)_\d+a?), toolkit \d+\.\d+\.\d+", CLAIM[1])
    assert match is not None, CLAIM[1]
    return match[1].split()


def test_build_info_names_the_code_that_is_in() -> None:
    archs = claimed()
    assert len(set(archs)) == len(archs)
    assert set(fatbin.codes(PATH)) == set(archs)


def test_every_file_has_code_for_every_machine() -> None:
    """As many files for 9.0 as for each other architecture: 90a in place of 90, not beside it."""
    archs = claimed()
    if not archs:
        pytest.skip("the library under test is built for the CPU alone")
    found = fatbin.codes(PATH)
    hopper = [found.pop(name) for name in ("sm_90", "sm_90a") if name in found]
    assert len({*found.values(), *([sum(hopper)] if hopper else [])}) == 1, found


def test_driver_and_runtime_are_not_linked() -> None:
    dynamic = output("readelf", "-d", PATH)
    needed = re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)
    assert needed and not [name for name in needed if re.search("cuda|nv|stdc|gcc", name)]
    undefined = {line.split()[-1] for line in output("nm", "-D", "--undefined-only", PATH).splitlines()}
    assert not {name for name in undefined if re.match(r"_*cu[A-Z]|_*cuda|_Z", name)}


def test_no_device_without_a_driver() -> None:
    """What a machine without a driver sees: no GPU, and no error."""
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    loaded = library.load()
    assert loaded.device_count(loaded.header.constants["NNCUDA_DEVICE_CUDA"]) == 0
