"""Builds the package's wheel for AArch64 into FOLDER/raw: python wheel.py FOLDER.

The Python that the wheel is for runs this, under qemu-user, so that names and paths are its own; what this starts,
CMake and compilers, is the machine's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scikit_build_core.build import build_wheel

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    # Debian's pyconfig.h includes that of the processor, by its place below this folder.
    headers = Path(sys.base_prefix) / "include"
    # CMake asks the interpreter for its settings, and needs qemu-user for that.
    sys.executable = str(Path(__file__).with_name("run"))
    settings = {
        "build-dir": str(folder / "build"),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(ROOT / "cmake" / "aarch64.cmake"),
        "cmake.define.CMAKE_CXX_FLAGS": f"-idirafter {headers}",
        "cmake.define.NNCUDA_CUDA": "OFF",
    }
    build_wheel(str(folder / "raw"), settings)


if __name__ == "__main__":
    main()
