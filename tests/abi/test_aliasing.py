"""Overlap is decided exactly: columns that interleave in one buffer do not overlap, one shared element does."""

from __future__ import annotations

import numpy as np
import pytest
from raw import C, Context


def touched(offset: int, rows: int, stride: int, width: int) -> set[int]:
    return {offset + row * stride + column for row in range(rows) for column in range(width)}


def rope(context: Context, x: int, y: int, rows: tuple[int, int], ld_x: int, ld_y: int) -> int:
    """rope_forward, the kernel whose input and output are strided each on its own."""
    tokens, head_dim = rows
    tables = np.ones((1, head_dim // 2), np.float32)
    positions = np.zeros(tokens, np.int32)
    return context.call("cuda_rope_forward", x, tables.ctypes.data, tables.ctypes.data, positions.ctypes.data, y,
                        tokens, 1, head_dim, 1, ld_x, ld_y, C.ROPE_HALF, C.F32)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_against_sets_of_elements(context, seed):
    """Random row-strided tensors in one buffer: ALIASED exactly when the sets of their elements meet."""
    random = np.random.default_rng(seed)
    buffer = np.zeros(400, np.float32)
    seen = set()
    for _ in range(600):
        tokens = int(random.integers(1, 8))
        width = 2 * int(random.integers(1, 6))
        ld_x, ld_y = (int(random.integers(width, width + 20)) for _ in range(2))
        if random.random() < 0.5:
            ld_y = ld_x
        room_x, room_y = (buffer.size - (tokens - 1) * ld - width for ld in (ld_x, ld_y))
        x = int(random.integers(0, room_x + 1))
        y = int(np.clip(x + random.integers(-60, 60), 0, room_y))
        meet = bool(touched(x, tokens, ld_x, width) & touched(y, tokens, ld_y, width))
        same = x == y and (ld_x == ld_y or tokens == 1)
        base = buffer.ctypes.data
        status = rope(context, base + 4 * x, base + 4 * y, (tokens, width), ld_x, ld_y)
        assert status == (C.ERROR_ALIASED if meet and not same else C.SUCCESS), (tokens, width, ld_x, ld_y, x, y)
        seen.add((meet, same, ld_x == ld_y))
    assert len(seen) >= 4


def test_the_halves_of_a_fused_product(context):
    """gate and up side by side in one buffer, and their gradients in place."""
    rows, dim = 5, 6
    random = np.random.default_rng(0)
    fused = random.standard_normal((rows, 2 * dim), dtype=np.float32)
    dy = random.standard_normal((rows, dim), dtype=np.float32)
    dgate, dup = np.zeros((2, rows, 2 * dim), np.float32)
    gate, up = fused.ctypes.data, fused.ctypes.data + 4 * dim
    context.ok(
        "cuda_swiglu_backward",
        dy.ctypes.data,
        gate,
        up,
        0,
        dgate.ctypes.data,
        dup.ctypes.data,
        rows,
        dim,
        2 * dim,
        C.F32,
    )
    context.ok("cuda_swiglu_backward", dy.ctypes.data, gate, up, 0, gate, up, rows, dim, 2 * dim, C.F32)
    np.testing.assert_array_equal(fused[:, :dim], dgate[:, :dim])
    np.testing.assert_array_equal(fused[:, dim:], dup[:, :dim])
    # Crosswise it is not allowed: dgate would overwrite up before it is read.
    context.fails(C.ERROR_ALIASED, "dgate", "cuda_swiglu_backward", dy.ctypes.data, gate, up, 0, up, gate, rows, dim,
                  2 * dim, C.F32)  # fmt: skip
    # One element too wide: the halves share a column.
    context.fails(C.ERROR_ALIASED, "overlaps", "cuda_swiglu_backward", dy.ctypes.data, gate, up, 0, gate, up, rows - 1,
                  dim + 1, 2 * dim, C.F32)  # fmt: skip


def test_queries_and_keys_inside_fused_rows(context):
    """q [tokens, 4, 8] and k [tokens, 2, 8] inside rows of q, k and v."""
    tokens, heads, kv_heads, head_dim = 3, 4, 2, 8
    ld = (heads + 2 * kv_heads) * head_dim
    rows = np.ones((tokens, ld), np.float32)
    tables = np.ones((1, head_dim // 2), np.float32)
    positions = np.zeros(tokens, np.int32)

    def call(k_offset: int) -> int:
        return context.call("cuda_rope_qk", rows.ctypes.data, rows.ctypes.data + 4 * k_offset, tables.ctypes.data,
                            tables.ctypes.data, positions.ctypes.data, tokens, heads, kv_heads, head_dim, 1, ld, ld,
                            C.ROPE_HALF, C.F32)  # fmt: skip

    assert call(heads * head_dim) == C.SUCCESS
    assert (rows[:, (heads + kv_heads) * head_dim :] == 1).all()
    assert call(heads * head_dim - 1) == C.ERROR_ALIASED
    assert call((heads + kv_heads) * head_dim) == C.SUCCESS
    # Keys that begin in the row's last kv_heads * head_dim - 1 elements run into the next row's queries.
    assert call((heads + kv_heads) * head_dim + 1) == C.ERROR_ALIASED


def test_neighbours_in_one_buffer(context):
    """Tensors that touch but do not overlap."""
    buffer = np.ones(30, np.float32)
    base = buffer.ctypes.data
    for n in (1, 7, 15):
        context.ok("cuda_add", base, base, base + 4 * n, n, C.F32)
        context.ok("cuda_add", base + 4 * n, base, base, n, C.F32)
    context.fails(C.ERROR_ALIASED, "y overlaps a", "cuda_add", base, base, base + 4 * 14, 15, C.F32)
