"""Cases of rotary position embedding."""

import numpy as np

from nncuda.reference import rope as reference

from .case import FLOATS, case, stored


def cases():
    for positions, head_dim, first, base, alpha in (
        (1, 2, 0, 10000.0, 1.0),
        (5, 8, 0, 10000.0, 1.0),
        (3, 64, 7, 10000.0, 8.0),
        (2, 128, 4000, 500000.0, 1.0),
        (2, 34, 32766, 10000.0, 8.0),
        (2, 16, 262142, 10000.0, 8.0),
    ):
        yield case(
            "rope_freqs",
            f"positions{positions}-dim{head_dim}-first{first}-base{base:g}-alpha{alpha:g}",
            freqs,
            "",
            *(positions, head_dim, first, base, alpha),
        )
    for positions, head_dim, first, base, alpha, scale, factors in (
        (3, 8, 0, 10000.0, 1.0, 1.0, False),
        (3, 64, 5, 10000.0, 8.0, 0.25, False),
        (3, 34, 32766, 500000.0, 1.0, 1.0, True),
        (2, 128, 131070, 500000.0, 1.0, 0.5, True),
        (2, 2, 262142, 10000.0, 1.0, 0.125, True),
    ):
        yield case(
            "rope_freqs_scaled",
            f"positions{positions}-dim{head_dim}-first{first}-base{base:g}-alpha{alpha:g}-scale{scale:g}-factors{factors:d}",
            freqs_scaled,
            "",
            *(positions, head_dim, first, base, alpha, scale, factors),
        )
    for dtype in FLOATS:
        for tokens, heads, head_dim, extra_in, extra_out, layout in (
            (1, 1, 2, 0, 0, 0),
            (1, 1, 2, 0, 0, 1),
            (3, 2, 8, 0, 0, 0),
            (3, 2, 8, 5, 3, 1),
            (2, 3, 18, 1, 0, 0),
            (2, 1, 34, 0, 7, 1),
            (5, 2, 64, 64, 0, 0),
            (2, 1, 66, 0, 0, 1),
            (1, 1, 256, 0, 0, 0),
        ):
            label = f"tokens{tokens}-heads{heads}-dim{head_dim}-ld{extra_in}-{extra_out}-layout{layout}"
            sizes = tokens, heads, head_dim, extra_in, extra_out, layout
            yield case("rope_forward", label, rotation, dtype, "x", "y", *sizes)
            yield case("rope_backward", label, rotation, dtype, "dy", "x", *sizes)
        for tokens, heads, kv_heads, head_dim, extra, layout in (
            (1, 1, 1, 8, 0, 0),
            (4, 4, 1, 16, 5, 0),
            (3, 4, 2, 10, 3, 1),
            (2, 3, 3, 64, 0, 0),
        ):
            yield case(
                "rope_qk",
                f"tokens{tokens}-heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}-layout{layout}",
                both,
                dtype,
                *(tokens, heads, kv_heads, head_dim, extra, layout),
            )


def freqs(d, positions, head_dim, first, base, alpha):
    return {"positions": positions, "head_dim": head_dim, "first": first, "base": base, "ntk_alpha": alpha}


def freqs_scaled(d, positions, head_dim, first, base, alpha, scale, has_factors):
    factors = 2.0 ** d.uniform(head_dim // 2, low=0, high=3) if has_factors else None
    return {"factors": factors, **freqs(d, positions, head_dim, first, base, alpha), "scale": scale}


def rotation(d, x, out, tokens, heads, head_dim, extra_in, extra_out, layout):
    lds = {f"ld_{x[-1]}": heads * head_dim + extra_in, f"ld_{out}": heads * head_dim + extra_out}
    return {x: d.bell(tokens, heads, head_dim), **tables(d, tokens, head_dim), "layout": layout, **lds}


def both(d, tokens, heads, kv_heads, head_dim, extra, layout):
    lds = {"ld_q": heads * head_dim + extra, "ld_k": kv_heads * head_dim + 2 * extra}
    q, k = (d.bell(tokens, n, head_dim) for n in (heads, kv_heads))
    return {"q": q, "k": k, **tables(d, tokens, head_dim), "layout": layout, **lds}


def tables(d, tokens, head_dim):
    out = reference.rope_freqs(9, head_dim, 0, 10000.0, 1.0)
    positions = d.integers(tokens, high=9)
    positions[0] = 8
    return {"cosine": stored(out["cosine"]), "sine": stored(out["sine"]), "positions": np.array(positions)}
