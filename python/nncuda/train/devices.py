"""GPUs that a plan can be for by their name, with what their makers say of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """Compute capability (90 for 9.0), multiprocessors, bytes of memory, bytes a second, operations a second in f32 and
    of dense products of 16-bit numbers."""

    capability: int
    multiprocessors: int
    memory: int
    bandwidth: float
    flops_f32: float
    flops_16: float


#: From NVIDIA's data sheets, without sparsity; docs/training.md names them.
DEVICES = {
    "t4": Device(75, 40, 16 * 10**9, 320e9, 8.1e12, 65e12),
    "v100": Device(70, 80, 32 * 10**9, 900e9, 15.7e12, 125e12),
    "a100": Device(80, 108, 80 * 10**9, 2039e9, 19.5e12, 312e12),
    "l4": Device(89, 58, 24 * 10**9, 300e9, 30.3e12, 121e12),
    "l40s": Device(89, 142, 48 * 10**9, 864e9, 91.6e12, 362e12),
    "h100": Device(90, 132, 80 * 10**9, 3350e9, 67e12, 989e12),
    "h200": Device(90, 132, 141 * 10**9, 4800e9, 67e12, 989e12),
}
