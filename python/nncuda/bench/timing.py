"""Interleaved timing: the sides of a comparison take turns, so that a drift of the machine meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# OpenMP's threads spin for a while after a parallel region; on few cores they would take the next side's time.
_SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class Timing:
    """Seconds a call over several rounds."""

    median: float
    best: float
    worst: float
    rounds: int


def interleave(
    sides: Mapping[str, Callable[[], object]],
    rounds: int = 9,
    budget: float = 6.0,
    inner_seconds: float = 0.03,
) -> dict[str, Timing]:
    """Times every side once a round, A B A B ..., after one warm-up each.

    A side that is quick is called several times a round (until about `inner_seconds`), and the mean counts. Rounds
    end early when `budget` seconds are spent, but not before three.
    """
    repeats: dict[str, int] = {}
    for name, call in sides.items():
        call()
        begin = time.perf_counter()
        call()
        repeats[name] = max(1, int(inner_seconds / max(time.perf_counter() - begin, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    began = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - began > budget:
            break
        for name, call in sides.items():
            time.sleep(_SETTLE_SECONDS)
            call()  # brings caches and threads back
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            samples[name].append((time.perf_counter() - begin) / repeats[name])
    return {
        name: Timing(statistics.median(times), min(times), max(times), len(times)) for name, times in samples.items()
    }
