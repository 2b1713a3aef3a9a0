"""Runs the works: checks that both sides agree, times them in turn, and holds the result against floor and bar."""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import errors
from ..device import Context
from .ceilings import Ceilings, DeviceCeilings
from .timing import Effort, Stopwatch, Timed, Timing, device_clock, host_clock, interleave
from .work import Side, Work

# torch's large results are otherwise mapped afresh, page fault by page fault, at every call.
MALLOC_TUNABLES = (
    "glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184:glibc.malloc.mmap_max=0"
)


@dataclass(frozen=True)
class Row:
    """One measured work. Rates a second; `floor` is the ceiling that the share refers to, probed beside it when it is
    memory. `isa` is the instruction set, None on a GPU. `rounds` are the seconds of each round, of which `seconds` is
    the median, `probes` what the memory gave in each, bytes a second. `error` says why there is nothing of ours,
    `peer_missing` why there is nothing of the peer's."""

    group: str
    name: str
    isa: str | None = None
    seconds: float | None = None
    flops: float = 0.0
    bytes: float = 0.0
    floor: str | None = None
    share: float | None = None
    peer_seconds: float | None = None
    ratio: float | None = None
    difference: float | None = None
    asked: str = ""
    reached: bool | None = None
    error: str | None = None
    peer_missing: str | None = None
    rounds: tuple[float, ...] = ()
    probes: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


class SidesDiffer(RuntimeError):
    """The two sides of a comparison computed different things, so that their times mean nothing."""


def at_its_best() -> None:
    """Starts this process again with the allocator settings under which the peer is fastest, unless they are set."""
    if os.environ.get("GLIBC_TUNABLES") != MALLOC_TUNABLES:
        os.environ["GLIBC_TUNABLES"] = MALLOC_TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def measure(
    ctx: Context,
    works: Iterable[Work],
    ceilings: Ceilings | DeviceCeilings,
    probes: dict[str, Callable[[], float]],
    peer: Any,
    effort: Effort,
    started: Callable[[Work], None] = lambda work: None,
) -> Iterator[Row]:
    """Measures each work and yields its row. `probes` measure the floors that drift; `peer` is the module of the other
    sides, or None. What fails has a row that says so, and the others continue."""
    for work in works:
        started(work)
        try:
            row = _measure(ctx, work, ceilings, probes, peer, effort)
        except (errors.Error, SidesDiffer) as error:
            row = Row(work.group, work.name, isa_of(ctx), error=f"{type(error).__name__}: {error}")
        yield row
        gc.collect()
        if ctx.device_type != 1:
            ctx.trim()
            if peer is not None:
                peer.let_go()


def isa_of(ctx: Context) -> str | None:
    """The instruction set that figures of a context are of; None on a GPU."""
    return ctx.isa if ctx.device_type == 1 else None


def _measure(
    ctx: Context,
    work: Work,
    ceilings: Ceilings | DeviceCeilings,
    probes: dict[str, Callable[[], float]],
    peer: Any,
    effort: Effort,
) -> Row:
    if ctx.device_type != 1:
        ctx.tf32 = work.tf32
    sets = [work.inputs(ctx, seed) for seed in range(work.copies)]
    mine = [work.ours(ctx, each) for each in sets]
    mine[0].run()
    difference = missing = None
    timed: dict[str, Timed] = {}
    if peer is not None and work.peer is not None:
        try:
            theirs = peer.sides(ctx, work, sets)
            theirs[0].run()
            difference = _difference(work, mine[0], theirs[0], peer)
            timed["peer"] = peer.timed(ctx, work, theirs)
        except SidesDiffer:
            raise
        except Exception as error:  # whatever another library cannot do here must not end the run
            missing = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    elif work.peer is not None:
        missing = "not asked for, or not there"
    timed["ours"] = _ours(ctx, work, mine)
    found: list[float] = []
    probe = probes.get(work.floor or "")
    if probe is not None:
        timed["floor"] = Timed(probe, clock=_probing(found))
    timings = interleave(timed, effort)
    ctx.synchronize()
    return _row(work, isa_of(ctx), timings, ceilings, tuple(found[1:]), difference, missing)


def _probing(found: list[float]) -> Stopwatch:
    """A clock that probes once, however often it is asked to, and keeps what the probe said: a value when it is
    prepared, and one a round."""

    def clock(probe: Callable[[], object], repeats: int) -> float:
        began = time.perf_counter()
        found.append(float(probe()))  # type: ignore[arg-type]
        return (time.perf_counter() - began) * repeats

    return clock


def _ours(ctx: Context, work: Work, sides: list[Side]) -> Timed:
    calls = [side.run for side in sides] * work.calls
    if ctx.device_type == 1:
        return Timed(lambda: [call() for call in calls], len(calls), host_clock)
    for side in sides:
        side.run()
    if not work.captured:
        return Timed(lambda: [call() for call in calls], len(calls), device_clock(ctx))
    with ctx.capture() as graph:
        for call in calls:
            call()
    return Timed(graph.launch, len(calls), device_clock(ctx))


def _difference(work: Work, mine: Side, theirs: Side, peer: Any) -> float:
    """By how much the results differ, as a share of the largest value. Raises when that is too much."""
    pairs = list(zip(mine.results(), theirs.results(), strict=True))
    worst = max((peer.difference(own, other) for own, other in pairs), default=0.0)
    if not worst <= work.tolerance:
        raise SidesDiffer(f"the results differ by {worst:.1e} of the largest value")
    return worst


def _row(
    work: Work,
    isa: str | None,
    timings: dict[str, Timing],
    ceilings: Ceilings | DeviceCeilings,
    probes: tuple[float, ...],
    difference: float | None,
    missing: str | None,
) -> Row:
    seconds = timings["ours"].median
    floor, share = work.floor, None
    if floor is not None:
        floor, ceiling = ceilings.of(floor)
        ceiling = statistics.median(probes) if probes else ceiling
        amount = work.bytes if floor in ("read", "copy") else work.flops
        share = amount / seconds / ceiling if ceiling else None
    peer_seconds = timings["peer"].median if "peer" in timings else None
    ratio = peer_seconds / seconds if peer_seconds else None
    bar = work.bar
    asked: list[str] = []
    verdicts: list[bool | None] = []
    for text, least, value in (
        (f"{bar.times_peer:g} x" if bar.times_peer else "", bar.times_peer, ratio),
        (f"{bar.share:.0%}" if bar.share else "", bar.share, share),
        (f"{bar.rate / 1e12:g} TFLOP/s" if bar.rate else "", bar.rate, work.flops / seconds),
        (f"at most {bar.seconds * 1e6:g} µs" if bar.seconds else "", -(bar.seconds or 0), -seconds),
    ):
        if text:
            asked.append(text)
            verdicts.append(None if value is None or least is None else value >= least)
    return Row(
        group=work.group,
        name=work.name,
        isa=isa,
        seconds=seconds,
        flops=work.flops / seconds,
        bytes=work.bytes / seconds,
        floor=floor if share is not None else None,
        share=share,
        peer_seconds=peer_seconds,
        ratio=ratio,
        difference=difference,
        asked=", ".join(asked),
        reached=False if False in verdicts else None if not verdicts or None in verdicts else True,
        peer_missing=missing,
        rounds=timings["ours"].rounds,
        probes=probes,
    )
