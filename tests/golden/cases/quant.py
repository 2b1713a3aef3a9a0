"""Cases of stored weights."""

import numpy as np

from nncuda.formats.block_formats import FORMATS
from nncuda.reference.quant import encoded, interleave_rows

from .case import FLOATS, case, of
from .gemm import GROUPS, offsets, unread

#: Formats whose rows lie side by side, and what they are otherwise.
SIDE_BY_SIDE = {f"{name}_r16": name for name in ("q4_0", "q8_0", "q6_k")}
CODES = {name: entry.code for name, entry in FORMATS.items()}
CODES |= {name: CODES[plain] + 20 for name, plain in SIDE_BY_SIDE.items()}
BLOCKS = {name: entry.elements for name, entry in FORMATS.items()}
#: Formats in blocks of 32, which store as the gguf package does.
SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")
#: Where a block has f16 numbers.
HALVES = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}


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
    return blocks.reshape(rows, -1)


def product(d, m, n, k, name):
    return {"x": d.bell(m, k), "w": weights(d, n, k, name), "groups": 1, "activation": 0, "format": CODES[name]}


def gated(d, m, n, k, gate, up, counts=()):
    """Of ``counts`` rows a group, where there are groups."""
    x = unread(d.bell(m, k), sum(counts)) if counts else d.bell(m, k)
    stored = n * max(1, len(counts))
    return {
        "x": x,
        "w_gate": weights(d, stored, k, gate),
        "w_up": weights(d, stored, k, up),
        **({"offsets": offsets(counts)} if counts else {}),
        "groups": max(1, len(counts)),
        "format_gate": CODES[gate],
        "format_up": CODES[up],
    }


def qkv(d, m, q, kv, k, names, bias):
    return {
        "x": d.bell(m, k),
        "wq": weights(d, q, k, names[0]),
        "wk": weights(d, kv, k, names[1]),
        "wv": weights(d, kv, k, names[2]),
        "bias": d.bell(q + 2 * kv) if bias else None,
        "n": q + 2 * kv,
        **{f"format_{x}": CODES[name] for x, name in zip("qkv", names, strict=True)},
    }


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


def storing(dtype):
    for name in (*SMALL, "f32", "f16", "bf16"):
        entry = FORMATS[name]
        for label, recipe in NUMBERS.items():
            if dtype != "f32" and label not in ("bell", "grid"):
                continue
            yield case(
                "quantize",
                f"{name}-{label}",
                lambda d, recipe=recipe, entry=entry: {
                    "x": (x := recipe(d)),
                    "row_bytes": entry.row_bytes(x.shape[1]),
                    "format": entry.code,
                },
                dtype,
            )


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
        k = max(2 * entry.elements, 34) if entry.elements == 1 else 2 * entry.elements

        def scalars(k=k, entry=entry):
            return {"k": k, "format": entry.code}

        yield case("dequantize", name, lambda d, n=name, k=k, s=scalars: {"x": weights(d, 3, k, n), **s()}, dtype)
        yield case(
            "embedding_quant",
            name,
            lambda d, n=name, k=k, e=entry: {
                "table": weights(d, 5, k, n),
                "ids": np.array([4, 0, 4, 2], np.int32),
                "dim": k,
                "format": e.code,
            },
            dtype,
        )
        if entry.elements > 1 and dtype == "f32":
            # Scales of every kind: subnormal, infinite, NaN, both zeros.
            yield case("dequantize", f"{name}-any-scale", of(any_scale, name, k, scalars), dtype)


def any_scale(d, name, k, scalars):
    entry = FORMATS[name]
    patterns = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0400], np.uint16)
    blocks = weights(d, len(patterns), k, name).reshape(len(patterns), -1, entry.bytes)
    for i, at in enumerate(HALVES.get(name, (0,))):
        blocks[..., at : at + 2] = np.roll(patterns, 3 * i).view(np.uint8).reshape(-1, 1, 2)
    return {"x": blocks.reshape(len(patterns), -1), **scalars()}


