"""Builds what a session on a machine with a GPU needs, on one without: `make gpu-bundle`.

    python tests/gpu/bundle.py FOLDER [--arch 90-real;90a-real] [--python 3.12]

FOLDER becomes a copy of the sources that the session runs from, with lib.tar.xz (the library for that GPU alone,
variants of it, the objects that another variant is linked from) and site/ (the Python packages that a machine with
PyTorch and NumPy may lack). It takes nothing but this folder to run tests/gpu/session.sh there. FOLDER.tar.gz is the
same in one file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import variants
import wheels

from nncuda.golden.verified import source_hashes

ROOT = variants.ROOT
#: What the session runs from, beside the packages and the library.
SOURCES = ("bindings.h", "pyproject.toml", "cuda", "python/nncuda", "tests/bounds.json", "tests/shapes.json")
TESTS = ("gpu", "golden", "python", "comm")
MOST_BYTES = 64 << 20


def copy_sources(target: Path) -> None:
    """The part of this tree that a session needs."""
    skipped = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
    for name in (*SOURCES, *(f"tests/{each}" for each in TESTS)):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=skipped)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, target / name)


def build_library(build: Path, arch: str) -> None:
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run([*configure, "-DNNCUDA_CUDA=ON", f"-DNNCUDA_CUDA_ARCHITECTURES={arch}"], check=True)
    subprocess.run(["cmake", "--build", str(build), "--target", "nncuda", "nncuda_probe"], check=True)


def compiler_flags(build: Path, name: str) -> tuple[str, list[str]]:
    """nvcc, and what the build gave it for a file of cuda/kernels, without folders."""
    commands = json.loads((build / "compile_commands.json").read_text())
    (words,) = (shlex.split(each["command"]) for each in commands if each["file"].endswith(f"/kernels/{name}"))
    start = next(number for number, word in enumerate(words) if Path(word).name == "nvcc")
    words = words[start : words.index("-c")]
    flags = [w for before, w in itertools.pairwise(words) if "--options-file" not in (before, w)]
    return words[0], flags


def archive(build: Path, target: Path) -> Path:
    """All objects of the library in one file; gives the static CUDA runtime that is linked with them."""
    link = shlex.split((build / "CMakeFiles/nncuda.dir/link.txt").read_text())
    objects = [str(build / word) for word in link if word.endswith(".o")]
    with tempfile.TemporaryDirectory() as folder:  # objects of several instruction sets have the same names
        for number, path in enumerate(objects):
            own = Path(path).name if "nncuda_cuda.dir" in path else f"{number}.o"
            shutil.copy(path, Path(folder) / own)
        subprocess.run(["ar", "rcs", str(target), *sorted(map(str, Path(folder).iterdir()))], check=True)
    return Path(next(word for word in link if word.endswith("libcudart_static.a")))


def make(target: Path, arch: str, python: str, build: Path) -> None:
    build_library(build, arch)
    shutil.rmtree(target, ignore_errors=True)
    copy_sources(target)
    lib = build / "bundle"
    shutil.rmtree(lib, ignore_errors=True)
    lib.mkdir()
    for name in ("libnncuda.so", "libnncuda_probe.so"):
        subprocess.run(["strip", "-s", "-o", str(lib / name), str(build / name)], check=True)
    runtime = archive(build, lib / "objects.a")
    shutil.copy(runtime, lib)
    flags: list[str] = []
    for name, variant in variants.VARIANTS.items():
        nvcc, flags = compiler_flags(build, variant.compiled[0])
        if name in variants.BUNDLED:
            made = lib / f"libnncuda-{name}.so"
            variants.build(variant, ROOT, made, lib / "objects.a", runtime, flags, nvcc)
    pack(lib, target / "lib.tar.xz")
    wheels.unpack(ROOT / "requirements/test.txt", python, target / "site")
    described = {"architectures": arch, "python": python, "flags": flags, "sources": source_hashes(ROOT)}
    (target / "bundle.json").write_text(json.dumps(described, indent=1) + "\n")


def pack(folder: Path, target: Path) -> None:
    """With a dictionary that holds all of it: the libraries differ in one kernel, and the objects are theirs."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": MOST_BYTES}]
    with lzma.open(target, "wb", filters=filters) as stream, tarfile.open(fileobj=stream, mode="w:") as writer:
        writer.add(folder, "lib")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="90-real;90a-real", help="CMake's names of the GPU's code; Hopper has both")
    parser.add_argument("--python", default="3.12", help="the machine's Python")
    parser.add_argument("--build", type=Path, default=ROOT / "build/gpu", help="where the library is built")
    options = parser.parse_args()
    target = options.folder.resolve()
    make(target, options.arch, options.python, options.build.resolve())
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    packed = target.with_name(f"{target.name}.tar.gz")
    with tarfile.open(packed, "w:gz") as writer:
        writer.add(target, target.name)
    print(f"{os.path.relpath(target)}: {size / 2**20:.1f} MiB; {packed.name}: {packed.stat().st_size / 2**20:.1f} MiB")
    if size > MOST_BYTES:
        raise SystemExit(f"that is more than {MOST_BYTES >> 20} MiB")


if __name__ == "__main__":
    main()
