"""The order in which owners of experts add gradients: played through, it gives the bits of the tree over replicas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from ranks import job, tree_sum

import nncuda

Node = tuple[int, int]


def jobs() -> Iterator[tuple[int, int, int, int]]:
    """Replicas, ranks, ranks of a group, micro-batches."""
    for replicas in (1, 2, 3, 4, 5, 7, 8, 12, 16, 17):
        for ranks in range(1, replicas + 1):
            for group in (size for size in range(1, ranks + 1) if ranks % size == 0):
                for more in (0, 1, replicas, 2 * replicas + 1):
                    yield replicas, ranks, group, replicas + more


def gradients(micro_batches: int, n: int = 5) -> np.ndarray:
    """One a micro-batch, of all sizes, so that the order of their sums shows in the bits."""
    rng = np.random.default_rng(micro_batches)
    return (rng.standard_normal((micro_batches, n)) * np.exp(rng.uniform(-6, 6, (micro_batches, n)))).astype(np.float32)


def of_replicas(gradients: np.ndarray, replicas: int) -> np.ndarray:
    """The gradient of each replica: those of its micro-batches, one after the other."""
    sums = gradients[:replicas].copy()
    for m in range(replicas, len(gradients)):
        sums[m % replicas] += gradients[m]
    return sums


def children(node: Node) -> tuple[Node, Node]:
    begin, end = node
    middle = begin + (1 << (end - begin - 1).bit_length() - 1)
    return (begin, middle), (middle, end)


def parts(node: Node, own: Node) -> list[Node]:
    """The largest nodes of the tree within a run of replicas."""
    if node[0] >= own[1] or node[1] <= own[0]:
        return []
    if own[0] <= node[0] and node[1] <= own[1]:
        return [node]
    return [part for child in children(node) for part in parts(child, own)]


def order(replicas: int, ranks: int, rank: int, micro_batches: int) -> list[int]:
    own = range(*nncuda.shard(replicas, 1, ranks, rank))
    return [m for replica in own for m in range(replica, micro_batches, replicas)]


def has_siblings(nodes: list[Node], whole: Node) -> bool:
    """Whether two of them can be joined."""
    if whole[1] - whole[0] < 2:
        return False
    left, right = children(whole)
    return (left in nodes and right in nodes) or has_siblings(nodes, left) or has_siblings(nodes, right)


class Slots:
    """What lies in the slots of an owner, event by event; asserts what must hold at each."""

    def __init__(self, replicas: int, micro_batches: int, count: int, gradients: np.ndarray) -> None:
        self.replicas, self.micro_batches, self.gradients = replicas, micro_batches, gradients
        self.values: list[np.ndarray | None] = [None] * count
        self.nodes: list[Node | None] = [None] * count  # of a sum that is complete
        self.rounded: list[Node | None] = []

    def complete(self) -> list[Node]:
        return [node for node in self.nodes if node is not None]

    def play(self, event: nncuda.ExpertEvent) -> None:
        kind, a, b, c = event.kind, event.a, event.b, event.c
        if kind == "run":
            assert not has_siblings(self.complete(), (0, self.replicas)), "sums are added as soon as they can be"
            self.run(b, c, event.accumulate)
            return
        if kind == "round":
            assert (b, c, event.accumulate) == (0, 0, False)
            assert self.nodes[a] not in {None, (0, self.replicas)} and self.nodes[a] not in self.rounded
            self.rounded.append(self.nodes[a])
            return
        left, right = self.values[a], self.values[b]
        if kind == "add":
            joined = (self.nodes[a], self.nodes[b])
            assert set(joined) <= set(self.rounded)
            node = (self.nodes[a][0], self.nodes[b][1])
            assert joined == children(node)
            assert parts((0, self.replicas), node) == [node], "a node of the tree"
            self.values[a], self.nodes[a] = left + right, node
            self.values[b] = self.nodes[b] = None
        else:
            assert left is not None and right is None
            self.values[b], self.nodes[b] = left, self.nodes[a]
            self.values[a] = self.nodes[a] = None
        assert (c, event.accumulate) == (0, False)

    def run(self, micro_batch: int, slot: int, accumulate: bool) -> None:
        replica = micro_batch % self.replicas
        assert accumulate == (micro_batch >= self.replicas)
        if accumulate:
            assert self.nodes[slot] is None, "a sum that is complete stays as it is"
            self.values[slot] = self.values[slot] + self.gradients[micro_batch]
        else:
            assert slot == next(at for at, value in enumerate(self.values) if value is None), "the first that is free"
            self.values[slot] = self.gradients[micro_batch]
        if micro_batch + self.replicas >= self.micro_batches:
            self.nodes[slot] = (replica, replica + 1)


def played(replicas: int, ranks: int, first: int, group: int, micro_batches: int) -> Slots:
    events, count = nncuda.expert_schedule(replicas, ranks, first, group, micro_batches)
    slots = Slots(replicas, micro_batches, count, gradients(micro_batches))
    most = 0
    for event in events:
        slots.play(event)
        most = max(most, *(slot + 1 for slot, value in enumerate(slots.values) if value is not None))
    assert count == most
    kinds = [event.kind for event in events]
    assert "copy" not in kinds or set(kinds[kinds.index("copy") :]) == {"copy"}
    rounds = [event.round for event in events]
    assert rounds == sorted(rounds)
    orders = [order(replicas, ranks, first + source, micro_batches) for source in range(group)]
    longest = max(map(len, orders))
    assert {event.round for event in events if event.kind == "copy"} <= {longest}
    assert [(event.round, event.a, event.b) for event in events if event.kind == "run"] == [
        (at, source, own[at]) for at in range(longest) for source, own in enumerate(orders) if at < len(own)
    ]
    return slots


def test_the_sums_are_those_of_the_tree():
    seen = set()
    for replicas, ranks, group, micro_batches in jobs():
        whole = of_replicas(gradients(micro_batches), replicas)
        for first in range(0, ranks, group):
            slots = played(replicas, ranks, first, group, micro_batches)
            own = (nncuda.shard(replicas, 1, ranks, first)[0], nncuda.shard(replicas, 1, ranks, first + group - 1)[1])
            want = parts((0, replicas), own)
            assert slots.nodes == want + [None] * (len(slots.nodes) - len(want))
            for (begin, end), value in zip(want, slots.values, strict=False):
                np.testing.assert_array_equal(value, tree_sum(whole[begin:end]))
            seen.add(len(want))
    assert seen >= {1, 2, 3}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 16, 33, 64])
def test_a_whole_job_of_one_micro_batch_a_rank_needs_few_slots(ranks):
    _, slots = nncuda.expert_schedule(ranks, ranks, 0, ranks, ranks)
    assert slots == ranks.bit_length()


def of_slot(events: list[nncuda.ExpertEvent], slot: int) -> list[nncuda.ExpertEvent]:
    """What becomes of it, in order."""
    return [one for one in events if slot in {"run": {one.c}, "round": {one.a}}.get(one.kind, {one.a, one.b})]


def test_in_the_order_of_rows_no_sum_changes():
    for replicas, ranks, group, micro_batches in jobs():
        if replicas > 8:
            continue
        for first in range(0, ranks, group):
            job = replicas, ranks, first, group, micro_batches
            plain, slots = nncuda.expert_schedule(*job)
            for position in range(group):
                events, same_slots = nncuda.expert_schedule(*job, position)
                assert same_slots == slots and sorted(events) == sorted(plain)
                assert [one.round for one in events] == [one.round for one in plain]
                for slot in range(slots):
                    assert of_slot(events, slot) == of_slot(plain, slot)


@pytest.mark.parametrize("position", range(5))
def test_rows_are_used_as_they_come(position):
    """Where each micro-batch has a slot of its own: those of the ranks before this one, backwards; its own last."""
    events, _ = nncuda.expert_schedule(5, 5, 0, 5, 15, position)
    for number in range(3):
        runs = [one.a for one in events if one.round == number and one.kind == "run"]
        if number < 2:
            assert runs == [(position - step) % 5 for step in (1, 2, 3, 4, 0)]


def test_rows_are_used_as_slots_allow():
    """Of four replicas of a micro-batch each, which have three slots."""
    orders = []
    for position in range(4):
        events, _ = nncuda.expert_schedule(4, 4, 0, 4, 4, position)
        orders.append([one.a for one in events if one.kind == "run"])
    assert orders == [[3, 1, 0, 2], [0, 3, 1, 2], [1, 0, 3, 2], [1, 0, 2, 3]]


def test_sums_that_have_each_others_place_are_exchanged():
    """One steps aside: more copies than sums that end elsewhere."""
    events, _ = nncuda.expert_schedule(16, 6, 2, 2, 16)
    copies = [(event.a, event.b) for event in events if event.kind == "copy"]
    came_from: dict[int, int] = {}
    for a, b in copies:
        came_from[b] = came_from.pop(a, a)
    assert len(copies) == len(came_from) + 1
    assert set(came_from) == set(came_from.values()), "each has the place of another"
    assert played(16, 6, 2, 2, 16).complete() == parts((0, 16), (5, 10))


@pytest.mark.parametrize(
    "replicas, ranks, group, micro_batches", [(4, 4, 2, 4), (6, 4, 2, 13), (9, 6, 3, 9), (12, 6, 2, 30)]
)
def test_owners_add_what_is_left(replicas, ranks, group, micro_batches):
    """Of all groups: the bits of one rank."""
    n, grain = 500, 16
    g = gradients(micro_batches, n)

    def work(comm: nncuda.Comm) -> np.ndarray:
        position, first = comm.rank % group, comm.rank // group * group
        owners = comm.part(position, group, ranks // group)
        events, count = nncuda.expert_schedule(replicas, ranks, first, group, micro_batches)
        slots = Slots(replicas, micro_batches, count, g)
        for event in events:
            slots.play(event)
        *aside, last = [comm.ctx.tensor(value) for value in slots.values if value is not None]
        partials = comm.ctx.tensor(np.stack([part.numpy() for part in aside])) if aside else None
        owners.reduce_scatter(partials, last, nncuda.expert_shards(n, grain, owners.ranks), replicas)
        return owners.all_gather(last, 4 * grain).numpy()

    for found in job(ranks, work):
        np.testing.assert_array_equal(found, tree_sum(of_replicas(g, replicas)))


RIGHT = {"replicas": 4, "ranks": 4, "first": 2, "group": 2, "micro_batches": 8}


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0},
        {"replicas": 3},
        {"ranks": 0},
        {"ranks": 3},
        {"first": -2},
        {"first": 1},
        {"first": 4},
        {"group": 0},
        {"group": 3},
        {"micro_batches": 3},
        {"position": -2},
        {"position": 2},
    ],
)
def test_schedules_that_cannot_be(wrong):
    assert nncuda.expert_schedule(**RIGHT)[0]
    with pytest.raises(nncuda.ArgumentError):
        nncuda.expert_schedule(**{**RIGHT, **wrong})


def test_events_are_only_written_where_all_have_room():
    from nncuda.binding import library

    loaded = library.load()
    ffi, ask = loaded.ffi, loaded.lib.nncuda_expert_schedule
    numbers = ffi.new("int64_t[2]")
    assert ask(4, 4, 2, 2, 8, -1, ffi.NULL, 0, numbers, numbers + 1) == 0
    count = int(numbers[0])
    for capacity in range(count + 2):
        rows = ffi.new("int64_t[]", [-1] * 6 * (count + 1))
        assert ask(4, 4, 2, 2, 8, -1, rows, capacity, numbers, numbers + 1) == 0
        assert numbers[0] == count
        written = [value != -1 for value in ffi.unpack(rows, 6 * (count + 1))]
        assert written == [capacity >= count and at < 6 * count for at in range(6 * (count + 1))]
    assert ask(4, 4, 2, 2, 8, -1, ffi.NULL, -1, numbers, numbers + 1) == 12
    for places in itertools.product((numbers, ffi.NULL), repeat=2):
        if ffi.NULL in places:
            assert ask(4, 4, 2, 2, 8, -1, ffi.NULL, 0, *places) == 11
