"""A context that measures counts the memory that the GPU takes, for every fixture and for graphs."""

from __future__ import annotations

import pytest
from beside import BY_KERNEL

import nncuda
from nncuda import kernels
from nncuda.golden import Runner


@pytest.mark.usefixtures("found")
@pytest.mark.parametrize("kernel", BY_KERNEL, ids="/".join)
def test_the_memory_of_the_real_call(kernel: tuple[str, str]) -> None:
    for fixture in BY_KERNEL[kernel]:
        with Runner("cuda") as real, Runner.measuring(real) as measuring:
            assert measuring.memory(fixture) == real.memory(fixture), fixture.id


def memory_of(ctx: nncuda.Context) -> tuple[int, ...]:
    return ctx.bytes_used, ctx.bytes_peak, ctx.bytes_pooled, ctx.bytes_arena


def test_buffers_and_graphs(gpu: nncuda.Context) -> None:
    """Blocks of every kind of size, given back and taken again; a graph keeps the workspace of its calls."""
    capability = int(gpu.isa.removeprefix("sm_"))
    with nncuda.Context.measuring("cuda", capability=capability, multiprocessors=gpu.multiprocessors) as measuring:
        for ctx in (gpu, measuring):
            ctx.trim()
            ctx.reset_peak()
        seen: list[list[tuple[int, ...]]] = []
        for ctx in (gpu, measuring):
            steps = []
            for size in (1, 300, 70_000, 5_000_000, 3_000_000, 70_001):
                tensor = ctx.zeros((size,))
                steps.append(memory_of(ctx))
                del tensor
            x = ctx.zeros((100_000,))
            with ctx.capture() as graph:
                kernels.grad_norm(x)
            steps.append(memory_of(ctx))
            graph.launch()
            graph.close()
            steps.append(memory_of(ctx))
            seen.append(steps)
            del x
        assert seen[0] == seen[1]
