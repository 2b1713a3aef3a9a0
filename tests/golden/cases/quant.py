"""Cases of stored weights."""

import numpy as np

from nncuda.formats.block_formats import FORMATS
from nncuda.reference import moe, softmax
from nncuda.reference.quant import encoded, interleave_rows

from .case import FLOATS, case, stored
from .gemm import GROUPS, offsets, unread

#: Formats whose rows lie side by side, and what they are otherwise.
SIDE_BY_SIDE = {f"{name}_r16": name for name in FORMATS if FORMATS[name].elements > 1}
CODES = {name: entry.code for name, entry in FORMATS.items()}
CODES |= {name: CODES[plain] + 20 for name, plain in SIDE_BY_SIDE.items()}
BLOCKS = {name: entry.elements for name, entry in FORMATS.items()}
#: Formats in blocks of 32, which store as the gguf package does.
SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
#: Formats whose forms side by side have the most cases. The others share their code, and files stay small.
MUCH = ("q4_0", "q8_0")
#: Where a block has f16 numbers.
HALVES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "mxfp4": ()}
HALVES |= {"q2_k": (80, 82), "q3_k": (108,)}
#: Formats whose codes number the values of a table.
TABLES = ("iq4_nl", "mxfp4", "iq4_xs")


def weights(d, rows, k, name, scale=2.0**-7):
    """Stored rows: any bytes, but for the scales, which are near ``scale`` and of both signs."""
    if name in SIDE_BY_SIDE:
        plain = SIDE_BY_SIDE[name]
        return interleave_rows(weights(d, rows, k, plain, scale), CODES[plain])["y"]
    entry = FORMATS[name]
    if entry.elements == 1:
        return encoded(d.bell(rows, k), entry.code)
    blocks = d.integers(rows, k // entry.elements, entry.bytes, high=256).astype(np.uint8)
    for at in HALVES.get(name, (0,)):
        numbers = d.uniform(rows, k // entry.elements, 1, low=0.5, high=1.5) * scale
        signs = np.where(d.uniform(*numbers.shape) < 0, -1, 1)
        blocks[..., at : at + 2] = (numbers * signs).astype(np.float16).view(np.uint8)
    if name == "mxfp4":
        power = 128 + int(np.log2(scale))  # of half the scale
        blocks[..., 0] = d.integers(rows, k // entry.elements, low=power - 1, high=power + 2)
    return blocks.reshape(rows, -1)


def cases():
    for dtype in FLOATS:
        yield from storing(dtype)
        yield from reading(dtype)
        yield from products(dtype)
    yield from options()
    yield from groups()
    yield from hard_numbers()
    yield from many_formats()
    yield from side_by_side()
    yield from experts()


def storing(dtype):
    for name in (*SMALL, "f32", "f16", "bf16"):
        entry = FORMATS[name]
        for label, recipe in NUMBERS.items():
            if dtype != "f32" and label not in ("bell", "grid"):
                continue
            yield case("quantize", f"{name}-{label}", to_store, dtype, recipe, entry)


def to_store(d, recipe, entry):
    x = recipe(d)
    return {"x": x, "row_bytes": entry.row_bytes(x.shape[1]), "format": entry.code}


def extremes(d):
    """Rows of zeros, of one number, of magnitudes at both ends of f32 and of f16, of one number among zeros."""
    x = d.bell(12, 32)
    x[0] = 0.0
    x[1] = -0.0
    x[2] = 1.5
    x[3] = -0.75
    x[4] *= 2.0**-127
    x[5] *= 2.0**-148
    x[6] *= 2.0**-24
    x[7] *= 2.0**17
    x[8] *= 2.0**126
    x[9] = np.where(np.arange(32) == 20, -3.0, 0.0)
    x[10] = np.where(np.arange(32) == 31, 65504.0 * 8, 1.0)
    x[11] = np.abs(x[11]) + 1
    return x


#: Grid: many ties, between codes and for the largest magnitude.
NUMBERS = {
    "bell": lambda d: d.bell(5, 96),
    "one": lambda d: d.bell(1, 32),
    "grid": lambda d: d.integers(7, 64, low=-8, high=8) / 2.0,
    "extremes": extremes,
}


def reading(dtype):
    for name, entry in FORMATS.items():
        block = entry.elements
        two = 2 * block if block > 1 else 34
        few = two if block <= 32 else block  # blocks of 256 are read alike, and files stay small
        yield case("dequantize", name, rows_of, dtype, two if dtype == "f32" else few, name)
        yield case("embedding_quant", name, table_of, dtype, few, name)
        if block > 1 and dtype == "f32":
            yield case("dequantize", f"{name}-any-scale", any_scale, dtype, few, name)


def rows_of(d, k, name):
    return {"x": weights(d, 3, k, name), "k": k, "format": CODES[name]}


def table_of(d, k, name):
    ids = np.array([4, 0, 4, 2], np.int32)
    return {"table": weights(d, 5, k, name), "ids": ids, "dim": k, "format": CODES[name]}


def any_scale(d, k, name):
    """Scales of every kind: subnormal, infinite, NaN, both zeros."""
    patterns = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0400], np.uint16)
    blocks = weights(d, len(patterns), k, name).reshape(len(patterns), -1, FORMATS[name].bytes)
    if name == "mxfp4":
        blocks[..., 0] = np.array([0, 1, 2, 3, 22, 127, 128, 200, 254, 255], np.uint8)[:, None]
    for i, at in enumerate(HALVES.get(name, (0,))):
        blocks[..., at : at + 2] = np.roll(patterns, 3 * i).view(np.uint8).reshape(-1, 1, 2)
    return {"x": blocks.reshape(len(patterns), -1), "k": k, "format": CODES[name]}


def product(d, m, n, k, name, x=None, scale=2.0**-7):
    x = d.bell(m, k) if x is None else x
    return {"x": x, "w": weights(d, n, k, name, scale), "groups": 1, "activation": 0, "format": CODES[name]}


def grouped(d, counts, rows, n, k, name):
    """``counts`` rows of each group; those behind them, up to ``rows``, are not read."""
    return {
        **product(d, rows, len(counts) * n, k, name, x=unread(d.bell(rows, k), sum(counts))),
        "offsets": offsets(counts),
        "bias": d.bell(n),
        "residual": unread(d.bell(rows, n), sum(counts)),
        "groups": len(counts),
        "activation": 1,
    }


def gated(d, m, n, k, gate, up, counts=None, norm=False):
    """In groups if there are ``counts``."""
    groups = 1 if counts is None else len(counts)
    return {
        "x": d.bell(m, k) if counts is None else unread(d.bell(m, k), sum(counts)),
        "w_gate": weights(d, groups * n, k, gate),
        "w_up": weights(d, groups * n, k, up),
        **({} if counts is None else {"offsets": offsets(counts)}),
        **of_norm(d, k, norm),
        "groups": groups,
        "format_gate": CODES[gate],
        "format_up": CODES[up],
    }


def of_norm(d, k, norm):
    return {"norm": d.uniform(k, low=0.5, high=1.5) if norm else None, "eps": 1e-5 if norm else 0.0}


def qkv(d, m, n_q, n_kv, k, names, bias, norm=False):
    return {
        "x": d.bell(m, k),
        **{f"w{x}": weights(d, n, k, name) for x, n, name in zip("qkv", (n_q, n_kv, n_kv), names, strict=True)},
        "bias": d.bell(n_q + 2 * n_kv) if bias else None,
        **of_norm(d, k, norm),
        "n": n_q + 2 * n_kv,
        **{f"format_{x}": CODES[name] for x, name in zip("qkv", names, strict=True)},
    }


def of_product(dtype, m, n, k, name):
    return case("gemm_quant", f"{name}-m{m}-n{n}-k{k}", product, dtype, m, n, k, name)


def products(dtype):
    """Every format, one block and two, one row and several."""
    for name, entry in FORMATS.items():
        for m, n, blocks in ((1, 3, 1), (4, 5, 2)) if entry.elements <= 32 else ((1, 3, 1), (3, 2, 2)):
            yield of_product(dtype, m, n, 33 * blocks if entry.elements == 1 else entry.elements * blocks, name)
    for name, m, n, k in (("q4_0", 1, 37, 160), ("q8_0", 33, 7, 64), ("q4_1", 17, 19, 96), ("f16", 18, 17, 40)):
        if dtype == "f32" or m == 1:
            yield of_product(dtype, m, n, k, name)


def with_ends(d, m, n, k, name, bias, residual, activation):
    return {
        **product(d, m, n, k, name),
        "bias": d.bell(n) if bias else None,
        "residual": d.bell(m, n) if residual else None,
        "activation": activation,
    }


def options():
    for dtype in FLOATS:
        for name, m, n, k in (("q4_0", 3, 17, 64), ("bf16", 2, 5, 9)):
            for bias, residual, activation in np.ndindex(2, 2, 2):
                label = f"{name}-m{m}-n{n}-k{k}-bias{bias}-residual{residual}-activation{activation}"
                yield case("gemm_quant", label, with_ends, dtype, m, n, k, name, bias, residual, activation)


def groups():
    for label, (counts, rows) in GROUPS.items():
        for name, n, k in (("q4_0", 5, 64), ("q6_k", 3, 256), ("f16", 7, 9)):
            if name != "q4_0" and label not in ("ragged", "room"):
                continue
            for dtype in FLOATS if label == "ragged" and name == "q4_0" else ("f32",):
                full = f"{name}-{label}-n{n}-k{k}"
                yield case("gemm_quant", full, grouped, dtype, counts, rows, n, k, name)
                yield case("gemm_quant_swiglu", full, gated, dtype, rows, n, k, name, name, counts)


def hard(d, n, k, name):
    """Blocks of zeros, and about 2^-100; ties, the largest magnitude being a power of two away from 127; rows that
    are not finite."""
    x = d.bell(7, k)
    x[0] = 0.0
    x[1, : k // 2] = 0.0
    x[2, :32] = 2.0**-101 * np.sign(x[2, :32])
    x[3, :32] *= 2.0**-99
    x[4, :32] = np.arange(-16, 16) / 64.0
    x[4, 0] = 127 / 64.0
    x[5, 3] = np.nan
    x[6, k - 1] = np.inf
    return product(d, 7, n, k, name, x)


def powers(d, k, name, x, scale):
    return product(d, 2, 3, k, name, d.bell(2, k) * 2.0**x, 2.0**scale)


def hard_numbers():
    """Left factors that try the rounding, and scales of weights at the ends of f16."""
    for name in ("q4_0", "q5_1", "q8_0", "q2_k", "q4_k", "q6_k", *TABLES):
        k = max(96, BLOCKS[name])
        for dtype in ("f32", "bf16"):
            yield case("gemm_quant", f"{name}-hard", hard, dtype, 3, k, name)
            for power in (60, -90):
                yield case("gemm_quant", f"{name}-times2^{power}", powers, dtype, k, name, power, -7)
    for name in (*SMALL, "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", *TABLES):
        for power in (-22, 14):
            k = max(64, BLOCKS[name])
            yield case("gemm_quant", f"{name}-scales2^{power}", powers, "f32", k, name, 0, power)


def many_formats():
    """Matrices of different formats in one call."""
    for dtype in FLOATS:
        for label, m, n_q, n_kv, k, names in (
            ("q4_0", 1, 6, 2, 64, ("q4_0", "q4_0", "q4_0")),
            ("mixed", 5, 7, 3, 96, ("q8_0", "q5_0", "q4_1")),
            ("parts", 2, 3, 1, 256, ("q4_k", "q4_k", "q6_k")),
            ("dtypes", 3, 5, 1, 11, ("f16", "bf16", "f32")),
        ):
            for bias in (0, 1):
                full = f"{label}-m{m}-q{n_q}-kv{n_kv}-k{k}-bias{bias}"
                yield case("gemm_quant_qkv", full, qkv, dtype, m, n_q, n_kv, k, names, bias)
        if dtype == "f32":
            # Numbers of fewer bits, codes above all, would hang on the last bit of a norm: for these the products with
            # a norm are compared with rmsnorm and products without (tests/kernels, tests/gpu).
            names = "f32", "f32", "f32"
            yield case("gemm_quant_qkv", "norm-m2-q5-kv3-k19", qkv, dtype, 2, 5, 3, 19, names, 1, True)
            yield case("gemm_quant_swiglu", "norm-m3-n5-k64", gated, dtype, 3, 5, 64, "f32", "f32", None, True)
        for m, n, k, gate, up in (
            (1, 5, 64, "q4_0", "q4_0"),
            (6, 17, 32, "q8_0", "q5_1"),
            (2, 3, 256, "q6_k", "q4_k"),
            (3, 5, 256, "q5_k", "f16"),
            (4, 3, 7, "f32", "bf16"),
        ):
            yield case("gemm_quant_swiglu", f"{gate}-{up}-m{m}-n{n}-k{k}", gated, dtype, m, n, k, gate, up)


def bytes_in_rows(d, rows, k, name):
    x = d.integers(rows, FORMATS[name].row_bytes(k), high=256).astype(np.uint8)
    return {"x": x, "k": k, "format": CODES[name]}


def groups_side_by_side(d, counts, rows, k, name):
    return {
        **product(d, rows, len(counts) * 16, k, name),
        "x": unread(d.bell(rows, k), sum(counts)),
        "offsets": offsets(counts),
        "bias": d.bell(16),
        "residual": unread(d.bell(rows, 16), sum(counts)),
        "groups": len(counts),
    }


def side_by_side():
    """Sixteen rows side by side: the order of the bytes, and products in it."""
    for name in SIDE_BY_SIDE.values():
        for rows, blocks in (
            ((16, 1), (16, 3), (48, 2)) if name in MUCH else ((16, 1), (32, 2)) if name == "q6_k" else ((32, 1),)
        ):
            k = BLOCKS[name] * blocks
            yield case("interleave_rows", f"{name}-rows{rows}-k{k}", bytes_in_rows, "", rows, k, name)
    for name, plain in SIDE_BY_SIDE.items():
        block = BLOCKS[plain]
        if plain not in (*MUCH, "q6_k"):
            for dtype, m in (("f32", 1), ("f32", 3), ("bf16", 2)):
                yield of_product(dtype, m, 16, block, name)
            continue
        for dtype in FLOATS:
            for m, n, blocks in ((1, 16, 1), (1, 48, 3), (2, 16, 2), (3, 32, 1), (17, 16, 1)):
                if plain == "q6_k" and (n > 16 or blocks > 2 or (m == 17 and dtype != "f32")):
                    continue
                yield of_product(dtype, m, n, block * blocks, name)
            yield case("gemm_quant", f"{name}-m2-n16-k{block}-all", with_ends, dtype, 2, 16, block, name, 1, 1, 1)
        for label in ("ragged", "room") if plain != "q6_k" else ("one",):
            counts, rows = GROUPS[label]
            full = f"{name}-{label}-n16-k{block}"
            yield case("gemm_quant", full, groups_side_by_side, "f32", counts, rows, block, name)
            yield case("gemm_quant_swiglu", full, gated, "f32", rows, 16, block, name, name, counts)
    for dtype in FLOATS:
        for m, n, k, gate, up in (
            (1, 32, 64, "q4_0_r16", "q4_0_r16"),
            (3, 16, 32, "q8_0_r16", "q4_0_r16"),
            (17, 16, 32, "q4_0_r16", "q5_1"),
        ):
            yield case("gemm_quant_swiglu", f"{gate}-{up}-m{m}-n{n}-k{k}", gated, dtype, m, n, k, gate, up)
        for m, k, names in (
            (1, 64, ("q4_0_r16", "q4_0_r16", "q4_0_r16")),
            (2, 32, ("q8_0_r16", "q8_0_r16", "q4_1")),
            (17, 32, ("q4_0_r16", "q5_0", "q8_0_r16")),
            (3, 256, ("q4_0_r16", "q8_0_r16", "q6_k_r16")),
            *(((2, 256, ("q4_k_r16", "q5_k_r16", "q4_1_r16")),) if dtype == "f32" else ()),
        ):
            yield case("gemm_quant_qkv", f"side-by-side-m{m}-q32-kv16-k{k}", qkv, dtype, m, 32, 16, k, names, m == 2)


def experts():
    """With weights in f32: what is rounded to fewer bits within these calls would hang on the last bit of a norm or a
    product. Of other formats the calls are compared with those that they stand for (tests/kernels, tests/gpu)."""
    for label, tokens, count, k, dim, norm in (("one", 1, 4, 2, 24, 1), ("odd", 7, 5, 3, 19, 0)):
        yield case("gemm_quant_route", label, route, "", tokens, count, k, dim, norm)
        for residual in (0, 1):
            full = f"{label}-residual{residual}"
            yield case("gemm_quant_experts", full, of_experts, "", tokens, count, k, dim, 5, residual)


def route(d, tokens, experts, k, dim, norm):
    return {
        "x": d.bell(tokens, dim),
        "gains": d.uniform(dim, low=0.5, high=1.5),
        "w": weights(d, experts, dim, "f32"),
        "k": k,
        "eps": 1e-5,
        "norm": norm,
        "format": CODES["f32"],
    }


def of_experts(d, tokens, experts, k, dim, n, residual):
    routed = softmax.softmax_topk(d.bell(tokens, experts), k, 1)
    plan = moe.moe_plan(routed["indices"], experts, 0)
    return {
        "x": d.bell(tokens, dim),
        **{f"w_{name}": weights(d, experts * n, dim, "f32") for name in ("gate", "up")},
        "w_down": weights(d, experts * dim, n, "f32"),
        "weights": stored(routed["weights"]),
        **{name: plan[name] for name in ("offsets", "slot_row", "row_slot")},
        "residual": d.bell(tokens, dim) if residual else None,
        **{f"format_{name}": CODES["f32"] for name in ("gate", "up", "down")},
    }
