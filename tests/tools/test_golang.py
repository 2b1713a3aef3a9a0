"""What the Go module has from bindings.h."""

from __future__ import annotations

from pathlib import Path

import pytest

from nncuda.binding import header
from tools import golang, golang_names

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "bindings.h"


def test_every_function_and_kernel_is_written() -> None:
    contract = header.parse(HEADER)
    made = golang.files(contract, HEADER.read_bytes())
    for name in contract.functions:
        assert f" call_{name}(" in made["go/cuda/calls_gen.h"].replace("*call_", "* call_")
    for function in contract.kernels.values():
        name = golang_names.exported(function.kernel)
        assert f"func (ctx *Context) {name}(" in made[f"go/cuda/{function.section}_gen.go"]
        assert f"func {name}(" in made[f"go/tensor/{function.section}_gen.go"]


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
