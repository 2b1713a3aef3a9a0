"""Cases of rotary position embedding."""

import numpy as np

from nncuda.reference import rope as reference

from .case import FLOATS, case, of, stored


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
            lambda d, p=positions, n=head_dim, f=first, b=base, a=alpha: {
                "positions": p,
                "head_dim": n,
                "first": f,
                "base": b,
                "ntk_alpha": a,
            },
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
            lambda d, p=positions, n=head_dim, f=first, b=base, a=alpha, s=scale, has=factors: {
                "factors": 2.0 ** d.uniform(n // 2, low=0, high=3) if has else None,
                "positions": p,
                "head_dim": n,
                "first": f,
                "base": b,
                "ntk_alpha": a,
                "scale": s,
            },
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
            width = heads * head_dim

            def one(d, x, out, t=tokens, h=heads, n=head_dim, w=width, i=extra_in, o=extra_out, layout=layout):
                return {
                    x: d.bell(t, h, n),
                    **tables(d, t, n),
                    "layout": layout,
                    f"ld_{'x' if x == 'x' else 'y'}": w + i,
                    f"ld_{out}": w + o,
                }

            yield case("rope_forward", label, of(one, "x", "y"), dtype)
            yield case("rope_backward", label, of(one, "dy", "x"), dtype)
        for tokens, heads, kv_heads, head_dim, extra, layout in (
            (1, 1, 1, 8, 0, 0),
            (4, 4, 1, 16, 5, 0),
            (3, 4, 2, 10, 3, 1),
            (2, 3, 3, 64, 0, 0),
        ):
            yield case(
                "rope_qk",
                f"tokens{tokens}-heads{heads}-{kv_heads}-dim{head_dim}-ld{extra}-layout{layout}",
                lambda d, t=tokens, h=heads, kv=kv_heads, n=head_dim, e=extra, layout=layout: {
                    "q": d.bell(t, h, n),
                    "k": d.bell(t, kv, n),
                    **tables(d, t, n),
                    "layout": layout,
                    "ld_q": h * n + e,
                    "ld_k": kv * n + 2 * e,
                },
                dtype,
            )


def tables(d, tokens, head_dim):
    out = reference.rope_freqs(9, head_dim, 0, 10000.0, 1.0)
    positions = d.integers(tokens, high=9)
    positions[0] = 8
    return {"cosine": stored(out["cosine"]), "sine": stored(out["sine"]), "positions": np.array(positions)}
