"""Rows travel to the ranks that have their experts, and back: for any counts, between threads."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import job, outcomes
from rows import Sent, dispatched, round_trip

import nncuda


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_rows_come_to_their_experts_and_back(ranks):
    def work(comm: nncuda.Comm) -> None:
        for own in (1, 2, 5):
            for seed in range(4):
                round_trip(comm, own, seed)

    job(ranks, work)


def test_nobody_has_rows():
    def work(comm: nncuda.Comm) -> None:
        y, y_offsets = comm.ctx.tensor(np.full((2, 4, 3), 7, np.float32)), comm.ctx.tensor(np.full((2, 3), 9, np.int32))
        comm.dispatch(None, None, y, y_offsets)
        assert not y_offsets.numpy().any() and (y.numpy() == 7).all()
        assert comm.collect(y, y_offsets, None, None) is None

    job(2, work)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_rows_of_every_width(dtype):
    """Bytes travel: what they mean does not matter."""

    def work(comm: nncuda.Comm) -> None:
        numbers = np.arange(12, dtype=np.int8 if dtype == "i8" else np.float32).reshape(4, 3)
        x = comm.ctx.tensor(numbers + 50 * comm.rank)
        x = x.to(dtype) if dtype == "bf16" else x
        offsets = comm.ctx.tensor(np.array([0, 1, 4], np.int32))
        y, y_offsets = comm.ctx.empty((2, 4, 3), dtype), comm.ctx.empty((2, 2), "i32")
        comm.dispatch(x, offsets, y, y_offsets)
        rows = [0, 1] if comm.rank == 0 else [1, 4]
        assert y_offsets.tolist() == [[0, rows[1] - rows[0]]] * 2
        for rank in range(2):
            found = (y.to("f32") if dtype == "bf16" else y).numpy()[rank]
            want = numbers[rows[0] : rows[1]] + 50 * rank
            np.testing.assert_array_equal(found[: len(want)], want)

    job(2, work)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_replay_takes_other_counts(ranks):
    own = 2

    def work(comm: nncuda.Comm) -> None:
        most = Sent.MOST
        x, back = comm.ctx.zeros((most, Sent.DIM)), comm.ctx.zeros((most, Sent.DIM))
        offsets = comm.ctx.zeros(ranks * own + 1, "i32")
        y, y_offsets = comm.ctx.zeros((ranks, most, Sent.DIM)), comm.ctx.zeros((ranks, own + 1), "i32")
        with comm.ctx.capture() as graph:
            comm.dispatch(x, offsets, y, y_offsets)
            comm.collect(y, y_offsets, back, offsets)
        assert len(graph) == 2
        for seed in range(6):
            sent = [Sent(rank, ranks, own, seed) for rank in range(ranks)]
            mine = sent[comm.rank]
            x.copy_(np.pad(mine.x, ((0, most - len(mine.x)), (0, 0))))
            offsets.copy_(mine.offsets)
            y.zero_()
            back.zero_()
            graph.launch()
            want, want_offsets = dispatched(sent, comm.rank, own, most, fill=0)
            np.testing.assert_array_equal(y.numpy(), want)
            np.testing.assert_array_equal(y_offsets.numpy(), want_offsets)
            np.testing.assert_array_equal(back.numpy()[: mine.rows], mine.x[: mine.rows])

    job(ranks, work)


def test_exactly_the_rows_travel():
    def work(comm: nncuda.Comm) -> list[int]:
        ranks, own, mine = comm.ranks, 2, Sent(comm.rank, comm.ranks, 2, 1)
        y, y_offsets = comm.ctx.zeros((ranks, Sent.MOST, Sent.DIM)), comm.ctx.zeros((ranks, own + 1), "i32")
        x, offsets, sent = comm.ctx.tensor(mine.x), comm.ctx.tensor(mine.offsets), [comm.bytes_sent]
        comm.dispatch(x, offsets, y, y_offsets)
        sent.append(comm.bytes_sent)
        comm.collect(y, y_offsets, x, offsets)
        kept = int(mine.offsets[(comm.rank + 1) * own] - mine.offsets[comm.rank * own])
        arrived = int(y_offsets.numpy()[:, own].sum())
        row, sizes = 4 * Sent.DIM, 4 * (own + 1) * (ranks - 1)
        assert sent[1] - sent[0] == (mine.rows - kept) * row + sizes
        assert comm.bytes_sent - sent[1] == (arrived - kept) * row

    job(3, work)


# ---- what is wrong on one rank is told to all

WRONG = {
    "offsets[0] is 1; it must be 0": [1, 1, 2, 3, 4],
    "offsets[2] is 0; it must be 1 to 4, the number of rows": [0, 1, 0, 3, 4],
    "offsets[4] is 5; it must be 3 to 4, the number of rows": [0, 1, 2, 3, 5],
    "offsets[1] is -1; it must be 0 to 4, the number of rows": [0, -1, 2, 3, 4],
}


def memory(comm: nncuda.Comm, offsets: list[int] | None = None) -> tuple[nncuda.Tensor, ...]:
    """Four rows a rank, one for each of two experts on two ranks: x, offsets, y, y_offsets."""
    ctx, first = comm.ctx, np.array(range(5) if offsets is None else offsets, np.int32)
    return ctx.zeros((4, 3)), ctx.tensor(first), ctx.zeros((2, 4, 3)), ctx.zeros((2, 3), "i32")


def refused(found: list[object], function: str, sentence: str) -> None:
    """Rank 1 of two was wrong."""
    told, blamed = found
    assert isinstance(blamed, nncuda.OutOfRangeError) and blamed.message == f"{function}: {sentence}"
    assert isinstance(told, nncuda.PeerError)  # in this call, or when it had just joined
    assert told.message.partition(": ")[2] == f"rank 1: {function}: {sentence}"


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_offsets_of_rows_to_send(sentence):
    def work(comm: nncuda.Comm) -> None:
        comm.dispatch(*memory(comm, WRONG[sentence] if comm.rank == 1 else None))

    refused(outcomes(2, work), "nncuda_comm_dispatch", sentence)


def test_wrong_offsets_of_a_guest():
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = memory(comm)
        comm.dispatch(x[:0] if comm.rank == 1 else x, offsets, y, y_offsets)

    refused(outcomes(2, work), "nncuda_comm_dispatch", "offsets[1] is 1; it must be 0 to 0, the number of rows")


@pytest.mark.parametrize(
    "at, value, sentence",
    [
        ((0, 0), 1, "y_offsets[0, 0] is 1; it must be 0"),
        ((0, 1), 5, "y_offsets[0, 1] is 5; it must be 0 to 4, the number of rows"),
        ((1, 2), 0, "y_offsets[1, 2] is 0; it must be 1 to 4, the number of rows"),
        ((1, 2), 1, "y_offsets[1, 2] is 1; it must be 2, the rows of x for the own experts"),
    ],
)
def test_wrong_offsets_of_rows_that_go_back(at, value, sentence):
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = memory(comm)
        comm.dispatch(x, offsets, y, y_offsets)
        if comm.rank == 1:
            changed = y_offsets.numpy()
            changed[at] = value
            y_offsets.copy_(changed)
        comm.collect(y, y_offsets, x, offsets)

    refused(outcomes(2, work), "nncuda_comm_collect", sentence)


def test_more_rows_arrive_than_a_slot_has():
    """All ranks have slots of one length, or are told."""

    def work(comm: nncuda.Comm) -> None:
        x, _, y, y_offsets = memory(comm)
        offsets = comm.ctx.tensor(np.array([0, 0, 0, 2, 4], np.int32))
        short = comm.rank == 1
        comm.dispatch(x[:2] if short else x, comm.ctx.zeros(5, "i32") if short else offsets,
                      comm.ctx.zeros((2, 2, 3)) if short else y, y_offsets)  # fmt: skip

    refused(outcomes(2, work), "nncuda_comm_dispatch", "y_offsets[0, 2] is 4; it must be 2 to 2, the number of rows")


def test_rows_that_nobody_waits_for():
    def work(comm: nncuda.Comm) -> None:
        x, offsets, y, y_offsets = memory(comm)
        comm.dispatch(x, offsets, y, y_offsets)
        if comm.rank == 1:
            offsets.copy_(np.array([0, 0, 0, 1, 2], np.int32))  # as if none of its rows had gone to rank 0
        comm.collect(y, y_offsets, x, offsets)

    assert isinstance(outcomes(2, work, timeout=2)[0], nncuda.PeerError)


def test_one_rank_alone_stays_as_it_is():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        x, y, y_offsets = ctx.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)), ctx.zeros((1, 2, 3)), None
        y_offsets = ctx.zeros((1, 3), "i32")
        with pytest.raises(nncuda.OutOfRangeError, match=r"offsets\[2\] is 3; it must be 1 to 2"):
            comm.dispatch(x, ctx.tensor(np.array([0, 1, 3], np.int32)), y, y_offsets)
        comm.dispatch(x, ctx.tensor(np.array([0, 1, 2], np.int32)), y, y_offsets)
        np.testing.assert_array_equal(y.numpy()[0], x.numpy())


# ---- what is wrong in the call itself


def test_sizes_that_do_not_fit():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        x, offsets = ctx.zeros((4, 3)), ctx.zeros(3, "i32")
        y, y_offsets = ctx.zeros((1, 4, 3)), ctx.zeros((1, 3), "i32")

        def call(*sizes: int) -> None:
            comm._move("nncuda_comm_dispatch", x, offsets, y, y_offsets, *sizes)

        call(4, 4, 12, 1, 2)
        offsets.copy_(np.array([0, 2, 4], np.int32))
        with pytest.raises(nncuda.OutOfRangeError, match="the experts of rank 0 get 4 rows; there must be at most"):
            call(4, 3, 12, 1, 2)
        offsets.copy_(np.array([0, 1, 3], np.int32))
        call(4, 3, 12, 1, 2)
        with pytest.raises(
            nncuda.ArgumentError, match="ranks is 2; it must be the number of ranks of the communicator"
        ):
            call(2, 2, 12, 2, 2)
        for sizes in (
            (-1, 4, 12, 1, 2),
            (4, -1, 12, 1, 2),
            (4, 4, -1, 1, 2),
            (4, 4, 12, 1, -1),
            (4, 2**60, 2**60, 1, 2),
        ):
            with pytest.raises(nncuda.ArgumentError):
                call(*sizes)
        with pytest.raises(nncuda.ArgumentError, match="overlaps"):
            comm._move("nncuda_comm_collect", y, y_offsets, y, offsets, 4, 4, 12, 1, 2)
        for missing in range(4):
            tensors = [None if at == missing else tensor for at, tensor in enumerate((x, offsets, y, y_offsets))]
            with pytest.raises(nncuda.ArgumentError, match="null"):
                comm._move("nncuda_comm_dispatch", *tensors, 4, 4, 12, 1, 2)


def test_tensors_that_do_not_fit():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        x, offsets = ctx.zeros((4, 3)), ctx.zeros(3, "i32")
        y, y_offsets = ctx.zeros((1, 4, 3)), ctx.zeros((1, 3), "i32")
        wrong = [
            (x, offsets, ctx.zeros((2, 4, 3)), y_offsets),
            (x, offsets, y, ctx.zeros((2, 3), "i32")),
            (x, offsets, ctx.zeros((4, 3)), y_offsets),
            (x, offsets, y, ctx.zeros((1, 3))),
            (x, offsets, y, ctx.zeros((1, 0), "i32")),
            (ctx.zeros((4, 2)), offsets, y, y_offsets),
            (ctx.zeros((4, 3), "bf16"), offsets, y, y_offsets),
            (x, ctx.zeros(4, "i32"), y, y_offsets),
            (x, ctx.zeros(3), y, y_offsets),
            (None, offsets, y, y_offsets),
            (x, None, y, y_offsets),
        ]
        for x, offsets, y, y_offsets in wrong:
            with pytest.raises(ValueError):
                comm.dispatch(x, offsets, y, y_offsets)
            with pytest.raises(ValueError):
                comm.collect(y, y_offsets, x, offsets)


# ---- contexts that measure, graphs


def test_a_context_that_measures_counts_what_even_experts_would_send():
    with nncuda.Context.measuring("cpu", threads=1) as ctx:
        comm = nncuda.Comm(ctx, "mpi", rank=1, ranks=4)
        x, offsets = ctx.empty((16, 3)), ctx.empty(4 * 2 + 1, "i32")
        y, y_offsets = ctx.empty((4, 16, 3)), ctx.empty((4, 3), "i32")
        with ctx.capture() as graph:
            comm.dispatch(x, offsets, y, y_offsets)
        assert comm.bytes_sent == 0
        graph.launch()
        assert comm.bytes_sent == 12 * 12 + 3 * 12
        comm.collect(y, y_offsets, x, offsets)
        assert comm.bytes_sent == 2 * 12 * 12 + 3 * 12


def test_on_a_gpu_they_are_not_captured():
    """Nor on a context that measures one: what a program does there is what it will do."""
    with nncuda.Context.measuring("cuda", capability=90) as ctx:
        comm = nncuda.Comm(ctx, "nccl", rank=0, ranks=2)
        x, offsets = ctx.empty((16, 3)), ctx.empty(5, "i32")
        y, y_offsets = ctx.empty((2, 16, 3)), ctx.empty((2, 3), "i32")
        comm.dispatch(x, offsets, y, y_offsets)
        with ctx.capture():
            with pytest.raises(
                nncuda.StateError, match="on a GPU the host waits for the offsets, so the call cannot be"
            ):
                comm.dispatch(x, offsets, y, y_offsets)
            with pytest.raises(nncuda.StateError, match="cannot be captured"):
                comm.collect(y, y_offsets, x, offsets)


def test_a_graph_of_a_closed_communicator_is_refused():
    def work(comm: nncuda.Comm) -> None:
        part = comm.split(0)
        arguments = memory(comm, [1, 1, 1, 1, 1])  # wrong as well
        with comm.ctx.capture() as graph:
            part.dispatch(*arguments)
        part.close()
        with pytest.raises(nncuda.ArgumentError, match="a communicator of this context that was not destroyed"):
            graph.launch()

    job(2, work)
