"""Collectives are calls like kernels: captured, measured, profiled and traced."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import gradients, job, tree_sum

import nncuda
from nncuda import kernels

N, REPLICAS, GRAIN = 70_000, 5, 32768


def step(comm: nncuda.Comm, partials: nncuda.Tensor | None, x: nncuda.Tensor, norm: nncuda.Tensor) -> None:
    """Every collective once, as a training step would have them."""
    shards = nncuda.expert_shards(N, GRAIN, comm.ranks)
    comm.reduce_scatter(partials, x, shards, REPLICAS)
    comm.grad_norm(x, norm, shards)
    comm.all_gather(x, 4 * GRAIN)
    kernels.scale(x, alpha=2.0, y=x)
    comm.all_reduce(norm)
    comm.broadcast(norm, comm.ranks - 1)


def memory(comm: nncuda.Comm) -> tuple[nncuda.Tensor | None, nncuda.Tensor, nncuda.Tensor]:
    """Sums over this rank's replicas, as far as the tree adds them up; here all are gradients of a replica."""
    first, last = nncuda.shard(REPLICAS, 1, comm.ranks, comm.rank)
    depth = 0
    for replica in range(first, last):
        depth += 1 - nncuda.replica_merges(REPLICAS, first, replica)
    ctx = comm.ctx
    partials = ctx.empty((depth - 1, N)) if depth > 1 else None
    return partials, ctx.empty(N), ctx.empty(1)


def fill(partials: nncuda.Tensor | None, x: nncuda.Tensor, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for tensor in (x, partials):
        if tensor is not None:
            tensor.copy_(rng.standard_normal(tensor.shape).astype(np.float32))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_replay_has_the_bits_of_the_calls(ranks):
    def work(comm: nncuda.Comm) -> None:
        partials, x, norm = memory(comm)
        with comm.ctx.capture() as graph:
            step(comm, partials, x, norm)
        assert len(graph) == 6
        for seed in range(3):
            fill(partials, x, 10 * seed + comm.rank)
            step(comm, partials, x, norm)
            want = x.numpy(), norm.numpy()
            fill(partials, x, 10 * seed + comm.rank)
            graph.launch()
            np.testing.assert_array_equal(x.numpy(), want[0])
            np.testing.assert_array_equal(norm.numpy(), want[1])

    job(ranks, work)


def test_a_graph_keeps_its_communicator():
    def work(comm: nncuda.Comm) -> None:
        part = comm.split(0)
        x = comm.ctx.tensor([1.0])
        with comm.ctx.capture() as graph:
            part.all_reduce(x)
        del part
        comm.ctx.zeros(1)  # where what finalizers left would be freed
        graph.launch()
        assert x.item() == 2.0

    job(2, work)


def test_a_graph_of_a_closed_communicator_is_refused():
    def work(comm: nncuda.Comm) -> None:
        part = comm.split(0)
        x = comm.ctx.tensor([1.0])
        with comm.ctx.capture() as graph:
            part.all_reduce(x)
        part.close()
        parts = [comm.split(0) for _ in range(5)]  # none of which takes its place
        with pytest.raises(nncuda.ArgumentError, match="a communicator of this context that was not destroyed"):
            graph.launch()
        assert x.item() == 1.0
        for other in parts:
            other.close()

    job(2, work)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_a_context_that_measures_needs_no_peers(ranks):
    """It says what any rank of any number of ranks needs, workspaces included, and what it would send."""

    def needs(comm: nncuda.Comm) -> tuple[int, int, list[str]]:
        before = comm.bytes_sent
        with comm.ctx.profile() as profile:
            step(comm, *memory(comm))
        kernels = sorted(entry["kernel"] for entry in profile.json()["kernels"])
        return comm.ctx.bytes_peak, comm.bytes_sent - before, kernels

    real = job(ranks, needs)
    for rank in range(ranks):
        with nncuda.Context.measuring("cpu", threads=1) as ctx:
            comm = nncuda.Comm(ctx, "mpi", rank=rank, ranks=ranks)
            assert (comm.rank, comm.ranks) == (rank, ranks)
            comm.agree("step", "7")
            comm.barrier()
            assert needs(comm) == real[rank]


def test_a_trace_names_them():
    def work(comm: nncuda.Comm) -> list[str]:
        arguments = memory(comm)
        fill(*arguments[:2], seed=comm.rank)
        with comm.ctx.trace(2) as trace:
            step(comm, *arguments)
        return [
            name.partition("(")[0]
            for line in trace.lines
            for name in line.split()
            if name.startswith(("nncuda_", "cuda_"))
        ]

    assert set(map(tuple, job(2, work))) == {
        (
            "nncuda_comm_reduce_scatter",
            "nncuda_comm_grad_norm",
            "nncuda_comm_all_gather",
            "cuda_scale",
            "nncuda_comm_all_reduce",
            "nncuda_comm_broadcast",
        )
    }


def test_a_shadow_run_does_not_repeat_them():
    """A second time, on the reference, a collective would wait for peers that never come, and add twice."""
    g = gradients(2, N)

    def work(comm: nncuda.Comm) -> tuple[int, int, int]:
        ctx = comm.ctx
        x, norm = ctx.tensor(g[comm.rank]), ctx.empty(1)
        sent, shards = comm.bytes_sent, nncuda.expert_shards(N, GRAIN, 2)
        with nncuda.Context(threads=1, isa="baseline") as reference, ctx.shadow(reference) as run:
            comm.reduce_scatter(None, x, shards, 2)
            comm.all_gather(x, 4 * GRAIN)
            kernels.scale(x, alpha=2.0, y=x)
            comm.grad_norm(x, norm, shards)
        np.testing.assert_array_equal(x.numpy(), 2 * tree_sum(g))
        assert run.first is None and [kernel.kernel for kernel in run.kernels] == ["cuda_scale"]
        return run.moves, run.compared, comm.bytes_sent - sent

    shadowed = job(2, work)
    assert [found[:2] for found in shadowed] == [(3, 1)] * 2
    squares = -(-N // 16384)  # chunks, whose sums of squares grad_norm gathers, 8 bytes each
    assert sum(sent for *_, sent in shadowed) == 2 * 4 * N + 8 * squares


def test_what_came_from_a_peer_is_looked_at_where_it_is_used():
    """A collective moves bytes: the trace of values that are not finite blames the kernel that reads them."""

    def work(comm: nncuda.Comm) -> str:
        x = comm.ctx.tensor([1.0, np.nan if comm.rank == 1 else 2.0])
        with comm.ctx.trace_nonfinite() as trace:
            comm.all_reduce(x)
            kernels.scale(x, alpha=2.0, y=x)
        assert trace.found is not None
        return f"{trace.found.kernel} {trace.found.argument} {trace.found.written}"

    assert job(2, work) == ["cuda_scale x False"] * 2
