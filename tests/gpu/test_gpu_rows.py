"""The kernels that are bound by memory, beside the CPU engine, over sizes that take every path through them.

The fixtures hold both engines to the exact results; here a size that takes a wrong path is wrong by far more than a few
roundings. What is defined to the bit (random numbers, sums in the order of tokens, rates) is equal to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nncuda
from nncuda import kernels

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
#: Columns on both sides of each limit between the forms of a row, even and odd.
COLUMNS = (1, 2, 16, 31, 32, 33, 64, 65, 256, 257, 1000, 1024, 1025, 8192, 8193, 20000, 33001)


@pytest.fixture(scope="module")
def cpu() -> Iterator[nncuda.Context]:
    with nncuda.Context("cpu") as ctx:
        yield ctx


def placed(ctx: nncuda.Context, array: np.ndarray, shift: int) -> nncuda.Tensor:
    """A copy that begins `shift` elements behind an aligned address."""
    memory = ctx.tensor(np.concatenate([np.zeros(shift, array.dtype), array.reshape(-1)]))
    return memory.narrow(0, shift, array.size).view(*array.shape)


def run(
    ctx: nncuda.Context, kernel: str, arrays: tuple[np.ndarray, ...], shift: int, **options: Any
) -> list[np.ndarray]:
    """What the kernel returns, and the arguments as they are afterwards."""
    tensors = [None if array is None else placed(ctx, array, shift) for array in arrays]
    out = getattr(kernels, kernel)(*tensors, **options)
    out = out if isinstance(out, tuple) else (out,)
    ctx.synchronize()
    return [tensor.numpy() for tensor in (*out, *tensors) if tensor is not None]


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64)


def compare(
    gpu: nncuda.Context,
    cpu: nncuda.Context,
    kernel: str,
    *arrays: Any,
    dtype: str,
    exact: bool = False,
    terms: int = 1,
    scale: float = 0.0,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Aligned and not: the same bits, near those of the CPU, or equal to them.

    Near: a few roundings of the largest element, or of `scale`, the size of what cancels in it; and, where the engines
    add up `terms` numbers in different orders, their errors' random walk.
    """
    options = {**(options or {}), **more}
    expected = run(cpu, kernel, arrays, 0, **options)
    got, shifted = (run(gpu, kernel, arrays, shift, **options) for shift in (0, 1))
    for want, have, other in zip(expected, got, shifted, strict=True):
        assert have.dtype == want.dtype and have.shape == want.shape
        assert have.tobytes() == other.tobytes(), "alignment changes bits"
        if exact or have.dtype.kind == "i":
            assert have.tobytes() == want.tobytes()
        else:
            rounding = ROUNDING[dtype] if have.dtype == DTYPES[dtype] else 2.0**-24
            largest = np.abs(wide(want))[np.isfinite(wide(want))].max()
            bound = (8 * rounding + math.sqrt(terms) * 2.0**-24) * max(largest, scale)
            np.testing.assert_allclose(wide(have), wide(want), rtol=0, atol=bound)


def one(value: float, dtype: Any = np.int32) -> np.ndarray:
    return np.array([value], dtype)


def numbers(seed: int, shape: Any, dtype: str) -> np.ndarray:
    """Between 1/2 and 2 in size: a row of nearly nothing but zeros has a norm whose gradient is ill-conditioned."""
    random = np.random.default_rng(seed)
    return (random.uniform(0.5, 2, shape) * random.choice([-1.0, 1.0], shape)).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_rows(gpu: nncuda.Context, cpu: nncuda.Context, columns: int, dtype: str) -> None:
    rows = 37 if columns < 2000 else 3
    x, y, z = (numbers(seed, (rows, columns), dtype) for seed in range(3))
    weight = numbers(3, columns, dtype)
    compare(gpu, cpu, "softmax", x * DTYPES[dtype](3), dtype=dtype, terms=columns)
    (p,) = run(cpu, "softmax", (x,), 0)[:1]
    compare(gpu, cpu, "softmax_backward", y, p, dtype=dtype)
    options = {"terms": columns, "options": {"eps": 1e-6, "rstd": True}}
    compare(gpu, cpu, "rmsnorm", x, weight, dtype=dtype, **options)
    compare(gpu, cpu, "rmsnorm_residual", x, y, weight, dtype=dtype, **options)
    rstd = run(cpu, "rmsnorm", (x, weight), 0, eps=1e-6, rstd=True)[1]
    dweight = numbers(4, columns, "f32")
    for dresidual in (z, None):
        arrays = (y, x, weight, rstd, dresidual, dweight)
        compare(gpu, cpu, "rmsnorm_backward", *arrays, dtype=dtype, terms=columns, scale=8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_gradient_over_many_rows(gpu: nncuda.Context, cpu: nncuda.Context, dtype: str) -> None:
    rows, columns = 8300, 20  # more than 8 rows a piece
    x, y, weight = numbers(0, (rows, columns), dtype), numbers(1, (rows, columns), dtype), numbers(2, columns, dtype)
    rstd = run(cpu, "rmsnorm", (x, weight), 0, eps=1e-6, rstd=True)[1]
    arrays = (y, x, weight, rstd, None, np.zeros(columns, np.float32))
    compare(gpu, cpu, "rmsnorm_backward", *arrays, dtype=dtype, terms=rows, scale=math.sqrt(rows))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("experts", "k"), [(2, 1), (16, 4), (17, 3), (64, 6), (65, 64), (257, 8), (1024, 64), (1025, 9)]
)
def test_router(gpu: nncuda.Context, cpu: nncuda.Context, experts: int, k: int, dtype: str) -> None:
    x = numbers(0, (21, experts), dtype)
    x[3], x[5, 0] = 1, -np.inf  # all alike; one that cannot be
    for norm in (False, True):
        compare(gpu, cpu, "softmax_topk", x, dtype=dtype, k=k, norm=norm)
        weights, indices, probs = run(cpu, "softmax_topk", (x,), 0, k=k, norm=norm)[:3]
        dweights, dprobs = numbers(1, weights.shape, "f32"), numbers(2, probs.shape, "f32")
        for more in (dprobs, None):
            arrays = (dweights, weights, indices, probs, more)
            compare(gpu, cpu, "softmax_topk_backward", *arrays, dtype=dtype, options={"norm": norm, "dtype": dtype})
    x[4, 1] = np.nan  # nothing of its row is valid, yet the columns are different ones
    assert sorted(run(gpu, "softmax_topk", (x[4:5],), 0, k=k)[1][0].tolist()) == list(range(k))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", (1, 2, 50, 1000, 4096, 4097, 16385, 50257))
