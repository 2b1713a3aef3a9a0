"""What CMake says and does about the CUDA compiler: found, missing, broken; and about the list of architectures."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLCHAIN = ROOT / "build" / "cuda-toolchain" / "13" / "bin" / "nvcc"
pytestmark = [
    pytest.mark.skipif(not (ROOT / "CMakeLists.txt").is_file(), reason="needs the source tree"),
    pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake"),
]


def configure(source: Path, build: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["cmake", "-S", str(source), "-B", str(build), *options],
        env={name: value for name, value in os.environ.items() if not name.startswith("CUDA")} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def said(result: subprocess.CompletedProcess[str]) -> str:
    """The output as one line: CMake breaks messages."""
    return " ".join(result.stdout.split())


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources in a place where nobody put a toolchain."""
    copy = tmp_path_factory.mktemp("bare")
    for name in ("cuda", "cmake", "python/nncuda/bench"):
        shutil.copytree(ROOT / name, copy / name)
    for name in ("CMakeLists.txt", "bindings.h", "python/nncuda/__init__.py"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH without any nvcc."""
    if Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("this machine has CUDA in /usr/local/cuda")
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder, "nvcc").exists())


def test_without_a_compiler_the_cpu_alone(bare: Path, path: str, tmp_path: Path) -> None:
    result = configure(bare, tmp_path / "b", PATH=path)
    assert result.returncode == 0, result.stdout
    assert "Without the GPU engine: no nvcc on PATH" in said(result) and "make cuda-toolchain" in said(result)


def test_the_compiler_is_asked_for_and_missing(bare: Path, path: str, tmp_path: Path) -> None:
    result = configure(bare, tmp_path / "b", "-DNNCUDA_CUDA=ON", PATH=path)
    assert result.returncode != 0
    assert "NNCUDA_CUDA is ON, but there is no nvcc" in said(result)
    assert "make cuda-toolchain" in said(result) and "-DNNCUDA_CUDA=OFF" in said(result)


def test_off_does_not_look(bare: Path, tmp_path: Path) -> None:
    result = configure(bare, tmp_path / "b", "-DNNCUDA_CUDA=OFF")
    assert result.returncode == 0 and "GPU" not in result.stdout and "CUDA" not in result.stdout


@pytest.mark.parametrize("choice", ["AUTO", "ON"])
def test_a_compiler_that_does_not_work(bare: Path, path: str, tmp_path: Path, choice: str) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (home / "bin" / "nvcc").chmod(0o755)
    result = configure(bare, tmp_path / "b", f"-DNNCUDA_CUDA={choice}", PATH=path, CUDA_HOME=str(home))
    assert (result.returncode == 0) == (choice == "AUTO"), result.stdout
    assert str(home / "bin" / "nvcc") in said(result)
    if choice == "AUTO":
        assert "does not compile here" in said(result) and "-DNNCUDA_CUDA=ON shows what is wrong" in said(result)


@pytest.fixture(scope="module")
def nvcc() -> str:
    """A compiler that works, of any version."""
    found = shutil.which("nvcc") or (str(TOOLCHAIN) if TOOLCHAIN.exists() else None)
    if found is None:
        pytest.skip("there is no CUDA compiler here: `make cuda-toolchain` fetches one")
    if not shutil.which("g++"):
        pytest.skip("nvcc needs g++")
    return found


def targets(nvcc: str) -> list[str]:
    listed = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"compute_(\d+)", listed)


def test_every_architecture(nvcc: str, tmp_path: Path) -> None:
    """The list of a release, trimmed to the compiler's; code of 90a only where there are products."""
    options = ("-DNNCUDA_CUDA=ON", "-DNNCUDA_CUDA_ARCHITECTURES=all", f"-DCMAKE_CUDA_COMPILER={nvcc}")
    result = configure(ROOT, tmp_path, *options)
    assert result.returncode == 0, result.stdout
    known = targets(nvcc)
    names = [f"sm_{arch}" for arch in ("70", "75", "80", "86", "89", "90") if arch in known]
    assert ("Not compiled for 70-real: CUDA " in said(result)) == ("70" not in known)
    commands = {
        Path(entry["file"]).name: entry["command"].replace("\\", "")
        for entry in json.loads((tmp_path / "compile_commands.json").read_text())
        if entry["file"].endswith(".cu")
    }
    products = {name for name in commands if re.match("(grouped_)?gemm|attention", name)}
    assert "engine.cu" in commands.keys() - products
    for name, command in commands.items():
        given = re.findall(r"code=\[(\w+)\]", command)
        assert given == [*names[:-1], "sm_90a" if name in products else "sm_90", "compute_90"], name
    told = [*names, *(["sm_90a"] if products else []), "compute_90"]
    assert f"GPU engine for {' '.join(told)}, toolkit " in said(result)
