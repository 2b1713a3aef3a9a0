"""Which GPU architectures a build is for: the functions of cmake/cuda_architectures.cmake, which need no compiler."""

from __future__ import annotations

import operator
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "cmake" / "cuda_architectures.cmake"
CUDA_13 = "75;80;86;87;88;89;90;100;110;103;120;121"
CUDA_12 = "50;52;53;60;61;62;70;72;75;80;86;87;89;90"
pytestmark = [
    pytest.mark.skipif(not MODULE.is_file(), reason="needs the source tree"),
    pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake"),
]


def cmake(folder: Path, code: str, path: str | None = None) -> tuple[int, str]:
    """Status and output, as one line, of a few lines of CMake behind the module."""
    script = folder / "script.cmake"
    script.write_text(f"cmake_minimum_required(VERSION 3.22)\ninclude({MODULE})\n{code}")
    result = subprocess.run(
        [str(shutil.which("cmake")), "-P", str(script)],
        env=os.environ | ({} if path is None else {"PATH": path}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, " ".join(result.stdout.split())


def choose(folder: Path, wanted: str, known: str = CUDA_13, path: str | None = None) -> tuple[int, str]:
    code = f'nn_cuda_choose(list "CUDA 13.0" "{wanted}" "{known}")\nmessage(STATUS "[${{list}}]")\n'
    return cmake(folder, code, path)


def test_all_of_a_release(tmp_path: Path) -> None:
    status, said = choose(tmp_path, "all", CUDA_12)
    assert status == 0
    assert said == "-- [70-real;75-real;80-real;86-real;89-real;90-real;90a-real;90-virtual]"


def test_what_the_compiler_does_not_target_is_left_out_and_told(tmp_path: Path) -> None:
    status, said = choose(tmp_path, "all")
    assert status == 0
    assert "Not compiled for 70-real: CUDA 13.0 does not target it" in said
    assert said.endswith("[75-real;80-real;86-real;89-real;90-real;90a-real;90-virtual]")


@pytest.mark.parametrize("wanted", ["80", "80;90a-real", "75-real;90-virtual"])
def test_a_list_is_taken_as_it_is(tmp_path: Path, wanted: str) -> None:
    assert choose(tmp_path, wanted) == (0, f"-- [{wanted}]")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("eighty", "NNCUDA_CUDA_ARCHITECTURES: eighty is not an architecture; spell it as 80, 90a-real or 90-virtual"),
        ("80;sm_90", "sm_90 is not an architecture"),
        ("70;60-real", "No architecture is left to compile for: set NNCUDA_CUDA_ARCHITECTURES"),
    ],
)
def test_lists_that_cannot_be(tmp_path: Path, wanted: str, message: str) -> None:
    status, said = choose(tmp_path, wanted)
    assert status != 0 and message in said


@pytest.mark.parametrize(
    ("answer", "archs"),
    [
        ("echo 7.5", "75-real"),
        ("echo 9.0", "90-real;90a-real"),
        ("echo 12.0", "90-virtual"),
        ("printf '8.6\\n8.6\\n9.0\\n'", "86-real;90-real;90a-real"),
        ("echo 6.1", "80"),
        ("echo 8.0; exit 9", "80"),
        ("echo No devices were found", "80"),
    ],
)
def test_the_gpus_of_this_machine(tmp_path: Path, answer: str, archs: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{answer}\n")
    tool.chmod(0o755)
    assert choose(tmp_path, "", path=f"{tmp_path}{os.pathsep}{os.environ['PATH']}") == (0, f"-- [{archs}]")


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    assert choose(tmp_path, "", path=str(tmp_path)) == (0, "-- [80]")


@pytest.mark.parametrize(
    ("archs", "products", "others"),
    [
        ("80-real;90-real;90a-real;90-virtual", "80-real;90a-real;90-virtual", "80-real;90-real;90-virtual"),
        ("90;90a-real", "90-virtual;90a-real", "90"),
        ("80;90", "80;90", "80;90"),
        ("80;90a-real", "80;90a-real", "80;90a-real"),
    ],
)
def test_90a_where_there_are_products(tmp_path: Path, archs: str, products: str, others: str) -> None:
    code = f'nn_cuda_split(products others {archs})\nmessage(STATUS "${{products}} ${{others}}")\n'
    assert cmake(tmp_path, code) == (0, f"-- {products} {others}")


def test_flags_and_names(tmp_path: Path) -> None:
    code = 'nn_cuda_codes(flags names 75-real 80 90a-real 90-virtual)\nmessage(STATUS "${flags} ${names}")\n'
    flags = [
        "--generate-code=arch=compute_75,code=[sm_75]",
        "--generate-code=arch=compute_80,code=[sm_80,compute_80]",
        "--generate-code=arch=compute_90a,code=[sm_90a]",
        "--generate-code=arch=compute_90,code=[compute_90]",
    ]
    names = "sm_75;sm_80;compute_80;sm_90a;compute_90"
    assert cmake(tmp_path, code) == (0, f"-- {';'.join(flags)} {names}")


def test_86_and_89_are_made_of_the_ptx_of_80(tmp_path: Path) -> None:
    """Where there is some; PTX of their own is asked for by name."""
    code = "\n".join(
        f'nn_cuda_codes(flags names {archs})\nmessage(STATUS "${{flags}} ${{names}}")'
        for archs in ("80-real 86-real 89-real", "86-real 89-real", "80 86 89-virtual")
    )
    flags = [
        [("80", "sm_80"), ("80", "sm_86"), ("80", "sm_89")],
        [("86", "sm_86"), ("89", "sm_89")],
        [("80", "sm_80,compute_80"), ("86", "sm_86,compute_86"), ("89", "compute_89")],
    ]
    said = [
        f"-- {';'.join(f'--generate-code=arch=compute_{ptx},code=[{made}]' for ptx, made in each)} "
        + ";".join(made.replace(",", ";") for _, made in each)
        for each in flags
    ]
    assert cmake(tmp_path, code) == (0, " ".join(said))


def test_no_source_but_one_tells_86_or_89_from_80() -> None:
    """cuda.cmake has machine code of 89 made of its own PTX there."""
    own = {"gemm_fp8_mma.cu", "instructions_mma.cuh"}  # whose product of 8 bits that file alone calls
    build = (ROOT / "cmake" / "cuda.cmake").read_text(encoding="utf-8")
    assert all(f'source MATCHES "{name.removesuffix(".cu")}"' in build for name in own if name.endswith(".cu"))
    compare = {
        "<": operator.lt,
        "<=": operator.le,
        "==": operator.eq,
        "!=": operator.ne,
        ">=": operator.ge,
        ">": operator.gt,
    }
    condition = re.compile(r"\b(__CUDA_ARCH__|GEMM_ARCH)\s*([<>]=?|[=!]=)\s*(\d+)")
    found = [
        (file.name, *match)
        for file in sorted((ROOT / "cuda").rglob("*.cu*"))
        if file.name not in own
        for match in condition.findall(file.read_text(encoding="utf-8"))
    ]
    assert len(found) > 10
    for file, word, sign, number in found:
        scale = 10 if word == "__CUDA_ARCH__" else 1
        answers = {compare[sign](arch * scale, int(number)) for arch in (80, 86, 89)}
        assert len(answers) == 1, f"{file}: {word} {sign} {number}"
