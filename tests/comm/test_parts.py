"""Parts of a job that their members know, sums over a range of elements, and pieces that move between ranks."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from ranks import failures, gradients, job, outcomes, summed, tree_sum

import nncuda
from nncuda import kernels
from nncuda.device import Shard

GRAIN = 1024


@pytest.fixture
def alone():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        yield comm


def at(comm: nncuda.Comm, rank: int, ranks: int) -> nncuda.Comm:
    """A rank of a job that is measured."""
    return nncuda.Comm(comm.ctx, "mpi", rank=rank, ranks=ranks)


# Parts


@pytest.mark.parametrize("ranks, group", [(1, 1), (2, 2), (4, 2), (6, 3), (6, 2), (8, 1)])
def test_groups_and_owners(ranks, group):
    """As a job with experts is cut: neighbours, and those with the same place among their neighbours."""

    def work(comm: nncuda.Comm) -> tuple[int, ...]:
        own, place = divmod(comm.rank, group)
        neighbours, owners = comm.part(own * group, 1, group), comm.part(place, group, ranks // group)
        found = (neighbours.rank, neighbours.ranks, owners.rank, owners.ranks)
        assert neighbours.sum(comm.rank) == sum(range(own * group, (own + 1) * group))
        assert owners.sum(comm.rank) == sum(range(place, ranks, group))
        return found

    assert job(ranks, work) == [(r % group, group, r // group, ranks // group) for r in range(ranks)]


def test_others_need_not_make_a_part():
    """Ranks that made more of them than others meet these all the same, and make the same part once more."""

    def work(comm: nncuda.Comm) -> int:
        total = 0
        if comm.rank < 2:
            with comm.part(0, 1, 2) as first, comm.part(0, 1, 2) as again:
                total += first.sum(1) + again.sum(1)
        if comm.rank != 1:
            total += comm.part(0, 2, 2).sum(10)
        return total + comm.part(0, 1, 3).split(0).sum(100) + comm.part(0, 1, 3).sum(1000)

    assert job(3, work) == [3324, 3304, 3320]


def test_measured_ranks_have_parts():
    with nncuda.Context.measuring("cpu", threads=1) as ctx:
        comm = nncuda.Comm(ctx, "self", rank=5, ranks=8)
        group, owners = comm.part(4, 1, 4), comm.part(1, 4, 2)
        assert (group.rank, group.ranks, owners.rank, owners.ranks) == (1, 4, 1, 2)
        before = owners.bytes_sent
        owners.broadcast(ctx.zeros(100), root=1)
        assert owners.bytes_sent - before == 400


@pytest.mark.parametrize(
    "first, step, count, sentence",
    [
        (-1, 1, 1, "first is -1; of 6 ranks it must be 0 to 5"),
        (6, 1, 1, "first is 6; of 6 ranks it must be 0 to 5"),
        (0, 0, 1, "step is 0; it must be at least 1"),
        (0, 2, 0, "count is 0; from rank 0 of 6 on, 2 apart, it must be 1 to 3"),
        (0, 2, 4, "count is 4; from rank 0 of 6 on, 2 apart, it must be 1 to 3"),
        (0, 2, 3, "this is rank 3, which is none of the 3 ranks, 2 apart, from rank 0 on"),
        (4, 1, 2, "this is rank 3, which is none of the 2 ranks, 1 apart, from rank 4 on"),
        (1, 1, 2, "this is rank 3, which is none of the 2 ranks, 1 apart, from rank 1 on"),
    ],
)
def test_parts_that_are_none(first, step, count, sentence):
    with nncuda.Context.measuring("cpu", threads=1) as ctx:
        comm = nncuda.Comm(ctx, "self", rank=3, ranks=6)
        with pytest.raises(nncuda.ArgumentError) as refused:
            comm.part(first, step, count)
        assert refused.value.message == f"nncuda_comm_part: {sentence}"


def test_a_part_while_capturing(alone):
    with alone.ctx.capture(), pytest.raises(nncuda.StateError, match="capturing a graph"):
        alone.part(0, 1, 1)


def test_members_that_mean_other_ranks():
    def work(comm: nncuda.Comm) -> None:
        comm.part(0, 1, 2 if comm.rank == 0 else 3)

    found = failures(3, work, timeout=5.0)
    assert found[0] == "rank 1 makes a part of 3 ranks, 1 apart, from rank 0 on; rank 0 of 2, 1 apart, from rank 0 on"
    assert all(found)


def test_a_member_that_does_not_come():
    done = threading.Event()

    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 1:
            done.wait(20)
        else:
            try:
                comm.part(0, 1, 2)
            finally:
                done.set()

    first, second = outcomes(2, work, timeout=0.3)
    assert isinstance(first, nncuda.PeerError) and "rank 1 did not answer within 0.3 s" in first.message
    assert second is None


# Sums over a range


def in_parts(ctx: nncuda.Context, values: np.ndarray, begin: int, end: int) -> nncuda.Tensor:
    """The elements begin .. end-1 of `values`, in memory that has no others but for the rest of their pages."""
    x = ctx.zeros_parts(values.shape, "f32", [(begin, end)])
    x[begin:end].copy_(np.ascontiguousarray(values[begin:end]))
    return x


def cut(shards: list[Shard], begin: int, end: int) -> list[Shard]:
    """What of them lies in a range."""
    ends = [Shard(max(begin, one.begin), min(end, one.end), one.rank) for one in shards]
    return [one for one in ends if one.begin < one.end]


@pytest.mark.parametrize("ranks, replicas", [(1, 3), (2, 2), (2, 5), (3, 4), (5, 9)])
def test_sums_over_a_range(ranks, replicas):
    """Those of all, for its elements; the rest stays."""
    n = 9 * GRAIN + 100
    g = gradients(replicas, n)
    ranges = [(0, n), (0, 1), (n - 1, n), (GRAIN, 2 * GRAIN), (GRAIN - 1, 2 * GRAIN + 1), (3000, 3001), (500, n - 500)]

    def work(comm: nncuda.Comm) -> None:
        ctx = comm.ctx
        for begin, end in ranges:
            *aside, x = summed(ctx, g, *nncuda.shard(replicas, 1, ranks, comm.rank))
            partials = ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None
            before = x.numpy()
            comm.reduce_scatter(partials, x, cut(nncuda.expert_shards(n, GRAIN, ranks), begin, end), replicas)
            own = nncuda.shard(n, GRAIN, ranks, comm.rank)
            first, last = max(begin, own[0]), min(end, own[1])
            if first < last:
                np.testing.assert_array_equal(x.numpy()[first:last], tree_sum(g)[first:last])
                before[first:last] = x.numpy()[first:last]
            np.testing.assert_array_equal(x.numpy(), before)

    job(ranks, work)


def test_what_takes_no_part_in_a_sum_is_not_touched():
    """There is no memory."""
    n, begin, end = 1_000_000, 300_000, 700_001
    g = gradients(3, n)

    def work(comm: nncuda.Comm) -> np.ndarray:
        *aside, total = summed(comm.ctx, g, *nncuda.shard(3, 1, 2, comm.rank))
        x = in_parts(comm.ctx, total.numpy(), begin, end)
        partials = in_parts(comm.ctx, aside[0].numpy(), begin, end) if aside else None
        with comm.ctx.trace(2), comm.ctx.profile() as profile:
            comm.reduce_scatter(partials, x, cut(nncuda.expert_shards(n, GRAIN, 2), begin, end), 3)
        (kernel,) = profile.json()["kernels"]
        assert kernel["bytes"] == (3 if aside else 2) * 4 * (end - begin)
        own = nncuda.shard(n, GRAIN, 2, comm.rank)
        return x[max(begin, own[0]) : min(end, own[1])].numpy()

    np.testing.assert_array_equal(np.concatenate(job(2, work)), tree_sum(g)[begin:end])


def test_ranges_travel_and_nothing_else():
    n = 8 * GRAIN

    def work(comm: nncuda.Comm) -> list[int]:
        counts = []
        for begin, end in ((0, n), (0, n // 2), (n // 2, n), (100, 200)):
            before = comm.bytes_sent
            comm.reduce_scatter(None, comm.ctx.zeros(n), cut(nncuda.expert_shards(n, GRAIN, 2), begin, end))
            counts.append(comm.bytes_sent - before)
        return counts

    assert job(2, work) == [[2 * n, 0, 2 * n, 0], [2 * n, 2 * n, 0, 400]]


# Pieces that move


def random_moves(ranks: int, nbytes: int, count: int, seed: int) -> list[tuple[int, int, int, int]]:
    """Neighbouring pieces, some of them empty, of which each goes from one rank to some others, or to itself."""
    random = np.random.default_rng(seed)
    ends = [0, *sorted(random.integers(0, nbytes + 1, count).tolist()), nbytes]
    moves = []
    for begin, end in itertools.pairwise(ends):
        sender = int(random.integers(ranks))
        receivers = random.permutation(ranks)[: random.integers(1, ranks + 1)].tolist()
        moves += [(begin, end, sender, receiver) for receiver in receivers]
    return moves


def moved(ranks: int, own: list[np.ndarray], moves: list[tuple[int, int, int, int]]) -> list[np.ndarray]:
    found = [values.copy() for values in own]
    for begin, end, sender, receiver in moves:
        found[receiver][begin:end] = own[sender][begin:end]
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_moves(ranks):
    nbytes = 10_001
    own = [np.random.default_rng(rank).integers(0, 256, nbytes).astype(np.uint8) for rank in range(ranks)]

    def work(comm: nncuda.Comm) -> None:
        for seed, count in enumerate((0, 1, 7, 100)):
            moves = random_moves(ranks, nbytes, count, seed)
            before = comm.bytes_sent
            x = comm.ctx.tensor(own[comm.rank])
            assert comm.move(x, moves) is x
            np.testing.assert_array_equal(x.numpy(), moved(ranks, own, moves)[comm.rank])
            sent = sum(end - begin for begin, end, a, b in moves if a == comm.rank != b)
            assert comm.bytes_sent - before == sent
        comm.move(x, [])
        comm.move(comm.ctx.zeros(0), [(0, 0, 0, ranks - 1)])

    job(ranks, work)


def test_captured_moves_keep_their_list():
    def work(comm: nncuda.Comm) -> list[float]:
        x = comm.ctx.tensor([10.0 * comm.rank + i for i in range(4)])
        moves = [(0, 4, 0, 1), (8, 12, 1, 0)]
        with comm.ctx.capture() as graph:
            comm.move(x, moves)
            kernels.scale(x, alpha=2.0, y=x)
        moves[:] = [(4, 8, 0, 1)] * 100
        for _ in range(2):
            graph.launch()
        return x.tolist()

    assert job(2, work) == [[0.0, 4.0, 48.0, 12.0], [0.0, 44.0, 48.0, 52.0]]


def test_moves_touch_their_pieces_alone():
    """Also while somebody looks: there is no other memory."""
    n, first, last = 1 << 20, 500_000, 600_000

    def work(comm: nncuda.Comm) -> list[float]:
        ctx = comm.ctx
        x = ctx.zeros_parts(n, "f32", [(first, last)])
        kernels.fill(x[first:last], value=float(comm.rank))
        moves = [(4 * first, 4 * (first + 50_000), 1, 0), (4 * (first + 50_000), 4 * last, 0, 1)]
        with ctx.trace(3) as trace, ctx.profile() as profile:
            comm.move(x, moves)
        assert trace.lines == [f"0 nncuda_comm_move(x: u8 [{4 * n}])"]
        assert profile.json()["kernels"][0]["bytes"] == 4 * (last - first)
        with ctx.trace_nonfinite() as search:
            comm.move(x, moves)
        assert search.found is None
        with nncuda.Context(threads=1) as reference, ctx.shadow(reference) as run:
            comm.move(x, moves)
        assert run.moves == 1
        return [x[i : i + 1].item() for i in (first, first + 49_999, first + 50_000, last - 1)]

    assert job(2, work) == [[1.0, 1.0, 0.0, 0.0]] * 2


@pytest.mark.parametrize(
    "move, sentence",
    [
        ((-1, 2, 0, 0), "move 1 is of the bytes -1 to 2; it must lie within the 8 bytes of x"),
        ((3, 2, 0, 0), "move 1 is of the bytes 3 to 2; it must lie within the 8 bytes of x"),
        ((3, 9, 0, 0), "move 1 is of the bytes 3 to 9; it must lie within the 8 bytes of x"),
        ((0, 1, 2, 0), "move 1 is from rank 2 to rank 0; of 2 ranks they must be 0 to 1"),
        ((0, 1, 0, -1), "move 1 is from rank 0 to rank -1; of 2 ranks they must be 0 to 1"),
    ],
)
def test_moves_that_are_none(move, sentence):
    def work(comm: nncuda.Comm) -> str:
        with pytest.raises(nncuda.ArgumentError) as refused:
            comm.move(comm.ctx.zeros(2), [(0, 4, 0, 1), move])
        assert comm.sum(1) == 2
        return str(refused.value.message)

    assert job(2, work) == [f"nncuda_comm_move: {sentence}"] * 2


def test_measured_moves_are_counted():
    with nncuda.Context.measuring("cuda", capability=90) as ctx:
        comm = nncuda.Comm(ctx, "self", rank=1, ranks=3)
        x = ctx.zeros_parts(1 << 20, "f32", [(0, 1000)])
        assert ctx.bytes_used == 4000
        comm.move(x, [(0, 100, 1, 0), (0, 100, 1, 2), (100, 300, 0, 1), (300, 400, 0, 2)])
        assert comm.bytes_sent >= 200
        before = comm.bytes_sent
        comm.move(x, [(0, 100, 1, 0), (100, 300, 0, 1)])
        assert comm.bytes_sent - before == 100


# ---- the whole and its parts are lost together, and ranks keep their names


def test_whoever_waits_in_a_part_is_told():
    """Rank 3 is rank 1 of the part in which rank 2 waits for it; ranks 0 and 1 wait in the whole and in theirs."""

    def work(comm: nncuda.Comm) -> None:
        part = comm.part(comm.rank // 2 * 2, 1, 2)
        if comm.rank == 3:
            comm.abort("the disk is full")
        (part if comm.rank in (1, 2) else comm).barrier()

    assert failures(4, work) == ["rank 3: the disk is full"] * 4


def test_whoever_waits_for_a_part_is_told():
    """Rank 1 never comes to the part in which rank 0 waits for it."""

    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 1:
            time.sleep(0.2)
            comm.abort("the disk is full")
            comm.barrier()
        comm.part(0, 1, 2)

    assert failures(2, work, timeout=600) == ["rank 1: the disk is full"] * 2


def test_a_failure_in_a_part_is_one_of_the_whole():
    def work(comm: nncuda.Comm) -> None:
        part = comm.part(comm.rank // 2 * 2, 1, 2)
        if comm.rank == 3:
            part.abort("the disk is full")
        (comm if comm.rank == 3 else part if comm.rank == 2 else comm).barrier()

    assert failures(4, work) == ["rank 3: the disk is full"] * 4


@pytest.mark.parametrize("closed", [False, True])
def test_what_a_part_does_not_agree_on_is_told_in_all(closed):
    """Ranks 0 and 1 wait in another part; also where the whole is closed."""

    def work(comm: nncuda.Comm) -> None:
        part = comm.part(comm.rank // 2 * 2, 1, 2)
        others = comm.part(comm.rank % 2, 2, 2)
        if closed:
            comm.close()
        if comm.rank >= 2:
            part.agree("step", str(comm.rank))
        others.barrier()

    assert failures(4, work) == ["the step of rank 3 (3) is not that of rank 2 (2)"] * 4