def test_cross_entropy(gpu: nncuda.Context, cpu: nncuda.Context, vocab: int, dtype: str) -> None:
    rows = 1100 if vocab == 2 else 5
    logits = numbers(0, (rows, vocab), dtype) * DTYPES[dtype](4)
    targets = np.random.default_rng(1).integers(0, vocab, rows).astype(np.int32)
    targets[[0, -1]] = -100, vocab - 1
    compare(gpu, cpu, "cross_entropy_forward", logits, targets, dtype=dtype, terms=vocab, losses=True)
    lse = run(cpu, "cross_entropy_forward", (logits, targets), 0)[0]
    compare(gpu, cpu, "cross_entropy_backward", logits, targets, lse, np.float32([0.5]), dtype=dtype)


@pytest.mark.parametrize(("tokens", "experts"), [(1, 1), (77, 3), (5000, 16), (3, 9000)])
def test_auxiliary_loss(gpu: nncuda.Context, cpu: nncuda.Context, tokens: int, experts: int) -> None:
    probs = np.random.default_rng(0).random((tokens, experts), np.float32)
    counts = np.random.default_rng(1).integers(0, tokens, experts, endpoint=True).astype(np.int32)
    compare(gpu, cpu, "aux_loss_forward", probs, counts, np.float32([2]), dtype="f32", alpha=0.5)
    compare(gpu, cpu, "aux_loss_backward", counts, np.float32([3]), dtype="f32", alpha=0.5, tokens=tokens)


@pytest.mark.parametrize("n", [1, 33, 1024, 5000])
def test_weighted_mean(gpu: nncuda.Context, cpu: nncuda.Context, n: int) -> None:
    x = np.random.default_rng(0).random(n, np.float32)
    weights = np.random.default_rng(1).integers(0, 99, n).astype(np.int32)
    for given in (weights, None):
        compare(gpu, cpu, "weighted_mean", x, given, dtype="f32", divisor=3 * n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "vocab", "dim"),
    [(1, 1, 1), (300, 7, 33), (5000, 600, 8), (2049, 300000, 5), (70, 40, 768), (70000, 3, 1)],
)
def test_embedding_and_its_gradient(
    gpu: nncuda.Context, cpu: nncuda.Context, tokens: int, vocab: int, dim: int, dtype: str
) -> None:
    """Sums in the order of the tokens, to the bit: many ids, few, and one that a third of the tokens have."""
    random = np.random.default_rng(0)
    ids = random.integers(0, vocab, tokens).astype(np.int32)
    ids[::3] = vocab // 2
    table, x = numbers(1, (vocab, dim), "f32"), numbers(2, (tokens, dim), dtype)
    compare(gpu, cpu, "embedding", table.astype(DTYPES[dtype]), ids, dtype=dtype, exact=True)
    compare(gpu, cpu, "scatter_add", x, ids, table, dtype=dtype, exact=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ("half", "interleaved"))
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(1, 1, 2), (3, 1, 16), (5, 2, 20), (2, 2, 128)])
def test_rope(
    gpu: nncuda.Context, cpu: nncuda.Context, heads: int, kv_heads: int, head_dim: int, layout: str, dtype: str
) -> None:
    cosine, sine = (
        t.numpy() for t in kernels.rope_freqs(positions=40, head_dim=head_dim, first=10**6, ctx=cpu, base=5e5)
    )
    again = [t.numpy() for t in kernels.rope_freqs(positions=40, head_dim=head_dim, first=10**6, ctx=gpu, base=5e5)]
    for want, have in zip((cosine, sine), again, strict=True):
        np.testing.assert_allclose(have, want, rtol=0, atol=2.0**-23)
    q, k = numbers(0, (29, heads, head_dim), dtype), numbers(1, (29, kv_heads, head_dim), dtype)
    positions = np.random.default_rng(2).integers(0, 40, 29).astype(np.int32)
    tables = (cosine, sine, positions)
    for kernel, arrays in (("rope_qk", (q, k)), ("rope_forward", (q,)), ("rope_backward", (q,))):
        compare(gpu, cpu, kernel, *arrays, *tables, dtype=dtype, layout=layout)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 3, 8, 1001, 70000))
