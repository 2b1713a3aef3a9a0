"""One rank of a job, a process of its own: `rank.py TRANSPORT SCENARIO TIMEOUT`, with what a launcher sets. Prints the
sentence with which it lost the others, or what the scenario returns, and ends with 3 or 0."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from ranks import gradients, reduce_scatter, summed, tree_sum
from rows import begun_round_trip, round_trip

import nncuda
from nncuda import kernels

GRAIN = 32768


def check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    check(np.array_equal(found.view(np.uint8), wanted.view(np.uint8)), what)


def moves(comm: nncuda.Comm) -> None:
    ctx = comm.ctx
    data = np.random.default_rng(1).integers(0, 256, 1001).astype(np.uint8)
    for root in range(comm.ranks):
        x = ctx.tensor(data if comm.rank == root else np.zeros_like(data))
        same(comm.broadcast(x, root).numpy(), data, f"broadcast from {root}")
    for size, grain in ((1001, 7), (2, 1), (5, 64)):
        shard = slice(*nncuda.shard(size, grain, comm.ranks, comm.rank))
        own = np.full(size, 255, np.uint8)
        own[shard] = data[:size][shard]
        same(comm.all_gather(ctx.tensor(own), grain).numpy(), data[:size], f"all_gather of {size}")
    values = np.array([1.5, -(2.0**-149), np.inf, 3.4e38], np.float32)
    own = np.where(np.arange(4) % comm.ranks == comm.rank, values, np.float32(0))
    same(comm.all_reduce(ctx.tensor(own)).numpy(), values, "all_reduce")
    check(comm.sum(comm.rank - 3) == sum(range(comm.ranks)) - 3 * comm.ranks, "sum")
    comm.agree("configuration", "x" * 1000)
    comm.barrier()


def sums(comm: nncuda.Comm) -> None:
    for replicas in (comm.ranks, comm.ranks + 1, 9):
        g = gradients(replicas, 1000)
        found, shard = reduce_scatter(comm, g, 64)
        whole = summed(comm.ctx, g, 0, replicas)[0].numpy()
        same(whole, tree_sum(g), "one rank")
        same(found[shard], whole[shard], f"reduce_scatter of {replicas} replicas")


def in_turn(n: int, grain: int, ranks: int) -> list[tuple[int, int, int]]:
    """Each rank has several shards."""
    return [(at, min(at + grain, n), (at // grain * 2 + 1) % ranks) for at in range(0, n, grain)]


def rounded_sums(comm: nncuda.Comm) -> None:
    """Of one replica a rank, with a gap between shards."""
    g = gradients(comm.ranks, 1000)
    shards = [shard for shard in in_turn(1000, 70, comm.ranks) if shard[0] != 280]
    for wire in ("f32", "bf16", "f16"):
        before = g[comm.rank].copy()
        x = comm.reduce_scatter(None, comm.ctx.tensor(before), shards, wire=wire).numpy()
        for begin, end, rank in shards:
            before[begin:end] = tree_sum(g, wire)[begin:end] if rank == comm.rank else before[begin:end]
        same(x, before, f"sums that travel in {wire}")


def begun_sums(comm: nncuda.Comm) -> None:
    """Of a part, two under way at once, while the whole computes and talks; and captured."""
    ctx, part = comm.ctx, comm.part(0, 1, comm.ranks)
    g = gradients(comm.ranks, 1000)
    pieces = [
        [one for one in in_turn(1000, 70, comm.ranks) if low <= one[0] < high] for low, high in ((490, 1e9), (0, 490))
    ]
    for wire in ("f32", "bf16"):
        x = ctx.tensor(g[comm.rank])
        rooms = [ctx.empty(part.reduce_scatter_room(None, x, shards, wire=wire)) for shards in pieces]

        def sums(x=x, rooms=rooms, wire=wire) -> None:
            for shards, room in zip(pieces, rooms, strict=True):
                part.reduce_scatter_begin(None, x, shards, wire=wire, room=room)
            kernels.add(x, x)
            for shards, room in zip(pieces, rooms, strict=True):
                part.reduce_scatter_end(None, x, shards, wire=wire, room=room)

        want = g[comm.rank].copy()
        for begin, end, rank in (shard for shards in pieces for shard in shards):
            want[begin:end] = tree_sum(g, wire)[begin:end] if rank == comm.rank else want[begin:end]
        sums()
        same(x.numpy(), want, f"sums in {wire} that were begun")
        with ctx.capture() as captured:
            sums()
        for _ in range(3):
            x.copy_(g[comm.rank])
            captured.launch()
            check(comm.sum(1) == comm.ranks, "the whole while a part is busy")
            same(x.numpy(), want, f"sums in {wire} that were begun, captured")
        captured.close()


def norms(comm: nncuda.Comm) -> None:
    ctx = comm.ctx
    for n in (1, GRAIN, GRAIN + 1, 200_000):
        g = gradients(1, n)[0]
        want = kernels.grad_norm(ctx.tensor(g)).numpy()
        own = np.full(n, np.nan, np.float32)
        shard = slice(*nncuda.shard(n, GRAIN, comm.ranks, comm.rank))
        own[shard] = g[shard]
        shards = nncuda.expert_shards(n, GRAIN, comm.ranks)
        same(comm.grad_norm(ctx.tensor(own), None, shards).numpy(), want, f"grad_norm of {n}")
        turns = in_turn(n, GRAIN, comm.ranks)
        own = np.full(n, np.nan, np.float32)
        for begin, end, _ in (shard for shard in turns if shard[2] == comm.rank):
            own[begin:end] = g[begin:end]
        same(comm.grad_norm(ctx.tensor(own), None, turns).numpy(), want, f"grad_norm of {n}, in turn")


def experts(comm: nncuda.Comm) -> None:
    for own in (1, 3):
        for seed in range(3):
            round_trip(comm, own, seed)
            begun_round_trip(comm, own, seed)


def collectives(comm: nncuda.Comm) -> str:
    moves(comm)
    sums(comm)
    rounded_sums(comm)
    begun_sums(comm)
    norms(comm)
    experts(comm)
    return f"rank {comm.rank} of {comm.ranks}"


def graph(comm: nncuda.Comm) -> str:
    """A captured step, replayed with other numbers: each rank multiplies its own, all get the sums."""
    ctx = comm.ctx
    x, y = ctx.zeros(comm.ranks), ctx.zeros(comm.ranks)
    with ctx.capture() as captured:
        kernels.add(x, x, y=y)
        comm.all_reduce(y)
        kernels.add(y, y, y=y)
    for step in range(4):
        own = np.zeros(comm.ranks, np.float32)
        own[comm.rank] = step + comm.rank
        x.copy_(own)
        captured.launch()
        same(y.numpy(), 4 * (step + np.arange(comm.ranks, dtype=np.float32)), f"replay {step}")
    captured.close()
    return "replayed"


def training(comm: nncuda.Comm) -> str:
    """A digest of four steps, of which all but the first are captured, and of the parameters behind them."""
    sys.path.append(str(Path(__file__).parents[1] / "python"))
    from test_training import CASES, options, trained

    config, changes = CASES["bf16, moments in bf16"]
    told = trained(comm.ctx, comm, config, options(**changes), capture=True)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def wrong_offsets(comm: nncuda.Comm) -> str:
    """Those of rank 1."""
    ctx, experts = comm.ctx, np.arange(comm.ranks + 1, dtype=np.int32)
    offsets = experts[::-1].copy() if comm.rank == 1 else experts
    y, y_offsets = ctx.zeros((comm.ranks, comm.ranks, 2)), ctx.zeros((comm.ranks, 2), "i32")
    comm.dispatch(ctx.zeros((comm.ranks, 2)), ctx.tensor(offsets), y, y_offsets)
    return ""


def uncaptured(comm: nncuda.Comm) -> str:
    """A capture that is given up, on a GPU."""
    ctx = comm.ctx
    x, offsets = ctx.zeros((comm.ranks, 2)), ctx.tensor(np.arange(comm.ranks + 1, dtype=np.int32))
    y, y_offsets = ctx.zeros((comm.ranks, comm.ranks, 2)), ctx.zeros((comm.ranks, 2), "i32")
    try:
        with ctx.capture():
            comm.dispatch(x, offsets, y, y_offsets)
    except nncuda.StateError as error:
        experts(comm)
        return error.message.partition(": ")[2]
    return "captured"


def parts(comm: nncuda.Comm) -> str:
    part = comm.split(comm.rank % 2, -comm.rank)
    members = [rank for rank in range(comm.ranks) if rank % 2 == comm.rank % 2][::-1]
    check((part.rank, part.ranks) == (members.index(comm.rank), len(members)), "ranks of a part")
    check(part.sum(comm.rank) == sum(members), "sum of a part")
    moves(part)
    part.close()
    check(comm.sum(1) == comm.ranks, "the whole after its part")
    return f"{len(members)} of {comm.ranks}"


def pieces(comm: nncuda.Comm) -> str:
    """Neighbours and those with the same place among them; pieces from each rank to the next, in memory that has no
    others; sums of some elements."""
    ctx, ranks, n = comm.ctx, comm.ranks, 100_000
    group, place = divmod(comm.rank, 2)
    if comm.rank < 2:
        check(comm.part(0, 1, 2).sum(1) == 2, "a part that others do not make")
    neighbours, owners = comm.part(2 * group, 1, 2), comm.part(place, 2, ranks // 2)
    check(neighbours.sum(comm.rank) == 4 * group + 1, "sum of neighbours")
    moves(owners)
    before, following = (comm.rank - 1) % ranks, (comm.rank + 1) % ranks
    x = ctx.zeros_parts((ranks, n), "f32", [(r * n, r * n + n) for r in sorted((before, comm.rank))])
    x[comm.rank].copy_(np.full(n, comm.rank, np.float32))
    comm.move(x, [(4 * n * r, 4 * n * (r + 1), r, (r + 1) % ranks) for r in range(ranks)])
    same(x[before].numpy(), np.full(n, before, np.float32), "what came from the rank before")
    same(x[comm.rank].numpy(), np.full(n, comm.rank, np.float32), "what went to the next one")
    g = gradients(ranks, n)
    total = ctx.tensor(g[comm.rank])
    cut = n // 3
    shards = [(10, 12, ranks - 1), (100, cut, 0), (cut, n // 2, ranks - 1), (n // 2, n - 1, 0)]  # with gaps
    comm.reduce_scatter(None, total, shards, ranks)
    own = np.zeros(n, bool)
    for begin, end, rank in shards:
        own[begin:end] |= rank == comm.rank
    wanted = g[comm.rank].copy()
    wanted[own] = tree_sum(g)[own]
    same(total.numpy(), wanted, "sums of some elements")
    return f"{before} {comm.rank} {following}"


def part_without_rank_1(comm: nncuda.Comm) -> str:
    """It hangs."""
    if comm.rank == 1:
        time.sleep(12)
    comm.part(0, 1, comm.ranks)
    return ""


def disagree(comm: nncuda.Comm) -> str:
    comm.agree("configuration", f"replicas {comm.rank // 2}")
    return ""


def without_rank_1(comm: nncuda.Comm) -> str:
    """What the others do when it does not come: queue a collective, then wait for the device."""
    x = comm.ctx.zeros(10)
    comm.all_reduce(x)
    x.numpy()
    return ""


def abort(comm: nncuda.Comm) -> str:
    if comm.rank != 1:
        return without_rank_1(comm)
    comm.abort("the disk is full")
    say("aborted")
    sys.exit(3)


def vanish(comm: nncuda.Comm) -> str:
    if comm.rank == 1:
        os._exit(9)
    return without_rank_1(comm)


def hang(comm: nncuda.Comm) -> str:
    if comm.rank == 1:
        time.sleep(12)
    return without_rank_1(comm)


def vanish_in_replay(comm: nncuda.Comm) -> str:
    x = comm.ctx.zeros(10)
    with comm.ctx.capture() as captured:
        comm.all_reduce(x)
    captured.launch()
    x.numpy()
    if comm.rank == 1:
        os._exit(9)
    captured.launch()
    x.numpy()
    return ""


def vanish_from_part(comm: nncuda.Comm) -> str:
    """Rank 1 is not of the part that waits, and still a reason to stop."""
    part = comm.split(int(comm.rank == 1))
    if comm.rank == 1:
        os._exit(9)
    if part.rank == 1:
        time.sleep(3)
    without_rank_1(part)
    comm.barrier()
    return ""


def unlike_sizes(comm: nncuda.Comm) -> str:
    comm.broadcast(comm.ctx.zeros(1000 + (comm.rank == 1)), root=1)
    return without_rank_1(comm)


def leave(comm: nncuda.Comm) -> str:
    if comm.rank == 1:
        sys.exit(3)  # with an exception, say
    return without_rank_1(comm)


def killed(comm: nncuda.Comm) -> str:
    """Rank VICTIM is killed after DELAY seconds, whatever it is doing then."""
    if comm.rank == int(os.environ["VICTIM"]):
        threading.Timer(float(os.environ["DELAY"]), os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        collectives(comm)


def absent(comm: nncuda.Comm) -> str:
    """Rank 1 does not even join (main)."""
    return without_rank_1(comm)


def say(line: str) -> None:
    """In one piece, so that a launcher does not mix it with another's."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(transport: str, scenario: str, timeout: str) -> int:
    if scenario == "absent" and "1" in (os.environ.get("RANK"), os.environ.get("PMI_RANK")):
        return 3
    with nncuda.Context("cuda") if transport == "nccl" else nncuda.Context(threads=1) as ctx:
        try:
            comm = nncuda.Comm(ctx, transport, timeout=float(timeout))
            say(globals()[scenario](comm))
            comm.close()
        except (nncuda.PeerError, nncuda.OutOfRangeError) as error:
            say(error.message.partition(": ")[2])
            return 3  # never 0: the launcher's status may be that of the first to leave
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
