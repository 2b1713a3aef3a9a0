"""What ranks are told when one of them fails, leaves, hangs or is unlike the others, and what mistakes in calls are."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from ranks import failures, job, outcomes

import nncuda


def zeros(comm: nncuda.Comm, n: int = 4, dtype: str = "f32") -> nncuda.Tensor:
    return comm.ctx.zeros(n, dtype)


@pytest.fixture
def alone():
    with nncuda.Context(threads=1) as ctx, nncuda.Comm(ctx) as comm:
        yield comm


# Ranks that do not match


@pytest.mark.parametrize(
    "value, sentence",
    [
        (lambda rank: str(rank == 2), "the step of rank 2 (True) is not that of rank 0 (False)"),
        (lambda rank: b"\n" * (rank == 2), "the step of rank 2 is not that of rank 0"),
        (lambda rank: "x" * 500 + str(rank == 2), "the step of rank 2 is not that of rank 0"),
        (
            lambda rank: f"steps=8\nreplicas={4 + rank // 2}\n",
            "the step of rank 2 is not that of rank 0: they differ in replicas",
        ),
        (lambda rank: "steps=8\n" * (1 + rank // 2), "the step of rank 2 is not that of rank 0"),
        (lambda rank: f"{'x' * 9000}\nreplicas={rank // 2}\n", "the step of rank 2 is not that of rank 0"),
    ],
)
def test_what_ranks_do_not_agree_on_is_named(value, sentence):
    assert failures(4, lambda comm: comm.agree("step", value(comm.rank))) == [sentence] * 4


def test_after_that_the_communicator_is_lost():
    def work(comm: nncuda.Comm) -> list[str]:
        said = []
        for call in (lambda: comm.agree("step", str(comm.rank)), comm.barrier, lambda: comm.broadcast(zeros(comm))):
            with pytest.raises(nncuda.PeerError) as caught:
                call()
            said.append(caught.value.message.partition(": ")[2])
        return said

    assert job(2, work) == [["the step of rank 1 (1) is not that of rank 0 (0)"] * 3] * 2


def joined(seats: list[tuple[int, int]], timeout: float = 5.0, **options: Any) -> list[str]:
    """What each of these, rank and number of ranks, is told when all join under one name."""
    said = [""] * len(seats)

    def join(i: int) -> None:
        with nncuda.Context(threads=1, **options) as ctx:
            try:
                nncuda.Comm(ctx, "threads", "joined", *seats[i], timeout).close()
            except nncuda.PeerError as error:
                said[i] = error.message

    threads = [threading.Thread(target=join, args=(i,)) for i in range(len(seats))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def test_ranks_that_do_not_fit():
    create = "nncuda_comm_create: "
    said = joined([(0, 2), (1, 3)])
    assert said[0] == said[1] and said[0] in {
        create + "rank 1 is one of 3 ranks, those before it are of 2",
        create + "rank 0 is one of 2 ranks, those before it are of 3",
    }
    assert joined([(1, 2), (1, 2)]) == [create + "rank 1 joined twice"] * 2
    assert joined([(0, 3), (2, 3)], 0.5) == [create + "rank 1 did not join within 0.5 s"] * 2
    assert joined([(1, 2), (0, 2)]) == ["", ""]  # the name is free again after each of these


def test_another_instruction_set():
    def work(rank: int) -> str:
        with (
            nncuda.Context(threads=1, isa=("baseline", "avx2")[rank]) as ctx,
            pytest.raises(nncuda.PeerError) as caught,
        ):
            nncuda.Comm(ctx, "threads", "unlike", rank, 2, 5)
        return caught.value.message

    with nncuda.Context(threads=1) as ctx:
        if ctx.isa == "baseline":
            pytest.skip("this processor has one instruction set")
    said: list[str] = ["", ""]
    other = threading.Thread(target=lambda: said.__setitem__(1, work(1)))
    other.start()
    said[0] = work(0)
    other.join()
    assert said[0] == said[1]
    version = nncuda.__version__
    assert said[0] == (
        f"nncuda_comm_create: the library of rank 1 (nncuda {version}, device 1, instruction set 1, tf32 0) is not "
        f"that of rank 0 (nncuda {version}, device 1, instruction set 0, tf32 0)"
    )


# Ranks that fail


def test_an_abort_reaches_who_waits_and_who_comes_later():
    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 1:
            time.sleep(0.2)
            comm.abort("the disk is full")
            with pytest.raises(nncuda.PeerError, match="rank 1: the disk is full"):
                comm.barrier()
            return
        if comm.rank == 2:
            time.sleep(0.5)
        comm.sum(1)

    assert failures(3, work) == ["rank 1: the disk is full", "", "rank 1: the disk is full"]


def test_of_two_reasons_the_first_counts():
    aborted = threading.Event()

    def work(comm: nncuda.Comm) -> None:
        comm.barrier()
        if comm.rank == 1:
            comm.abort("x" * 1000)
            aborted.set()
        elif comm.rank == 2:
            aborted.wait(20)
            comm.abort("another")
        comm.barrier()

    said = failures(3, work)
    assert said[0] == said[1] == "rank 1: " + "x" * 247 and len(said[0]) == 255
    assert said[2] in {said[0], "rank 2: another"}  # it knows its own best


def test_a_reason_that_is_no_utf8_is_told_all_the_same():
    """Such as one with the name of a file."""

    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 0:
            comm.abort("no room for caf\udce9")
        else:
            comm.barrier()

    assert failures(2, work) == ["", "rank 0: no room for caf?"]


def test_a_with_block_that_ends_by_an_exception_tells_the_others():
    def work(comm: nncuda.Comm) -> None:
        with comm:
            if comm.rank == 0:
                raise ZeroDivisionError("no more numbers")
            comm.barrier()

    found = outcomes(3, work)
    assert isinstance(found[0], ZeroDivisionError)
    assert all(error.message.endswith(": rank 0: ZeroDivisionError: no more numbers") for error in found[1:])


def test_a_rank_that_left():
    def work(comm: nncuda.Comm) -> None:
        if comm.rank != 1:
            comm.all_reduce(zeros(comm))

    assert failures(3, work) == ["rank 1 has left", "", "rank 1 has left"]


def test_a_context_that_is_closed_leaves():
    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 1:
            comm.ctx.close()
        else:
            comm.barrier()

    assert failures(2, work) == ["rank 1 has left", ""]


def test_a_rank_that_hangs():
    done = threading.Event()

    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 2:
            done.wait(20)
            comm.barrier()  # too late
        else:
            try:
                comm.barrier()
            finally:
                done.set()

    assert failures(3, work, timeout=0.8) == ["rank 2 did not answer within 0.8 s"] * 3


def test_without_a_timeout_ranks_wait():
    def work(comm: nncuda.Comm) -> int:
        time.sleep(0.3 * comm.rank)
        return comm.sum(1)

    assert job(2, work, timeout=0) == [2, 2]


@pytest.mark.parametrize("expected", [3, 5])
def test_a_rank_that_sends_another_size(expected):
    def work(comm: nncuda.Comm) -> None:
        comm.broadcast(zeros(comm, (4, expected)[comm.rank], "u8"), 0)

    assert failures(2, work) == [f"rank 0 sent 4 bytes to rank 1, which expects {expected}"] * 2


def test_a_rank_that_waits_for_one_that_failed_in_a_split():
    def work(comm: nncuda.Comm) -> None:
        if comm.rank == 0:
            comm.abort("no")
        else:
            comm.split(0)

    assert failures(3, work) == ["", "rank 0: no", "rank 0: no"]


# Calls that are wrong


def raises(error: type[Exception], sentence: str) -> Any:
    return pytest.raises(error, match=rf"^nncuda_comm_[a-z_]+: {sentence} \(NNCUDA_ERROR_[A-Z_]+\)$")


def test_joining_wrongly(alone):
    ctx = alone.ctx
    argument = nncuda.ArgumentError
    with raises(argument, r"ranks is 2; with NNCUDA_TRANSPORT_SELF \(0\) it must be 1"):
        nncuda.Comm(ctx, rank=0, ranks=2)
    with raises(argument, "rank is 2; of 2 ranks it must be 0 to 1"):
        nncuda.Comm(ctx, "threads", "a", 2, 2)
    with raises(argument, "ranks is 0; it must be 1 to 2147483647"):
        nncuda.Comm(ctx, "threads", "a", 0, 0)
    with raises(argument, "ranks is -1; it must be 1 to 2147483647"):
        nncuda.Comm(ctx, "threads", "a", 0)
    with raises(argument, r"rank is -1; with NNCUDA_TRANSPORT_THREADS \(1\) no launcher says which it is"):
        nncuda.Comm(ctx, "threads", "a")
    with raises(argument, r"address is empty; with NNCUDA_TRANSPORT_THREADS \(1\) it must be a name .*"):
        nncuda.Comm(ctx, "threads", "", 0, 1)
    with raises(argument, "address is 256 bytes long; it must be 0 to 255"):
        nncuda.Comm(ctx, "threads", "a" * 256, 0, 1)
    with raises(argument, "timeout_ms is -1000; it must be at least 0"):
        nncuda.Comm(ctx, timeout=-1)
    with pytest.raises(ValueError, match="transport is 'tcp'; it must be one of self, threads, mpi, nccl"):
        nncuda.Comm(ctx, "tcp")  # type: ignore[arg-type]
    nncuda.Comm(ctx, "threads", "a" * 255, 0, 1).close()


#: The one shard of `zeros`, of a rank alone.
WHOLE = [(0, 4, 0)]


def test_collectives_of_wrong_options(alone):
    x, argument = zeros(alone), nncuda.ArgumentError
    with raises(argument, "root is 1; of 1 ranks it must be 0 to 0"):
        alone.broadcast(x, 1)
    with raises(argument, "grain is 0; it must be at least 1"):
        alone.all_gather(x, 0)
    with raises(argument, "replicas is 0; it must be at least the ranks, which are 1"):
        alone.reduce_scatter(None, x, WHOLE, replicas=0)
    with raises(argument, "parts is 1; with the replicas of rank 0 of 1 it must be 0"):
        alone.reduce_scatter(zeros(alone), x, WHOLE, replicas=3)
    with raises(argument, "color is -1; it must be at least 0"):
        alone.split(-1)


def test_fewer_replicas_than_ranks():
    def work(comm: nncuda.Comm) -> None:
        with raises(nncuda.ArgumentError, "replicas is 2; it must be at least the ranks, which are 3"):
            comm.reduce_scatter(None, zeros(comm), nncuda.expert_shards(4, 1, 3), 2)
        if comm.rank == 1:
            with raises(nncuda.ArgumentError, "parts is 0; with the replicas of rank 1 of 3 it must be 1"):
                comm.reduce_scatter(None, zeros(comm), nncuda.expert_shards(4, 1, 3), 5)

    job(3, work)


def test_tensors_that_do_not_fit(alone):
    with nncuda.Context(threads=1) as other, pytest.raises(ValueError, match="another context"):
        alone.broadcast(other.zeros(3))
    with pytest.raises(TypeError, match="x is i32; it must be f32"):
        alone.all_reduce(zeros(alone, 3, "i32"))
    with pytest.raises(ValueError, match="partials has 7 elements; it must be a multiple of those of x, 4"):
        alone.reduce_scatter(zeros(alone, 7), zeros(alone), WHOLE)
    with pytest.raises(ValueError, match="norm has 2 elements; it must have 1"):
        alone.grad_norm(zeros(alone), zeros(alone, 2), WHOLE)
    with pytest.raises(ValueError, match="must be dense"):
        alone.broadcast(alone.ctx.zeros((4, 4)).narrow(1, 0, 2))
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="not read-only"):
        alone.all_reduce(alone.ctx.from_numpy(array))


def test_memory_that_does_not_fit(alone):
    """What Python's Comm never gives, straight to the library."""
    ctx = alone.ctx
    lib, null = ctx._lib, ctx._null
    x = zeros(alone, 64)
    address = int(ctx._ffi.cast("intptr_t", x._pointer))
    numbers = ctx._ffi.new("int64_t[4]", [0, 8, 0, 0])
    f32, f16, i32 = (nncuda.dtypes.DTYPES[name].code for name in ("f32", "f16", "i32"))

    def at(offset: int) -> Any:
        return ctx._ffi.cast("float *", address + offset)

    def refused(function: str, *arguments: Any) -> str:
        status = getattr(lib, function)(ctx._handle, alone._pointer, *arguments)
        sentence = ctx._library.text(lib.nncuda_last_error(ctx._handle))
        assert sentence.startswith(f"{function}: ")
        return f"{ctx._library.status_name(status).removeprefix('NNCUDA_ERROR_')} {sentence.partition(': ')[2]}"

    assert refused("nncuda_comm_broadcast", null, 4, 0).startswith("NULL_POINTER x is null")
    assert refused("nncuda_comm_all_reduce", at(0), -1).startswith("INVALID_SIZE n is -1")
    assert refused("nncuda_comm_all_reduce", at(0), 2**62).startswith("INVALID_SIZE")
    assert refused("nncuda_comm_all_reduce", at(1), 4).startswith("MISALIGNED x")
    norm, scatter = "nncuda_comm_grad_norm", "nncuda_comm_reduce_scatter"
    assert refused(norm, at(0), at(4), 8, numbers, 1).startswith("ALIASED norm overlaps grad")
    assert refused(norm, at(0), at(64), 8, null, 1) == "NULL_POINTER shards is null; it must point to 1 shards"
    assert refused(norm, at(0), at(64), 8, numbers, 0) == (
        "INVALID_VALUE shards have gaps; they must be all of the 8 elements"
    )
    assert refused(scatter, at(0), at(0), 8, -1, 1, numbers, 1, f32).startswith("INVALID_SIZE parts is -1")
    assert refused(scatter, null, at(2), 8, 0, 1, numbers, 1, f16).startswith("MISALIGNED x")
    assert refused(scatter, null, null, 8, 0, 1, numbers, 1, f32).startswith("NULL_POINTER x is null")
    assert refused(scatter, null, at(0), 8, 0, 1, null, 2, f32) == (
        "NULL_POINTER shards is null; it must point to 2 shards"
    )
    assert refused(scatter, null, at(0), 8, 0, 1, numbers, -1, f32).startswith("INVALID_SIZE count is -1")
    assert refused(scatter, null, at(0), 8, 0, 1, numbers, 1, i32).startswith("INVALID_DTYPE wire is 3")
    assert refused("nncuda_comm_move", at(0), 8, null, 1) == "NULL_POINTER moves is null; it must point to 1 moves"
    assert refused("nncuda_comm_move", at(0), 8, null, -1).startswith("INVALID_SIZE count is -1")
    assert refused("nncuda_comm_move", null, 8, numbers, 1).startswith("NULL_POINTER x is null")
    assert refused("nncuda_comm_part", 0, 1, 1, null).startswith("NULL_POINTER part is null")
    assert refused("nncuda_comm_sum", 1, null) == "NULL_POINTER total is null; it must say where to put the sum"
    assert refused("nncuda_comm_bytes_sent", null).startswith("NULL_POINTER bytes is null")
    assert refused("nncuda_comm_rank", null, null).startswith("NULL_POINTER rank is null")
    assert refused("nncuda_comm_split", 0, 0, null).startswith("NULL_POINTER part is null")
    assert refused("nncuda_comm_agree", null, 3, null, 0).startswith("NULL_POINTER what is null")
    assert refused("nncuda_comm_agree", b"a", 1, b"", -1).startswith("INVALID_SIZE value is -1 bytes long")
    assert refused("nncuda_comm_abort", null, 3).startswith("NULL_POINTER reason is null")
    alone.barrier()  # none of these was an abort


