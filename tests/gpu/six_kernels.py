"""The six kernels whose counters a session looks at, once each, for `ncu`: dense and grouped products, attention
forward and with its gradients, a product with stored weights, attention over pages.

    ncu ... python tests/gpu/six_kernels.py [--quick]
"""

from __future__ import annotations

import sys

from nncuda import Context
from nncuda.bench import catalogue
from nncuda.bench.work import Work

#: The first line of the benchmark with each of these in its group and name.
LINES = (
    ("products bf16", ""),
    ("grouped_gemm", "forward"),
    ("flash_attention", "forward"),
    ("flash_attention", "backward"),
    ("stored weights", "q4_0"),
    ("paged attention", "decode"),
)


def chosen(quick: bool) -> list[Work]:
    works = catalogue.gpu(quick)
    return [next(w for w in works if group in w.group and name in f"{w.group} {w.name}") for group, name in LINES]


def main(quick: bool) -> None:
    with Context("cuda") as ctx:
        for work in chosen(quick):
            side = work.ours(ctx, work.inputs(ctx, 0))
            side.run()
            ctx.synchronize()
            print(f"{work.group}: {work.name}", flush=True)


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
