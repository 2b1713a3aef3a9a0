"""What this installation runs on, what is wrong with it and how to mend it: behind ``nncuda doctor``.

`examine` gathers findings, `main` prints them. Nothing here needs a working library; a broken one is a finding.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from . import __version__, errors, extras, kernels
from .binding import exchange, header, library
from .device import INSTRUCTION_SETS, Comm, Context
from .golden import verified

_GIB = 1 << 30
#: Why the library of a place was taken, by the names that `binding.library.candidates` gives them.
_WHY = {
    library.ENVIRONMENT_VARIABLE: "chosen by NNCUDA_LIBRARY",
    "the package": "inside the package",
    "the Python environment in use": "from the Python environment in use, since the package has none",
    "the source tree": "from make lib, since neither the package nor the Python environment in use has one",
    "the system": "found by the system's loader, since it is in no other place",
}


@dataclass(frozen=True)
class Finding:
    """One fact; with `problem` what is wrong with it and with `remedy` what to do. `fatal`: nothing works without."""

    name: str
    value: str
    problem: str = ""
    remedy: str = ""
    fatal: bool = False


def examine() -> list[Finding]:
    """Looks at everything, in the order from the package to the device."""
    findings = [
        Finding("package", f"nncuda {__version__}, Python {platform.python_version()}, {platform.platform()}"),
        *_packages(),
        _extras(),
        _exchange(),
    ]
    try:
        loaded = library.load()
    except (errors.LibraryError, FileNotFoundError) as error:
        remedy = "install nncuda again (pip install --force-reinstall nncuda), or unset or correct NNCUDA_LIBRARY"
        return [*findings, Finding("library", "not usable", str(error), remedy, fatal=True)]
    findings.append(_library(loaded))
    findings.append(Finding("build", loaded.build_info))
    findings.append(_abi(loaded))
    findings.append(_gpu(loaded))
    findings.append(_verified(loaded))
    try:
        with Context() as ctx:
            findings += [_engine(loaded, ctx), _threads(ctx), _memory(ctx), _mpi(ctx), _nccl(), _arithmetic(ctx)]
    except (errors.Error, ImportError) as error:
        remedy = "report this with the full output of nncuda doctor"
        findings.append(Finding("engine", "does not start", str(error), remedy, fatal=True))
    return findings


def _packages() -> Iterator[Finding]:
    """The packages that this one needs, with their versions."""
    try:
        wanted = importlib.metadata.requires("nncuda") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("packages", "nncuda runs from its source tree; its requirements are not checked")
        return
    present, missing = [], []
    for requirement in wanted:
        if "extra ==" in requirement or ("python_version" in requirement and sys.version_info >= (3, 11)):
            continue
        match = re.match(r"[\w.-]+", requirement)
        name = match.group() if match else requirement
        try:
            present.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        names = " ".join(missing)
        yield Finding("packages", ", ".join(present), f"missing: {names}", f"pip install {names}", fatal=True)
    else:
        yield Finding("packages", ", ".join(present))


def _extras() -> Finding:
    """What of the package's optional parts can be used."""
    missing = [extra for extra in extras.PACKAGES if extras.left_out(extra, "") is not None]
    present = ", ".join(extra for extra in extras.PACKAGES if extra not in missing) or "none"
    return Finding("extras", f"{present}; not installed: {', '.join(missing)}" if missing else present)


def _exchange() -> Finding:
    if exchange.available():
        return Finding("exchange", "DLPack, buffer protocol, NumPy's array interface")
    return Finding(
        "exchange",
        "NumPy's array interface only",
        "nncuda was installed without a C++ compiler, so DLPack and memoryview do not work",
        "install a C++17 compiler (Debian: apt install g++) and install nncuda again",
    )


def _library(loaded: library.Library) -> Finding:
    return Finding("library", f"{loaded.path} ({_WHY[loaded.place]})")


def _abi(loaded: library.Library) -> Finding:
    def text(version: tuple[int, int]) -> str:
        return ".".join(map(str, version))

    lacking = [name for name in loaded.header.functions if not hasattr(loaded.lib, name)]
    value = f"library {text(loaded.abi)}, header {text(loaded.header.abi)} ({header.find()})"
    if lacking:
        problem = f"the library lacks {', '.join(lacking)}"
        return Finding("ABI", value, problem, "install the library and the package from the same version")
    return Finding("ABI", value)


def _gpu(loaded: library.Library) -> Finding:
    count = loaded.device_count(2)
    if count:
        return Finding("GPU", "; ".join(loaded.device_text(2, index) for index in range(count)))
    reason = loaded.why_no_device(2, 0)
    if not Path("/proc/driver/nvidia").exists():
        return Finding("GPU", f"none ({reason})")
    if "CUDA: none" in loaded.build_info:
        remedy = "install the CUDA toolkit (nvcc) and install nncuda again"
    else:
        remedy = "compare the driver's version (nvidia-smi) with the CUDA version of the build above"
    return Finding("GPU", "not usable", f"this machine has an NVIDIA driver, but {reason}", remedy)


