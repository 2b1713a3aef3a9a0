"""How the CPU's kernels cut their work: 64 threads are kept busy, and the simulation that says so is right.

`make python-test` builds libnncuda_cuts.so beside the library (`make cuts-library`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nncuda.binding import library

ROOT = Path(__file__).resolve().parents[2]
BUILT = max(ROOT.glob("build/cp*/libnncuda_cuts.so"), key=lambda path: path.stat().st_mtime, default=None)

#: The least share of 64 threads that has a task, if the tasks of a call take equally long. Calls count by the time that
#: they took, which a busy machine shifts: decoding over pages has 53 to 57 %, and had 48 once.
LEAST = 0.4

#: Sums of parts differ in their last bits.
ALMOST = 1 - 1e-9

pytestmark = pytest.mark.skipif(BUILT is None, reason="nothing notes tasks here: `make cuts-library`")


def run(*command: object, cuts: bool = True) -> str:
    """What a program prints; with the library that notes tasks, since a process loads one library."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    if cuts:
        environment[library.ENVIRONMENT_VARIABLE] = str(BUILT)
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def balances(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("cuts") / "cuts.json"
    works = (
        "products f32: 2048x768x768",
        "q4_0, cold: 1x2048x5632",
        "paged",
        "rmsnorm",
        "silu",
        "training step of small, f32",
    )
    only = [word for work in works for word in ("--only", work)]
    run("-m", "tools.cuts", "--threads", "2,64", *only, "--json", path)
    found: list[dict[str, Any]] = json.loads(path.read_text())["balances"]
    return found


def test_sixty_four_threads_have_work(balances: list[dict[str, Any]]) -> None:
    """The worst of the works that a model spends its time with. `even` is decided by the numbers of tasks, and by
    what part of the time each call has."""
    worst = {each["name"]: each["even"] for each in balances if each["threads"] == 64}
    assert len(worst) >= 8
    low = {name: even for name, even in worst.items() if even < LEAST}
    assert not low, f"with 64 threads these leave more than {1 - LEAST:.0%} of them without a task: {low}"


def test_two_threads_are_always_busy(balances: list[dict[str, Any]]) -> None:
    for each in balances:
        if each["threads"] == 2:
            assert each["even"] > 0.97, each


def test_what_is_simulated_adds_up(balances: list[dict[str, Any]]) -> None:
    for each in balances:
        assert each["calls"] > 0 and each["tasks"] >= 2 * each["calls"]
        # The tasks of each call, divided among the threads, whatever the machine does meanwhile.
        assert each["busy"] / each["threads"] * ALMOST <= each["span"] <= each["busy"] / ALMOST
        assert 0 < each["even"] * ALMOST <= 1 and each["serial"] >= 0


SUM = """
import nncuda, numpy as np
from nncuda import kernels
with nncuda.Context("cpu", threads=64) as ctx:
    x = ctx.from_numpy(np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32))
    print(kernels.gemm(x, x, trans_b=True).numpy().tobytes().hex()[:4000])
"""


def test_the_library_that_notes_tasks_computes_the_same_bits() -> None:
    assert run("-c", SUM) == run("-c", SUM, cuts=False)


def test_another_library_is_refused() -> None:
    with pytest.raises(AssertionError, match="notes no tasks; `make cuts` builds"):
        run("-m", "tools.cuts", cuts=False)
