"""Lists of shards: which rank updates what, and sums and norms over any of them, also of sums that are rounded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from ranks import gradients, job, summed, tree_sum

import nncuda
from nncuda import kernels
from nncuda.device import INSTRUCTION_SETS, Shard

CHUNK = 32768


def instruction_sets() -> list[str]:
    with nncuda.Context(threads=1) as ctx:
        return list(INSTRUCTION_SETS[: INSTRUCTION_SETS.index(ctx.isa) + 1])


# Who updates what


def owners(n: int, grain: int, ranks: int, group: int, experts: list[tuple[int, int]]) -> list[int]:
    """The definition in bindings.h, grain by grain: the rank of each."""
    if group == 1:
        return owners_of_pieces(-(-n // grain), ranks, [edge // grain for pair in experts for edge in pair if edge < n])
    whole = {}
    for (begin, end), part in itertools.product(experts, range(group)):
        size = (end - begin) // group
        first, last = begin + part * size, begin + (part + 1) * size
        whole |= {g: part for g in range(-(-n // grain)) if first <= g * grain and min((g + 1) * grain, n) <= last}
    found, turn = [-1] * -(-n // grain), 0
    for dense, run in itertools.groupby(range(len(found)), lambda g: g not in whole):
        between = list(run) if dense else []
        for at in range(ranks):
            taken = len(between) // ranks + (at < len(between) % ranks)
            begin = at * (len(between) // ranks) + min(at, len(between) % ranks)
            for g in between[begin : begin + taken]:
                found[g] = (turn + at) % ranks
        turn += len(between) % ranks
    for part in range(group):
        mine, holders = [g for g in range(len(found)) if whole.get(g) == part], range(part, ranks, group)
        for at, rank in enumerate(holders):
            for g in mine[slice(*nncuda.shard(len(mine), 1, len(holders), at))]:
                found[g] = rank
    return found


def owners_of_pieces(grains: int, ranks: int, edges: list[int]) -> list[int]:
    begins = [0]
    for edge in edges:
        if edge - begins[-1] >= 16 * ranks:
            begins.append(edge)
    sizes = [end - begin for begin, end in itertools.pairwise([*begins, grains])]
    of_piece = [(rank, nncuda.shard(size, 1, ranks, rank)) for size in sizes for rank in range(ranks)]
    return [rank for rank, (begin, end) in of_piece for _ in range(begin, end)]


def arenas() -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Sizes, and the stacks of experts in them, whose sizes 12 divides."""
    yield 1, []
    yield 1000, []
    yield 1000, [(0, 996)]
    yield 1000, [(100, 340), (340, 460), (700, 1000)]
    yield 995, [(7, 19), (31, 31 + 12 * 60), (800, 800 + 180)]
    yield 600, [(0, 600)]
    yield 4000, [(500, 1700), (1700, 1700 + 960), (2900, 3860)]


@pytest.mark.parametrize("grain", [1, 7, 16, 64, 5000])
def test_shards_are_those_of_the_definition(grain):
    for (n, experts), ranks in itertools.product(arenas(), (1, 2, 3, 4, 6, 12, 24)):
        for group in (size for size in (1, 2, 3, 4, 6, 12) if ranks % size == 0):
            shards = nncuda.expert_shards(n, grain, ranks, group, experts)
            assert [0, *(one.end for one in shards)] == [*(one.begin for one in shards), n], "no gaps"
            assert all(a.rank != b.rank for a, b in itertools.pairwise(shards)), "neighbours of one rank are one shard"
            assert all(one.begin % grain == 0 for one in shards)
            found = [rank for begin, end, rank in shards for _ in range(begin // grain, -(-end // grain))]
            assert found == owners(n, grain, ranks, group, experts)


@pytest.mark.parametrize("n, grain, ranks", [(1, 1, 1), (1000, 7, 3), (100, 64, 5), (2**62, 2**20, 4096)])
def test_with_all_experts_on_each_rank_shards_are_those_of_the_arena(n, grain, ranks):
    ends = [(*nncuda.shard(n, grain, ranks, rank), rank) for rank in range(ranks)]
    whole = [one for one in ends if one[0] < one[1]]
    assert nncuda.expert_shards(n, grain, ranks) == whole
    assert nncuda.expert_shards(n, grain, ranks, 1, [(0, n)]) == whole


RIGHT = {"n": 100, "grain": 4, "ranks": 4, "group": 2, "experts": [(0, 40), (40, 60)]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"n": 59},
        {"grain": 0},
        {"ranks": 0},
        {"ranks": 3},
        {"group": 0},
        {"group": 3},
        {"experts": [(-2, 40)]},
        {"experts": [(0, 41)]},
        {"experts": [(40, 0)]},
        {"experts": [(0, 40), (38, 60)]},
    ],
)
def test_shards_that_cannot_be(wrong):
    assert nncuda.expert_shards(**RIGHT)
    with pytest.raises(nncuda.ArgumentError):
        nncuda.expert_shards(**{**RIGHT, **wrong})


