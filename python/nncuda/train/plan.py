"""The plan of a run before there is one: its own model and trainer, run on a context that measures.

Such a context gives addresses and runs nothing, so what is planned is what is then called: no allocation, kernel or
cut of work is described here a second time. Bytes are those that `Context.bytes_peak` counts: memory of tensors as it
was asked for, and the workspace of kernels. A captured step keeps each piece of memory that it ever took, and needs
more than the same calls one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from ..device import Comm, Context, expert_schedule, replica_merges, shard
from ..errors import OutOfMemoryError
from ..infer.contiguous import generate_batch
from ..layers import ExpertParallel
from ..layers.expert_parallel import Round, Run, check_expert_parallel
from ..models import MoEConfig, MoETransformer, ParameterLayout
from ..models.held import HeldElements
from .config import TrainConfig
from .devices import Device
from .moments import moments_bytes
from .replicas import check_ranks, partitions_gradients, sums_left
from .trainer import Trainer

#: What memory is for, in the order of a report.
KINDS = {
    "weights": "weights that the model computes with",
    "master": "f32 parameters behind 16-bit weights",
    "gradients": "gradients",
    "moments": "moments of AdamW",
    "cache": "cache of keys and values",
    "fixed": "inputs, tables and counters",
    "kept": "activations kept for backward",
    "transient": "activations, the largest transient",
    "evaluation": "what evaluation needs more",
    "scratch": "scratch of kernels",
}
#: Micro-batches that are run for the memory of a step, unless there are more replicas, each with one of its own; those
#: between the second and the last find all in place.
_RUN = 3
_MOST_TOKENS = 1 << 28  # that go through the layers at once, whose ids are made
_PAGES = {"cpu": 4096, "cuda": 2 << 20}  # in which a device gives memory in parts
_NORM_CHUNK_CPU, _NORM_CHUNK_GPU = 1 << 14, 1 << 15  # gradients whose squares travel as one sum
_MOST_CACHED = 1 << 40  # tokens of all sequences


class TooLargeError(ValueError):
    """The sizes make a run that is beyond all addresses."""

    def __init__(self) -> None:
        super().__init__("the sizes make a run of more memory than any machine has")


@dataclass(frozen=True)
class Machine:
    """What a plan is for, and need not be here: of the CPU threads and instruction set, of a GPU its capability (90 for
    9.0) and multiprocessors. None is this machine's, or what is usual."""

    engine: str = "cpu"
    threads: int | None = None
    isa: str | None = None
    capability: int | None = None
    multiprocessors: int | None = None

    def context(self) -> Context:
        """One that measures."""
        return Context.measuring(
            self.engine, threads=self.threads, isa=self.isa, capability=self.capability,
            multiprocessors=self.multiprocessors,
        )  # fmt: skip

    @classmethod
    def of(cls, ctx: Context) -> Machine:
        """That of a context."""
        if ctx.device == "cpu":
            return cls("cpu", ctx.threads, ctx.isa)
        return cls("cuda", capability=int(ctx.isa.removeprefix("sm_")), multiprocessors=ctx.multiprocessors)


@dataclass(frozen=True)
class Seat:
    """Which rank of how many a plan is for, of which so many share the experts out."""

    rank: int = 0
    ranks: int = 1
    expert_parallel: int = 1

    @classmethod
    def of(cls, comm: Comm | None, expert_parallel: int = 1) -> Seat:
        """That of this rank."""
        return cls(0, 1, expert_parallel) if comm is None else cls(comm.rank, comm.ranks, expert_parallel)


ALONE = Seat()


@dataclass(frozen=True)
class MemoryPlan:
    """The peak in bytes, and what it is for by `KINDS`; `held` is what a device gives for it: a GPU gives whole pages.

    Where a step is captured, memory that it keeps for itself counts as what is left: as transient.
    """

    bytes: dict[str, int]
    peak: int
    held: int


@dataclass(frozen=True)
class Work:
    """Operations and bytes that the calls of each kernel come to, and the bytes `sent` to other ranks."""

    kernels: dict[str, tuple[int, int]]
    sent: int = 0

    @property
    def flops(self) -> int:
        return sum(flops for flops, _ in self.kernels.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.kernels.values())

    def seconds(self, device: Device, precision: str) -> float:
        """At the peak of a device: of each kernel, its operations or its bytes, whichever take longer."""
        peak = device.flops_f32 if precision == "f32" else device.flops_16
        return sum(max(flops / peak, size / device.bandwidth) for flops, size in self.kernels.values())