def test_optimizer(gpu: nncuda.Context, cpu: nncuda.Context, n: int, dtype: str) -> None:
    grad, param, m = (numbers(seed, n, "f32") for seed in range(3))
    v, step = np.abs(numbers(3, n, "f32")), np.int32([7])
    options = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "n_decay": n // 2}
    for skip in (0, 1):
        arrays = (grad, np.float32([1e-3]), step, np.float32([0.5]), np.int32([skip]), param, m, v)
        compare(gpu, cpu, "adamw_step", *arrays, dtype="f32", **options)
    options |= {"dtype": dtype, "param_copy": True}
    compare(gpu, cpu, "adamw_step", *arrays[:3], None, None, *arrays[5:], dtype=dtype, options=options)
    grad = grad.astype(DTYPES[dtype])
    compare(gpu, cpu, "grad_norm", grad, dtype=dtype)
    for norm in (0.5, 20.0, np.inf, np.nan):
        arrays = (np.float32([norm]), np.float32([4]), grad)
        got, want = (run(ctx, "grad_clip", arrays, 0, max_norm=1.0) for ctx in (gpu, cpu))
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(wide(one), wide(other))


def test_schedule(gpu: nncuda.Context, cpu: nncuda.Context) -> None:
    options = {"warmup": 5, "total": 40, "max_lr": 3e-4, "min_lr": 3e-5}
    for before in range(45):
        compare(gpu, cpu, "lr_schedule", one(0), one(before), dtype="f32", exact=True, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 5, 4096, 10007))
def test_random_numbers(gpu: nncuda.Context, cpu: nncuda.Context, n: int, dtype: str) -> None:
    """To the bit: a model made on a GPU is the one made on the CPU."""
    key = {"seed": -(2**62) + 5, "stream": 3, "offset": 2**32 - 2}
    for kernel, options in (("uniform", {"low": -2.5, "high": 7.0}), ("normal", {"mean": 0.5, "std": 0.02})):
        for shift in (0, 1):
            made = []
            for ctx in (gpu, cpu):
                y = ctx.empty(n + shift, dtype=dtype).narrow(0, shift, n)
                getattr(kernels, kernel)(y, **key, **options)
                made.append(y.numpy().tobytes())
            assert made[0] == made[1]
    words = [kernels.random_bits(n=n, ctx=ctx, **key).numpy() for ctx in (gpu, cpu)]
    assert np.array_equal(*words)


ROW = np.ones((4, 6), np.float32)
BAD = {
    "embedding": ((ROW, np.int32([0, 3, 4, 1])), {}),
    "scatter_add": ((ROW, np.int32([0, 3, -1, 1]), ROW), {}),
    "rope_forward": ((ROW.reshape(4, 1, 6), ROW[:, :3], ROW[:, :3], np.int32([0, 1, 4, 3])), {}),
    "rope_qk": ((ROW.reshape(4, 1, 6), ROW.reshape(4, 1, 6), ROW[:, :3], ROW[:, :3], np.int32([0, 1, -7, 3])), {}),
    "cross_entropy_forward": ((ROW, np.int32([0, -100, 6, 3])), {}),
    "cross_entropy_backward": ((ROW, np.int32([0, -1, -100, 3]), ROW[:, 0], one(1, np.float32)), {}),
    "softmax_topk_backward": (
        (ROW[:, :2], ROW[:, :2], np.int32([[0, 1], [5, 4], [3, 6], [1, 2]]), ROW),
        {"dtype": "f32"},
    ),
    "increment": ((np.int32([0, -5, -(2**31) + 6, 3]),), {"by": -7}),
    "lr_schedule": ((None, one(2**31 - 1)), {"warmup": 1, "total": 2, "max_lr": 1, "min_lr": 0}),
    "adamw_step": (
        (ROW[0], one(1, np.float32), one(-(2**31)), None, None, ROW[0], ROW[1], ROW[2]),
        {"beta1": 0.5, "beta2": 0.5, "eps": 1, "weight_decay": 0, "n_decay": 0},
    ),
}


@pytest.mark.parametrize("kernel", BAD)
def test_bad_indices_are_told_in_the_words_of_the_cpu(gpu: nncuda.Context, cpu: nncuda.Context, kernel: str) -> None:
    arrays, options = BAD[kernel]
    said = []
    for ctx in (gpu, cpu):
        with pytest.raises(nncuda.Error) as caught:
            run(ctx, kernel, arrays, 0, **options)
        said.append(str(caught.value))
    assert said[0] == said[1]
    gpu.synchronize()  # it is told once