def test_shards_are_only_written_where_all_have_room():
    from nncuda.binding import library

    loaded = library.load()
    ffi, ask = loaded.ffi, loaded.lib.nncuda_expert_shards
    experts, number = ffi.new("int64_t[]", [10, 50]), ffi.new("int64_t *")
    assert ask(60, 4, 4, 2, experts, 1, ffi.NULL, 0, number) == 0
    count = int(number[0])
    for capacity in range(count + 2):
        rows = ffi.new("int64_t[]", [-1] * 3 * (count + 1))
        assert ask(60, 4, 4, 2, experts, 1, rows, capacity, number) == 0 and number[0] == count
        written = [value != -1 for value in ffi.unpack(rows, 3 * (count + 1))]
        assert written == [capacity >= count and at < 3 * count for at in range(3 * (count + 1))]
    assert (
        ask(60, 4, 4, 2, experts, 1, ffi.NULL, -1, number) == ask(60, 4, 4, 2, experts, -1, ffi.NULL, 0, number) == 12
    )
    assert (
        ask(60, 4, 4, 2, experts, 1, ffi.NULL, 0, ffi.NULL) == ask(60, 4, 4, 2, ffi.NULL, 1, ffi.NULL, 0, number) == 11
    )


# Sums over them


def lists(n: int, ranks: int) -> Iterator[list[Shard]]:
    """Of all elements, with gaps, of few, one after another in turn, all of one rank."""
    yield nncuda.expert_shards(n, 16, ranks)
    yield [Shard(at, min(at + 37, n), (at // 37 * 5 + 2) % ranks) for at in range(0, n, 37)]
    yield [Shard(at, at + 11, (at * 3) % ranks) for at in range(5, n - 11, 50)]
    yield [Shard(n // 2, n // 2 + 1, ranks - 1)]
    yield [Shard(0, n, 0)]


def own_sums(ctx: nncuda.Context, g: np.ndarray, comm: nncuda.Comm, wire: str) -> list[nncuda.Tensor]:
    """As a trainer that rounds adds them: each gradient and each sum as it is complete."""
    if wire == "f32" or comm.ranks == 1:
        return summed(ctx, g, *nncuda.shard(len(g), 1, comm.ranks, comm.rank))
    first, last = nncuda.shard(len(g), 1, comm.ranks, comm.rank)
    stack: list[nncuda.Tensor] = []
    for replica in range(first, last):
        total = ctx.tensor(g[replica])
        kernels.round(total, y=total, dtype=wire)
        for _ in range(nncuda.replica_merges(len(g), first, replica)):
            kernels.add(stack.pop(), total, y=total)
            kernels.round(total, y=total, dtype=wire)
        stack.append(total)
    return stack


def scattered(comm: nncuda.Comm, g: np.ndarray, shards: list[Shard], wire: str) -> tuple[np.ndarray, np.ndarray]:
    """What is in the gradients' memory before and afterwards."""
    *aside, x = own_sums(comm.ctx, g, comm, wire)
    before = x.numpy()
    partials = comm.ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None
    comm.reduce_scatter(partials, x, shards, len(g), wire)
    return before, x.numpy()


@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("wire", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("ranks, replicas", [(1, 1), (2, 2), (2, 5), (3, 4), (4, 4), (5, 9), (7, 17)])
def test_sums_are_those_of_the_tree_where_a_rank_owns_them(ranks, replicas, wire, isa):
    n = 1003
    g = gradients(replicas, n)
    if wire != "f32" and replicas > 3:  # rounding shows: the test could fail
        assert (tree_sum(g, wire) != tree_sum(g)).any()

    def work(comm: nncuda.Comm) -> None:
        for shards in lists(n, ranks):
            want, found = scattered(comm, g, shards, wire)
            for one in (one for one in shards if one.rank == comm.rank):
                want[one.begin : one.end] = tree_sum(g, wire)[one.begin : one.end]
            np.testing.assert_array_equal(found, want)

    job(ranks, work, isa=isa)


@pytest.mark.parametrize("wire", ["bf16", "f16"])
def test_what_is_given_is_rounded(wire):
    """Sums that come unrounded, as of a replica of each rank."""
    g = gradients(5, 700)

    def work(comm: nncuda.Comm) -> None:
        x = comm.ctx.tensor(g[comm.rank])
        comm.reduce_scatter(None, x, [Shard(0, 300, 4), Shard(300, 700, 1)], wire=wire)
        own = {4: slice(0, 300), 1: slice(300, 700)}.get(comm.rank, slice(0, 0))
        np.testing.assert_array_equal(x.numpy()[own], tree_sum(g, wire)[own])

    job(5, work)


@pytest.mark.parametrize("wire", ["f32", "bf16", "f16"])
def test_shards_that_travel_in_pieces(wire):
    """A rank owns more than one exchange takes, 2^18 elements, in shards that pieces cut."""
    n = 900_001
    g = gradients(3, n)
    ends = [0, 1, 150_000, 262_143, 262_145, 500_000, 777_777, n]
    shards = [Shard(*pair, at % 2) for at, pair in enumerate(itertools.pairwise(ends))]

    def work(comm: nncuda.Comm) -> None:
        _, found = scattered(comm, g, shards, wire)
        for one in (one for one in shards if one.rank == comm.rank):
            np.testing.assert_array_equal(found[one.begin : one.end], tree_sum(g, wire)[one.begin : one.end])

    job(2, work)


@pytest.mark.parametrize("wire", ["bf16", "f16"])
def test_infinities_and_nan_arrive(wire):
    """A sum that is too large for f16 is infinite."""
    g = np.zeros((4, 8), np.float32)
    g[0, :3], g[1, 3], g[2, 4], g[3, 5] = [np.inf, np.nan, 40000], -np.inf, np.nan, 1e6
    g[1, 2] = 40000

    def work(comm: nncuda.Comm) -> np.ndarray:
        return scattered(comm, g, [Shard(0, 8, 3)], wire)[1]

    np.testing.assert_array_equal(job(4, work)[3], tree_sum(g, wire))
    assert np.isinf(tree_sum(g, "f16")[2]) and np.isfinite(tree_sum(g, "bf16")[2])


def test_half_as_many_bytes_travel():
    n = 1000
    shards = [Shard(0, 400, 1), Shard(500, 1000, 0)]

    def work(comm: nncuda.Comm, wire: str) -> int:
        before = comm.bytes_sent
        scattered(comm, gradients(3, n), shards, wire)
        return comm.bytes_sent - before

    assert job(2, lambda comm: work(comm, "f32")) == [4 * 400, 2 * 4 * 500]
    assert job(2, lambda comm: work(comm, "bf16")) == [2 * 400, 2 * 2 * 500]


def test_a_graph_keeps_its_shards():
    """The caller's list may be gone when it is replayed."""
    g = gradients(2, 300)

    def work(comm: nncuda.Comm) -> None:
        ctx, x, norm = comm.ctx, comm.ctx.tensor(g[comm.rank]), comm.ctx.zeros(1)
        with ctx.capture() as graph:
            comm.reduce_scatter(None, x, [Shard(0, 100, 1), Shard(200, 300, 0)], wire="bf16")
            comm.grad_norm(x, norm, [Shard(0, 300, 0)])
        x.copy_(g[comm.rank])
        graph.launch()
        own = slice(200, 300) if comm.rank == 0 else slice(0, 100)
        np.testing.assert_array_equal(x.numpy()[own], tree_sum(g, "bf16")[own])
        assert norm.item() > 0

    job(2, work)


# Norms over them


@pytest.mark.parametrize("n", [1, CHUNK, 3 * CHUNK + 1, 400_000])
def test_the_norm_does_not_know_who_has_what(n):
    g = gradients(1, n)[0]
    with nncuda.Context(threads=1) as ctx:
        want = kernels.grad_norm(ctx.tensor(g)).numpy()

    def work(comm: nncuda.Comm) -> None:
        ranks = comm.ranks
        in_turn = [Shard(at, min(at + CHUNK, n), (at // CHUNK * 2 + 1) % ranks) for at in range(0, n, CHUNK)]
        backwards = [
            Shard(one.begin, one.end, ranks - 1 - one.rank) for one in nncuda.expert_shards(n, 2 * CHUNK, ranks)
        ]
        for shards in (in_turn, backwards, [Shard(0, n, ranks - 1)]):
            own = np.full(n, np.nan, np.float32)
            for one in (one for one in shards if one.rank == comm.rank):
                own[one.begin : one.end] = g[one.begin : one.end]
            np.testing.assert_array_equal(comm.grad_norm(comm.ctx.tensor(own), None, shards).numpy(), want)

    for ranks in (1, 2, 3, 5):
        job(ranks, work)


def test_the_norm_needs_memory_of_own_shards_alone():
    n = 2_000_000
    g = gradients(1, n)[0]
    shards = [Shard(at, min(at + 10 * CHUNK, n), at // (10 * CHUNK) % 2) for at in range(0, n, 10 * CHUNK)]

    def work(comm: nncuda.Comm) -> bytes:
        own = [(one.begin, one.end) for one in shards if one.rank == comm.rank]
        x = comm.ctx.zeros_parts((n,), "f32", own)
        for begin, end in own:
            x[begin:end].copy_(g[begin:end])
        norm = comm.ctx.zeros(1)
        with comm.ctx.trace(2), comm.ctx.profile() as profile:
            comm.grad_norm(x, norm, shards)
        (kernel,) = profile.json()["kernels"]
        assert kernel["bytes"] == 4 * sum(end - begin for begin, end in own) + 4
        return norm.numpy().tobytes()

    with nncuda.Context(threads=1) as ctx:
        assert job(2, work) == [kernels.grad_norm(ctx.tensor(g)).numpy().tobytes()] * 2


# Lists that are none


@pytest.mark.parametrize(
    "shards, sentence",
    [
        ([(-1, 4, 0)], "shard 0 is of the elements -1 to 4; it must be above the one before it and within 8"),
        ([(4, 4, 0)], "shard 0 is of the elements 4 to 4; it must be above the one before it and within 8"),
        ([(0, 9, 0)], "shard 0 is of the elements 0 to 9; it must be above the one before it and within 8"),
        ([(0, 4, 0), (3, 8, 0)], "shard 1 is of the elements 3 to 8; it must be above the one before it and within 8"),
        ([(0, 4, 1)], "shard 0 is rank 1's; of 1 ranks it must be 0 to 0"),
        ([(0, 4, -1)], "shard 0 is rank -1's; of 1 ranks it must be 0 to 0"),
    ],
)
def test_shards_that_are_none(shards, sentence):
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx, "self") as alone:
        for call in (
            lambda: alone.reduce_scatter(None, ctx.zeros(8), shards),
            lambda: alone.grad_norm(ctx.zeros(8), None, shards),
        ):
            with pytest.raises(nncuda.ArgumentError) as refused:
                call()
            assert refused.value.message.partition(": ")[2] == sentence


def test_shards_that_a_norm_cannot_take():
    gaps = "nncuda_comm_grad_norm: shards have gaps; they must be all of the 70000 elements"
    cases = [
        ([(0, 65536, 0)], gaps),
        ([(32768, 70000, 0)], gaps),
        ([(0, 32768, 0), (65536, 70000, 0)], gaps),
        (
            [(0, 16384, 0), (16384, 70000, 0)],
            "nncuda_comm_grad_norm: shard 1 begins at element 16384; it must begin at a multiple of 32768",
        ),
    ]
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx, "self") as alone:
        for shards, sentence in cases:
            with pytest.raises(nncuda.ArgumentError) as refused:
                alone.grad_norm(ctx.zeros(70000), None, shards)
            assert refused.value.message == sentence
