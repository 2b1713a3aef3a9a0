"""How evenly the CPU's kernels cut their work among many threads, of which this machine need not have any.

    make cuts
    NNCUDA_LIBRARY=build/.../libnncuda_cuts.so python -m tools.cuts --model model.gguf --json docs/benchmarks/cuts.json

In libnncuda_cuts.so (tests/cuts) one thread plays all those of a context: a kernel cuts its work for as many, and each
task goes to the one that is free first and takes the processor time that it needed here. `balance` is the share of the
threads' time in which they have a task, until the last is done. Of whole steps, what is done outside of tasks, in
Python, between calls and in calls of one task, is serial; with it follows how many times as fast as one thread so many
are (Amdahl 1967). What is not simulated: starting the threads, about a microsecond a call, and the memory's bandwidth,
which limits decoding long before 64 cores do.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from nncuda.bench import catalogue, step
from nncuda.bench.machine import machine_of
from nncuda.bench.nncuda_side import open_side
from nncuda.bench.work import Work
from nncuda.binding import library
from nncuda.cli.terminal import console
from nncuda.device import Context

THREADS = (2, 4, 8, 16, 32, 64, 128)
#: Times each work is run after it was warmed up; the shortest counts.
RUNS = 3


class Cut(ctypes.Structure):
    """A call with more than one task (tests/cuts/workers.c); nanoseconds."""

    _fields_ = [(name, ctypes.c_int64) for name in ("tasks", "busy", "span", "longest", "here")]


@dataclass(frozen=True)
class Balance:
    """Of some work cut for so many threads: its calls of several tasks, their tasks, the seconds of all tasks together,
    of the calls until their last task is done, and of what is serial. `even` is the balance that the tasks would have
    if those of a call took equally long, which is what their numbers alone decide; `whole` a step of a model."""

    name: str
    threads: int
    calls: int
    tasks: int
    busy: float
    span: float
    serial: float
    even: float = 0.0
    whole: bool = False

    @property
    def balance(self) -> float:
        """The share of the threads' time in which they have a task."""
        return self.busy / (self.span * self.threads) if self.calls else 0.0

    @property
    def times_one(self) -> float:
        """How many times as fast as one thread."""
        return (self.busy + self.serial) / (self.span + self.serial)

    @property
    def serial_share(self) -> float:
        """Of one thread's time."""
        return self.serial / (self.busy + self.serial)


class NoCuts(RuntimeError):
    """The library that is loaded is not libnncuda_cuts.so."""