def test_sums_aside_must_be_elsewhere():
    """And a rank that has none takes part, whether or not it gives an address for them."""

    def work(comm: nncuda.Comm) -> None:
        ctx, n = comm.ctx, 8
        memory = ctx.zeros(2 * n)
        call = (ctx._handle, comm._pointer)
        shards = ctx._ffi.new("int64_t[6]", [0, 4, 0, 4, 8, 1])
        f32 = nncuda.dtypes.DTYPES["f32"].code
        if comm.rank == 1:
            inside = memory[4:12]._pointer
            assert ctx._lib.nncuda_comm_reduce_scatter(*call, memory._pointer, inside, n, 1, 3, shards, 2, f32) != 0
            assert "partials" in ctx._library.text(ctx._lib.nncuda_last_error(ctx._handle))
        parts = comm.rank  # of three replicas rank 1 has the last two, which the tree does not add up
        memory.copy_(np.ones(2 * n, np.float32))
        apart = memory[n:]._pointer
        status = ctx._lib.nncuda_comm_reduce_scatter(*call, memory._pointer, apart, n, parts, 3, shards, 2, f32)
        assert status == 0
        shard = slice(*nncuda.shard(n, 1, 2, comm.rank))
        np.testing.assert_array_equal(memory[n:].numpy()[shard], np.full(4, 3.0, np.float32))

    job(2, work)


