"""No memory, at every allocation of a training step: an error, nothing lost, and the trainer goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import shim

SWEEP = Path(__file__).resolve().parent / "sweep.py"
RECOMPUTED = {"precision": "f16", "loss_scale": 2.0**20, "activation_checkpointing": 2, "recompute_experts": True}


@pytest.mark.parametrize(
    ("kind", "options"),
    [("system", {}), ("buffers", {}), ("system", RECOMPUTED)],
    ids=["pages and scratch", "device buffers", "f16, recomputed"],
)
def test_every_allocation_of_a_step(tmp_path: Path, kind: str, options: dict[str, object]) -> None:
    """What the library asks of the system, scratch and graphs included, and what the trainer asks of the library; in a
    step call by call, the first step of a trainer, the one that is captured, and one that is replayed."""
    built = shim.build(tmp_path)
    stride = 1 if shim.everything() else 37
    done = subprocess.run(
        [sys.executable, SWEEP, built, kind, json.dumps(options), str(stride)],
        capture_output=True,
        text=True,
        env=shim.environment(built),
        timeout=3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"{kind} {options}: {done.stdout}")
    assert found["eager"]["error"] > 0 and found["first"]["error"] > 0 and found["capture"]["fallback"] > 0
    # A replayed step has all its memory already.
    assert found["replay"]["points"] == 0
