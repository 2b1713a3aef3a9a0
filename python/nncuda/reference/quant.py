"""Stored weights: block formats, and products with them.

The formats are those of GGUF files (Gerganov et al., ggml-quants). A block of 32 elements stands for scale * code +
minimum with codes of 4, 5 or 8 bits; one of 256 for the same with a scale and a minimum a part, of 32 elements or of
16, themselves small whole multiples of two f16 numbers. In iq4_nl, iq4_xs and mxfp4 a code of 4 bits numbers one of
sixteen whole numbers. Storing rounds in float32 in a fixed order of steps, so these functions give the same bytes in
any precision; reading is exact but for adding the minimum. Products round their left factor to whole numbers too, as
the header says, and are then computed in the precision of the left factor.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from nncuda.reference.arithmetic import Array, Outputs, matmul, transposed
from nncuda.reference.elementwise import silu
from nncuda.reference.gemm import ACTIVATION_SILU
from nncuda.reference.moe import moe_combine, moe_gather, moe_plan
from nncuda.reference.rmsnorm import rmsnorm
from nncuda.reference.rounding import from_bits, rounded, to_bits
from nncuda.reference.softmax import softmax_topk

__all__ = [
    "dequantize",
    "embedding_quant",
    "gemm_quant",
    "gemm_quant_experts",
    "gemm_quant_qkv",
    "gemm_quant_route",
    "gemm_quant_swiglu",
    "interleave_rows",
    "quantize",
]

ROUNDINGS = {
    **dict.fromkeys(["quantize", "dequantize", "embedding_quant", "interleave_rows"], 0),
    "gemm_quant": 10,  # a block's two factors, its sum, the same for its minimum; + bias, silu (4), + residual
    "gemm_quant_qkv": 5,
    "gemm_quant_swiglu": 13,  # two products, silu, *
    "gemm_quant_route": 18,  # those of rmsnorm, of a product, and of softmax_topk
    "gemm_quant_experts": 20,  # those of gemm_quant_swiglu, of a product, and of moe_combine
}

F32, F16, BF16 = 0, 1, 2
Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K = range(10, 18)
IQ4_NL, MXFP4, E4M3, IQ4_XS, Q2_K, Q3_K = range(18, 24)  # E4M3 of caches alone
DTYPES = {F32: "f32", F16: "f16", BF16: "bf16"}
BLOCK = 32
PART_FORMATS = (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS)
#: Those of parts of 16 elements, whose scales products apply to whole numbers.
SIXTEEN_PARTS = (Q2_K, Q3_K, Q6_K)
WITH_MINIMA = (Q4_1, Q5_1, Q4_K, Q5_K)
BLOCK_BYTES = {Q4_0: 18, Q4_1: 20, Q5_0: 22, Q5_1: 24, Q8_0: 34, Q4_K: 144, Q5_K: 176}
BLOCK_BYTES |= {IQ4_NL: 18, MXFP4: 17, IQ4_XS: 136, Q2_K: 84, Q3_K: 110}
#: What the codes of four bits stand for: ggml's kvalues_iq4nl, and twice the numbers of OCP E2M1.
VALUES = dict.fromkeys(
    (IQ4_NL, IQ4_XS), np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
) | {MXFP4: np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])}
#: Formats whose rows lie side by side, sixteen at a time, and what they are otherwise.
INTERLEAVED = {plain + 20: plain for plain in (*range(Q4_0, MXFP4 + 1), IQ4_XS, Q2_K, Q3_K)}
SIDE_BY_SIDE = 16
#: Blocks whose largest magnitude is below count as zero in the left factor of a product.
LEAST = np.float32(2.0**-100)


# What stored bytes stand for


def _f16(stored: Array) -> Array:
    """Two bytes as one number, float32: [..., 2] -> [..., 1]."""
    return np.ascontiguousarray(stored).view(np.float16).astype(np.float32)


def _half_power(stored: Array) -> Array:
    """Half of what bytes of E8M0 stand for: 2^(byte - 128)."""
    return np.ldexp(np.float32(1), stored.astype(np.int32) - 128)


def _split(stored: Array, *lengths: int) -> list[Array]:
    """Fields of a block, one after the other."""
    return np.split(stored, np.cumsum(lengths)[:-1], axis=-1)


def _halves(stored: Array) -> Array:
    """The low halves of bytes, then the high ones."""
    return np.concatenate([stored & 15, stored >> 4], axis=-1)


def _bits(stored: Array) -> Array:
    """The bits of bytes, the lowest first: [..., n] -> [..., 8 n]."""
    return np.unpackbits(np.ascontiguousarray(stored), axis=-1, bitorder="little")


def _part_scales(stored: Array) -> tuple[Array, Array]:
    """The 6-bit scales and minima of eight parts from 12 bytes."""
    a, b, c = _split(stored, 4, 4, 4)
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6 << 4)], axis=-1)
    minima = np.concatenate([b & 63, (c >> 4) | (b >> 6 << 4)], axis=-1)
    return scales, minima


def blocks_of(stored: Array, format: int) -> tuple[Array, Array, Array]:
    """Rows [rows, row_bytes] as blocks of 32: codes [rows, blocks, 32], scales and minima [rows, blocks], float32.

    An element is scale * code + minimum. In q2_k, q3_k and q6_k, whose parts have 16 elements, a code takes in its
    part's scale; the minima of q2_k are [rows, blocks, 2].
    """
    if format in PART_FORMATS:
        return _parts_of(stored, format)
    if format in (IQ4_NL, MXFP4):
        head = BLOCK_BYTES[format] - 16
        scale, packed = _split(stored.reshape(len(stored), -1, head + 16), head, 16)
        scale = (_half_power if format == MXFP4 else _f16)(scale)[..., 0]
        return VALUES[format][_halves(packed)], scale, np.zeros_like(scale)
    fields = {Q4_0: (2, 16), Q4_1: (2, 2, 16), Q5_0: (2, 4, 16), Q5_1: (2, 2, 4, 16), Q8_0: (2, 32)}[format]
    scale, *middle, packed = _split(stored.reshape(len(stored), -1, sum(fields)), *fields)
    minimum = np.zeros(scale.shape[:-1], np.float32)
    if format == Q8_0:
        return np.ascontiguousarray(packed).view(np.int8).astype(np.int64), _f16(scale)[..., 0], minimum
    codes = _halves(packed).astype(np.int64)
    if format in (Q5_0, Q5_1):
        codes += 16 * _bits(middle[-1]).astype(np.int64)
    if format in (Q4_1, Q5_1):
        minimum = _f16(middle[0])[..., 0]
    else:
        codes -= 8 if format == Q4_0 else 16
    return codes, _f16(scale)[..., 0], minimum


def _twos(stored: Array) -> Array:
    """Pairs of bits of 64 bytes [..., 64], the halves of a block one after the other: [..., 256]."""
    halves = stored.reshape(*stored.shape[:-1], 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    return halves.reshape(*stored.shape[:-1], 256).astype(np.int64)


def _six_bits(stored: Array) -> Array:
    """The scales of the sixteen parts of q3_k from 12 bytes: halves of eight of them, then pairs of bits of four."""
    low, high = _split(stored, 8, 4)
    pairs = high[..., None, :] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    return _halves(low).astype(np.int64) + 16 * pairs.reshape(*high.shape[:-1], 16).astype(np.int64) - 32


def _sixteen_parts(stored: Array, format: int) -> tuple[Array, Array, Array, Array]:
    """Blocks whose parts have 16 elements: codes [rows, blocks, 16, 16], whole scales of parts [rows, blocks, 16],
    their unit [..., 1], and the minima of parts [rows, blocks, 16], zeros but of q2_k."""
    rows = len(stored)
    if format == Q2_K:
        parts, packed, scale, minimum = _split(stored.reshape(rows, -1, 84), 16, 64, 2, 2)
        with np.errstate(invalid="ignore"):
            minima = -(_f16(minimum) * (parts >> 4).astype(np.float32))
        return _twos(packed).reshape(rows, -1, 16, 16), (parts & 15).astype(np.int64), _f16(scale), minima
    if format == Q3_K:
        high, packed, parts, scale = _split(stored.reshape(rows, -1, 110), 32, 64, 12, 2)
        thirds = np.swapaxes(_bits(high).reshape(rows, -1, 32, 8), -1, -2).reshape(rows, -1, 256).astype(np.int64)
        codes = (_twos(packed) + 4 * thirds - 4).reshape(rows, -1, 16, 16)
        whole = _six_bits(parts)
        return codes, whole, _f16(scale), np.zeros(whole.shape, np.float32)
    low, high, parts, scale = _split(stored.reshape(rows, -1, 210), 128, 64, 16, 2)
    low = _halves(low.reshape(rows, -1, 2, 64)).reshape(rows, -1, 2, 4, 32)
    high = high.reshape(rows, -1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    codes = (low | high << 4).astype(np.int64).reshape(rows, -1, 16, 16) - 32
    whole = np.ascontiguousarray(parts).view(np.int8).astype(np.int64)
    return codes, whole, _f16(scale), np.zeros(whole.shape, np.float32)


def _parts_of(stored: Array, format: int) -> tuple[Array, Array, Array]:
    rows = len(stored)
    if format in SIXTEEN_PARTS:
        codes, parts, scale, minima = _sixteen_parts(stored, format)
        codes = (codes * parts[..., None]).reshape(rows, -1, BLOCK)
        scale = np.repeat(scale, 8, axis=-1).reshape(rows, -1)
        return codes, scale, minima.reshape(rows, -1, 2) if format == Q2_K else np.zeros_like(scale)
    if format == IQ4_XS:
        scale, high, low, packed = _split(stored.reshape(rows, -1, 136), 2, 2, 4, 128)
        codes = VALUES[format][_halves(packed.reshape(rows, -1, 8, 16))].reshape(rows, -1, BLOCK)
        # Bits 4j .. 4j+3 of `low` and 2j, 2j+1 of `high`, with 32 too much.
        low = np.stack([low & 15, low >> 4], axis=-1).reshape(rows, -1, 8).astype(np.int64)
        high = (high[..., None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3).reshape(rows, -1, 8).astype(np.int64)
        with np.errstate(invalid="ignore"):
            scale = (_f16(scale) * (low + 16 * high - 32).astype(np.float32)).reshape(rows, -1)
        return codes, scale, np.zeros_like(scale)
    extra = 32 if format == Q5_K else 0
    scale, minimum, parts, high, packed = _split(stored.reshape(rows, -1, 144 + extra), 2, 2, 12, extra, 128)
    codes = _halves(packed.reshape(rows, -1, 4, 32)).reshape(rows, -1, 8, 32).astype(np.int64)
    if format == Q5_K:
        codes += 16 * np.swapaxes(_bits(high).reshape(rows, -1, 32, 8), -1, -2).astype(np.int64)
    scales, minima = _part_scales(parts)
    with np.errstate(invalid="ignore"):
        return (
            codes.reshape(rows, -1, BLOCK),
            (_f16(scale) * scales.astype(np.float32)).reshape(rows, -1),
            -(_f16(minimum) * minima.astype(np.float32)).reshape(rows, -1),
        )


def decoded(stored: Array, format: int) -> Array:
    """The numbers of rows [..., row_bytes], float32: [..., k]."""
    stored = np.ascontiguousarray(stored)
    if format == F32:
        return stored.view(np.float32)
    if format in DTYPES:
        return from_bits(stored.view(np.uint16), DTYPES[format])
    if format == E4M3:
        return stored.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    rows = stored.reshape(-1, stored.shape[-1])
    if format in SIXTEEN_PARTS:
        codes, parts, unit, minima = _sixteen_parts(rows, format)
        with np.errstate(invalid="ignore"):
            numbers = (unit * parts.astype(np.float32))[..., None] * codes.astype(np.float32)
            if format == Q2_K:
                numbers = numbers + minima[..., None]
        return numbers.reshape(*stored.shape[:-1], -1)
    codes, scale, minimum = blocks_of(rows, format)
    with np.errstate(invalid="ignore"):
        product = scale[..., None] * codes.astype(np.float32)
        # -0 + 0 would lose its sign where a format has no minimum to add.
        numbers = product + minimum[..., None] if format in (Q4_1, Q5_1, Q4_K, Q5_K) else product
    return numbers.reshape(*stored.shape[:-1], -1)


def dequantize(x: Array, format: int, dtype: str) -> Outputs:
    """The numbers of stored rows, rounded to ``dtype``."""
    return {"y": rounded(decoded(x, format), dtype)}


def embedding_quant(table: Array, ids: Array, format: int, dtype: str) -> Outputs:
    """Row ids[t] of the table, as numbers."""
    return dequantize(table[ids], format, dtype)


# Storing numbers


def _inverse(scale: Array) -> Array:
    """1/scale, 0 for 0, and 0 where it overflows: then all codes are 0."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(scale == 0, np.float32(0), np.float32(1) / scale)
    return np.where(np.isinf(inverse), np.float32(0), inverse)


