"""Rows that travel to experts, and back, beside what a rank does meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from ranks import job, outcomes
from rows import Sent, begun_round_trip, dispatched

import nncuda
from nncuda import kernels


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_rows_come_to_their_experts_and_back(ranks):
    def work(comm: nncuda.Comm) -> None:
        for own in (1, 2, 5):
            for seed in range(4):
                begun_round_trip(comm, own, seed)

    job(ranks, work)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_replay_takes_other_counts(ranks):
    own, most = 2, Sent.MOST

    def work(comm: nncuda.Comm) -> None:
        ctx = comm.ctx
        x, offsets = ctx.zeros((most, Sent.DIM)), ctx.zeros(ranks * own + 1, "i32")
        y, y_offsets = ctx.zeros((ranks, most, Sent.DIM)), ctx.zeros((ranks, own + 1), "i32")
        with ctx.capture() as graph:
            comm.dispatch_begin(x, offsets, y, y_offsets)
            for source in range(ranks):
                comm.dispatch_end(y, source)
                kernels.scale(y[source], alpha=3.0, y=y[source])
                comm.collect_begin(y, x, source)
            comm.collect_end(y, x)
        for seed in range(6):
            sent = [Sent(rank, ranks, own, seed) for rank in range(ranks)]
            mine = sent[comm.rank]
            x.copy_(np.pad(mine.x, ((0, most - len(mine.x)), (0, 0))))
            offsets.copy_(mine.offsets)
            y.zero_()
            graph.launch()
            want, want_offsets = dispatched(sent, comm.rank, own, most, fill=0)
            np.testing.assert_array_equal(y.numpy(), 3 * want)
            np.testing.assert_array_equal(y_offsets.numpy(), want_offsets)
            np.testing.assert_array_equal(x.numpy()[: mine.rows], 3 * mine.x[: mine.rows])

    job(ranks, work)


def four_rows(comm: nncuda.Comm) -> tuple[nncuda.Tensor, ...]:
    """One for each of two experts on two ranks: x, offsets, y, y_offsets."""
    ctx = comm.ctx
    return ctx.zeros((4, 3)), ctx.tensor(np.arange(5, dtype=np.int32)), ctx.zeros((2, 4, 3)), ctx.zeros((2, 3), "i32")


def test_exactly_the_rows_travel():
    """Those of dispatch and collect; offsets that are known do not."""

    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = four_rows(comm)
        for known in (False, True):
            sent = [comm.bytes_sent]
            comm.dispatch_begin(x, offsets, y, y_offsets, known)
            sent.append(comm.bytes_sent)
            comm.dispatch_end(y, 1 - comm.rank)
            comm.collect_end(y, x)
            sent.append(comm.bytes_sent)
            assert np.diff(sent).tolist() == [2 * 12 + (0 if known else 3 * 4), 2 * 12]

    job(2, work)


def test_who_waits_is_not_waited_for():
    """A rank goes on while its results have not been received."""
    gone = threading.Event()

    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = four_rows(comm)
        comm.dispatch_begin(x, offsets, y, y_offsets)
        comm.dispatch_end(y, 1 - comm.rank)
        if comm.rank == 0:
            assert gone.wait(60)
        comm.collect_begin(y, x, 1 - comm.rank)
        gone.set()
        comm.collect_end(y, x)

    job(2, work)


def test_a_rank_that_fails_ends_the_wait():
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = four_rows(comm)
        comm.dispatch_begin(x, offsets, y, y_offsets)
        comm.dispatch_end(y, 1 - comm.rank)
        if comm.rank == 1:
            comm.abort("no more")
        comm.collect_end(y, x)

    told, own = outcomes(2, work)
    assert isinstance(told, nncuda.PeerError) and told.message.partition(": ")[2] == "rank 1: no more"
    assert isinstance(own, nncuda.PeerError)


def test_wrong_offsets_that_are_known():
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = four_rows(comm)
        comm.dispatch(x, offsets, y, y_offsets)
        if comm.rank == 1:
            y_offsets.copy_(np.array([[0, 1, 2], [0, 1, 1]], np.int32))
        comm.dispatch_begin(x, offsets, y, y_offsets, known=True)
        comm.collect_end(y, x)

    _, blamed = outcomes(2, work)
    assert isinstance(blamed, nncuda.OutOfRangeError)
    assert "y_offsets[1, 2] is 1; it must be 2, the rows of x for the own experts" in blamed.message


def test_calls_out_of_turn():
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = four_rows(comm)
        peer = 1 - comm.rank
        with pytest.raises(nncuda.StateError, match="no rows are under way to this y"):
            comm.dispatch_end(y, peer)
        for call in (lambda: comm.collect_begin(y, x, peer), lambda: comm.collect_end(y, x)):
            with pytest.raises(nncuda.StateError, match="there are no rows to go back"):
                call()
        comm.dispatch_begin(x, offsets, y, y_offsets)
        with pytest.raises(nncuda.StateError, match="rows of this communicator are under way"):
            comm.dispatch_begin(x, offsets, y, y_offsets)
        with pytest.raises(nncuda.StateError, match="an exchange of this communicator is under way"):
            comm.sum(1)
        with pytest.raises(nncuda.StateError, match="no rows are under way to this y"):
            comm.dispatch_end(comm.ctx.zeros((2, 4, 3)), peer)
        with pytest.raises(nncuda.ArgumentError, match="rows and slot_rows are 3 and 4; they must be those of"):
            comm.collect_begin(y, x[:3], peer)
        comm.collect_begin(y, x, peer)
        with pytest.raises(nncuda.StateError, match="rows of this communicator are under way"):
            comm.dispatch_begin(x, offsets, comm.ctx.zeros((2, 4, 3)), y_offsets, known=True)
        comm.collect_end(y, x)
        assert comm.sum(1) == 2

    job(2, work)


def test_what_is_wrong_in_the_call():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        x, offsets = ctx.zeros((4, 3)), ctx.zeros(3, "i32")
        y, y_offsets = ctx.zeros((1, 4, 3)), ctx.zeros((1, 3), "i32")
        with pytest.raises(nncuda.ArgumentError, match="known is 2; it must be 0 or 1"):
            comm._move("nncuda_comm_dispatch_begin", x, offsets, y, y_offsets, 4, 4, 12, 1, 2, 2)
        for source in (-1, 1):
            with pytest.raises(nncuda.ArgumentError, match=f"source is {source}; it must be a rank"):
                comm.dispatch_end(y, source)
            with pytest.raises(nncuda.ArgumentError, match=f"source is {source}; it must be a rank"):
                comm.collect_begin(y, x, source)
        with pytest.raises(nncuda.ArgumentError, match="overlaps"):
            comm._move("nncuda_comm_collect_end", y, y, 4, 4, 12, 1)
        with pytest.raises(nncuda.ArgumentError, match="null"):
            comm._move("nncuda_comm_collect_end", y, None, 4, 4, 12, 1)
        for wrong in (ctx.zeros((4, 3)), ctx.zeros((2, 4, 3))):
            with pytest.raises(ValueError, match="slot rows, dim"):
                comm.dispatch_end(wrong, 0)
        for wrong in (ctx.zeros((4, 2)), ctx.zeros((4, 3), "bf16"), ctx.zeros(12)):
            with pytest.raises(ValueError, match="as y"):
                comm.collect_end(y, wrong)


def test_a_context_that_measures_counts_the_same():
    counted = []
    for begun in (False, True):
        with nncuda.Context.measuring("cpu") as ctx, nncuda.Comm(ctx, rank=1, ranks=4) as comm:
            x, offsets = ctx.empty((8, 3)), ctx.empty(9, "i32")
            y, y_offsets = ctx.empty((4, 8, 3)), ctx.empty((4, 3), "i32")
            if begun:
                comm.dispatch_begin(x, offsets, y, y_offsets)
                comm.dispatch_end(y, 0)
                comm.collect_begin(y, x, 0)
                comm.collect_end(y, x)
            else:
                comm.dispatch(x, offsets, y, y_offsets)
                comm.collect(y, y_offsets, x, offsets)
            counted.append(comm.bytes_sent)
    assert counted == [2 * 6 * 12 + 3 * 3 * 4] * 2
