"""What a line of the benchmark is: a work with its operations, its bytes, its floor and the bar that it must reach.

A work makes its inputs on the context; the peer sees the same memory, so both sides compute the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .. import kernels
from ..device import Context, Tensor

Tensors = dict[str, Tensor]
Floor = Literal["fma_f32", "dot_bf16", "dot_int8", "read", "copy"]

#: By how much two sides may differ, as a share of the largest value: what the factors' precision makes of sums.
#: In fp8 that is beside a peer in bf16.
TOLERANCES = {"f32": 1e-4, "tf32": 1e-2, "f16": 5e-3, "bf16": 2e-2, "fp8": 8e-2}
SIZES = {"f32": 4, "tf32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Side:
    """One side of a comparison, ready to run; `results` gives what the last run computed, in its own kind of tensor."""

    run: Callable[[], object]
    results: Callable[[], list[object]]


@dataclass(frozen=True)
class Bar:
    """What is asked of a work, each None where it is not: the least ratio of the peer's time to ours, the least share
    of the floor, the least operations a second, the most seconds."""

    times_peer: float | None = None
    share: float | None = None
    rate: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Work:
    """One line of the benchmark.

    `flops` and `bytes` are what it needs at least. `floor` is the ceiling it runs against, None where this program
    measures none. `peer` names a function of the peer's module with the same inputs, and `peer_options` what else it
    takes. `copies` sets of inputs take turns, so that none is found in a cache. With `captured`, both sides run as a
    graph on a GPU, since their launches would take longer than the work; `calls` of each set stand in it.
    """

    group: str
    name: str
    inputs: Callable[[Context, int], Tensors]
    ours: Callable[[Context, Tensors], Side]
    flops: float
    bytes: float
    floor: Floor | None = None
    bar: Bar = Bar()
    peer: str | None = None
    peer_options: Mapping[str, object] = field(default_factory=dict)
    tolerance: float = TOLERANCES["f32"]
    copies: int = 1
    captured: bool = False
    calls: int = 1
    tf32: bool = False


def side(run: Callable[[], object], *results: Tensor) -> Side:
    return Side(run, lambda: list(results))


def normal(ctx: Context, seed: int, dtype: str, *shape: int, std: float = 1.0, stream: int = 0) -> Tensor:
    return kernels.normal(
        ctx=ctx, n=shape, dtype="f32" if dtype == "tf32" else dtype, seed=seed, stream=stream, std=std
    )


def constant(ctx: Context, *values: float) -> Tensor:
    return ctx.tensor(np.array(values, np.float32))


def cold(needed: float, cache: float) -> int:
    """How many sets of inputs of `needed` bytes fill `cache` bytes, a multiple of what a cache holds."""
    return max(1, -int(-cache // needed)) if needed else 1
