"""Every collective between threads, for any number of ranks: the bits of one rank."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ranks import gradients, job, reduce_scatter, tree_sum

import nncuda
from nncuda import kernels
from nncuda.device import INSTRUCTION_SETS

RANKS = range(1, 10)
GRAIN = 32768


def instruction_sets() -> list[str]:
    with nncuda.Context(threads=1) as ctx:
        return list(INSTRUCTION_SETS[: INSTRUCTION_SETS.index(ctx.isa) + 1])


@pytest.mark.parametrize("ranks", RANKS)
def test_broadcast(ranks):
    data = np.random.default_rng(ranks).integers(0, 256, 1001).astype(np.uint8)

    def work(comm: nncuda.Comm) -> None:
        for root, size in itertools.product(range(ranks), (0, 1, 1001)):
            x = comm.ctx.tensor(data[:size] if comm.rank == root else np.zeros(size, np.uint8))
            assert comm.broadcast(x, root) is x
            np.testing.assert_array_equal(x.numpy(), data[:size])

    job(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
def test_all_gather(ranks):
    def work(comm: nncuda.Comm) -> None:
        for size, grain in itertools.product((0, 1, 2, 8, 9, 1001), (1, 7, 64, 5000)):
            data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
            own = np.full(size, 255, np.uint8)
            shard = slice(*nncuda.shard(size, grain, comm.ranks, comm.rank))
            own[shard] = data[shard]
            np.testing.assert_array_equal(comm.all_gather(comm.ctx.tensor(own), grain).numpy(), data)

    job(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
def test_all_reduce_adds_in_the_order_of_ranks(ranks):
    def work(comm: nncuda.Comm) -> None:
        for n in (0, 1, 3, 1000):
            all_of_them = gradients(ranks, n)
            want = all_of_them[0].copy()
            for one in all_of_them[1:]:
                want += one
            np.testing.assert_array_equal(comm.all_reduce(comm.ctx.tensor(all_of_them[comm.rank])).numpy(), want)

    job(ranks, work)


def test_all_reduce_of_one_number_keeps_its_bits():
    """What a run needs it for: losses, of which one rank has each."""
    values = np.array([1.5, -(2.0**-149), np.inf, 3.4e38, np.nan], np.float32)

    def work(comm: nncuda.Comm) -> np.ndarray:
        own = np.where(np.arange(5) % comm.ranks == comm.rank, values, np.float32(0))
        return comm.all_reduce(comm.ctx.tensor(own)).numpy()

    for found in job(3, work):
        np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("ranks", range(1, 18))
def test_sums_over_replicas_do_not_know_the_number_of_ranks(ranks, isa):
    def work(comm: nncuda.Comm) -> None:
        for replicas in range(ranks, 18):
            n, grain = (1000, 64) if replicas % 2 else (301, 16)
            g = gradients(replicas, n)
            found, shard = reduce_scatter(comm, g, grain)
            np.testing.assert_array_equal(found[shard], tree_sum(g)[shard])

    job(ranks, work, isa=isa)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 200])
def test_sums_of_few_grains(n):
    """Fewer than ranks, the last one shorter, none at all."""
    g = gradients(7, n)

    def work(comm: nncuda.Comm) -> np.ndarray:
        found, shard = reduce_scatter(comm, g, 64)
        return found[shard]

    for ranks in (1, 2, 5, 7):
        np.testing.assert_array_equal(np.concatenate(job(ranks, work)), tree_sum(g))


@pytest.mark.parametrize("ranks, replicas", [(2, 2), (2, 5), (3, 4)])
def test_sums_that_travel_in_pieces(ranks, replicas):
    """A shard is longer than what one exchange takes, 2^18 elements at most."""
    n, grain = 900_001, 1000
    g = gradients(replicas, n)

    def work(comm: nncuda.Comm) -> np.ndarray:
        found, shard = reduce_scatter(comm, g, grain)
        assert shard.stop - shard.start > 1 << 18
        return found[shard]

    np.testing.assert_array_equal(np.concatenate(job(ranks, work)), tree_sum(g))


def test_the_rest_of_a_sum_stays():
    g = gradients(4, 100)

    def work(comm: nncuda.Comm) -> None:
        found, shard = reduce_scatter(comm, g, 10)
        before = g[2 * comm.rank] + g[2 * comm.rank + 1]
        other = np.ones(100, bool)
        other[shard] = False
        np.testing.assert_array_equal(found[other], before[other])

    job(2, work)


def test_the_norm_of_nothing_stays():
    """As with one rank: a call without elements writes nothing."""

    def work(comm: nncuda.Comm) -> float:
        norm = comm.ctx.tensor([7.0])
        return comm.grad_norm(comm.ctx.empty(0), norm, []).item()

    assert job(2, work) == [7.0, 7.0]


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("n", [1, GRAIN - 1, GRAIN, GRAIN + 1, 200_000])
def test_the_norm_does_not_know_the_number_of_ranks(n, isa):
    g = gradients(1, n)[0]
    with nncuda.Context(threads=1, isa=isa) as ctx:
        want = kernels.grad_norm(ctx.tensor(g)).numpy()

    def work(comm: nncuda.Comm) -> None:
        for grain in (GRAIN, 2 * GRAIN):
            own = np.full(n, np.nan, np.float32)
            shard = slice(*nncuda.shard(n, grain, comm.ranks, comm.rank))
            own[shard] = g[shard]
            shards = nncuda.expert_shards(n, grain, comm.ranks)
            np.testing.assert_array_equal(comm.grad_norm(comm.ctx.tensor(own), None, shards).numpy(), want)

    for ranks in (1, 2, 3, 4, 7, 9):
        job(ranks, work, isa=isa)


def test_threads_of_a_rank_change_nothing():
    g = gradients(6, 400_000)

    def work(comm: nncuda.Comm) -> tuple[bytes, bytes]:
        shards = nncuda.expert_shards(g.shape[1], GRAIN, comm.ranks)
        x, shard = reduce_scatter(comm, g, GRAIN)
        return x[shard].tobytes(), comm.grad_norm(comm.ctx.tensor(x), None, shards).numpy().tobytes()

    assert job(3, work, threads=1) == job(3, work, threads=4)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_as_many_bytes_travel_as_in_a_ring(ranks):
    """Of n elements that the ranks share out evenly a ring sends 2 (ranks - 1) / ranks * n a rank: half to add them up,
    half to give the sums to all."""
    n = ranks * 3 * 256

    def work(comm: nncuda.Comm) -> int:
        before = comm.bytes_sent
        x = comm.ctx.tensor(gradients(ranks, n)[comm.rank])
        comm.reduce_scatter(None, x, nncuda.expert_shards(n, 256, ranks), ranks)
        comm.all_gather(x, 4 * 256)
        np.testing.assert_array_equal(x.numpy(), tree_sum(gradients(ranks, n)))
        return comm.bytes_sent - before

    assert job(ranks, work) == [2 * (ranks - 1) * n * 4 // ranks] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_whole_numbers(ranks):
    def work(comm: nncuda.Comm) -> tuple[int, int]:
        assert comm.sum(comm.rank - 3) == sum(range(ranks)) - 3 * ranks
        assert comm.sum(-(2**63) if comm.rank == 0 else 0) == -(2**63)
        comm.barrier()
        comm.agree("configuration", "x" * 100_000)
        comm.agree("nothing", b"")
        return comm.rank, comm.ranks

    assert job(ranks, work) == [(rank, ranks) for rank in range(ranks)]


def test_a_sum_that_is_no_int64():
    def work(comm: nncuda.Comm) -> int:
        with pytest.raises(nncuda.OutOfRangeError, match="no whole number of 64 bits"):
            comm.sum(2**62)
        return comm.sum(1)

    assert job(2, work) == [2, 2]


def test_a_communicator_is_cut():
    def work(comm: nncuda.Comm) -> tuple[int, int, int, int]:
        part = comm.split(comm.rank % 2, -comm.rank)
        again, alone = part.split(0), comm.split(comm.rank)
        assert alone.ranks == 1 and alone.sum(5) == 5
        assert (again.rank, again.ranks, again.sum(comm.rank)) == (part.rank, part.ranks, part.sum(comm.rank))
        part.close()
        return again.rank, again.ranks, again.sum(comm.rank), comm.sum(1)

    assert job(5, work) == [(2, 3, 6, 5), (1, 2, 4, 5), (1, 3, 6, 5), (0, 2, 4, 5), (0, 3, 6, 5)]