def _verified(loaded: library.Library) -> Finding:
    """What is known of the GPU engine's kernels on real devices."""
    if "CUDA: none" in loaded.build_info:
        return Finding("GPU kernels", "not in this build")
    return Finding("GPU kernels", verified.describe())


def _engine(loaded: library.Library, ctx: Context) -> Finding:
    value = f"{loaded.device_text(1, 0)}; instruction set {ctx.isa}"
    if ctx.isa == "baseline" and platform.machine() in ("x86_64", "AMD64"):
        return Finding(
            "CPU",
            value,
            "neither AVX2 nor AVX-512 can be used, so everything is several times slower than it could be",
            "on a virtual machine, let its processor model pass them through (for example: cpu host)",
        )
    return Finding("CPU", value)


def _threads(ctx: Context) -> Finding:
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = _quota()
    value = f"{ctx.threads} of {cores} cores"
    if quota is not None and quota < ctx.threads:
        return Finding(
            "threads",
            value,
            f"this container may use {quota:g} cores, fewer than the threads: they will wait for each other",
            f"use Context(threads={max(1, int(quota))}) or the command's --threads, or raise the container's limit",
        )
    return Finding("threads", value + (f" ({allowed} allowed to this process)" if allowed < cores else ""))


def _quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> float | None:
    """Cores that the control group may use; None without a limit."""
    try:
        share, period = path.read_text().split()
        return float(share) / float(period)
    except (OSError, ValueError):  # no control groups of version 2, or "max"
        return None


def _memory(ctx: Context) -> Finding:
    free, total = ctx.memory_info()
    value = f"{free / _GIB:.1f} GiB free of {total / _GIB:.1f}"
    if free < _GIB:
        return Finding("memory", value, "less than 1 GiB is free", "close other programs, or train a smaller model")
    return Finding("memory", value)


def _mpi(ctx: Context) -> Finding:
    """What the library says when a rank asks it for MPI: that it found none, or which one it would use."""
    try:
        with Comm(ctx, "mpi", timeout=60) as comm:
            return Finding("MPI", f"this process is rank {comm.rank} of {comm.ranks}")
    except errors.StateError as error:  # no launcher started this process
        return Finding("MPI", error.message.rpartition("the library is ")[2])
    except errors.Error as error:
        return Finding("MPI", f"none ({error.message.partition(': ')[2]})")


def _nccl() -> Finding:
    """NCCL, where the library would find it (cuda/comm/nccl.c), with a GPU or without."""
    beside = Path(__file__).resolve().parent.parent / "nvidia/nccl/lib/libnccl.so.2"
    chosen = os.environ.get("NNCUDA_NCCL")
    reason = ""
    for path in [chosen] if chosen else ["libnccl.so.2", str(beside)]:
        try:
            nccl = ctypes.CDLL(path)
            version = ctypes.c_int()
            nccl.ncclGetVersion(ctypes.byref(version))
        except (OSError, AttributeError) as error:
            reason = reason or str(error)
            continue
        major, minor, patch = version.value // 10000, version.value // 100 % 100, version.value % 100
        return Finding("NCCL", f"{path}, NCCL {major}.{minor}.{patch}")
    return Finding("NCCL", f"none ({reason}; `pip install nvidia-nccl-cu13` brings it)")


def _arithmetic(ctx: Context) -> Finding:
    """Products of small whole numbers, which are exact in every instruction set, on each that this processor has."""
    import numpy as np

    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 9, (33, 70)), rng.integers(-8, 9, (70, 29))
    expected = (a @ b).astype(np.float32)
    widest = ctx.isa
    checked, wrong = [], []
    for isa in INSTRUCTION_SETS[: INSTRUCTION_SETS.index(widest) + 1]:
        try:
            ctx.isa = isa
        except errors.Error:  # between the plainest and the widest one may be missing
            continue
        checked.append(isa)
        for dtype in ("f32", "bf16"):
            product = kernels.gemm(ctx.tensor(a, dtype), ctx.tensor(b, dtype), dtype_c="f32")
            if not np.array_equal(product.numpy(), expected):
                wrong.append(f"{isa} in {dtype}")
    ctx.isa = widest
    if wrong:
        problem = f"wrong products: {', '.join(wrong)}"
        return Finding("arithmetic", "wrong", problem, "run nncuda verify and report its output", fatal=True)
    return Finding("arithmetic", f"right with {', '.join(checked)} (nncuda verify checks every kernel)")


def report(findings: list[Finding]) -> str:
    """The findings as text, problems last."""
    lines = [f"{finding.name + ':':<13} {finding.value}" for finding in findings]
    problems = [finding for finding in findings if finding.problem]
    lines.append("")
    for finding in problems:
        lines += [f"{finding.name}: {finding.problem}", f"    what to do: {finding.remedy}"]
    lines.append("Nothing is wrong." if not problems else f"{len(problems)} problem{'s' * (len(problems) > 1)}.")
    return "\n".join(lines)


def main(stream: TextIO | None = None) -> int:
    """Prints the report; 1 when nncuda cannot be used as it is, else 0."""
    findings = examine()
    print(report(findings), file=stream or sys.stdout)
    return int(any(finding.fatal for finding in findings))


if __name__ == "__main__":
    sys.exit(main())
