"""Cases of gradients through stored weights."""

from nncuda.reference.ternary import ternary_pack

from . import quant
from .case import FLOATS, case, nan
from .gemm import GROUPS, offsets, unread
from .ternary import codes

#: Rows, outputs, blocks of inputs: one and several of each, rows of a tile and a rest, few rows, outputs in several
#: blocks of a sum.
SHAPES = ((1, 3, 1), (3, 5, 2), (9, 17, 1), (19, 40, 1))
DEEP = (2, 1100, 32)
#: Formats with all of the shapes; the others share their code, and files stay small.
MUCH = ("f32", "q4_0")


def cases():
    for dtype in FLOATS:
        for name, entry in quant.FORMATS.items():
            shapes = SHAPES if name in MUCH else SHAPES[:1] if entry.elements > 32 else SHAPES[:2]
            for m, n, blocks in shapes:
                k = 33 * blocks if entry.elements == 1 else entry.elements * blocks
                yield of_product(dtype, m, n, k, name, 0.0)
        yield of_product(dtype, *DEEP, "q4_0", 1.0)
        if dtype == "f32":
            yield of_product(dtype, 2, 3, 700, "f16", -0.5)
            yield of_product(dtype, 6, 5, 256, "q4_k", 1.0)
        for label, (counts, rows) in GROUPS.items():
            for name, n, k, beta in (("q4_0", 5, 64, 0.0), ("bf16", 7, 9, 1.0)):
                if dtype == "f32" or label in ("ragged", "room"):
                    full = f"{name}-{label}-n{n}-k{k}-beta{beta}"
                    yield case("gemm_quant_backward", full, grouped, dtype, counts, rows, n, k, name, beta)
        for m, n, k, beta in (
            (1, 1, 1, 0.0),
            (3, 17, 33, 1.0),
            (12, 40, 16, 0.0),
            (5, 33, 70, -0.5),
            (2, 1100, 4, 0.0),
        ):
            label = f"m{m}-n{n}-k{k}-beta{beta}"
            yield case("bitlinear_backward", label, ternary_product, dtype, m, n, k, beta)


def of_product(dtype, m, n, k, name, beta):
    label = f"{name}-m{m}-n{n}-k{k}-beta{beta}"
    return case("gemm_quant_backward", label, product, dtype, m, n, k, name, beta)


def old(d, m, k, beta):
    return nan(m, k) if beta == 0 else d.bell(m, k)


def product(d, m, n, k, name, beta):
    return {
        "dy": d.bell(m, n),
        "w": quant.weights(d, n, k, name),
        "dx": old(d, m, k, beta),
        "groups": 1,
        "beta": beta,
        "format": quant.CODES[name],
    }


def grouped(d, counts, rows, n, k, name, beta):
    """``counts`` rows of each group; those behind them, up to ``rows``, are neither read nor written."""
    used = sum(counts)
    return {
        "dy": unread(d.bell(rows, n), used),
        "w": quant.weights(d, len(counts) * n, k, name),
        "offsets": offsets(counts),
        "dx": unread(old(d, rows, k, beta), used),
        "groups": len(counts),
        "beta": beta,
        "format": quant.CODES[name],
    }


def ternary_product(d, m, n, k, beta):
    return {
        "dy": d.bell(m, n),
        "w": ternary_pack(codes(d, n, k))["w"],
        "w_scale": d.uniform(n, low=0.01, high=0.05),
        "dx": old(d, m, k, beta),
        "beta": beta,
    }
