"""Cases of the cache of keys and values."""

import numpy as np

from .case import FLOATS, case


def cases():
    for dtype in FLOATS:
        for starts, length, capacity, kv_heads, head_dim, extra in (
            ([0], 1, 1, 1, 1, 0),
            ([0, 6, 3], 2, 8, 1, 8, 0),
            ([5, 0], 4, 9, 2, 5, 3),
            ([0], 7, 7, 3, 6, 1),
        ):
            yield case(
                "kv_append",
                f"batch{len(starts)}-len{length}-capacity{capacity}-heads{kv_heads}-dim{head_dim}-ld{extra}",
                lambda d, s=starts, n=length, c=capacity, h=kv_heads, w=head_dim, e=extra: {
                    "k": d.bell(len(s) * n, h, w),
                    "v": d.bell(len(s) * n, h, w),
                    "starts": np.array(s, np.int32),
                    "k_cache": d.bell(len(s), c, h, w),
                    "v_cache": d.bell(len(s), c, h, w),
                    "len": n,
                    "ld_kv": h * w + e,
                },
                dtype,
            )
        for lengths, capacity, keep in (([0, 3, 8, 5], 8, 3), ([7, 2], 9, 0), ([9, 8, 1], 9, 7), ([4], 4, 4)):
            yield case(
                "kv_trim",
                f"batch{len(lengths)}-capacity{capacity}-keep{keep}",
                lambda d, s=lengths, c=capacity, keep=keep: {
                    "k_cache": d.bell(len(s), c, 2, 5),
                    "v_cache": d.bell(len(s), c, 2, 5),
                    "lengths": np.array(s, np.int32),
                    "keep": keep,
                },
                dtype,
            )
