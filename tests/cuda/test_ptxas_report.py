"""cmake/ptxas_report.py finds kernels that spill, and cmake/ptxas.sh keeps what it reads without hiding a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "cmake" / "ptxas_report.py"
LAUNCHER = ROOT / "cmake" / "ptxas.sh"
pytestmark = pytest.mark.skipif(not REPORT.is_file(), reason="needs the source tree")

# As ptxas of CUDA 13.0 writes it; the kernels are fill<float> and turn.
CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4fillIfEvPT_l' for '{arch}'
ptxas info    : Function properties for _Z4fillIfEvPT_l
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 512 bytes smem, 376 bytes cmem[0]
ptxas info    : Compile time = 1.874 ms
"""
SPILLING = """\
ptxas info    : Compiling entry function '_Z4turnPfi' for '{arch}'
ptxas info    : Function properties for _Z4turnPfi
    {stack} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 160 bytes cumulative stack size, 364 bytes cmem[0]
"""
WAITING = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    "insufficient register resources for the wgmma pipeline in the function '_Z4fillIfEvPT_l'\n"
)


class Tree:
    """A build folder and the sources beside it."""

    def __init__(self, folder: Path) -> None:
        self.build, self.sources = folder / "build", folder / "kernels"
        self.sources.mkdir(parents=True)

    def write(self, name: str, notes: str, source: str = "", under: str = "nncuda_cuda.dir/cuda/kernels") -> None:
        (self.sources / name).write_text(source)
        path = self.build / under / f"{name}.o.ptxas"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("seconds 7\n" + notes)

    def report(self) -> tuple[int, str, str]:
        result = subprocess.run(
            [sys.executable, str(REPORT), str(self.build), str(self.sources)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return result.returncode, result.stdout, result.stderr

    @property
    def table(self) -> str:
        return (self.build / "ptxas.txt").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def spilling(arch: str, stack: int = 160, spilled: int = 48) -> str:
    return SPILLING.format(arch=arch, stack=stack, spilled=spilled)


def test_a_clean_build(tree: Tree) -> None:
    tree.write("fill.cu", CLEAN.format(arch="sm_80") + CLEAN.format(arch="sm_90a"))
    status, output, errors = tree.report()
    assert status == 0 and not errors
    assert "fill.cu: 2 functions for sm_80 sm_90a, at most 10 registers, 0 with stack or spills, 7 s" in output
    line = next(line for line in tree.table.splitlines() if "sm_80" in line)
    assert line.split()[:8] == ["sm_80", "10", "registers", "512", "shared", "0", "stack", "0/0"]


def test_more_fixed_shared_memory_than_launches_reckon_with_fails(tree: Tree) -> None:
    most = CLEAN.format(arch="sm_80").replace("512 bytes smem", "36864 bytes smem")
    tree.write("fill.cu", most)
    assert tree.report()[0] == 0
    tree.write("fill.cu", most.replace("36864", "36868"))
    status, _, errors = tree.report()
    assert status == 1 and "has 36868 bytes of fixed shared memory; it must be at most 36864" in errors


@pytest.mark.parametrize(("stack", "spilled"), [(160, 0), (0, 48), (16, 16)])
def test_spills_and_stack_frames_fail(tree: Tree, stack: int, spilled: int) -> None:
    tree.write("turn.cu", CLEAN.format(arch="sm_75") + spilling("sm_75", stack, spilled))
    status, output, errors = tree.report()
    assert status == 1
    assert "1 with stack or spills" in output and "at most 255 registers" in output
    assert "error: turn.cu: sm_75" in errors and "1 without a reason" in errors and "fill" not in errors


@pytest.mark.parametrize(
    ("comment", "accepted"),
    [
        ("// spills: turn: a rotation by a number known at run time alone", True),
        ("  /* spills: turn on sm_75, sm_80: two accumulators do not fit */", True),
        (" * spills: turn on sm_80, sm_75: two accumulators do not fit", True),
        ("// spills: turn on sm_80: two accumulators do not fit", False),
        ("// spills: turn:", False),
        ("// it spills: turn: no", False),
        ("// spills: tur: half a name", False),
    ],
)
def test_a_reason_beside_the_kernel(tree: Tree, comment: str, accepted: bool) -> None:
    tree.write("turn.cu", spilling("sm_75"), f"#include <x>\n{comment}\n__global__ void turn(float *x, int k);\n")
    status, _, errors = tree.report()
    assert (status == 0) == accepted, errors
    assert ("accepted (turn.cu)" in tree.table) == accepted


def test_a_reason_may_stand_in_a_header(tree: Tree) -> None:
    tree.write("turn.cu", spilling("sm_75"))
    (tree.sources / "turn.cuh").write_text("// spills: turn: two accumulators do not fit\n")
    assert tree.report()[0] == 0


def test_reasons_that_outlived_their_kernel(tree: Tree) -> None:
    tree.write("fill.cu", CLEAN.format(arch="sm_80"), "// spills: turn: gone\n// spills: fill: no more\n")
    status, output, errors = tree.report()
    assert status == 1
    assert "a reason for the spills of turn, but there is no such kernel" in errors
    assert "fill no longer spills" in output


def test_serialised_products_fail(tree: Tree) -> None:
    tree.write("fill.cu", CLEAN.format(arch="sm_80") + CLEAN.format(arch="sm_90a") + WAITING)
    status, _, errors = tree.report()
    assert status == 1
    assert errors.count("C7510") == 1 and "sm_90a" in errors


def test_code_of_the_check_is_listed_only(tree: Tree) -> None:
    tree.write("turn.cu", spilling("sm_70"), under="sm_70")
    status, output, _ = tree.report()
    assert status == 0
    assert "turn.cu (clang's check): 1 functions for sm_70" in output and "sm_70 " in tree.table


def test_objects_of_removed_sources_do_not_count(tree: Tree) -> None:
    tree.write("fill.cu", CLEAN.format(arch="sm_80"))
    tree.write("turn.cu", spilling("sm_75"))
    (tree.sources / "turn.cu").unlink()
    assert tree.report()[0] == 0 and "turn" not in tree.table


def test_a_build_without_the_gpu_engine(tree: Tree) -> None:
    status, _, errors = tree.report()
    assert status == 1 and "was it built with the GPU engine?" in errors


@pytest.mark.parametrize("code", [0, 2])
def test_the_launcher(tmp_path: Path, code: int) -> None:
    """Notes go beside the object, all else is printed, and the compiler's status is its own."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        "#!/bin/sh\ncat >&2 <<'END'\n" + CLEAN.format(arch="sm_80") + "x.cu(3): warning #177-D: unused\nEND\n"
        f"exit {code}\n"
    )
    compiler.chmod(0o755)
    result = subprocess.run(
        ["sh", LAUNCHER, compiler, "-c", "x.cu", "-o", tmp_path / "x.cu.o"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == code
    assert result.stderr == "x.cu(3): warning #177-D: unused\n"
    notes = tmp_path / "x.cu.o.ptxas"
    assert notes.exists() == (code == 0)
    if code == 0:
        assert "spill stores" in notes.read_text() and "Used 10 registers" in notes.read_text()
        assert re.match(r"seconds \d+\n", notes.read_text())
