"""Sums over replicas that travel beside other work: the bits of those that are waited for, and failures meanwhile."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from ranks import failures, gradients, job, summed, tree_sum

import nncuda
from nncuda import kernels
from nncuda.device import Shard

N, BUCKET, GRAIN = 3000, 900, 64


def buckets(ranks: int) -> list[list[Shard]]:
    """The elements in pieces, the last of which come first, each dealt out among all ranks."""
    ends = [(max(0, end - BUCKET), end) for end in range(N, 0, -BUCKET)]
    return [
        [Shard(at, min(at + GRAIN, end), (at // GRAIN * 2 + 1) % ranks) for at in range(begin, end, GRAIN)]
        for begin, end in ends
    ]


def given(comm: nncuda.Comm, g: np.ndarray) -> tuple[nncuda.Tensor | None, nncuda.Tensor]:
    """What this rank has of the sums over the replicas of `g`."""
    *aside, x = summed(comm.ctx, g, *nncuda.shard(len(g), 1, comm.ranks, comm.rank))
    return comm.ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None, x


def room_for(comm: nncuda.Comm, *sums, **options) -> nncuda.Tensor:
    return comm.ctx.empty(comm.reduce_scatter_room(*sums, **options))


def wanted(g: np.ndarray, before: np.ndarray, shards: list[Shard], rank: int, wire: str = "f32") -> np.ndarray:
    after = before.copy()
    for begin, end, owner in shards:
        if owner == rank:
            after[begin:end] = tree_sum(g, wire)[begin:end]
    return after


@pytest.mark.parametrize("wire", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("ranks, replicas", [(1, 1), (2, 2), (2, 5), (3, 3), (3, 8), (5, 7), (8, 8)])
def test_the_bits_of_sums_that_are_waited_for(ranks, replicas, wire):
    """Several are under way at once, and others end before the last begin."""
    g = gradients(replicas, N)

    def work(comm: nncuda.Comm) -> None:
        one_replica = ranks == replicas  # else sums below a node are rounded as they come about
        aside, x = given(comm, g)
        before = x.numpy()
        waited = comm.ctx.tensor(before)
        parts = buckets(comm.ranks)
        rooms = [room_for(comm, aside, x, shards, replicas, wire) for shards in parts]
        for number, shards in enumerate(parts):
            comm.reduce_scatter_begin(aside, x, shards, replicas, wire, room=rooms[number])
            if number >= 2:
                comm.reduce_scatter_end(aside, x, parts[number - 2], replicas, wire, room=rooms[number - 2])
        for number in range(len(parts) - 2, len(parts)):
            comm.reduce_scatter_end(aside, x, parts[number], replicas, wire, room=rooms[number])
        for shards in parts:
            comm.reduce_scatter(aside, waited, shards, replicas, wire)
        np.testing.assert_array_equal(x.numpy().view(np.int32), waited.numpy().view(np.int32))
        if (wire == "f32" or one_replica) and ranks > 1:
            every = [shard for shards in parts for shard in shards]
            np.testing.assert_array_equal(x.numpy(), wanted(g, before, every, comm.rank, wire))

    job(ranks, work)


def test_a_captured_step():
    """Replayed with other numbers, of which some travel while others are computed."""
    ranks = 3

    def work(comm: nncuda.Comm) -> None:
        ctx = comm.ctx
        first, *rest = buckets(ranks)
        rest = sorted(shard for shards in rest for shard in shards)
        x, given = ctx.zeros(N), ctx.zeros(N)
        rooms = [room_for(comm, None, x, shards) for shards in (first, rest)]
        with ctx.capture() as captured:
            x.copy_(given)
            comm.reduce_scatter_begin(None, x, first, room=rooms[0])
            low = x.narrow(0, 0, rest[-1].end)
            kernels.add(low, low, y=low)
            comm.reduce_scatter_begin(None, x, rest, room=rooms[1])
            comm.reduce_scatter_end(None, x, first, room=rooms[0])
            comm.reduce_scatter_end(None, x, rest, room=rooms[1])
        for step in range(3):
            g = gradients(ranks, N) * np.float32(step + 1)
            given.copy_(g[comm.rank])
            captured.launch()
            g[:, : rest[-1].end] *= 2
            np.testing.assert_array_equal(x.numpy(), wanted(g, g[comm.rank], sorted(first + rest), comm.rank))
        captured.close()

    job(ranks, work)


def test_bytes_that_are_sent_are_those_of_sums_that_are_waited_for():
    def work(comm: nncuda.Comm) -> tuple[int, int]:
        aside, x = given(comm, gradients(5, N))
        shards = sorted(shard for shards in buckets(comm.ranks) for shard in shards)
        sums = aside, x, shards, 5
        before = comm.bytes_sent  # as ranks joined
        comm.reduce_scatter(*sums)
        waited = comm.bytes_sent - before
        room = room_for(comm, *sums)
        comm.reduce_scatter_begin(*sums, room=room)
        comm.reduce_scatter_end(*sums, room=room)
        return waited, comm.bytes_sent - before - waited

    for waited, begun in job(3, work):
        assert waited == begun > 0


def test_a_measured_step_needs_the_room():
    with nncuda.Context.measuring(threads=1) as ctx:
        comm = nncuda.Comm(ctx, "self", rank=1, ranks=4)
        x = ctx.zeros(N)
        room = room_for(comm, None, x, buckets(4)[0])
        assert room.size >= 3 * 192  # a shard of each other rank
        comm.reduce_scatter_begin(None, x, buckets(4)[0], room=room)
        comm.reduce_scatter_end(None, x, buckets(4)[0], room=room)
        assert comm.bytes_sent == 4 * sum(end - begin for begin, end, rank in buckets(4)[0] if rank != 1)


# ---- what is refused


def test_the_end_of_none():
    def work(comm: nncuda.Comm) -> None:
        x = comm.ctx.zeros(N)
        room = room_for(comm, None, x, buckets(2)[0])
        with pytest.raises(nncuda.StateError, match="no exchange of this communicator is under way"):
            comm.reduce_scatter_end(None, x, buckets(2)[0], room=room)
        assert comm.sum(1) == 2

    job(2, work)


def test_a_room_that_is_too_small():
    def work(comm: nncuda.Comm) -> None:
        x = comm.ctx.zeros(N)
        needed = comm.reduce_scatter_room(None, x, buckets(2)[0])
        sentence = f"room_size is {needed - 1}; these sums need {needed}"
        with pytest.raises(nncuda.ArgumentError, match=sentence):
            comm.reduce_scatter_begin(None, x, buckets(2)[0], room=comm.ctx.empty(needed - 1))
        with pytest.raises(nncuda.ArgumentError, match="room is null"):
            pointers = comm.ctx._handle, comm._pointer, comm.ctx._null, x._pointer, N, 0, 2
            flat = [number for shard in buckets(2)[0] for number in shard]
            shards = comm.ctx._ffi.new("int64_t[]", flat), len(flat) // 3, 0
            begin = comm.ctx._lib.nncuda_comm_reduce_scatter_begin
            comm.ctx._check(begin(*pointers, *shards, comm.ctx._null, needed))
        assert comm.sum(1) == 2

    job(2, work)


# ---- failures meanwhile


def test_a_rank_gives_up_while_sums_are_under_way():
    """The one whose sums nobody sends is told, whether it is in the whole that the others learn it or in a part."""

    def work(comm: nncuda.Comm) -> None:
        part = comm.part(0, 1, 3)
        x = comm.ctx.zeros(N)
        if comm.rank == 2:
            time.sleep(0.2)
            comm.abort("the disk is full")
            comm.barrier()
        room = room_for(part, None, x, buckets(3)[0])
        part.reduce_scatter_begin(None, x, buckets(3)[0], room=room)
        part.reduce_scatter_end(None, x, buckets(3)[0], room=room)

    assert failures(3, work, timeout=600) == ["rank 2: the disk is full"] * 3


@pytest.mark.parametrize("asks", [True, False])
def test_what_the_background_hears_is_told_in_the_parts(asks: bool) -> None:
    """Rank 1 waits in a part for rank 0, whose background alone hears why the whole is lost; then rank 0 leaves."""
    begun, lost = threading.Event(), threading.Event()

    def work(comm: nncuda.Comm) -> None:
        x = comm.ctx.zeros(N)
        part = comm.part(0, 1, 2) if comm.rank < 2 else None
        if comm.rank == 2:
            begun.wait(60)
            comm.abort("the disk is full")
            lost.set()
            comm.barrier()
        if comm.rank == 1:
            part.barrier()
        room = room_for(comm, None, x, buckets(3)[0])
        comm.reduce_scatter_begin(None, x, buckets(3)[0], room=room)
        begun.set()
        lost.wait(60)
        time.sleep(0.2)
        if asks:
            comm.reduce_scatter_begin(None, x, buckets(3)[0], room=room)

    told = failures(3, work, timeout=600)
    assert told[1:] == ["rank 2: the disk is full"] * 2 and told[0] == (told[1] if asks else "")


def test_a_rank_that_never_begins():
    def work(comm: nncuda.Comm) -> None:
        part = comm.part(0, 1, 2)
        x = comm.ctx.zeros(N)
        if comm.rank == 1:
            time.sleep(1.0)
            part.barrier()
        room = room_for(part, None, x, buckets(2)[0])
        part.reduce_scatter_begin(None, x, buckets(2)[0], room=room)
        part.reduce_scatter_end(None, x, buckets(2)[0], room=room)

    assert failures(2, work, timeout=0.3) == ["rank 1 did not answer within 0.3 s"] * 2


def test_who_leaves_while_sums_are_under_way_says_so():
    def work(comm: nncuda.Comm) -> None:
        part = comm.part(0, 1, 2)
        x = comm.ctx.zeros(N)
        if comm.rank == 1:
            comm.barrier()
        room = room_for(part, None, x, buckets(2)[0])
        part.reduce_scatter_begin(None, x, buckets(2)[0], room=room)
        part.close()
        comm.barrier()

    assert failures(2, work, timeout=600) == ["rank 0: it left while an exchange was under way"] * 2
