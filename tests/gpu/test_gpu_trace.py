"""The traces that look for faults, on values that the host must fetch, and between a GPU and the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import nncuda
from nncuda import kernels


def test_the_first_value_that_is_not_finite(gpu: nncuda.Context) -> None:
    x = gpu.tensor([[1.0, 2.0], [3.0, np.inf]])
    with gpu.trace_nonfinite() as trace:
        kernels.softmax(x)
    found = trace.found
    assert found is not None and (found.argument, found.index, found.address) == ("x", (1, 1), x.ptr + 12)
    a, c = gpu.tensor(np.full((2, 2), 1e30, np.float32)), gpu.empty((2, 2))
    for _ in range(2):  # the second time the memory has it already
        with gpu.trace_nonfinite() as trace:
            kernels.gemm(a, a, c=c)
        assert trace.found is not None and (trace.found.index, trace.found.value) == ((0, 0), np.inf)
        assert trace.found.written


def test_what_a_kernel_leaves_alone(gpu: nncuda.Context) -> None:
    """It has what it had, whatever the traces do with it meanwhile."""
    x, weight = gpu.tensor(np.ones((2, 4), np.float32)), gpu.tensor(np.ones((1, 4, 4), np.float32))
    offsets = gpu.tensor(np.array([0, 1], np.int32))
    for value in (7, np.nan):
        y = gpu.tensor(np.full((2, 4), value, np.float32))
        with gpu.trace_nonfinite() as trace:
            kernels.grouped_gemm(x, weight, offsets, c=y, trans_b=True)
        assert trace.found is None
        with nncuda.Context() as reference, gpu.shadow(reference) as run:
            kernels.grouped_gemm(x, weight, offsets, c=y, trans_b=True)
        assert (run.compared, run.over, run.largest) == (1, 0, None)
        np.testing.assert_array_equal(y.numpy(), [[4.0] * 4, [value] * 4])


def test_a_shadow_run_either_way(gpu: nncuda.Context) -> None:
    array = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)
    with nncuda.Context() as cpu:
        for ctx, reference in ((gpu, cpu), (cpu, gpu)):
            x = ctx.tensor(array)
            with ctx.shadow(reference) as run:
                kernels.gemm(x, x, trans_b=True)
                kernels.softmax(x, y=x)
            assert (run.compared, run.over) == (2, 0) and all(kernel.why is None for kernel in run.kernels)
            assert reference.bytes_used == 0


def test_tf32_is_beyond_the_bound_of_f32(gpu: nncuda.Context) -> None:
    if int(gpu.isa.removeprefix("sm_")) < 80:
        pytest.skip("no TF32 before sm_80")
    x = gpu.tensor(np.random.default_rng(1).standard_normal((128, 128)).astype(np.float32))
    gpu.tf32 = True
    with nncuda.Context() as reference, gpu.shadow(reference) as run:
        gpu.label("lm_head")
        kernels.gemm(x, x, trans_b=True)
    first = run.first
    assert run.over == 1 and first is not None and first == run.largest
    assert (first.kernel, first.argument, first.label) == ("cuda_gemm", "c", "lm_head") and 1 < first.share < 1000
    assert first.share == pytest.approx(abs(first.value - first.reference) / first.bound, rel=1e-4)