def products(dtype):
    """Every format, one block and two, one row and several."""
    for name, entry in FORMATS.items():
        for m, n, blocks in ((1, 3, 1), (4, 5, 2)) if entry.elements <= 32 else ((1, 3, 1), (3, 2, 2)):
            k = 33 * blocks if entry.elements == 1 else entry.elements * blocks
            yield case("gemm_quant", f"{name}-m{m}-n{n}-k{k}", of(product, m, n, k, name), dtype)
    for name, m, n, k in (("q4_0", 1, 37, 160), ("q8_0", 33, 7, 64), ("q4_1", 17, 19, 96), ("f16", 18, 17, 40)):
        if dtype == "f32" or m == 1:
            yield case("gemm_quant", f"{name}-m{m}-n{n}-k{k}", of(product, m, n, k, name), dtype)


def options():
    for dtype in FLOATS:
        for name, m, n, k in (("q4_0", 3, 17, 64), ("bf16", 2, 5, 9)):
            for bias in (0, 1):
                for residual in (0, 1):
                    for activation in (0, 1):

                        def recipe(d, m=m, n=n, k=k, name=name, b=bias, r=residual, a=activation):
                            made = product(d, m, n, k, name)
                            more = {"bias": d.bell(n) if b else None, "residual": d.bell(m, n) if r else None}
                            return {**made, **more, "activation": a}

                        label = f"{name}-m{m}-n{n}-k{k}-bias{bias}-residual{residual}-activation{activation}"
                        yield case("gemm_quant", label, recipe, dtype)


def groups():
    for label, (counts, rows) in GROUPS.items():
        used = sum(counts)
        for name, n, k in (("q4_0", 5, 64), ("q6_k", 3, 256), ("f16", 7, 9)):
            if name != "q4_0" and label not in ("ragged", "room"):
                continue

            def recipe(d, counts=counts, rows=rows, used=used, n=n, k=k, name=name):
                return {
                    "x": unread(d.bell(rows, k), used),
                    "w": weights(d, len(counts) * n, k, name),
                    "offsets": offsets(counts),
                    "bias": d.bell(n),
                    "residual": unread(d.bell(rows, n), used),
                    "groups": len(counts),
                    "activation": 1,
                    "format": CODES[name],
                }

            twice = of(gated, rows, n, k, name, name, counts)
            for dtype in FLOATS if label == "ragged" and name == "q4_0" else ("f32",):
                yield case("gemm_quant", f"{name}-{label}-n{n}-k{k}", recipe, dtype)
                yield case("gemm_quant_swiglu", f"{name}-{label}-n{n}-k{k}", twice, dtype)


def hard_numbers():
    """Left factors that try the rounding, and scales of weights at the ends of f16."""

    def given(x, w, name):
        return {"x": x, "w": w, "groups": 1, "activation": 0, "format": CODES[name]}

    def hard(d, name, n, k):
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
        return given(x, weights(d, n, k, name), name)

    for name in ("q4_0", "q5_1", "q8_0", "q4_k", "q6_k"):
        k = max(96, BLOCKS[name])
        for dtype in ("f32", "bf16"):
            yield case("gemm_quant", f"{name}-hard", of(hard, name, 3, k), dtype)
            for power in (60, -90):
                yield case(
                    "gemm_quant",
                    f"{name}-times2^{power}",
                    lambda d, n=name, k=k, p=power: given(d.bell(2, k) * 2.0**p, weights(d, 3, k, n), n),
                    dtype,
                )
    for name in (*SMALL, "q4_k", "q5_k", "q6_k"):
        k = max(64, BLOCKS[name])
        for power in (-22, 14):
            yield case(
                "gemm_quant",
                f"{name}-scales2^{power}",
                lambda d, n=name, k=k, p=power: given(d.bell(2, k), weights(d, 3, k, n, scale=2.0**p), n),
                "f32",
            )


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
                recipe = of(qkv, m, n_q, n_kv, k, names, bias)
                yield case("gemm_quant_qkv", f"{label}-m{m}-q{n_q}-kv{n_kv}-k{k}-bias{bias}", recipe, dtype)
        for m, n, k, gate, up in (
            (1, 5, 64, "q4_0", "q4_0"),
            (6, 17, 32, "q8_0", "q5_1"),
            (2, 3, 256, "q6_k", "q4_k"),
            (3, 5, 256, "q5_k", "f16"),
            (4, 3, 7, "f32", "bf16"),
        ):
            recipe = of(gated, m, n, k, gate, up)
            yield case("gemm_quant_swiglu", f"{gate}-{up}-m{m}-n{n}-k{k}", recipe, dtype)


