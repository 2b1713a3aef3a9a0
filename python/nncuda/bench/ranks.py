"""What ranks cost: several with one thread each, beside one rank with as many threads, taking turns in one MPI job.

While a side is measured that one rank does alone, the others wait for it, asleep. Results are compared before anything
is timed: a step has the same bits on both sides, and sums are of whole numbers, which are exact in any order.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..device import Comm, Context, expert_shards
from ..layers import ExpertParallel
from ..models import MoETransformer
from ..models.parameters import GRAIN
from ..train import StepResult, TrainConfig, Trainer
from .measure import SidesDiffer
from .step import SMALL, TINY, Case
from .timing import Effort, Stopwatch, Timed, host_clock, interleave

#: All ranks make the same calls, so what is timed how often must not depend on a clock.
EFFORT = Effort(rounds=7, budget=math.inf, inner_seconds=0.0)
QUICK = replace(EFFORT, rounds=1)
#: Sums in a row, so that it hardly matters which rank begins first.
_SUMS = 5


@dataclass(frozen=True)
class Goals:
    """Shares that are not to be exceeded: of one rank's time by a step; of a step by what the fixed tree takes longer
    than the transport's own sum; of a ring's bytes by those that a rank sends."""

    step: float = 1.10
    tree: float = 0.05
    bytes: float = 1.05


@dataclass(frozen=True)
class Divided:
    """A step of ranks of which so many divide the experts: its median, and what the rank that sends most sends."""

    ranks: int
    step: float
    bytes: int


@dataclass(frozen=True)
class Figures:
    """Medians in seconds. `ring_bytes` is what a rank sends when a ring adds up the gradients and gives all of them to
    all; `bytes` what the rank that sends most sends in a step. `load` is how many processes wanted to run, before and
    after, on how many cores. `divided` is None where ranks cannot divide the experts."""

    ranks: int
    cores: int
    load: tuple[float, float]
    parameters: int
    tokens: int
    step_alone: float
    step: float
    tree: float
    transport: float
    bytes: int
    ring_bytes: int
    checkpoint_alone: float
    checkpoint: float
    divided: Divided | None = None

    def shares(self) -> dict[str, float]:
        """What the goals are for, under their names."""
        return {
            "step": self.step / self.step_alone,
            "tree": (self.tree - self.transport) / self.step,
            "bytes": self.bytes / self.ring_bytes,
        }

    def shortfalls(self, goals: Goals = Goals()) -> list[str]:
        """The names of the goals that were missed."""
        return [name for name, share in self.shares().items() if share > getattr(goals, name)]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "shares": self.shares()}


def case(ranks: int, quick: bool) -> Case:
    """`small`, or something tiny; with a sequence for every rank."""
    found = replace(SMALL, name="tiny, f32", model=TINY, length=8) if quick else SMALL
    return replace(found, batch=max(found.batch, ranks))


def measure(comm: Comm, work: Case, folder: Path, effort: Effort) -> Figures:
    """Of the ranks of a communicator over MPI, each with one thread. Checkpoints go to `folder`, which all of them see,
    and do not stay. What rank 0 returns counts."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    options = TrainConfig(
        batch_size=work.batch,
        sequence_length=work.length,
        micro_batch_size=work.batch // comm.ranks,
        replicas=comm.ranks,
        precision=work.precision,
    )
    ids, targets = work.batches()

    def sides(
        ctx: Context, comm: Comm | None, experts: ExpertParallel | None = None
    ) -> tuple[Trainer, Callable[[], StepResult], Callable[[], None]]:
        model = MoETransformer(ctx, work.model, seed=0, precision=work.precision, experts=experts, comm=comm)
        trainer = Trainer(model, options, comm=comm)
        rows = trainer.rows()
        names = (folder / f"{'alone' if comm is None else 'ranks'}-{number}" for number in itertools.count())
        return (
            trainer,
            lambda: trainer.train_step(ids[rows], targets[rows]),
            lambda: trainer.save_checkpoint(next(names)),
        )

    def clear() -> None:
        for written in folder.iterdir() if comm.rank == 0 else ():
            shutil.rmtree(written)

    def timed(calls: int = 1, after: Callable[[], None] = _nothing, **turns: Callable[[], object]) -> dict[str, float]:
        clock = _started_together(comm, after)
        found = interleave({name: Timed(_times(run, calls), calls, clock) for name, run in turns.items()}, effort)
        return {name: timing.median for name, timing in found.items()}

    def most_sent(trainer: Trainer, step: Callable[[], object]) -> int:
        before = trainer.bytes_sent
        step()
        sent = trainer.bytes_sent - before
        return max(comm.sum(sent if comm.rank == rank else 0) for rank in range(comm.ranks))

    trainer, step, save = sides(comm.ctx, comm)
    step_alone: Callable[[], object] = _nothing
    save_alone: Callable[[], object] = _nothing
    loss = step().loss
    if comm.rank == 0:
        _, step_alone, save_alone = sides(Context("cpu", threads=comm.ranks), None)
        if (expected := step_alone().loss) != loss:
            raise SidesDiffer(f"the loss is {loss!r}; of one rank it is {expected!r}")
    most, most_divided = most_sent(trainer, step), 0
    steps: dict[str, Callable[[], object]] = {"alone": step_alone, "ranks": step}
    if (group := math.gcd(comm.ranks, work.model.num_experts)) > 1:
        experts = ExpertParallel(comm, group, work.model.num_experts)
        dividing, step_divided, _ = sides(comm.ctx, comm, experts)
        if (found := step_divided().loss) != loss:
            raise SidesDiffer(f"the loss is {loss!r}; with the experts divided it is {found!r}")
        most_divided, steps["divided"] = most_sent(dividing, step_divided), step_divided
    size = trainer.model.layout.size
    step_times = timed(**steps)
    transport, tree = sums(comm, size)
    sum_times = timed(calls=_SUMS, alone=transport, ranks=tree)
    saves = timed(after=clear, alone=save_alone, ranks=save)
    return Figures(
        ranks=comm.ranks,
        cores=cores,
        load=(load, os.getloadavg()[0]),
        parameters=size,
        tokens=work.tokens,
        step_alone=step_times["alone"],
        step=step_times["ranks"],
        tree=sum_times["ranks"],
        transport=sum_times["alone"],
        bytes=most,
        ring_bytes=2 * 4 * size * (comm.ranks - 1) // comm.ranks,
        checkpoint_alone=saves["alone"],
        checkpoint=saves["ranks"],
        divided=Divided(group, step_times["divided"], most_divided) if group > 1 else None,
    )