def _half_bytes(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x.astype(np.float16)).view(np.uint8)


def _packed_halves(codes: Array) -> Array:
    return ((codes[..., :16] & 15) | (codes[..., 16:] & 15) << 4).astype(np.uint8)


def _packed(codes: Array, levels: int) -> list[Array]:
    """The fifth bits, if there are any, and the halves of bytes."""
    fifth = [np.packbits((codes >> 4).astype(np.uint8), axis=-1, bitorder="little")] if levels == 32 else []
    return [*fifth, _packed_halves(codes)]


def _symmetric(blocks: Array, levels: int) -> Array:
    """The element of largest magnitude (the first of equals) takes the least code."""
    at = np.argmax(np.abs(blocks), axis=-1)[..., None]
    scale = np.take_along_axis(blocks, at, axis=-1) / np.float32(-levels // 2)
    inverse = _inverse(scale)
    offset = np.where((inverse == 0) & (scale != 0), np.float32(0), np.float32(levels // 2 + 0.5))
    codes = np.clip(np.trunc(blocks * inverse + offset), 0, levels - 1).astype(np.int64)
    return np.concatenate([_half_bytes(scale), *_packed(codes, levels)], axis=-1)


def _asymmetric(blocks: Array, levels: int) -> Array:
    """The least element takes code 0, the largest the last one."""
    least = np.take_along_axis(blocks, np.argmin(blocks, axis=-1)[..., None], axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        scale = (np.max(blocks, axis=-1, keepdims=True) - least) / np.float32(levels - 1)
        steps = np.trunc((blocks - least) * _inverse(scale) + np.float32(0.5))
    codes = np.where(np.isinf(scale), 0, np.clip(np.nan_to_num(steps), 0, levels - 1)).astype(np.int64)
    return np.concatenate([_half_bytes(scale), _half_bytes(least), *_packed(codes, levels)], axis=-1)


def _eight_bits(blocks: Array) -> Array:
    """Codes of -127 .. 127, halves rounded away from zero."""
    scale = np.max(np.abs(blocks), axis=-1, keepdims=True) / np.float32(127)
    quotient = blocks * _inverse(scale)
    codes = np.copysign(np.floor(np.abs(quotient).astype(np.float64) + 0.5), quotient).astype(np.int8)
    return np.concatenate([_half_bytes(scale), codes.view(np.uint8)], axis=-1)


_STORING: dict[int, Callable[[Array], Array]] = {
    Q4_0: lambda blocks: _symmetric(blocks, 16),
    Q4_1: lambda blocks: _asymmetric(blocks, 16),
    Q5_0: lambda blocks: _symmetric(blocks, 32),
    Q5_1: lambda blocks: _asymmetric(blocks, 32),
    Q8_0: _eight_bits,
}


def encoded(x: Array, format: int) -> Array:
    """The bytes of rows [..., k]: [..., row_bytes]. Not for q2_k to q6_k, whose scales are searched for, nor for
    iq4_nl, iq4_xs and mxfp4, which are read alone."""
    x = np.ascontiguousarray(x, np.float32)
    if format == F32:
        return x.view(np.uint8)
    if format in DTYPES:
        return np.ascontiguousarray(to_bits(x, DTYPES[format])).view(np.uint8)
    if format == E4M3:
        with np.errstate(invalid="ignore"):
            codes = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        return np.where(np.isnan(x), np.uint8(0x7F), codes)
    stored = _STORING[format](x.reshape(*x.shape[:-1], -1, BLOCK))
    return stored.reshape(*x.shape[:-1], -1)


def quantize(x: Array, format: int) -> Outputs:
    """Rows stored in a format, as the gguf package does."""
    return {"y": encoded(x, format)}


# Rows side by side


def _words(begin: int, count: int) -> list[tuple[int, int]]:
    return [(begin + 4 * i, 4) for i in range(count)]


def _pieces(format: int) -> list[tuple[int, int]]:
    """What a block is cut into: where each piece begins in it and how many bytes it has, in the order of storage."""
    if format == IQ4_XS:
        return _words(0, BLOCK_BYTES[format] // 4)
    if format == MXFP4:
        return [(0, 1), *_words(1, 4)]
    if format == Q2_K:
        return [(80, 2), (82, 2), *_words(0, 20)]
    if format == Q3_K:
        return [(108, 2), *_words(96, 3), *_words(0, 24)]
    if format != Q6_K:
        halves = [(0, 2), (2, 2)] if format in WITH_MINIMA else [(0, 2)]
        begin = 2 * len(halves)
        return [*halves, *_words(begin, (BLOCK_BYTES[format] - begin) // 4)]
    parts = [(192 + part, 1) for part in range(16)]
    words = []
    for half in range(2):
        low, high = _words(64 * half, 16), _words(128 + 32 * half, 8)
        for i in range(8):
            words += [low[i], low[8 + i], high[i]]
    return [(208, 2), *parts, *words]


def _order(format: int) -> tuple[Array, int]:
    """Where each byte of the same block of sixteen rows side by side comes from in them, one after the other; and the
    bytes of a block."""
    pieces = _pieces(format)
    block = sum(length for _, length in pieces)
    rows = block * np.arange(SIDE_BY_SIDE)[:, None]
    return np.concatenate([(rows + np.arange(at, at + length)).ravel() for at, length in pieces]), block


def interleave_rows(x: Array, format: int) -> Outputs:
    """Each sixteen rows side by side: block after block, of a block piece after piece, of a piece row after row."""
    order, block = _order(format)
    blocks = x.reshape(-1, SIDE_BY_SIDE, x.shape[1] // block, block).swapaxes(1, 2)
    tiles = blocks.reshape(-1, SIDE_BY_SIDE * block)
    return {"y": tiles[:, order].reshape(x.shape)}


def rows_of(y: Array, format: int) -> Array:
    """Rows one after the other again, from one of the INTERLEAVED formats; those of any other format as they are."""
    if format not in INTERLEAVED:
        return y
    order, block = _order(INTERLEAVED[format])
    tiles = y.reshape(-1, SIDE_BY_SIDE * block)[:, np.argsort(order)]
    blocks = tiles.reshape(-1, y.shape[1] // block, SIDE_BY_SIDE, block).swapaxes(1, 2)
    return blocks.reshape(y.shape)


# Products


def _left_factor(x: Array) -> tuple[Array, Array]:
    """Rows as blocks of 32 whole numbers of 8 bits, and the scale of each: in float32, whatever the precision."""
    blocks = x.astype(np.float32).reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        most = np.max(np.abs(blocks), axis=-1, keepdims=True)
        codes = np.where(most < LEAST, 0, np.rint(blocks * (np.float32(127) / most)))
        scale = np.where(most < LEAST, 0, most / np.float32(127))[..., 0]
    bad = ~np.isfinite(blocks).all(axis=(1, 2))
    codes[bad], scale[bad] = 0, np.nan
    return codes.astype(np.int64), scale


def _product(x: Array, w: Array, format: int) -> Array:
    """x W^T with the rows of W stored, in the precision of x."""
    w, format = rows_of(w, format), INTERLEAVED.get(format, format)
    if format in DTYPES:
        left = rounded(x, DTYPES[format]) if format != F32 else x
        return matmul(left, transposed(decoded(w, format).astype(x.dtype)))
    codes, scale, minimum = (part.swapaxes(0, 1) for part in blocks_of(w, format))
    left_codes, left_scale = (part.swapaxes(0, 1) for part in _left_factor(x))
    y = np.zeros((len(x), len(w)), x.dtype)
    for b in range(len(codes)):  # blocks, in order
        whole = (left_codes[b] @ codes[b].T).astype(x.dtype)
        factor = left_scale[b].astype(x.dtype)[:, None]
        y = y + factor * scale[b].astype(x.dtype) * whole
        if format in WITH_MINIMA:
            y = y + factor * left_codes[b].sum(axis=-1, keepdims=True).astype(x.dtype) * minimum[b].astype(x.dtype)
        if format == Q2_K:
            halves = left_codes[b].reshape(len(x), 2, 16).sum(axis=-1).astype(x.dtype)
            y = y + factor * (halves @ minimum[b].T.astype(x.dtype))
    return y


def _groups(x: Array, offsets: Array | None, groups: int) -> list[slice]:
    """The rows of each group."""
    if offsets is None:
        return [slice(0, len(x))] * min(groups, 1)
    return [slice(offsets[g], offsets[g + 1]) for g in range(groups)]


def _grouped(x: Array, w: Array, format: int, rows: list[slice]) -> Array:
    """The product of each group's rows with its matrix; NaN in the rows of none."""
    matrices = w.reshape(len(rows), -1, w.shape[-1])
    y = np.full((len(x), matrices.shape[1]), np.nan, x.dtype)
    for matrix, part in zip(matrices, rows, strict=True):
        y[part] = _product(x[part], matrix, format)
    return y


def gemm_quant(
    x: Array,
    w: Array,
    groups: int,
    activation: int,
    format: int,
    offsets: Array | None = None,
    bias: Array | None = None,
    residual: Array | None = None,
) -> Outputs:
    """y = activation(x W^T + bias) + residual, each group of rows with its own W. Gale et al. 2022, "MegaBlocks"."""
    y = _grouped(x, w, format, _groups(x, offsets, groups))
    if bias is not None:
        y = y + bias
    if activation == ACTIVATION_SILU:
        y = silu(y)["y"]
    return {"y": y if residual is None else y + residual}


def _normed(x: Array, norm: Array | None, eps: float) -> Array:
    """x, or its norm where there are gains."""
    return x if norm is None else rmsnorm(x, norm, eps)["y"]


def gemm_quant_qkv(
    x: Array,
    wq: Array,
    wk: Array,
    wv: Array,
    eps: float,
    format_q: int,
    format_k: int,
    format_v: int,
    bias: Array | None = None,
    norm: Array | None = None,
) -> Outputs:
    """y = [x Wq^T, x Wk^T, x Wv^T] + bias, of the norm of x where there is one."""
    x = _normed(x, norm, eps)
    y = np.concatenate([_product(x, wq, format_q), _product(x, wk, format_k), _product(x, wv, format_v)], axis=1)
    return {"y": y if bias is None else y + bias}


def gemm_quant_swiglu(
    x: Array,
    w_gate: Array,
    w_up: Array,
    groups: int,
    eps: float,
    format_gate: int,
    format_up: int,
    offsets: Array | None = None,
    norm: Array | None = None,
) -> Outputs:
    """y = silu(x Wg^T) * (x Wu^T), of the norm of x where there is one. Shazeer 2020, "GLU Variants", eq. 6."""
    x = _normed(x, norm, eps)
    rows = _groups(x, offsets, groups)
    return {"y": silu(_grouped(x, w_gate, format_gate, rows))["y"] * _grouped(x, w_up, format_up, rows)}


def gemm_quant_route(x: Array, gains: Array, w: Array, k: int, eps: float, norm: int, format: int) -> Outputs:
    """The norm of x, the logits of its product, the k most likely experts, and the plan of rows.

    Fedus, Zoph, Shazeer 2021, "Switch transformers", section 2; Gale et al. 2022, section 4.
    """
    y = rmsnorm(x, gains, eps)["y"]
    logits = _product(y, w, format)
    routed = softmax_topk(logits, k, norm)
    return {"y": y, "logits": logits, **routed, **moe_plan(routed["indices"], logits.shape[1], 0)}


def gemm_quant_experts(
    x: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    weights: Array,
    offsets: Array,
    slot_row: Array,
    row_slot: Array,
    format_gate: int,
    format_up: int,
    format_down: int,
    residual: Array | None = None,
) -> Outputs:
    """residual + sum over a token's experts of weight * W2 (silu(W1 x) * (W3 x)). Shazeer et al. 2017, eq. 1."""
    rows = moe_gather(x, row_slot, weights.shape[1])["y"]
    groups = _groups(rows, offsets, len(offsets) - 1)
    inner = silu(_grouped(rows, w_gate, format_gate, groups))["y"] * _grouped(rows, w_up, format_up, groups)
    return {"y": moe_combine(_grouped(inner, w_down, format_down, groups), weights, slot_row, residual)["out"]}
