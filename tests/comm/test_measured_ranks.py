"""Ranks of contexts that measure: no peer is there, and what would be sent is counted."""

from __future__ import annotations

import pytest
from ranks import gradients, job, summed

import nncuda

REPLICAS, GRAIN, N = 8, 32768, 3 * 32768 + 500


def sent(comm: nncuda.Comm) -> list[int]:
    """Bytes behind each collective."""
    ctx, counts = comm.ctx, []
    *aside, total = summed(ctx, gradients(REPLICAS, N), *nncuda.shard(REPLICAS, 1, comm.ranks, comm.rank))
    partials = ctx.empty((len(aside), N)) if aside else None
    shards = nncuda.expert_shards(N, GRAIN, comm.ranks)
    for call in (
        lambda: comm.broadcast(total, comm.ranks - 1),
        lambda: comm.all_gather(total, 4 * GRAIN),
        lambda: comm.all_reduce(ctx.zeros(77)),
        lambda: comm.reduce_scatter(partials, total, shards, REPLICAS),
        lambda: comm.grad_norm(total, ctx.empty(1), shards),
        lambda: comm.sum(1),
    ):
        before = comm.bytes_sent
        call()
        counts.append(comm.bytes_sent - before)
    return counts


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_what_would_be_sent_is_counted(ranks: int) -> None:
    measured = []
    for rank in range(ranks):
        with nncuda.Context.measuring("cpu", threads=1) as ctx:
            comm = nncuda.Comm(ctx, "self", rank=rank, ranks=ranks)
            before = comm.bytes_sent
            measured.append(sent(comm))
            assert comm.bytes_sent - before == sum(measured[-1])
    assert measured == job(ranks, sent)
    assert ranks == 1 or min(sum(counts[2:]) for counts in measured) > 0


def test_a_gpu_sends_as_much_but_for_its_norm() -> None:
    """Sums of squares are of larger chunks there, so fewer of them travel."""
    found = []
    for device in ("cpu", "cuda"):
        with nncuda.Context.measuring(device, capability=90 if device == "cuda" else None) as ctx:
            found.append(sent(nncuda.Comm(ctx, "self", rank=1, ranks=3)))
    cpu, gpu = found
    assert 0 < gpu[4] < cpu[4] and gpu[:4] + gpu[5:] == cpu[:4] + cpu[5:]
