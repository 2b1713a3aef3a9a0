"""Kernels with other tiles, to be measured beside those that the library has.

    python tests/gpu/variants.py NAME LIBRARY

makes a library with the kernels of a variant from a folder of tests/gpu/bundle.py, with the nvcc of this machine.

A variant is a text of cuda/kernels that is replaced in a copy; only the files that are named are compiled again, and
linked with the objects of the build. Which tile a product takes changes none of its sums, so each must pass
`nncuda verify` as the library does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Variant:
    """`old` stands in `file` once and becomes `new`; `compiled` are the files of cuda/kernels that it changes, `family`
    and `lines` what verifies and what measures them (`nncuda verify --family`, `nncuda bench --only`)."""

    file: str
    old: str
    new: str
    compiled: tuple[str, ...]
    family: str
    lines: tuple[str, ...]


VARIANTS = {
    # All products in tiles of 128 x 128, so that what a wide tile gains is seen at each size.
    "narrow": Variant(
        "gemm_wgmma.cuh", "NARROW_COST = 9;", "NARROW_COST = 1;", ("gemm_wgmma_bf16.cu",), "gemm",
        ("products bf16", "grouped_gemm"),
    ),
    # Twice as many rows of tiles before the next column of them: what L2 keeps of B.
    "band16": Variant(
        "gemm.cuh", "GEMM_BAND = 8;", "GEMM_BAND = 16;", ("gemm_wgmma_bf16.cu",), "gemm",
        ("products bf16", "grouped_gemm"),
    ),
    # No pairs of blocks: what loading B once for two gains, and what waiting for each other costs.
    "alone": Variant(
        "gemm_wgmma.cuh", "sms < 2", "sms > 0", ("gemm_wgmma_bf16.cu",), "gemm", ("products bf16", "grouped_gemm"),
    ),
    # Warpgroups start their products whenever they can, and not in turn.
    "unordered": Variant(
        "attention_flash_wgmma_tile.cuh", "IN_TURN = true;", "IN_TURN = false;", ("attention_flash.cu",), "attention",
        ("flash_attention causal bf16",),
    ),
}  # fmt: skip
#: Those that a bundle has; the others are made where a GPU is (the fourth call).
BUNDLED = ("alone", "unordered")


def changed(variant: Variant, root: Path, target: Path) -> None:
    """Copies the sources of the library's kernels to `target`/cuda, with the change."""
    shutil.copytree(root / "cuda", target / "cuda")
    file = target / "cuda/kernels" / variant.file
    text = file.read_text()
    if text.count(variant.old) != 1:
        raise ValueError(f"{variant.old!r} stands {text.count(variant.old)} times in {variant.file}; it must be once")
    file.write_text(text.replace(variant.old, variant.new))


def build(
    variant: Variant, root: Path, library: Path, archive: Path, runtime: Path, flags: Sequence[str], nvcc: str
) -> None:
    """Makes `library` from the objects in `archive`, those of `variant.compiled` compiled anew with `flags`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        changed(variant, root, place)
        objects = []
        for name in variant.compiled:
            objects.append(place / f"{name}.o")
            source = place / "cuda/kernels" / name
            command = [
                *os.environ.get("CMAKE_CUDA_COMPILER_LAUNCHER", "").split(),
                nvcc,
                *flags,
                "-I",
                str(place / "cuda"),
            ]
            subprocess.run([*command, "-c", str(source), "-o", str(objects[-1])], check=True)
        others = place / "others.a"
        shutil.copy(archive, others)
        subprocess.run(["ar", "d", str(others), *(f"{name}.o" for name in variant.compiled)], check=True)
        script = root / "cuda/exports.map"
        command = ["cc", "-shared", "-s", f"-Wl,--version-script={script}", "-o", str(library), *map(str, objects)]
        command += ["-Wl,--whole-archive", str(others), "-Wl,--no-whole-archive", str(runtime)]
        subprocess.run([*command, "-Wl,--no-undefined", "-lpthread", "-ldl", "-lrt", "-lm"], check=True)


def main(name: str, library: str) -> None:
    if shutil.which("nvcc") is None or shutil.which("cc") is None:
        raise SystemExit("there is no nvcc, or no C compiler, on PATH")
    flags = json.loads((ROOT / "bundle.json").read_text())["flags"]
    lib = ROOT / "lib"
    build(VARIANTS[name], ROOT, Path(library), lib / "objects.a", lib / "libcudart_static.a", flags, "nvcc")


if __name__ == "__main__":
    main(*sys.argv[1:])
