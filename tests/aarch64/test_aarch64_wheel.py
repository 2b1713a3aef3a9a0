"""The wheel for AArch64, installed beside the packages that it needs, under qemu-user. `make aarch64-wheel` sets
NNCUDA_AARCH64_WHEEL to its folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from emulation import HERE, PROGRAM
from packaging.utils import parse_wheel_filename

PYTHON = HERE.parents[1] / "build" / "aarch64-python"

pytestmark = pytest.mark.skipif("NNCUDA_AARCH64_WHEEL" not in os.environ, reason="`make aarch64-wheel` runs these")

#: An array that NumPy and the library share without a copy: what the compiled half of the package is for.
EXCHANGE = """
import numpy as np, nncuda
with nncuda.Context("cpu") as ctx:
    tensor = ctx.tensor(np.arange(6, dtype=np.float32))
    seen = np.from_dlpack(tensor)
    assert seen.ctypes.data == tensor.ptr and seen.sum() == 15
print(nncuda.__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip puts the wheel for a machine of the kind that its name says, checking the name."""
    (wheel,) = Path(os.environ["NNCUDA_AARCH64_WHEEL"]).glob("*.whl")
    tags = parse_wheel_filename(wheel.name)[3]
    assert all(tag.platform.startswith("manylinux_2_") and tag.platform.endswith("_aarch64") for tag in tags)
    tag = next(iter(tags))
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", tag.interpreter[2] + "." + tag.interpreter[3:]]
    subprocess.run([*command, "--platform", tag.platform, "--target", folder, wheel], check=True)
    return folder


def python(installed: Path, *arguments: str, processor: str = "max") -> str:
    own = {"PYTHONPATH": f"{installed}:{PYTHON}/site", "PYTHONDONTWRITEBYTECODE": "1", "NNCUDA_AARCH64": ""}
    command = [PROGRAM, PYTHON / "root/usr/bin/python3", *arguments]
    done = subprocess.run(command, env=os.environ | own | {"QEMU_CPU": processor}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_loads_its_own_library(installed: Path):
    assert str(installed) in python(installed, "-c", EXCHANGE)
    assert f"{installed}/nncuda/libnncuda.so" in python(installed, "-m", "nncuda", "doctor")


@pytest.mark.parametrize(
    ("processor", "widest", "isas"), [("cortex-a72", "neon", 2), ("max", "i8mm", 4)], ids=["cortex-a72", "max"]
)
def test_every_kernel_passes(installed: Path, processor: str, widest: str, isas: int):
    found = python(installed, "-m", "nncuda", "verify", "--isa", "all", processor=processor)
    assert found.count("Golden tests on cpu") == isas
    assert f"cpu 0, {widest}:" in found