class Cuts:
    """What the loaded library noted of the calls."""

    def __init__(self) -> None:
        path = library.load().path
        self._library = ctypes.CDLL(str(path))
        try:
            self._library.nncuda_cuts_end.restype = ctypes.c_int64
        except AttributeError:
            raise NoCuts(
                f"{path} notes no tasks; `make cuts` builds libnncuda_cuts.so, which NNCUDA_LIBRARY must name"
            ) from None

    def of(self, run: Callable[[], object]) -> tuple[list[Cut], float]:
        """The calls that `run` makes, and the seconds of the processor that it spent outside of them."""
        self._library.nncuda_cuts_begin()
        began = time.thread_time()
        run()
        seconds = time.thread_time() - began
        count = self._library.nncuda_cuts_end(None, ctypes.c_int64(0))
        found = (Cut * count)()
        self._library.nncuda_cuts_end(found, ctypes.c_int64(count))
        return list(found), seconds - sum(cut.here for cut in found) * 1e-9

    def balance(
        self, name: str, threads: int, run: Callable[[], object], runs: int = RUNS, whole: bool = False
    ) -> Balance:
        """Of each call the shortest span of some runs, which all make the same calls."""
        run()
        rounds = [self.of(run) for _ in range(runs)]
        calls = [min(same, key=lambda cut: cut.span) for same in zip(*(cuts for cuts, _ in rounds), strict=True)]
        busy = sum(cut.busy for cut in calls)
        evenly = sum(cut.busy / cut.tasks * -(-cut.tasks // threads) for cut in calls)
        return Balance(
            name,
            threads,
            len(calls),
            sum(cut.tasks for cut in calls),
            busy * 1e-9,
            sum(cut.span for cut in calls) * 1e-9,
            max(min(serial for _, serial in rounds), 0.0),
            busy / (evenly * threads) if calls else 0.0,
            whole,
        )


def kernels(cuts: Cuts, threads: int, isa: str | None, works: Iterable[Work]) -> Iterator[Balance]:
    """Each work of the benchmark, without its cold copies: these change where inputs lie, not how they are cut."""
    with Context("cpu", threads=threads, isa=isa) as ctx:
        for work in works:
            one = replace(work, copies=1)
            side = one.ours(ctx, one.inputs(ctx, 0))
            yield cuts.balance(f"{work.group}: {work.name}", threads, side.run)


def training(cuts: Cuts, threads: int, isa: str | None, cases: Iterable[step.Case]) -> Iterator[Balance]:
    """Training steps, after those that capture them."""
    for case in cases:
        with Context("cpu", threads=threads, isa=isa) as ctx:
            call = step.ours(ctx, case)
            for _ in range(3):
                call()
            yield cuts.balance(f"training step of {case.name}", threads, call, whole=True)


def model(cuts: Cuts, threads: int, isa: str | None, path: Path, prompt: int = 512) -> Iterator[Balance]:
    """A stored model: its prefill, and a token of one sequence and of eight after a short prompt."""
    rng = np.random.default_rng(0)
    side = open_side(str(path), threads, prompt + 64, 8, "cpu", isa)

    def ids(count: int) -> list[int]:
        found: list[int] = rng.integers(3, 500, count).tolist()
        return found  # others each time: the engine computes no prompt twice

    yield cuts.balance(f"{path.stem}: prefill {prompt}", threads, lambda: side.prefill(ids(prompt)), 1, True)
    for rows in (1, 8):
        side.start([ids(32) for _ in range(rows)])
        side.step(3)
        yield cuts.balance(f"{path.stem}: a token of {rows} after 32", threads, lambda: side.step(1), 5, True)


def table(found: Sequence[Balance]) -> Table:
    """Tasks and balance of each work by its number of threads."""
    threads = sorted({each.threads for each in found})
    made = Table(title="Tasks, and the share of the threads' time in which they have one", title_justify="left")
    made.add_column("work")
    for count in threads:
        made.add_column(f"{count} threads", justify="right")
    by_name: dict[str, dict[int, Balance]] = {}
    for each in found:
        by_name.setdefault(each.name, {})[each.threads] = each
    for name, cells in by_name.items():
        made.add_row(name, *(f"{cells[n].tasks} · {cells[n].balance:.0%}" if n in cells else "" for n in threads))
    return made


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in value.split(","))
    except ValueError:
        found = ()
    if not found or not all(1 < number <= 256 for number in found):
        raise click.BadParameter(f"{value!r} is no list of numbers from 2 to 256, with commas between them")
    return found


@click.command()
@click.option("--threads", callback=_numbers, default=",".join(map(str, THREADS)), show_default=True)
@click.option("--isa", help="Instruction set; default: the widest.")
@click.option("--only", multiple=True, help="Only works whose name contains this text; may be repeated.")
@click.option("--model", "path", type=click.Path(exists=True, path_type=Path), help="Also a stored model.")
@click.option("--json", "out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here, too.")
def main(threads: tuple[int, ...], isa: str | None, only: tuple[str, ...], path: Path | None, out: Path | None) -> None:
    """Simulate how the CPU's kernels keep 2 to 128 threads busy."""
    try:
        cuts = Cuts()
    except NoCuts as error:
        raise click.ClickException(str(error)) from error

    def wanted(name: str) -> bool:
        return not only or any(text in name for text in only)

    works = [work for work in catalogue.cpu() if wanted(f"{work.group}: {work.name}")]
    cases = [case for case in step.cpu_cases() if wanted(f"training step of {case.name}")]
    terminal = console()
    found: list[Balance] = []
    for count in threads:
        with terminal.status(f"{count} threads"):
            found += kernels(cuts, count, isa, works)
            found += training(cuts, count, isa, cases)
            if path is not None:
                found += model(cuts, count, isa, path)
        if out is not None:
            with Context("cpu", threads=1, isa=isa) as ctx:
                content: dict[str, Any] = {"machine": machine_of(ctx), "isa": ctx.isa}
            content["balances"] = [asdict(each) for each in found]
            out.write_text(json.dumps(content, indent=1) + "\n")
    terminal.print(table(found))


if __name__ == "__main__":
    main()