def side_by_side():
    """Sixteen rows side by side: the order of the bytes, and products in it."""
    for name in SIDE_BY_SIDE.values():
        for rows, blocks in ((16, 1), (16, 3), (48, 2)) if name != "q6_k" else ((16, 1), (32, 2)):
            k = BLOCKS[name] * blocks
            yield case(
                "interleave_rows",
                f"{name}-rows{rows}-k{k}",
                lambda d, rows=rows, k=k, name=name: {
                    "x": d.integers(rows, FORMATS[name].row_bytes(k), high=256).astype(np.uint8),
                    "k": k,
                    "format": CODES[name],
                },
            )
    for name, plain in SIDE_BY_SIDE.items():
        block = BLOCKS[plain]
        for dtype in FLOATS:
            for m, n, blocks in ((1, 16, 1), (1, 48, 3), (2, 16, 2), (3, 32, 1), (17, 16, 1)):
                if plain == "q6_k" and (n > 16 or blocks > 2 or (m == 17 and dtype != "f32")):
                    continue
                k = block * blocks
                yield case("gemm_quant", f"{name}-m{m}-n{n}-k{k}", of(product, m, n, k, name), dtype)
            yield case(
                "gemm_quant",
                f"{name}-m2-n16-k{block}-all",
                lambda d, k=block, name=name: {
                    **product(d, 2, 16, k, name),
                    "bias": d.bell(16),
                    "residual": d.bell(2, 16),
                    "activation": 1,
                },
                dtype,
            )
        for label in ("ragged", "room") if plain != "q6_k" else ("one",):
            counts, rows = GROUPS[label]
            yield case(
                "gemm_quant",
                f"{name}-{label}-n16-k{block}",
                lambda d, counts=counts, rows=rows, k=block, name=name: {
                    **product(d, rows, len(counts) * 16, k, name),
                    "x": unread(d.bell(rows, k), sum(counts)),
                    "offsets": offsets(counts),
                    "bias": d.bell(16),
                    "residual": unread(d.bell(rows, 16), sum(counts)),
                    "groups": len(counts),
                },
                "f32",
            )
            recipe = of(gated, rows, 16, block, name, name, counts)
            yield case("gemm_quant_swiglu", f"{name}-{label}-n16-k{block}", recipe, "f32")
    for dtype in FLOATS:
        for m, n, k, gate, up in (
            (1, 32, 64, "q4_0_r16", "q4_0_r16"),
            (3, 16, 32, "q8_0_r16", "q4_0_r16"),
            (17, 16, 32, "q4_0_r16", "q5_1"),
        ):
            recipe = of(gated, m, n, k, gate, up)
            yield case("gemm_quant_swiglu", f"{gate}-{up}-m{m}-n{n}-k{k}", recipe, dtype)
        for m, k, names in (
            (1, 64, ("q4_0_r16", "q4_0_r16", "q4_0_r16")),
            (2, 32, ("q8_0_r16", "q8_0_r16", "q4_1")),
            (17, 32, ("q4_0_r16", "q5_0", "q8_0_r16")),
            (3, 256, ("q4_0_r16", "q8_0_r16", "q6_k_r16")),
        ):
            recipe = of(qkv, m, 32, 16, k, names, m == 2)
            yield case("gemm_quant_qkv", f"side-by-side-m{m}-q32-kv16-k{k}", recipe, dtype)
