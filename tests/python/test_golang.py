"""What the Go module has from bindings.h is what the generator writes today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nncuda.binding import golang, golang_names, header

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "bindings.h"


def test_generated_files_are_fresh() -> None:
    made = golang.files(HEADER.read_bytes(), header.parse(HEADER))
    stale = [name for name, text in made.items() if (ROOT / "go" / name).read_text(encoding="utf-8") != text]
    assert not stale, "run: python -m nncuda.binding.golang go"


def test_no_generated_file_is_left_over() -> None:
    made = golang.files(HEADER.read_bytes(), header.parse(HEADER))
    there = {path.relative_to(ROOT / "go").as_posix() for path in (ROOT / "go").rglob("*_gen[._]*")}
    assert there <= set(made)


def test_command_writes_the_files_and_removes_old_ones(tmp_path: Path) -> None:
    old = tmp_path / "cuda" / "gone_gen.go"
    old.parent.mkdir()
    old.write_text("package cuda\n")
    kept = tmp_path / "cuda" / "context.go"
    kept.write_text("package cuda\n")
    subprocess.run([sys.executable, "-m", "nncuda.binding.golang", str(tmp_path)], check=True)
    assert not old.exists()
    assert kept.exists()
    assert (tmp_path / "cuda" / "bindings.h").read_bytes() == HEADER.read_bytes()
    assert "func Gemm(" in (tmp_path / "tensor" / "gemm_gen.go").read_text()


def test_every_function_and_kernel_is_written() -> None:
    contract = header.parse(HEADER)
    made = golang.files(HEADER.read_bytes(), contract)
    for name in contract.functions:
        assert f" call_{name}(" in made["cuda/calls_gen.h"].replace("*call_", "* call_")
    for function in contract.kernels.values():
        name = golang_names.exported(function.kernel)
        assert f"func (ctx *Context) {name}(" in made[f"cuda/{function.section}_gen.go"]
        assert f"func {name}(" in made[f"tensor/{function.section}_gen.go"]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("gemm_beta", "GemmBeta"),
        ("lr_schedule", "LRSchedule"),
        ("softmax_topk_backward", "SoftmaxTopKBackward"),
        ("moe_plan", "MoEPlan"),
    ],
)
def test_exported_names(name: str, written: str) -> None:
    assert golang_names.exported(name) == written


def test_parameters_that_mean_something_in_go_have_other_names() -> None:
    assert golang_names.local("len") == "length"
    assert golang_names.local("trans_a") == "transA"


def test_constants() -> None:
    assert golang_names.constant("NNCUDA_ERROR_OUT_OF_RANGE") == ("Status", "ErrOutOfRange")
    assert golang_names.constant("NNCUDA_DEVICE_TO_HOST") == ("copyKind", "deviceToHost")
    assert golang_names.constant("NNCUDA_DEVICE_CUDA") == ("Device", "CUDA")
    assert golang_names.constant("NNCUDA_BF16") == ("DType", "BF16")


def test_an_enum_without_a_go_type_is_refused() -> None:
    with pytest.raises(ValueError, match="NNCUDA_PADDING_LEFT"):
        golang_names.constant("NNCUDA_PADDING_LEFT")
