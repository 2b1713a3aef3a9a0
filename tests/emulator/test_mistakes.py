"""Mistakes that the emulator must find, and what it says of them."""

import pytest

PROGRAM = "programs/mistakes.cu"

#: The name of a mistake, and parts of the report.
REPORTED = {
    "half at barrier": ["kernel half_at_barrier()", "threads 0 to 39: __syncthreads", "threads 40 to 63: __syncwarp"],
    "two barriers": ["kernel two_barriers()", "wait at different barriers: __syncthreads at "],
    "turn too many": ["kernel take_turns(int)", "comes to barrier 2 a second time before it is complete: "],
    "turn not taken": ["kernel take_turns(int)", "the block ends with barrier 1 incomplete: 32 of 64 threads came"],
    "turn not passed": ["every thread waits", "threads 0 to 31: bar.sync at barrier 1", "ended: 0 of 64"],
    "fence missing": ["kernel stores_copied", "which thread 0 wrote by cp.async without fence.proxy.async after it"],
    "masks differ": ["every thread waits", "0 to 15: __shfl_sync with mask 0xffffffff", "with mask 0xffff0001"],
    "kinds differ": ["kernel kinds_differ(int*)", "__shfl_sync", "__ballot_sync"],
    "polls": ["kernel polls_for_ever", "poll for what never comes", "threads 0 to 31: __nanosleep"],
    "behind the end": ["kernel writes(int*, long)", "96 bytes behind the end of an allocation of 4000 bytes"],
    "just behind the end": ["written 0 bytes behind the end of an allocation of 4000 bytes"],
    "just before": ["before an allocation of 400 bytes"],
    "freed": ["kernel writes(int*, long)", "byte 0 of 4000 bytes of device memory that were freed"],
    "misaligned": ["kernel reads_vector", "misaligned"],
    "behind shared": ["wrote 1 bytes behind its 100 bytes of dynamic shared memory"],
    "array": ["kernel overflows_array", "index out of bounds"],
    "static shared": ["kernel three_times_24k", "static shared memory, more than 49152"],
    "stack": ["kernel fills_stack", "a thread's stack is full"],
    "ahead": ["kernel writes(int*, long) was started ahead", "1 of its threads end without waiting"],
    "cluster with static shared": ["kernel reverse_within", "has none for the blocks of a cluster"],
    "large cluster": ["kernel writes(int*, long)", "at most 1024 threads; this one has 4 blocks of 512 threads"],
    "nested launch": ["a kernel launches a kernel"],
    "host reads": ["host code touches device memory in main: byte 0 of an allocation of 4000 bytes"],
    "host pointer": ["kernel writes(int*, long)", "touches address 0x40"],
}


@pytest.mark.parametrize("mistake", REPORTED)
def test_reported(emulator, mistake):
    done = emulator.run(PROGRAM, mistake)
    assert done.returncode < 0, "it must end by a signal"
    assert "went on" not in done.stdout
    for part in REPORTED[mistake]:
        assert part in done.stderr


#: The same for blocks of a cluster, whatever the order.
OF_CLUSTERS = {
    "no first sync": ["kernel share_parts", "cp.async.bulk.tensor: no mbarrier at", "of another block of the cluster"],
    "no last sync": ["mbarrier.arrive.shared::cluster: block", "of the cluster has ended"],
    "copies to itself alone": ["poll for what never comes", "block 0 of the cluster, threads 32 to 63: mbarrier.try_w"],
    "no such block": ["mapa: address", "of block 2 in a cluster of 2"],
    "not its own": ["mbarrier.arrive: bytes 0x", "of a block with"],
}


@pytest.mark.parametrize("order", ["forward", "backward", "shuffle:1"])
@pytest.mark.parametrize("mistake", OF_CLUSTERS)
def test_clusters(emulator, mistake, order):
    done = emulator.run("instructions/cluster.cu", mistake, order=order)
    assert done.returncode < 0, "it must end by a signal"
    assert "went on" not in done.stdout
    for part in OF_CLUSTERS[mistake]:
        assert part in done.stderr


def test_orders_show_a_block_that_is_not_told(emulator):
    """A stage of another block that is filled again before that block has read it."""
    orders = ["forward", "backward", "shuffle:1", "shuffle:2"]
    results = [emulator.run("instructions/cluster.cu", "tells itself alone", order=order) for order in orders]
    assert any(done.returncode == 1 and ", not " in done.stderr for done in results)


@pytest.mark.parametrize("mistake", ["race", "chain"])
def test_orders_show_races(emulator, mistake):
    """A thread or block that relies on another having run before it gives other results in another order."""
    orders = ["forward", "backward", "shuffle:1", "shuffle:2"]
    results = [emulator.run(PROGRAM, mistake, order=order).stdout for order in orders]
    assert len(set(results)) > 1
    assert results[2] == emulator.run(PROGRAM, mistake, order="shuffle:1").stdout, "a seed must give the same again"


def test_orders_agree_without_a_race(emulator):
    expected = [str(3 * i) for i in reversed(range(256))]
    for order in ("forward", "backward", "shuffle:1", "shuffle:2"):
        done = emulator.run(PROGRAM, "no race", order=order)
        assert done.stdout.split() == [*expected, "went", "on"]


@pytest.mark.parametrize("right", ["turns", "fenced"])
def test_right(emulator, right):
    """What some of the mistakes are made of, without them."""
    for order in ("forward", "backward", "shuffle:1"):
        done = emulator.run(PROGRAM, right, order=order)
        assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


def test_uninitialised_shared_memory(emulator):
    """It is -1 (NaN for floats) before every block, whatever ran before."""
    whole, part = map(int, emulator.run(PROGRAM, "uninitialised").stdout.split()[:2])
    inputs = [3 * i for i in range(256)] + [-1] * 744
    assert whole == sum((inputs + [0] * 24)[warp * 32] for warp in range(32))
    assert part == sum(inputs[warp * 32] for warp in range(4)) - 28


def test_bad_setting(emulator):
    assert "it must be forward, backward or shuffle:SEED" in emulator.run(PROGRAM, "chain", order="sideways").stderr
