"""Rows that ranks send to each other's experts, and where they must arrive."""

from __future__ import annotations

import numpy as np

import nncuda
from nncuda import kernels


class Sent:
    """What a rank has to send: x [rows, dim] of which some at the end belong to no expert, and offsets. Few experts get
    many rows, many get none; some ranks have no rows at all."""

    MOST, DIM = 24, 3

    def __init__(self, rank: int, ranks: int, own: int, seed: int) -> None:
        rng = np.random.default_rng(1000 * seed + rank)
        counts = rng.multinomial(rng.integers(0, self.MOST - 2), rng.dirichlet(np.full(ranks * own, 0.3)))
        if (rank + seed) % 3 == 2:
            counts[:] = 0
        self.rows = int(counts.sum())
        self.x = (rng.integers(0, 1000, (self.rows + rank % 3, self.DIM)) + 1000 * rank + 1).astype(np.float32)
        self.offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    def rows_for(self, rank: int, own: int) -> tuple[np.ndarray, np.ndarray]:
        """Those for the experts of a rank, and where each begins."""
        offsets = self.offsets[rank * own : (rank + 1) * own + 1]
        return self.x[offsets[0] : offsets[-1]], offsets - offsets[0]


def dispatched(sent: list[Sent], rank: int, own: int, slot_rows: int, fill: float) -> tuple[np.ndarray, np.ndarray]:
    """What a rank then has, in memory that was filled with a number."""
    y, y_offsets = np.full((len(sent), slot_rows, Sent.DIM), fill, np.float32), []
    for source, one in enumerate(sent):
        rows, offsets = one.rows_for(rank, own)
        y[source, : len(rows)] = rows
        y_offsets.append(offsets)
    return y, np.stack(y_offsets)


def round_trip(comm: nncuda.Comm, own: int, seed: int) -> None:
    """There and back; on the way each rank adds its number to what it got. Ranks without rows are guests."""
    ctx, ranks = comm.ctx, comm.ranks
    sent = [Sent(rank, ranks, own, seed) for rank in range(ranks)]
    mine, slot_rows = sent[comm.rank], max(len(one.x) for one in sent) + seed % 2 or 1
    guest = len(mine.x) == 0
    y = ctx.tensor(np.full((ranks, slot_rows, Sent.DIM), -1, np.float32))
    y_offsets = ctx.tensor(np.full((ranks, own + 1), -1, np.int32))
    offsets = None if guest else ctx.tensor(mine.offsets)
    comm.dispatch(None if guest else ctx.tensor(mine.x), offsets, y, y_offsets)
    want, want_offsets = dispatched(sent, comm.rank, own, slot_rows, fill=-1)
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(y_offsets.numpy(), want_offsets)
    back = None if guest else ctx.tensor(np.full(mine.x.shape, -2, np.float32))
    comm.collect(ctx.tensor(want + 0.125 * comm.rank), y_offsets, back, offsets)
    if back is not None:
        np.testing.assert_array_equal(back.numpy(), returned(mine, ranks, own, np.full(mine.x.shape, -2, np.float32)))


def returned(mine: Sent, ranks: int, own: int, before: np.ndarray) -> np.ndarray:
    """What then lies where that was before."""
    owner = np.repeat(np.arange(ranks), np.diff(mine.offsets).reshape(ranks, own).sum(1))
    after = before.copy()
    after[: mine.rows] = mine.x[: mine.rows] + 0.125 * owner[:, None]
    return after


def begun_round_trip(comm: nncuda.Comm, own: int, seed: int) -> None:
    """The same rank by rank beside other calls, twice at once, in place: a second dispatch, of doubled rows with the
    same offsets, begins behind the first. Rows go back in an order of the rank's own."""
    ctx, ranks = comm.ctx, comm.ranks
    sent = [Sent(rank, ranks, own, seed) for rank in range(ranks)]
    mine, slot_rows = sent[comm.rank], max(len(one.x) for one in sent) + seed % 2 or 1
    guest = len(mine.x) == 0
    rooms = [ctx.tensor(np.full((ranks, slot_rows, Sent.DIM), -1, np.float32)) for _ in range(2)]
    y_offsets = ctx.tensor(np.full((ranks, own + 1), -1, np.int32))
    offsets = None if guest else ctx.tensor(mine.offsets)
    x, double = (None, None) if guest else (ctx.tensor(mine.x), ctx.tensor(2 * mine.x))
    comm.dispatch_begin(x, offsets, rooms[0], y_offsets)
    comm.dispatch_begin(double, offsets, rooms[1], y_offsets, known=True)
    want, want_offsets = dispatched(sent, comm.rank, own, slot_rows, fill=-1)
    np.testing.assert_array_equal(y_offsets.numpy(), want_offsets)
    added = ctx.tensor(np.full((slot_rows, Sent.DIM), 0.125 * comm.rank, np.float32))
    for source in np.random.default_rng([seed, comm.rank]).permutation(ranks):
        count = want_offsets[source, -1]
        for room, factor in zip(rooms, (1, 2), strict=True):
            comm.dispatch_end(room, source)
            np.testing.assert_array_equal(room[source].numpy()[:count], factor * want[source, :count])
        kernels.add(rooms[0][source], added, y=rooms[1][source])
        if count > 0 or seed % 2:  # who sent nothing need not be told
            comm.collect_begin(rooms[1], double, source)
    assert comm.collect_end(rooms[1], double) is double
    if double is not None:
        np.testing.assert_array_equal(double.numpy(), returned(mine, ranks, own, 2 * mine.x))
        np.testing.assert_array_equal(x.numpy(), mine.x)