def test_communicators_that_are_none(alone):
    ctx = alone.ctx
    x = zeros(alone)

    def status(comm: Any) -> int:
        return int(ctx._lib.nncuda_comm_broadcast(ctx._handle, comm, x._pointer, 16, 0))

    def sentence() -> str:
        return ctx._library.text(ctx._lib.nncuda_last_error(ctx._handle))

    assert status(ctx._null) == 10 and sentence() == "nncuda_comm_broadcast: comm is null"
    stream = ctx.stream()
    with nncuda.Context(threads=1) as other, nncuda.Comm(other) as foreign:
        for pointer in (foreign._pointer, ctx._ffi.cast("nncuda_comm *", stream._pointer)):
            assert status(pointer) != 0
            assert "it must be a communicator of this context that was not destroyed" in sentence()
    pointer = alone._pointer
    assert status(pointer) == 0
    alone.close()
    assert status(pointer) != 0 and "that was not destroyed" in sentence()
    with pytest.raises(nncuda.StateError, match="the communicator is closed"):
        alone.barrier()
    assert "closed" in repr(alone)


def test_a_second_thread_is_refused():
    entered = threading.Event()

    def work(comm: nncuda.Comm) -> str | None:
        if comm.rank == 1:
            entered.wait(20)
            time.sleep(0.1)
            said = ""
            with pytest.raises(nncuda.StateError) as caught:
                waiting[0].barrier()
            said = caught.value.name
            comm.sum(1)
            return said
        waiting.append(comm)
        entered.set()
        comm.sum(1)
        return None

    waiting: list[nncuda.Comm] = []
    assert job(2, work) == [None, "NNCUDA_ERROR_BUSY"]


def test_the_host_is_not_captured(alone):
    """Only what moves data of the device is recorded."""
    ctx = alone.ctx
    with ctx.capture():
        for call in (alone.barrier, lambda: alone.sum(1), lambda: alone.split(0), lambda: nncuda.Comm(ctx)):
            with pytest.raises(nncuda.StateError, match="the context is capturing a graph"):
                call()
