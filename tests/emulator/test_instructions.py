"""Every function of cuda/kernels/instructions*.cuh, as the emulator carries it out.

The programs are CUDA programs. On a machine with a GPU and nvcc they test the GPU's own instructions:
`nvcc -std=c++17 -O3 -arch=native -Icuda -I. tests/emulator/instructions/mma.cu -o mma && ./mma`
(on an H100 or H200 with `-gencode arch=compute_90a,code=sm_90a` in place of `-arch=native`).

They run for the architectures of which `make emulated` has made libraries, or for sm_90.
"""

from __future__ import annotations

import pytest
from test_emulated_gpu import LIBRARIES

PROGRAMS = {70: ["convert", "copy", "counts"], 75: ["convert", "copy", "mma"], 80: ["convert", "copy", "mma"]}
PROGRAMS[90] = ["barrier", "cluster", "convert", "copy", "counts", "grid", "mma", "tensor", "turns", "wgmma"]
ARCHS = sorted({int(arch) for arch in LIBRARIES} & set(PROGRAMS)) or [90]


@pytest.mark.parametrize("order", ["forward", "backward", "shuffle:3"])
@pytest.mark.parametrize(("arch", "program"), [(arch, name) for arch in ARCHS for name in PROGRAMS[arch]])
def test_instructions(emulator, arch: int, program: str, order: str) -> None:
    done = emulator.run(f"instructions/{program}.cu", arch=arch, order=order)
    assert (done.stdout, done.stderr) == (f"{program}: passed\n", "")
    assert done.returncode == 0