def sums(comm: Comm, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Calls that add up `size` numbers of each rank and give the sums to all: MPI's own, and by the tree."""
    numbers = np.random.default_rng(comm.rank).integers(-1000, 1000, size).astype(np.float32)
    ours = comm.ctx.tensor(numbers)

    shards = expert_shards(size, GRAIN, comm.ranks)

    def tree() -> None:
        comm.reduce_scatter(None, ours, shards)
        comm.all_gather(ours, 4 * GRAIN)

    transport = mpi_sum(numbers)
    tree()
    transport()
    if not np.array_equal(ours.numpy(), numbers):
        raise SidesDiffer("the tree and MPI_Allreduce add whole numbers to different sums")
    ours.copy_(np.zeros_like(numbers))  # sums of sums would not stay finite
    numbers.fill(0)
    return transport, tree


def mpi_sum(numbers: np.ndarray) -> Callable[[], None]:
    """A call of MPI_Allreduce in place, with f32 and MPI_SUM among all ranks of the job, in the library that the
    communicator has opened. The numbers are those of MPI's standard ABI."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "/libmpi_abi.so" in line)
    call = ctypes.CDLL(path).MPI_Allreduce
    pointer = ctypes.c_void_p
    in_place, mpi_float, mpi_sum, world = pointer(1), pointer(0x210), pointer(0x21), pointer(0x101)

    def run() -> None:
        data = pointer(numbers.ctypes.data)
        if call(in_place, data, ctypes.c_int(numbers.size), mpi_float, mpi_sum, world):
            raise RuntimeError("MPI_Allreduce failed")

    return run


def _nothing() -> None:
    pass


def _times(run: Callable[[], object], calls: int) -> Callable[[], object]:
    def runs() -> None:
        for _ in range(calls):
            run()

    return runs


def _started_together(comm: Comm, after: Callable[[], None]) -> Stopwatch:
    """A rank without a part in the work waits in the barrier behind it. `after` is not timed."""

    def clock(run: Callable[[], object], repeats: int) -> float:
        comm.barrier()
        seconds = host_clock(run, repeats)
        after()
        return seconds

    return clock
