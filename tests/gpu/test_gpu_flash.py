"""Attention forward in 16 bits over several tiles of rows and keys.

On sm_90a a block walks over tiles, of 192 or of 128 rows: how many multiprocessors there are must not show.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from cases import attention
from devices import SameDigests
from expected import fixture

import nncuda
from nncuda import kernels
from nncuda.golden import Runner

#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal. The last has more tiles of 128 rows than an H100 has
#: multiprocessors, and fewer of 192.
SHAPES = (
    (2, 95, 300, 4, 2, 64, 1),
    (1, 82, 150, 7, 1, 64, 0),
    (1, 150, 290, 2, 1, 128, 1),
    (45, 384, 20, 1, 1, 64, 0),
)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward_over_tiles(runner: Runner, shape: tuple[int, ...], dtype: str) -> None:
    """By the rule of the golden fixtures."""
    cases = [case for case in attention.of_shape(dtype, *shape) if case.kernel == "flash_attention"]
    assert cases
    for case in cases:
        problems = [str(outcome) for outcome in runner.run(fixture(case)) if outcome.problem]
        assert not problems, "\n".join(problems)


Call = tuple[int, int, int, int, int, int, int, tuple[int, ...] | None, float]
#: The same with a scale, and where documents begin. On one multiprocessor a block walks over all tiles of 192 rows,
#: or of 128 where those leave less of the last one empty; some warpgroups have no rows, or see none of a tile's keys.
CALLS: tuple[Call, ...] = (
    (3, 192, 192, 1, 1, 64, 1, None, 0.1),
    (1, 570, 570, 1, 1, 64, 1, None, 0.1),
    (2, 95, 400, 4, 2, 64, 0, None, -0.3),
    (1, 82, 130, 7, 1, 64, 1, None, 0.1),
    (2, 380, 100, 1, 1, 48, 1, None, 0.1),
    (1, 2, 70, 200, 1, 64, 0, None, 0.1),
    (2, 576, 576, 1, 1, 64, 1, (70, 71, 256, 500, 513), 0.1),
    (2, 200, 200, 2, 1, 64, 1, None, 0.1),
    (2, 150, 150, 2, 1, 128, 1, None, -0.1),
    (2, 300, 300, 1, 1, 128, 1, (70, 71, 256), 0.1),
)


def test_digests_of_forward(gpu: nncuda.Context, same_digests: SameDigests) -> None:
    """The bits that another run, with --digests and the same file, had, in any order, on a GPU of any size."""
    found = {}
    for dtype in ("f16", "bf16"):
        for call in CALLS:
            batch, q_len, kv_len, heads, kv_heads, dim, causal, begins, scale = call
            draw = np.random.default_rng(1).standard_normal
            sizes = ((q_len, heads), (kv_len, kv_heads), (kv_len, kv_heads))
            q, k, v = (gpu.tensor(draw((batch * n, h, dim)).astype(np.float32), dtype) for n, h in sizes)
            starts = None
            if begins is not None:
                starts = gpu.tensor(attention.starts_of([begins] * batch, q_len), "i32")
            out, lse = kernels.flash_attention(
                q, k, v, starts, lse=True, batch=batch, q_len=q_len, kv_len=kv_len, causal=bool(causal), scale=scale
            )
            assert np.isfinite(out.numpy().astype(np.float32)).all()
            found[f"{dtype} {call}"] = hashlib.sha256(out.numpy().tobytes() + lse.numpy().tobytes()).hexdigest()
    same_digests("-flash", found)
