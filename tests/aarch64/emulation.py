"""Programs for AArch64 under qemu-user, beside the same on this processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nncuda.golden.runner import available_isas

HERE = Path(__file__).parent
#: Runs a script by a Python for AArch64, and any other program.
PYTHON, PROGRAM = HERE / "run", HERE / "emulate"


def output(*command: str | Path, processor: str = "max", stdin: str | None = None) -> Any:
    """What a command writes, as JSON. `processor` is qemu's, for a command that runs there."""
    environment = os.environ | {"QEMU_CPU": processor}
    done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def native(isa: str) -> str:
    """This Python, where the processor has an instruction set; else the test is skipped."""
    if isa not in _native_isas():
        pytest.skip(f"this processor has no {isa} to compare with")
    return sys.executable


@cache
def _native_isas() -> list[str]:
    return available_isas()
