"""The GPU engine's tests (tests/gpu), each architecture's code run on the CPU (`make emulated` builds the libraries).

Every file of them runs in a process of its own, since a library is loaded once a process, and since the emulator ends
the process at a misaligned vector or a stray index.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {path.stem.rpartition("_")[2]: path for path in sorted((ROOT / "build/emulated").glob("libnncuda_emu*.so"))}
#: The tests of bad input are those of the CPU, with each engine.
FILES = [*sorted((ROOT / "tests/gpu").glob("test_gpu_*.py")), ROOT / "tests/abi/test_bad_input.py"]
#: The same bits whichever way the threads of a block and the blocks of a grid follow one another: what differs is a
#: missing barrier. The whole suite runs forward; the fixtures' bits are compared in the other orders, and random calls
#: run backward once more.
ORDERS = ("backward", "shuffle:1")


def run(arch: str, *arguments: str | Path, order: str = "forward") -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        env={**os.environ, "NNCUDA_LIBRARY": str(LIBRARIES[arch]), "NNCUDA_EMULATOR_ORDER": order},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout[-6000:]}"
    assert re.search(r"\b[1-9]\d* passed", result.stdout), result.stdout[-2000:]


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("arch", LIBRARIES or ["none"])
def test_on_an_emulated_gpu(arch: str, file: Path) -> None:
    run(arch, file, *(("-k", "cuda") if file.parent.name != "gpu" else ()))


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
@pytest.mark.parametrize("arch", LIBRARIES or ["none"])
def test_the_order_of_threads_changes_no_bit(arch: str, tmp_path: Path) -> None:
    """The first run writes a digest of every output of every fixture, the others compare."""
    for order in ("forward", *ORDERS):
        digests = tmp_path / "digests.json"
        run(arch, "tests/gpu/test_gpu_golden.py", "-k", "digests", f"--digests={digests}", order=order)


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
@pytest.mark.parametrize("arch", LIBRARIES or ["none"])
def test_random_calls_with_threads_backward(arch: str) -> None:
    run(arch, "tests/gpu/test_gpu_random.py", order="backward")