@dataclass(frozen=True)
class RanksPlan:
    """What ranks need that train together: `memory` and `ways` are of the rank `seat`, which needs the most, and `work`
    of the one that computes the most; `sent` are the bytes of a step of the one that sends the most."""

    seat: Seat
    memory: MemoryPlan
    work: Work
    sent: int


def plan_ranks(
    config: MoEConfig, train: TrainConfig, machine: Machine, ranks: int, expert_parallel: int = 1
) -> RanksPlan:
    """The plan of a run on so many ranks, of which so many share the experts out. Raises ValueError when there are more
    than replicas, or when the experts cannot be shared out so."""
    check_ranks(ranks, train.replicas)
    check_expert_parallel(expert_parallel, ranks, config.num_experts)
    seats = _seats(config, train, machine, ranks, expert_parallel)
    memory = {seat: plan_training(config, train, machine, seat=seat) for seat in seats}
    works = [training_work(config, train, machine, seat) for seat in memory]
    most = max(memory, key=lambda seat: memory[seat].held)
    return RanksPlan(most, memory[most], max(works, key=lambda work: work.flops), max(work.sent for work in works))


def plan_growth(config: MoEConfig, train: TrainConfig, machine: Machine, most: RanksPlan) -> list[RanksPlan]:
    """`most`, and before it the plans of the powers of two of ranks below its own, from 1 on. Of each, the experts are
    shared out by the largest divisor of ranks and experts that is no more than that of `most`."""
    plans, ranks = [], 1
    while ranks < most.seat.ranks:
        size = min(most.seat.expert_parallel, ranks)
        while ranks % size or config.num_experts % size:
            size -= 1
        plans.append(plan_ranks(config, train, machine, ranks, size))
        ranks *= 2
    return [*plans, most]


def _seats(config: MoEConfig, train: TrainConfig, machine: Machine, ranks: int, expert_parallel: int) -> list[Seat]:
    """Some, of which none needs, computes or sends less than one that is left out."""
    seats = [Seat(rank, ranks, expert_parallel) for rank in range(ranks)]
    held, sent = _of_parameters(config, train, machine, ranks, expert_parallel)
    most: dict[tuple[object, ...], Seat] = {}  # of those that do the same, who holds most, and who sends most
    rounds = functools.cache(functools.partial(_rounds, train, ranks, expert_parallel))
    for seat in seats:
        done: tuple[object, ...] = (_share(train, seat),)
        if expert_parallel > 1:
            group, position = divmod(seat.rank, expert_parallel)
            whole, own = rounds(group)
            done += whole, own[position]
        for kind, numbers in (("held", held), ("sent", sent)):
            best = most.setdefault((kind, *done), seat)
            if numbers[seat.rank] > numbers[best.rank]:
                most[(kind, *done)] = seat
    return list(dict.fromkeys(most.values()))


