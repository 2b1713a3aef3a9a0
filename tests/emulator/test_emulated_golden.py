"""The golden fixtures on the GPU engine, each architecture's code run on the CPU (`make emulated` builds the libraries).

A kernel takes part as soon as the library holds it. Every family runs in a process of its own, since the emulator ends
the process at a misaligned vector or a stray index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from nncuda.golden import read_folder

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "golden"
LIBRARIES = {path.stem.rpartition("_")[2]: path for path in sorted((ROOT / "build/emulated").glob("libnncuda_*.so"))}
KERNELS: dict[str, list[str]] = defaultdict(list)
for _fixture in read_folder(FIXTURES):
    if _fixture.kernel not in KERNELS[_fixture.family]:
        KERNELS[_fixture.family].append(_fixture.kernel)


def held(library: Path) -> set[str]:
    """The kernels that the GPU engine of a library has."""
    if not shutil.which("nm"):
        pytest.skip("needs nm, which is not installed")
    table = subprocess.run(["nm", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r" [tT] nn_cuda_(\w+)$", table, re.MULTILINE))


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
@pytest.mark.parametrize("family", KERNELS)
@pytest.mark.parametrize("arch", LIBRARIES or ["none"])
def test_golden(arch: str, family: str) -> None:
    kernels = [kernel for kernel in KERNELS[family] if kernel in held(LIBRARIES[arch])]
    if not kernels:
        pytest.skip(f"the GPU engine has no kernel of {family} yet")
    chosen = [word for kernel in kernels for word in ("--kernel", kernel)]
    result = subprocess.run(
        [sys.executable, "-c", "from nncuda.cli import main; main()", "verify", "--device", "cuda", *chosen],
        env={**os.environ, "NNCUDA_LIBRARY": str(LIBRARIES[arch]), "NNCUDA_GOLDEN": str(FIXTURES), "COLUMNS": "160"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout[-4000:]}"
    passed = re.search(r"(\d+) of (\d+) cases passed", result.stdout)
    assert passed and passed[1] == passed[2] != "0"
