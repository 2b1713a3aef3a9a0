"""Gradients of attention in 16 bits over several tiles of keys and rows, in pieces and with groups of any size.

On sm_90a blocks add to the same sums of dQ one after another: which begin when must not show.
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
from nncuda.reference import attention as reference

#: batch, q_len, kv_len, heads, kv_heads, head_dim, causal. Tiles have 128 or 64 keys, and 64 to 128 rows: those of all
#: heads of a group. From 4096 rows on they are cut into pieces (by mma from 1024), or the heads of a group taken in
#: shares, and from 512 keys on P and dS have one part.
SHAPES = (
    (2, 150, 150, 2, 1, 64, 1),
    (1, 70, 290, 3, 1, 128, 1),
    (1, 200, 130, 2, 2, 72, 1),
    (1, 40, 260, 5, 1, 40, 0),
    (1, 148, 135, 14, 2, 64, 0),
    (1, 60, 513, 2, 1, 64, 1),
    (1, 33, 600, 1, 1, 128, 0),
    (1, 2050, 130, 2, 1, 64, 1),
    (2, 1100, 140, 4, 1, 128, 0),
)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_backward_over_tiles(runner: Runner, shape: tuple[int, ...], dtype: str) -> None:
    """By the rule of the golden fixtures."""
    cases = [case for case in attention.of_shape(dtype, *shape) if case.kernel == "flash_attention_backward"]
    assert cases
    for case in cases:
        problems = [str(outcome) for outcome in runner.run(fixture(case)) if outcome.problem]
        assert not problems, "\n".join(problems)


RESULTS = ("dq", "dk", "dv")
Call = tuple[int, int, int, int, int, int, int, tuple[int, ...] | None]
#: The same, with documents; with heads that are more than a tile's rows; with rows that see nothing.
CALLS: tuple[Call, ...] = (
    (2, 300, 300, 2, 1, 64, 1, (70, 71, 256)),
    (1, 290, 290, 3, 3, 128, 1, (128, 200)),
    (1, 66, 140, 64, 1, 64, 0, None),
    (1, 9, 140, 80, 1, 128, 1, None),
    (1, 400, 130, 1, 1, 128, 1, None),
    (1, 200, 520, 1, 1, 64, 1, None),
)


def gradients(gpu: nncuda.Context, dtype: str, call: Call) -> dict[str, np.ndarray]:
    """With what they are of: dout, q, k, v, out and lse."""
    batch, q_len, kv_len, heads, kv_heads, dim, causal, begins = call
    draw = np.random.default_rng(1).standard_normal
    sizes = ((q_len, heads), (kv_len, kv_heads), (kv_len, kv_heads), (q_len, heads))
    q, k, v, dout = (gpu.tensor(draw((batch * n, h, dim)).astype(np.float32), dtype) for n, h in sizes)
    starts = None
    if begins is not None:
        starts = gpu.tensor(attention.starts_of([begins] * batch, q_len), "i32")
    options = {"batch": batch, "q_len": q_len, "kv_len": kv_len, "causal": bool(causal)}
    out, lse = kernels.flash_attention(q, k, v, starts, lse=True, **options)
    dq, dk, dv = kernels.flash_attention_backward(dout, q, k, v, out, lse, starts, causal=bool(causal))
    tensors = {"dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def test_digests_of_backward(gpu: nncuda.Context, same_digests: SameDigests) -> None:
    """The bits that another run, with --digests and the same file, had, in any order, on a GPU of any size."""
    found = {
        f"{dtype} {call}: {name}": hashlib.sha256(array.tobytes()).hexdigest()
        for dtype in ("f16", "bf16")
        for call in CALLS
        for name, array in gradients(gpu, dtype, call).items()
        if name in RESULTS
    }
    same_digests("-backward", found)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_same_gradients_again(gpu: nncuda.Context, call: Call) -> None:
    first, second = gradients(gpu, "bf16", call), gradients(gpu, "bf16", call)
    for name in RESULTS:
        assert np.isfinite(first[name].astype(np.float32)).all(), name
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_rows_that_see_nothing_have_no_gradient(gpu: nncuda.Context) -> None:
    """Whole tiles of them, to whose sums nothing is added."""
    dq = gradients(gpu, "bf16", (2, 400, 130, 2, 1, 64, 1, None))["dq"].reshape(2, 400, 2, 64)
    assert not dq[:, :270].any()
    assert dq[:, 271:].astype(np.float32).any(axis=(2, 3)).all()  # the first that sees one key has no gradient either


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_two_parts_on_request(gpu: nncuda.Context, dtype: str) -> None:
    """They change nothing but long sequences on Hopper, which they bring closer."""
    short, long = (1, 60, 511, 1, 1, 64, 1, None), (1, 60, 512, 1, 1, 64, 1, None)
    before = {call: gradients(gpu, dtype, call) for call in (short, long)}
    assert not gpu.two_parts
    gpu.two_parts = True
    after = {call: gradients(gpu, dtype, call) for call in (short, long)}
    changed = gpu.isa == "sm_90"
    exact = {name: x.astype(np.float64) for name, x in before[long].items()}
    wanted = reference.flash_attention_backward(
        *(exact[name] for name in ("dout", "q", "k", "v", "out", "lse")), 1, 64**-0.5, 1
    )
    for name in RESULTS:
        np.testing.assert_array_equal(before[short][name], after[short][name], err_msg=name)
        assert np.array_equal(before[long][name], after[long][name]) != changed, name
        one, two = (np.abs(found[long][name].astype(np.float64) - wanted[name]).mean() for found in (before, after))
        assert two < 0.95 * one if changed else two == one, name


@pytest.mark.parametrize("seed", range(3))
def test_starts_that_are_none_do_not_stop_it(gpu: nncuda.Context, seed: int) -> None:
    """Whatever they are, no tile of keys waits for one that does not come."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(-500, 900, (1, 400)).astype(np.int32)
    x = gpu.tensor(rng.standard_normal((400, 1, 64)).astype(np.float32), "bf16")
    lse = gpu.tensor(np.ones((1, 1, 400), np.float32))
    kernels.flash_attention_backward(x, x, x, x, x, lse, gpu.tensor(starts), causal=True)
    with pytest.raises(nncuda.OutOfRangeError, match=r"starts\[\d+\] is -?\d+; it must be"):
        gpu.synchronize()
