"""Kernels take no more workspace than they state, at sizes that no test computes: contexts that measure lay every call
out twice, before it and as its kernel does, and report one that would take more."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

import nncuda
from nncuda import Context, kernels
from nncuda.formats.block_formats import FORMATS
from nncuda.models import MoEConfig, MoETransformer
from nncuda.models.config import Precision
from nncuda.train import TrainConfig, Trainer

OF_HERE = ("neon", "dotprod", "i8mm") if platform.machine() == "aarch64" else ("avx2", "avx512", "avx512bf16", "amx")
MACHINES: dict[str, Callable[[], Context]] = {
    isa: partial(Context.measuring, "cpu", threads=3, isa=isa) for isa in ("baseline", *OF_HERE)
}
MACHINES |= {f"sm_{each}": partial(Context.measuring, "cuda", capability=each) for each in (70, 80, 90)}
#: What makes a dense model of one with experts, and of that a Qwen3 and a BitNet.
PLAIN: dict[str, Any] = {"num_experts": 0, "experts_per_token": 0}
QWEN3 = {**PLAIN, "qk_norm": True}
TERNARY = {**PLAIN, "ternary": True, "squared_relu": True, "tie_embeddings": True}
EXPERTS = MoEConfig(
    vocab_size=8192,
    hidden_size=512,
    num_layers=1,
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    num_experts=8,
    experts_per_token=2,
    ffn_size=1024,
    context=512,
    extended_context=512,
)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("precision", get_args(Precision))
def test_training(machine: str, precision: str) -> None:
    for hidden in (512, 1024, 1536, 4096):
        wide = {"hidden_size": hidden, "num_heads": hidden // 64, "ffn_size": 2 * hidden}
        shapes = [EXPERTS, replace(EXPERTS, num_experts=64, experts_per_token=6)]
        if precision != "fp8":
            shapes += [replace(EXPERTS, **parts) for parts in [PLAIN, QWEN3] + [TERNARY] * (precision == "f32")]
        for shape in shapes:
            with MACHINES[machine]() as ctx:
                model = MoETransformer(ctx, replace(shape, **wide), seed=1, precision=precision)  # type: ignore[arg-type]
                train = TrainConfig(batch_size=8, sequence_length=512, precision=precision)  # type: ignore[arg-type]
                ids = np.zeros((8, 512), np.int32)
                Trainer(model, train).train_step(ids, ids)


@pytest.mark.parametrize("machine", MACHINES)
def test_products_with_stored_weights(machine: str) -> None:
    names = [name for name, form in FORMATS.items() if form.stores]
    with MACHINES[machine]() as ctx:

        def numbers(*shape: int) -> nncuda.Tensor:
            return ctx.empty(shape, "f32")

        for rows, n, k in ((1, 5632, 2048), (3, 300, 8192), (70, 2048, 5632), (2048, 4096, 1024), (4096, 32000, 2048)):
            ternary = ctx.empty((-(-n // 16) * 16, -(-k // 16) * 4), "u8")
            kernels.bitlinear_norm(numbers(rows, k), numbers(k), ternary, numbers(n), eps=1e-5)
            for name in names:
                form = FORMATS[name]
                if k % form.elements:
                    continue
                w, code = ctx.empty((n, form.row_bytes(k)), "u8"), form.code
                x = numbers(rows, k)
                kernels.gemm_quant(x, w, format=code, n=n)
                kernels.gemm_quant_swiglu(x, w, w, format_gate=code, format_up=code, n=n)
                kernels.gemm_quant_qkv(x, w, w, w, format_q=code, format_k=code, format_v=code, n=3 * n)
                kernels.gemm_quant_backward(numbers(rows, n), w, format=code, k=k)
