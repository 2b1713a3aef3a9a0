"""What is defined to the bit is to the bit what the CPU gives: sums in the order of tokens, rates, random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from devices import DTYPES, placed

import nncuda
from nncuda import kernels

SIZES = ((1, 1, 1), (300, 7, 33), (5000, 600, 8), (2049, 300000, 5), (70, 40, 768), (70000, 3, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "vocab", "dim"), SIZES)
def test_sums_in_the_order_of_tokens(
    gpu: nncuda.Context, cpu: nncuda.Context, tokens: int, vocab: int, dim: int, dtype: str
) -> None:
    """Many ids, few, and one that a third of the tokens have."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, vocab, tokens).astype(np.int32)
    ids[::3] = vocab // 2
    table, x = rng.standard_normal((vocab, dim), np.float32), rng.standard_normal((tokens, dim)).astype(DTYPES[dtype])
    found = set()
    for ctx, shift in ((cpu, 0), (gpu, 0), (gpu, 1)):
        sums = placed(ctx, table, shift)
        kernels.scatter_add(placed(ctx, x, shift), placed(ctx, ids, shift), sums)
        found.add(sums.numpy().tobytes())
    assert len(found) == 1


def test_schedule(gpu: nncuda.Context, cpu: nncuda.Context) -> None:
    options = {"warmup": 5, "total": 40, "max_lr": 3e-4, "min_lr": 3e-5}
    for before in range(45):
        found = set()
        for ctx in (cpu, gpu):
            skip, step = (ctx.tensor(np.array([value], np.int32)) for value in (0, before))
            lr = kernels.lr_schedule(skip, step, **options)
            found.add((lr.item(), step.item()))
        assert len(found) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (1, 5, 4096, 10007))
def test_random_numbers(gpu: nncuda.Context, cpu: nncuda.Context, n: int, dtype: str) -> None:
    """A model made on a GPU is the one made on the CPU."""
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
