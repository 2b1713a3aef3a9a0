"""Runs the works: checks that both sides agree, times them in turn, and holds the result against floor and bar."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..context import Context
from .ceilings import Bandwidth, Ceilings
from .timing import interleave
from .work import Side, Work

# torch's large results are otherwise mapped afresh, page fault by page fault, at every call.
MALLOC_TUNABLES = (
    "glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184:glibc.malloc.mmap_max=0"
)


@dataclass(frozen=True)
class Row:
    """One measured work. Rates a second; `floor` is the ceiling that the share refers to, probed beside it when it is
    DRAM."""

    group: str
    name: str
    seconds: float
    gflops: float
    gbytes: float
    floor: str
    share: float
    peer_seconds: float | None
    ratio: float | None
    difference: float | None
    asked: str
    reached: bool | None

    def as_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


class SidesDiffer(RuntimeError):
    """The two sides of a comparison computed different things, so that their times mean nothing."""


def at_its_best() -> None:
    """Starts this process again with the allocator settings under which the peer is fastest, unless they are set."""
    if os.environ.get("GLIBC_TUNABLES") != MALLOC_TUNABLES:
        os.environ["GLIBC_TUNABLES"] = MALLOC_TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def run(
    ctx: Context,
    works: Iterable[Work],
    ceilings: Ceilings,
    bandwidth: Bandwidth,
    against_torch: bool,
    started: Callable[[Work], None] = lambda work: None,
) -> Iterator[Row]:
    """Measures each work and yields its row."""
    torch_side: Any = None
    if against_torch:
        from . import torch_work as torch_side

        torch_side.prepare(ctx.threads)
    for work in works:
        started(work)
        arrays = work.inputs(np.random.default_rng(0))
        sides: dict[str, Side] = {"ours": work.ours(ctx, arrays)}
        if torch_side is not None:
            sides["peer"] = getattr(torch_side, work.peer)(arrays, **work.peer_options)
        difference = _agree(work, sides)
        probes: list[float] = []
        calls: dict[str, Callable[[], object]] = {name: side.run for name, side in sides.items()}
        if work.floor in ("read", "copy"):
            probe = getattr(bandwidth, work.floor)
            calls["floor"] = lambda: probes.append(probe())  # noqa: B023
        timings = interleave(calls, inner_seconds=0.03)
        yield _row(work, timings, ceilings, sorted(probes)[len(probes) // 2] if probes else None, difference)
        del sides, calls, arrays
        gc.collect()


def _agree(work: Work, sides: dict[str, Side]) -> float | None:
    """Runs each side once; the largest difference as a share of the largest value. Raises when the sides differ."""
    for side in sides.values():
        side.run()
    if "peer" not in sides:
        return None
    worst = 0.0
    for mine, theirs in zip(sides["ours"].result(), sides["peer"].result(), strict=True):
        scale = float(np.abs(theirs).max())
        worst = max(worst, float(np.abs(mine.reshape(-1) - theirs.reshape(-1)).max()) / scale)
    limit = 2e-2 if "bf16" in work.group else 1e-4
    if not worst <= limit:
        raise SidesDiffer(f"{work.group}, {work.name}: the results differ by {worst:.1e} of the largest value")
    return worst


def _row(
    work: Work, timings: dict[str, Any], ceilings: Ceilings, probed: float | None, difference: float | None
) -> Row:
    seconds = timings["ours"].median
    ceiling = probed if probed is not None else getattr(ceilings, work.floor)
    amount = work.bytes if work.floor in ("read", "copy") else work.flops
    share = amount / seconds / ceiling if ceiling else 0.0
    peer_seconds = timings["peer"].median if "peer" in timings else None
    ratio = peer_seconds / seconds if peer_seconds else None
    asked, verdicts = [], []
    if work.times_peer is not None:
        asked.append(f"{work.times_peer:g} x")
        verdicts.append(None if ratio is None else ratio >= work.times_peer)
    if work.share is not None:
        asked.append(f"{work.share:.0%}")
        verdicts.append(share >= work.share)
    reached = None if not verdicts or None in verdicts else all(verdicts)
    return Row(
        group=work.group,
        name=work.name,
        seconds=seconds,
        gflops=work.flops / seconds / 1e9,
        gbytes=work.bytes / seconds / 1e9,
        floor=work.floor,
        share=share,
        peer_seconds=peer_seconds,
        ratio=ratio,
        difference=difference,
        asked=", ".join(asked),
        reached=reached,
    )
