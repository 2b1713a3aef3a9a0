"""The GPU engine's tests (tests/gpu), each architecture's code run on the CPU (`make emulated` builds the libraries).

Every file of them runs in a process of its own, since a library is loaded once a process, and since the emulator ends
the process at a misaligned vector or a stray index. As many processes run at once as there are cores.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {path.stem.rpartition("_")[2]: path for path in sorted((ROOT / "build/emulated").glob("libnncuda_emu*.so"))}
#: `make test` has no more than its time allows: `make emulated-90` asks for what is marked so below.
ALL = os.environ.get("NNCUDA_EMULATED") == "all"
#: All of tests/gpu runs on the architectures whose kernels differ most: all that is above sm_75 but Hopper takes the
#: kernels of 80. On the others, the fixtures do, and what every architecture has tensor cores of its own for.
GOLDEN = ROOT / "tests/gpu/test_gpu_golden.py"
SAMPLE = ROOT / "tests/gpu/test_gpu_sample.py"
BACKWARD = ROOT / "tests/gpu/test_gpu_backward.py"
FLASH = ROOT / "tests/gpu/test_gpu_flash.py"
PAIRS = [ROOT / f"tests/gpu/test_gpu_{name}.py" for name in ("gemm_pairs", "fp8")]
OWN = [GOLDEN, BACKWARD, FLASH, *(ROOT / f"tests/gpu/test_gpu_{name}.py" for name in ("gemm", "attention", "ternary"))]
WHOLE = ("80", "90")
RANDOM = ROOT / "tests/golden/test_random_calls.py"
#: The tests of what is refused are those of the CPU, with each engine.
REFUSED = [ROOT / f"tests/abi/test_{name}.py" for name in ("bad_input", "bad_weights", "sentences")]
FILES = [*sorted((ROOT / "tests/gpu").glob("test_gpu_*.py")), RANDOM, *REFUSED]
#: Each takes minutes.
LONG = [ROOT / f"tests/gpu/test_gpu_{name}.py" for name in ("fp8", "large", "sequences")]
if not ALL:
    FILES = [file for file in FILES if file not in LONG]
#: The same bits whichever way the threads of a block and the blocks of a grid follow one another: what differs is a
#: missing barrier. The whole suite runs forward; the fixtures' bits are compared in the other orders, and random calls
#: run backward once more.
ORDERS = ("backward", "shuffle:1")
#: And on however many multiprocessors, which decide how large grids are.
SMS = ("1", "999")


def run(arch: str, *arguments: str | Path, **settings: str) -> None:
    """Settings are variables of the emulator: order="backward"."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        env={
            **os.environ,
            "NNCUDA_LIBRARY": str(LIBRARIES[arch]),
            **{f"NNCUDA_EMULATOR_{name.upper()}": value for name, value in settings.items()},
        },
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout[-6000:]}"
    assert re.search(r"\b[1-9]\d* passed", result.stdout), result.stdout[-2000:]


def run_file(arch: str, file: Path) -> None:
    run(arch, file, *(("-k", "cuda") if file in REFUSED else ()))


def compare_orders(arch: str, folder: Path) -> None:
    """The first run writes a digest of every output of every fixture, of long rows' draws, of attention whose blocks
    walk over tiles, of its gradients, which blocks add up in turns, and of products whose blocks work in pairs; the
    others compare."""
    runs = [{"order": order} for order in ("forward", *ORDERS)] + [{"sms": sms} for sms in SMS]
    for settings in runs:
        run(
            arch,
            GOLDEN,
            SAMPLE,
            BACKWARD,
            FLASH,
            PAIRS[0],
            "-k",
            "digests",
            f"--digests={folder / f'digests-{arch}.json'}",
            **settings,
        )


def random_backward(arch: str) -> None:
    """With few multiprocessors grids are small, and their blocks take on further work."""
    run(arch, RANDOM, order="backward", sms="2")


def pairs_on_few(arch: str) -> None:
    """Blocks that multiply in pairs take many tiles, and one of the two is ahead of the other."""
    run(arch, *PAIRS, order="backward", sms="4")


JOBS: dict[str, tuple[Callable[..., None], tuple[object, ...]]] = {}
for _arch in LIBRARIES:
    for _file in FILES if _arch in WHOLE else OWN:
        JOBS[f"{_arch}-{_file.stem}"] = run_file, (_arch, _file)
    JOBS[f"{_arch}-orders"] = compare_orders, (_arch,)
    if _arch in WHOLE and ALL:
        JOBS[f"{_arch}-random-backward"] = random_backward, (_arch,)
    if _arch == "90" and ALL:
        JOBS[f"{_arch}-pairs-on-few"] = pairs_on_few, (_arch,)


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future]]:
    """The runs of all tests that were asked for, on their way."""
    folder = tmp_path_factory.mktemp("digests")
    asked = [item.callspec.params["job"] for item in request.session.items if item.fspath == request.fspath]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {}
        for name in asked:
            function, arguments = JOBS[name]
            more = (folder,) if function is compare_orders else ()
            futures[name] = pool.submit(function, *arguments, *more)
        try:
            yield futures
        finally:
            pool.shutdown(cancel_futures=True)


@pytest.mark.skipif(not LIBRARIES, reason="nothing is emulated here: `make emulated`, which needs a C++ compiler")
@pytest.mark.parametrize("job", JOBS or ["none"])
def test_on_an_emulated_gpu(started: dict[str, Future], job: str) -> None:
    started[job].result()