def _of_parameters(
    config: MoEConfig, train: TrainConfig, machine: Machine, ranks: int, size: int
) -> tuple[list[int], list[int]]:
    """By how much the ranks of which so many share the experts out differ in their parameters: bytes of what each
    holds, in pages of the device, and of what it sends, in each with something left out that those alike have which do
    the same in all rounds."""
    elements = HeldElements(ParameterLayout(config), ranks, 0, size)
    weight, page = 4 if train.precision == "f32" else 2, _PAGES[machine.engine]
    partitions = partitions_gradients(config, train, machine.engine, ranks, size)
    held = []
    for rank in range(ranks):
        one = elements.of(rank)
        gradients = one.gradients if partitions else one.computes
        arenas = [(one.computes, weight), (gradients, 4), (one.updated, 4 if weight == 2 else 0)]
        pages = sum(-(-width * part.stop // page) - width * part.start // page for of, width in arenas for part in of)
        held.append(page * pages + sum(moments_bytes(sum(map(len, one.updated)), train.moments)))
    return held, _sent_of_parameters(elements, train, machine, ranks, size)


def _sent_of_parameters(
    elements: HeldElements, train: TrainConfig, machine: Machine, ranks: int, size: int
) -> list[int]:
    """Bytes of weights, of sums of gradients and of their norm that each rank sends. Of the sums, what it keeps for
    itself counts below 0: sums of all elements, which ranks with as many sums have alike, are left out."""
    weight, wire = 4 if train.precision == "f32" else 2, 4 if train.reduce_dtype == "f32" else 2
    chunk = _NORM_CHUNK_CPU if machine.engine == "cpu" else _NORM_CHUNK_GPU
    dense = [wire * sums_left(train.replicas, ranks, rank) for rank in range(ranks)]  # bytes of an element
    own = [wire * sums_left(train.replicas, ranks // size, group) for group in range(ranks // size)]
    sent = [weight * count for count in elements.weights_sent()]
    for begin, end, rank, _ in elements.gradient_moves(4):
        sent[rank] += end - begin
    for begin, end, rank in elements.dense_shards():
        sent[rank] -= dense[rank] * (end - begin)
    for position in range(size if ranks > size else 0):  # one group alone has no other to send sums to
        for (begin, end, group), _ in elements.of(position).slot_shards():
            sent[group * size + position] -= own[group] * (end - begin)
    for begin, end, rank in elements.shards:
        sent[rank] += 8 * (ranks - 1) * -(-(end - begin) // chunk)
    return sent


def _rounds(train: TrainConfig, ranks: int, size: int, group: int) -> tuple[object, list[tuple[int, ...]]]:
    """What happens in the rounds of a group, whichever micro-batches these are, and what is left behind them; and in
    which rounds each of its ranks runs one."""
    events, _ = expert_schedule(train.replicas, ranks, group * size, size, train.micro_batches)
    runs = tuple((one.round, one.kind, one.a, one.b if one.kind != "run" else 0, one.c) for one in events)
    own: list[list[int]] = [[] for _ in range(size)]
    for one in events:
        if one.kind == "run":
            own[one.a].append(one.round)
    replicas = range(*shard(train.replicas, 1, ranks // size, group))
    left = tuple(replica_merges(train.replicas, replicas.start, replica) for replica in replicas)
    return (runs, left), [tuple(one) for one in own]


def _share(train: TrainConfig, seat: Seat) -> tuple[object, ...]:
    """Which micro-batches a rank runs, and which of their sums it adds."""
    own = range(*shard(train.replicas, 1, seat.ranks, seat.rank))
    merges = tuple(replica_merges(train.replicas, own.start, replica) for replica in own)
    more = sum(1 for replica in own if replica < train.micro_batches % train.replicas)
    ragged = train.batch_size % (train.micro_batch_size or train.batch_size) != 0
    return merges, more, ragged and (train.micro_batches - 1) % train.replicas in own


def plan_training(
    config: MoEConfig,
    train: TrainConfig,
    machine: Machine,
    *,
    capture: bool = True,
    held_out: bool = True,
    seat: Seat = ALONE,
) -> MemoryPlan:
    """What a run needs on one device, `held_out` with evaluation. Raises ValueError for what cannot be trained."""
    length, (micro, left_out) = train.sequence_length, _micro_batches(train, seat)
    begin, end = shard(train.replicas, 1, seat.ranks, seat.rank)
    own_left_out = left_out // train.replicas * (end - begin)
    try:
        with machine.context() as ctx:
            trainer = _trainer(ctx, config, train, train.batch_size - left_out * micro, capture, seat)
            model, ids = trainer.model, np.zeros((len(trainer.rows()), length), np.int32)
            found = dict.fromkeys(KINDS, 0) | _arenas(trainer)
            trainer.train_step(ids, ids)
            # Of the sequences that were left out: ids, targets, and the losses and factors of their micro-batches.
            factors = 16 if train.precision == "f16" else 12
            more = own_left_out * 8 * micro * length + left_out * (4 * model.loss_pieces(micro * length) + factors)
            found["fixed"] = ctx.bytes_used - sum(found.values()) + more
            trainer.train_step(ids, ids)
            peak, held, scratch = ctx.bytes_peak, ctx.bytes_held, ctx.bytes_arena
            if held_out:
                with _round_of_all(model, micro * length, 0):
                    model.evaluate(ids[:micro], ids[:micro])
                found["evaluation"] = ctx.bytes_peak - peak
                held = ctx.bytes_held
            before = ctx.bytes_used
            with _round_of_all(model, micro * length, config.capacity(micro * length)):
                activations = model.forward_keeping(ctx.zeros((micro * length,), "i32"), micro, ctx.zeros((1,)))
            kept = ctx.bytes_used - before
            del activations
    except OutOfMemoryError as error:
        raise TooLargeError from error
    left = peak + more - sum(found.values()) + found["evaluation"]
    found["scratch"] = min(scratch, left)
    found["kept"] = min(kept, left - found["scratch"])
    found["transient"] = left - found["scratch"] - found["kept"]
    later = _later_sums(config, train, seat, train.micro_batches - left_out)
    found["gradients"] += later
    return MemoryPlan(found, sum(found.values()), held + more + later)


def _later_sums(config: MoEConfig, train: TrainConfig, seat: Seat, run: int) -> int:
    """Memory of the sums of the experts' gradients that wait in an update beyond those one of `run` micro-batches."""
    size = seat.expert_parallel
    if size == 1:
        return 0
    first = seat.rank // size * size
    slots = [expert_schedule(train.replicas, seat.ranks, first, size, count)[1] for count in (train.micro_batches, run)]
    own = config.num_layers * config.num_experts // size * 3 * config.hidden_size * config.ffn_size
    return 4 * own * (slots[0] - slots[1])


def plan_inference(
    config: MoEConfig, precision: str, machine: Machine, batch: int, capacity: int, prompt: int
) -> MemoryPlan:
    """What generation needs: `batch` sequences of up to `capacity` tokens, prompts of up to `prompt` of them.

    Raises ValueError when the model does not reach that far.
    """
    if capacity < 1:
        raise ValueError(f"context is {capacity}; it must be a whole number, at least 1")
    if not 1 <= prompt <= capacity:
        raise ValueError(f"a prompt has {prompt} tokens; it must have 1 to {capacity}, the tokens of a sequence")
    if capacity > config.extended_context:
        raise ValueError(f"{capacity} tokens are more than this model takes ({config.extended_context})")
    if batch * capacity > _MOST_CACHED:
        raise TooLargeError
    found = dict.fromkeys(KINDS, 0)
    try:
        with machine.context() as ctx:
            model = MoETransformer(ctx, config, training=False, precision=precision)  # type: ignore[arg-type]
            found["weights"] = ctx.bytes_used
            found["cache"] = _cache_bytes(config, precision, batch * capacity)
            # Prompts come one after the other: one of them is as long as it may be.
            _generate(model, batch, capacity, prompt)
            peak, held, scratch = ctx.bytes_peak, ctx.bytes_held, ctx.bytes_arena
    except OutOfMemoryError as error:
        raise TooLargeError from error
    found["scratch"] = scratch
    found["transient"] = peak - sum(found.values())
    return MemoryPlan(found, peak, held)


def training_work(config: MoEConfig, train: TrainConfig, machine: Machine, seat: Seat = ALONE) -> Work:
    """What one step computes and moves."""
    micro, left_out = _micro_batches(train, seat)

    def step(batch: int) -> Work:
        with machine.context() as ctx:
            trainer = _trainer(ctx, config, train, batch, False, seat)
            ids = np.zeros((len(trainer.rows()), train.sequence_length), np.int32)
            trainer.train_step(ids, ids)  # which makes what is made once
            counts = _Counts(trainer)
            counts.add(lambda: trainer.train_step(ids, ids))
            for run, times in trainer.left_out():
                counts.add(run, times)
            return _filled(counts, trainer.model, micro * train.sequence_length)

    work = step(train.batch_size - left_out * micro)
    if not left_out:
        return work
    # Those left out are whole rounds of the replicas: each comes to what the second of two does.
    rounds, one, two = left_out // train.replicas, step(train.replicas * micro), step(2 * train.replicas * micro)
    none, kernels = (0, 0), {}
    for name, whole in work.kernels.items():
        a, b = one.kernels.get(name, none), two.kernels.get(name, none)
        kernels[name] = whole[0] + rounds * (b[0] - a[0]), whole[1] + rounds * (b[1] - a[1])
    return Work(kernels, work.sent + rounds * (two.sent - one.sent))


def inference_work(config: MoEConfig, precision: str, machine: Machine, batch: int, capacity: int) -> Work:
    """What the next token of `batch` sequences computes and moves, each with a cache of `capacity` tokens."""
    with machine.context() as ctx:
        model = MoETransformer(ctx, config, training=False, precision=precision)  # type: ignore[arg-type]
        cache, ids = model.cache(batch, capacity), ctx.zeros((batch,), "i32")
        logits = ctx.empty((batch, config.vocab_size))
        with ctx.profile() as profile:
            model.decode(ids, cache, logits)
        kernels = profile.json()["kernels"]
        return Work({str(one["kernel"]): (int(one["flops"]), int(one["bytes"])) for one in kernels})


def _micro_batches(train: TrainConfig, seat: Seat) -> tuple[int, int]:
    """Sequences that go through the layers together, and how many micro-batches of a step need not be run. ValueError
    for more than any machine has memory for."""
    run = train.replicas if seat.expert_parallel == 1 else 2 * train.replicas  # with one each fewer sums wait at once
    micro = min(train.micro_batch_size or train.batch_size, train.batch_size)
    if micro * train.sequence_length > _MOST_TOKENS:
        raise TooLargeError
    left_out = max(0, train.micro_batches - max(_RUN, run))
    return micro, left_out // train.replicas * train.replicas  # so that the last one to run stays the last


def _trainer(
    ctx: Context, config: MoEConfig, train: TrainConfig, batch_size: int, capture: bool, seat: Seat
) -> Trainer:
    """That of a run, which is given fewer sequences at a time."""
    comm = Comm(ctx, "self", rank=seat.rank, ranks=seat.ranks) if seat.ranks > 1 else None
    model = MoETransformer(
        ctx,
        config,
        precision=train.precision,
        experts=ExpertParallel.of(comm, seat.expert_parallel, config.num_experts),
        comm=comm,
        partition_gradients=partitions_gradients(config, train, ctx.device, seat.ranks, seat.expert_parallel),
    )
    trainer = Trainer(model, replace(train, batch_size=batch_size), capture=capture, comm=comm)
    trainer.each_kind = True
    return trainer


def _round_of_all(model: MoETransformer, tokens: int, capacity: int) -> AbstractContextManager[None]:
    """One in which all ranks run a forward call of so many tokens, where they share experts out."""
    experts = model.experts
    if experts is None:
        return nullcontext()
    rows = experts.most_rows(model.config.experts_per_token, tokens, capacity)
    return experts.in_round(Round(rows, tuple(map(Run, range(experts.size)))))


def _arenas(trainer: Trainer) -> dict[str, int]:
    model = trainer.model
    assert model.gradients is not None  # it trains
    waiting = trainer.replicas, trainer.expert_gradients, trainer.backward_sums
    sums = sum(one.nbytes for one in waiting if one is not None)
    return {
        "weights": model.weights.nbytes,
        "master": model.master_bytes,
        "gradients": model.gradients.nbytes + sums,
        "moments": sum(moments_bytes(trainer.moments.size, trainer.config.moments)),
    }


def _cache_bytes(config: MoEConfig, precision: str, tokens: int) -> int:
    width = 4 if precision == "f32" else 2
    return 2 * width * config.num_layers * tokens * config.num_kv_heads * config.head_dim


def _generate(model: MoETransformer, batch: int, capacity: int, prompt: int) -> None:
    """A prompt, a token call by call and one captured, so far as there is room for them."""
    prompt = max(1, min(prompt, capacity - 2))
    prompts = [np.zeros(prompt, np.int32)] + [np.zeros(1, np.int32)] * (batch - 1)
    tokens = generate_batch(model, prompts, capacity - prompt + 1)
    for _ in zip(range(3), tokens, strict=False):
        pass


class _Counts:
    """Calls, operations and bytes of each kernel, added up, and the bytes that a trainer sent."""

    def __init__(self, trainer: Trainer):
        self._trainer = trainer
        self.kernels: dict[str, tuple[int, int, int]] = {}
        self.sent = 0

    def add(self, run: Callable[[], object], times: int = 1) -> None:
        """What `run` does, so many times."""
        if times == 0:
            return
        before = self._trainer.bytes_sent
        with self._trainer.ctx.profile() as profile:
            run()
        self.sent += times * (self._trainer.bytes_sent - before)
        for one in profile.json()["kernels"]:
            found = self.kernels.get(str(one["kernel"]), (0, 0, 0))
            more = int(one["calls"]), int(one["flops"]), int(one["bytes"])
            self.kernels[str(one["kernel"])] = tuple(a + times * b for a, b in zip(found, more, strict=True))  # type: ignore[assignment]


def _filled(counts: _Counts, model: MoETransformer, tokens: int) -> Work:
    """The work of a rank. One that has some of the experts, which are equally wanted, makes calls with room for the
    most rows that may come, and leaves alone what is not filled of it. `tokens` are those of a micro-batch."""
    found = {name: (flops, size) for name, (_, flops, size) in counts.kernels.items()}
    if model.experts is None:
        return Work(found, counts.sent)
    config = model.config
    k, hidden, ffn = config.experts_per_token, config.hidden_size, config.ffn_size
    rows = model.experts.most_rows(k, tokens, config.capacity(tokens))
    empty = 1 - k * tokens / (model.experts.size * rows)
    for name in ("cuda_grouped_gemm", "cuda_grouped_gemm_wgrad"):
        calls, flops, size = counts.kernels.get(name, (0, 0, 0))
        with_w13 = flops / (2 * rows * hidden * ffn) - calls  # a call has twice the operations of one with w2
        width = with_w13 * (hidden + 2 * ffn) + (calls - with_w13) * (hidden + ffn)
        unread = empty * rows * width * (4 if model.precision == "f32" else 2)
        found[name] = round(flops * (1 - empty)), round(size - unread)
    return Work(found, counts.sent)
