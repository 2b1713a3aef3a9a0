"""Interleaved timing: the sides of a comparison take turns, so that a drift of the machine meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..device import Context

# OpenMP's threads spin for a while after a parallel region; on few cores they would take the next side's time.
_SETTLE_SECONDS = 0.02

Stopwatch = Callable[[Callable[[], object], int], float]
"""Seconds that so many runs took together."""


@dataclass(frozen=True)
class Timing:
    """Seconds a call, one value a round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def host_clock(run: Callable[[], object], repeats: int) -> float:
    """For work that is done when the call returns."""
    time.sleep(_SETTLE_SECONDS)
    run()  # brings caches and threads back
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return time.perf_counter() - begin


def device_clock(ctx: Context) -> Stopwatch:
    """For work on the stream of a GPU's context: what the device's own events say."""
    start, end = ctx.event(), ctx.event()

    def clock(run: Callable[[], object], repeats: int) -> float:
        ctx.synchronize()
        run()
        start.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return start.elapsed(end) * 1e-3

    return clock


@dataclass(frozen=True)
class Timed:
    """Something to time: `run` makes `calls` calls."""

    run: Callable[[], object]
    calls: int = 1
    clock: Stopwatch = host_clock


@dataclass(frozen=True)
class Effort:
    """How long to measure: at most `rounds`, fewer (not under three) once `budget` seconds are spent; in a round a side
    that is quick runs again until about `inner_seconds` are over."""

    rounds: int = 9
    budget: float = 6.0
    inner_seconds: float = 0.03


#: Once each: to see that it runs, not how fast.
ONCE = Effort(rounds=1, inner_seconds=0.0)


def interleave(sides: Mapping[str, Timed], effort: Effort = Effort()) -> dict[str, Timing]:
    """Times every side once a round, A B A B ..., after a warm-up each; the mean of a round's calls counts."""
    repeats: dict[str, int] = {}
    for name, side in sides.items():
        side.run()
        repeats[name] = max(1, int(effort.inner_seconds / max(side.clock(side.run, 1), 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    began = time.perf_counter()
    for done in range(effort.rounds):
        if done >= 3 and time.perf_counter() - began > effort.budget:
            break
        for name, side in sides.items():
            # A clock of a device ticks in steps that something very quick may fall between.
            seconds = max(side.clock(side.run, repeats[name]), 1e-9)
            samples[name].append(seconds / repeats[name] / side.calls)
    return {name: Timing(tuple(times)) for name, times in samples.items()}
