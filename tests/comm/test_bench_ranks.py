"""`nncuda bench ranks`: not how fast, but that both sides are measured, and that nothing stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from test_mpi import MPIEXEC, environment, started

from nncuda.bench.ranks import Figures

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="MPI is opened on Linux")


def bench(ranks, *arguments):
    command = [MPIEXEC, "-n", ranks, sys.executable, "-m", "nncuda", "bench", "ranks", "--quick", *arguments]
    return subprocess.run(list(map(str, command)), env=environment(), capture_output=True, text=True, timeout=120)


@started
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_are_measured_beside_one(ranks, tmp_path):
    checkpoints, path = tmp_path / "checkpoints", tmp_path / "figures.json"
    checkpoints.mkdir()
    done = bench(ranks, "--folder", checkpoints, "--json", path)
    assert done.returncode == 0, done.stderr
    assert "MPI_Allreduce" in done.stdout and not os.listdir(checkpoints)
    found = json.loads(path.read_text())["ranks"]
    assert found["ranks"] == ranks and found["parameters"] == 5488
    times = ("step", "step_alone", "tree", "transport", "checkpoint", "checkpoint_alone")
    assert all(found[name] > 0 for name in times)
    # All of this model is rank 0's shard: each other rank sends its gradients there, and the parameters come back.
    others = (ranks - 1) * 4 * 5488
    assert found["ring_bytes"] == 2 * others // ranks
    assert others < found["bytes"] < 1.02 * others
    # Of four experts two ranks have two each; three cannot divide them.
    if ranks == 2:
        assert "experts divided" in done.stdout
        divided = found["divided"]
        assert divided["ranks"] == 2 and divided["step"] > 0 and 0 < divided["bytes"] != found["bytes"]
    else:
        assert found["divided"] is None


@started
def test_one_rank_has_nothing_beside_it():
    done = bench(1)
    assert done.returncode == 2 and "the launcher must start at least two" in done.stderr


def test_goals_that_were_missed():
    def figures(step, tree, sent):
        return Figures(2, 2, (0.0, 0.0), 1000, 64, 1.0, step, tree, 0.1, sent, 100, 1.0, 1.0)

    assert figures(1.1, 0.15, 105).shortfalls() == []
    assert figures(1.2, 0.05, 90).shortfalls() == ["step"]
    assert figures(1.0, 0.16, 106).shortfalls() == ["tree", "bytes"]
