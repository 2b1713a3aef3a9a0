"""How far a kernel may be from the oracle: the plain formula in its own precision, and what its roundings justify.

The fixtures' tolerances and the shadow run against float64 are made of it.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from nncuda.binding import header

from . import kernel
from .arithmetic import Array
from .rounding import SMALLEST, UNIT, rounded

Arguments = dict[str, Any]

#: Roundings of float32 on the way to one element of a kernel's output, sums left out (they are measured). An operation
#: counts one, exp, log, sine and cosine two (an error of one unit in the last place). Kernels that only move, convert
#: or round once have none: what they give is exact.
ROUNDINGS = {
    # elementwise
    **dict.fromkeys(["add", "mul", "scale", "cast", "fill", "increment"], 0),
    "silu": 5,  # exp, 1 + e, /, *
    "silu_backward": 9,  # silu's sigmoid (4), 1 - s, x *, 1 +, s *, dy *
    "swiglu": 6,
    "swiglu_backward": 10,
    "relu2_gate": 2,
    # softmax
    "softmax": 4,  # x - max, exp, /
    "softmax_backward": 3,
    "softmax_topk": 5,
    "softmax_topk_backward": 6,
    # rmsnorm
    "rmsnorm": 6,  # square, mean, + eps, sqrt, 1 /, *, *
    "rmsnorm_residual": 7,
    "rmsnorm_backward": 8,
    # gemm
    "gemm": 2,  # *, +
    "gemm_beta": 5,
    "gemm_epilogue": 9,
    "batched_gemm": 5,
    "grouped_gemm": 4,
    "grouped_gemm_wgrad": 4,
    # embedding
    "embedding": 0,
    "scatter_add": 1,
    # rope
    "rope_freqs": 1,  # computed in float64, rounded
    "rope_freqs_scaled": 1,
    "rope_forward": 3,
    "rope_qk": 3,
    "rope_backward": 3,
    # attention
    "attention_scores": 3,
    "attention_output": 2,
    "flash_attention": 8,
    "flash_attention_backward": 14,
    "attention_decode": 8,
    "flash_attention_paged": 8,
    "attention_decode_paged": 8,
    # kvcache
    **dict.fromkeys(["kv_append", "kv_trim", "kv_append_paged"], 0),
    # moe
    "moe_plan": 0,
    "moe_gather": 0,
    "moe_gather_backward": 1,
    "moe_combine": 2,
    "moe_combine_backward": 2,
    # loss
    "cross_entropy_forward": 6,  # x - max, exp, log, max +, - x
    "cross_entropy_backward": 5,
    "aux_loss_forward": 5,
    "aux_loss_backward": 4,
    "weighted_mean": 3,
    # optimizer
    "adamw_step": 12,
    "adamw_step_bf16": 12,
    "adamw_step_f8": 16,  # the root from its code, squared, and scaled by a rounded factor
    "zero_grad": 0,
    "grad_norm": 3,
    "grad_clip": 5,
    "lr_schedule": 7,
    "loss_scale_update": 1,
    # decode
    **dict.fromkeys(["argmax", "sample", "topk_sample", "topp_sample"], 0),
    # quant
    **dict.fromkeys(["quantize", "dequantize", "embedding_quant", "interleave_rows"], 0),
    "gemm_quant": 10,  # a block's two factors, its sum, the same for its minimum; + bias, silu (4), + residual
    "gemm_quant_qkv": 5,
    "gemm_quant_swiglu": 13,  # two products, silu, *
    # ternary
    **dict.fromkeys(["act_quant_i8", "ternary_quantize", "ternary_pack", "ternary_unpack", "bitlinear"], 0),
    "rmsnorm_quant_i8": 7,  # of its scale: the norm, / 127
    # random
    "random_bits": 0,
    "uniform": 3,
    "normal": 8,
}


class CaseError(ValueError):
    """A recipe does not fit the header."""


def element_type(param: header.Param, scalars: Arguments) -> str:
    return param.dtype if param.dtype in header.FIXED_DTYPES else scalars[param.dtype]


def dimensions(param: header.Param, scalars: Arguments) -> list[header.Dim]:
    dims = list(param.dims)
    if param.swap_flag and scalars[param.swap_flag]:
        dims[-2:] = dims[-1], dims[-2]
    return dims


def solve(function: header.Function, given: Arguments) -> Arguments:
    """All scalars of the call: those given, sizes from the shapes of the arrays, dense leading dimensions."""
    pointers = [p for p in function.pointers if isinstance(given.get(p.name), np.ndarray)]
    scalars = {
        p.name: given[p.name] for p in function.params if p.kind not in ("context", "pointer") and p.name in given
    }
    for _ in function.params:
        for param in pointers:
            dims, shape = dimensions(param, scalars), given[param.name].shape
            if len(dims) != len(shape):
                raise CaseError(f"{function.name}: {param.name} is {shape}, the header says {param.shape_text}")
            for dim, extent in zip(dims, shape, strict=True):
                found = dim.solve(extent, scalars)
                if found:
                    scalars[found[0]] = found[1]
    for param in function.pointers:
        if param.ld and param.ld not in scalars:
            scalars[param.ld] = math.prod(dim.value(scalars) for dim in dimensions(param, scalars)[1:])
    for param in pointers:
        shape = tuple(dim.value(scalars) for dim in dimensions(param, scalars))
        if shape != given[param.name].shape:
            raise CaseError(f"{function.name}: {param.name} is {given[param.name].shape}, its sizes say {shape}")
    missing = [p.name for p in function.params if p.kind not in ("context", "pointer") and p.name not in scalars]
    if missing:
        raise CaseError(f"{function.name}: nothing says {', '.join(missing)}")
    return {p.name: scalars[p.name] for p in function.params if p.name in scalars}


def call(function: header.Function, given: Arguments, precision: type) -> dict[str, Array]:
    """The reference, in float64 (the oracle) or in float32 (the plain formula)."""
    oracle = kernel(function.kernel)
    accepted = inspect.signature(oracle).parameters
    args = {
        name: value.astype(precision) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value
        for name, value in given.items()
        if name in accepted
    }
    if "precision" in accepted:
        args["precision"] = precision
    if "storage" in accepted and precision is np.float32:
        args["storage"] = lambda x: rounded(x, given["dtype"])
    with np.errstate(all="ignore"):
        return oracle(**args)


def floor(function: header.Function, name: str, expected: Array, scalars: Arguments) -> float:
    """The least tolerance that the arithmetic itself justifies, at the largest expected value."""
    kind = element_type(function.by_name[name], scalars)
    roundings = ROUNDINGS[function.kernel]
    largest = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0))
    units = roundings * UNIT["f32"]
    if kind != "f32" and not (roundings == 0 and np.array_equal(rounded(expected, kind), expected, equal_nan=True)):
        return largest * (units + UNIT[kind]) + SMALLEST[kind] / 2
    return largest * units
