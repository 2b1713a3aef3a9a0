"""Kernels that stand for several calls, beside these calls: the same bits. For tests/kernels and tests/gpu."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

import nncuda
from nncuda import kernels
from nncuda.formats.block_formats import FORMATS

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

#: tokens, experts, k, capacity, dim: one piece of tokens and many, experts a few lanes and more than a block keeps
#: counts of, rows of whole vectors and others, experts without a token and experts that drop some.
ROUTES = (
    (1, 1, 1, 0, 8),
    (7, 5, 2, 0, 5),
    (65, 16, 4, 0, 264),
    (300, 64, 6, 0, 16),
    (2500, 24, 2, 150, 9),
    (1100, 300, 8, 2, 8),
    (40, 1100, 3, 1, 24),
)


def bits(tensors: Iterator[nncuda.Tensor] | tuple[nncuda.Tensor, ...]) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in tensors]


def check_route(ctx: nncuda.Context, dtype: str, tokens: int, experts: int, k: int, capacity: int, dim: int) -> None:
    """moe_route and its gradient beside the calls that they stand for, with the loss and without."""
    draw = np.random.default_rng(tokens)
    logits = ctx.tensor(draw.standard_normal((tokens, experts), np.float32))
    x = ctx.tensor(draw.standard_normal((tokens, dim), np.float32).astype(DTYPES[dtype]))
    loss, sum_of_parts = (ctx.tensor(np.array([2.5], np.float32)) for _ in range(2))
    for norm in (False, True):
        routed = kernels.moe_route(logits, x, loss if norm else None, k=k, norm=norm, capacity=capacity, alpha=0.3)
        weights, indices, probs = kernels.softmax_topk(logits, k=k, norm=norm)
        plan = kernels.moe_plan(indices, experts=experts, capacity=capacity)
        rows = kernels.moe_gather(x, plan[-1])
        if norm:
            kernels.aux_loss_forward(probs, plan[0], sum_of_parts, alpha=0.3)
        assert bits(routed) == bits((weights, indices, probs, *plan, rows)), (tokens, experts, norm)
        assert bits((loss,)) == bits((sum_of_parts,)), (tokens, experts, norm)

        dweights = ctx.tensor(draw.standard_normal((tokens, k), np.float32))
        factor = ctx.tensor(np.array([0.37], np.float32))
        dprobs = kernels.aux_loss_backward(plan[0], factor, tokens=tokens, alpha=0.3)
        whole = kernels.moe_route_backward(
            dweights, weights, indices, probs, plan[0], factor, norm=norm, alpha=0.3, dtype=dtype
        )
        parts = kernels.softmax_topk_backward(dweights, weights, indices, probs, dprobs, norm=norm, dtype=dtype)
        assert bits((whole,)) == bits((parts,)), (tokens, experts, norm)


#: tokens, experts, k, capacity, dim: as ROUTES, with products of whole vectors and others, and too many experts for one
#: launch.
GRADIENTS = (
    (1, 2, 1, 0, 8),
    (7, 5, 2, 0, 5),
    (65, 16, 4, 0, 264),
    (300, 64, 6, 0, 24),
    (1300, 24, 2, 150, 16),
    (150, 300, 8, 2, 8),
    (40, 1100, 3, 1, 24),
)


def check_gradients(
    ctx: nncuda.Context, dtype: str, tokens: int, experts: int, k: int, capacity: int, dim: int
) -> None:
    """moe_output_backward and moe_input_backward beside the calls that they stand for."""
    draw = np.random.default_rng(tokens)

    def tensor(*shape: int, dtype: str = dtype) -> nncuda.Tensor:
        return ctx.tensor(draw.standard_normal(shape, np.float32).astype(DTYPES[dtype]))

    logits, x, gate = tensor(tokens, experts, dtype="f32"), tensor(tokens, dim), tensor(experts, dim)
    norm = k > 1
    routed = kernels.moe_route(logits, x, None, k=k, norm=norm, capacity=capacity)
    weights, indices, probs, counts, _, slot_row, row_slot, y = routed
    dout, factor = tensor(tokens, dim), ctx.tensor(np.array([0.37], np.float32))
    dy, dweights, dlogits = kernels.moe_output_backward(
        dout, y, weights, indices, probs, counts, slot_row, row_slot, factor, norm=norm, alpha=0.3
    )
    parts = kernels.moe_combine_backward(dout, y, weights, slot_row, row_slot)
    of_router = kernels.moe_route_backward(
        parts[1], weights, indices, probs, counts, factor, norm=norm, alpha=0.3, dtype=dtype
    )
    assert bits((dy, dweights, dlogits)) == bits((*parts, of_router)), (tokens, experts)

    for dtype_c in {dtype: 0, "f32": 0}:
        dgate = tensor(experts, dim, dtype=dtype_c)
        dgate_of_parts = ctx.tensor(dgate.numpy())
        dx, _ = kernels.moe_input_backward(dlogits, x, gate, dy, slot_row, dgate=dgate, beta=1.0)
        dx_of_parts = kernels.moe_gather_backward(dy, slot_row)
        kernels.gemm_beta(dlogits, x, dgate_of_parts, trans_a=True, beta=1.0)
        kernels.gemm_beta(dlogits, gate, dx_of_parts, beta=1.0)
        assert bits((dx, dgate)) == bits((dx_of_parts, dgate_of_parts)), (tokens, experts, dtype_c)


#: tokens, experts, k, dim, n; formats of the router, gate, up, and of the last product: one token, and more than one
#: block plans; rows that a block norms, and others; about a row an expert, several, and enough for the tensor cores.
STORED = (
    (1, 8, 2, 1056, 64, "f32", "q4_0", "q4_0", "q8_0"),
    (1, 4, 2, 64, 32, "f32", "q4_0", "q4_0", "q4_0"),
    (3, 4, 2, 1088, 96, "f16", "q4_0", "q8_0", "q4_1"),
    (2, 40, 8, 1032, 40, "bf16", "f16", "f16", "bf16"),
    (1, 70, 6, 1028, 36, "f32", "f32", "f32", "f32"),
    (20, 5, 3, 1056, 32, "f32", "bf16", "bf16", "f32"),
    (33, 6, 2, 256, 256, "q8_0", "q4_k", "q4_k", "q6_k"),
    (150, 4, 2, 96, 160, "f32", "q5_1", "q5_1", "q4_0"),
    (9, 300, 3, 1056, 32, "f16", "q8_0", "q8_0", "q8_0"),
)


def check_stored(
    ctx: nncuda.Context, tokens: int, experts: int, k: int, dim: int, n: int, router: str, gate: str, up: str, down: str
) -> None:
    """gemm_quant_route and gemm_quant_experts beside the calls that they stand for."""
    draw = np.random.default_rng(tokens + experts)

    def tensor(*shape: int) -> nncuda.Tensor:
        return ctx.tensor(draw.standard_normal(shape, np.float32))

    def stored(rows: int, columns: int, name: str) -> nncuda.Tensor:
        block = FORMATS[name]
        return kernels.quantize(tensor(rows, columns), format=block.code, row_bytes=block.row_bytes(columns))

    codes = {name: FORMATS[name].code for name in (router, gate, up, down)}
    x, gains, w = tensor(tokens, dim), tensor(dim), stored(experts, dim, router)
    routed = kernels.gemm_quant_route(x, gains, w, k=k, eps=1e-5, norm=True, format=codes[router])
    y = kernels.rmsnorm(x, gains, eps=1e-5)
    logits = kernels.gemm_quant(y, w, format=codes[router], n=experts)
    weights, indices, probs = kernels.softmax_topk(logits, k=k, norm=True)
    plan = kernels.moe_plan(indices, experts=experts)
    assert bits(routed) == bits((y, logits, weights, indices, probs, *plan)), (tokens, experts, dim, router)

    _, offsets, slot_row, row_slot = plan
    w_gate, w_up, w_down = (
        stored(experts * rows, columns, name) for rows, columns, name in ((n, dim, gate), (n, dim, up), (dim, n, down))
    )
    rows = kernels.moe_gather(y, row_slot)
    inner = kernels.gemm_quant_swiglu(
        rows, w_gate, w_up, offsets, format_gate=codes[gate], format_up=codes[up], groups=experts
    )
    outputs = kernels.gemm_quant(inner, w_down, offsets, format=codes[down], groups=experts)
    for residual in (x, None):
        out = kernels.gemm_quant_experts(
            y, w_gate, w_up, w_down, weights, offsets, slot_row, row_slot, residual,
            format_gate=codes[gate], format_up=codes[up], format_down=codes[down],
        )  # fmt: skip
        parts = kernels.moe_combine(outputs, weights, slot_row, residual)
        assert bits((out,)) == bits((parts,)), (tokens, experts, gate, down)


#: Rows of each group, room for rows, n, k: groups without rows, with one, with what a tile has and more; whole vectors
#: and others; a tile of gates and more.
GATES = (
    ((3, 0, 1), 5, 8, 8),
    ((17, 0, 40, 130), 190, 24, 64),
    ((5, 300, 0, 16), 330, 72, 72),
    ((70, 129), 200, 33, 40),
    ((128, 1), 129, 130, 136),
    ((9, 31), 40, 7, 5),
)


def check_gate(ctx: nncuda.Context, dtype: str, counts: tuple[int, ...], rows: int, n: int, k: int) -> None:
    """grouped_gemm_swiglu and its gradient beside the calls that they stand for; rows behind the last stay."""
    draw = np.random.default_rng(rows + n)

    def tensor(*shape: int) -> nncuda.Tensor:
        return ctx.tensor(draw.standard_normal(shape, np.float32).astype(DTYPES[dtype]))

    groups, used = len(counts), ctx.tensor(np.array([sum(counts)], np.int32))
    offsets = ctx.tensor(np.cumsum([0, *counts]).astype(np.int32))
    a, b, dout, w2 = tensor(rows, k), tensor(groups, 2 * n, k), tensor(rows, k), tensor(groups, k, n)
    old = [tensor(rows, 2 * n), tensor(rows, n)]
    gate_up, y, gate_up_of_parts, y_of_parts = (ctx.tensor(tensor.numpy()) for tensor in (*old, *old))
    kernels.grouped_gemm_swiglu(a, b, offsets, gate_up=gate_up, y=y)
    kernels.grouped_gemm(a, b, offsets, trans_b=True, c=gate_up_of_parts)
    gate, up = (gate_up_of_parts.narrow(1, first, n) for first in (0, n))
    kernels.swiglu(gate, up, used, y=y_of_parts)
    assert bits((gate_up, y)) == bits((gate_up_of_parts, y_of_parts)), (counts, n, k)

    kernels.grouped_gemm_swiglu_backward(dout, w2, offsets, gate_up)
    dy = kernels.grouped_gemm(dout, w2, offsets)
    kernels.swiglu_backward(dy, gate, up, used, dgate=gate, dup=up)
    assert bits((gate_up,)) == bits((gate_up_of_parts,)), (counts, n, k)


#: Rows, outputs, inputs of a ternary product with the norm before it: one row and several, on ordinary and on tensor
#: cores, more than blocks share; rows of each form of a norm, of whole runs of 16 bytes and others.
NORMED = (
    (1, 40, 48),
    (1, 33, 1040),
    (1, 20, 33),
    (1, 16, 8208),
    (2, 48, 2560),
    (4, 17, 80),
    (5, 130, 1024),
    (7, 70, 50),
    (9, 16, 8448),
    (33, 200, 64),
    (64, 48, 1056),
    (65, 48, 64),
)


def check_norm_product(ctx: nncuda.Context, dtype: str, m: int, n: int, k: int) -> None:
    """bitlinear_norm beside the calls that it stands for, with gains and without, with a residual and without, of rows
    that are aligned and of others; one of the rows is not finite where there are many."""
    draw = np.random.default_rng(m + k)

    def tensor(*shape: int) -> nncuda.Tensor:
        return ctx.tensor(draw.standard_normal(shape, np.float32).astype(DTYPES[dtype]))

    weights = ctx.tensor(draw.integers(-1, 2, (n, k)).astype(np.int8))
    w = kernels.ternary_pack(weights, stored=-(-n // 16) * 16, row_bytes=-(-k // 16) * 4)
    w_scale, gains = ctx.tensor(draw.uniform(0.5, 1.5, n).astype(np.float32)), tensor(k)
    numbers = draw.standard_normal((m, k), np.float32)
    if m > 4:
        numbers[3, k // 2] = np.nan
    shifted = ctx.tensor(np.concatenate([[0], numbers.reshape(-1)]).astype(DTYPES[dtype])).narrow(0, 1, m * k)
    for x in (ctx.tensor(numbers.astype(DTYPES[dtype])), shifted.view(m, k)):
        for gain, residual in ((gains, None), (gains, tensor(m, n)), (None, tensor(m, n))):
            whole = kernels.bitlinear_norm(x, gain, w, w_scale, residual, eps=1e-5)
            if gain is None:
                rows = kernels.act_quant_i8(x)
            else:
                rows = kernels.rmsnorm_quant_i8(x, gain, eps=1e-5)
            parts = kernels.bitlinear(*rows, w, w_scale, residual, dtype=dtype)
            assert bits((whole,)) == bits((parts,)), (m, n, k, gain is None, residual is None)
            if residual is not None:
                kernels.bitlinear_norm(x, gain, w, w_scale, residual, eps=1e-5, y=residual)
                assert bits((residual,)) == bits((parts,)), (m, n, k)
