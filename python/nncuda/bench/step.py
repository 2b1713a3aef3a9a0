"""Training steps: tokens a second and peak memory, of this library and of PyTorch."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ..device import Context
from ..models import MoEConfig
from ..models.config import Precision
from .timing import Effort, Stopwatch, Timed, Timing, device_clock, interleave

if TYPE_CHECKING:
    from ..train.config import MomentsKind


@dataclass(frozen=True)
class Case:
    """A model and its batch. `precision` is what both sides compute in, torch by autocast; of the products' factors in
    f32: whether a GPU may round them to tf32. `moments`, `recompute_experts` and `keep_experts` are those
    of TrainConfig. `asked` are the least ratios to torch, eager and compiled, `asked_memory` the largest ratio of peak
    memory."""

    name: str
    model: MoEConfig
    batch: int
    length: int
    precision: Precision = "f32"
    tf32: bool = False
    asked: tuple[float | None, float | None] = (None, None)
    asked_memory: float | None = None
    moments: MomentsKind = "f32"
    recompute_experts: bool = False
    keep_experts: int = 0

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def flops_a_token(self) -> float:
        """Forward and backward of the products and of causal attention, without what is computed twice."""
        m = self.model
        matrices = m.num_active_parameters - m.vocab_size * m.hidden_size - (2 * m.num_layers + 1) * m.hidden_size
        attention = 4.0 * m.head_dim * m.num_heads * (self.length + 1) / 2 * m.num_layers
        return 6.0 * matrices + 3.0 * attention

    def batches(self) -> tuple[np.ndarray, np.ndarray]:
        """One batch of random ids and their successors, int32 [batch, length]."""
        ids = np.random.default_rng(0).integers(0, self.model.vocab_size, (self.batch, self.length + 1), dtype=np.int32)
        return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])


#: To show that everything runs.
TINY = MoEConfig(
    vocab_size=48, hidden_size=16, num_layers=1, num_heads=2, head_dim=8, num_experts=4, experts_per_token=2,
    ffn_size=16, context=32,
)  # fmt: skip
SMALL = Case("small, f32", MoEConfig.preset("small"), 8, 256, asked=(1.4, 1.4), asked_memory=0.7)
SMALL_BF16 = replace(SMALL, name="small, bf16", precision="bf16", asked=(1.5, 1.5), asked_memory=None)


def cpu_cases() -> list[Case]:
    """`small` in both precisions that a CPU multiplies in."""
    return [SMALL, SMALL_BF16]


def gpu_cases(quick: bool = False) -> list[Case]:
    """`small`, a billion parameters of the shapes of "6.9b", and all of them with what makes them fit into 141 GB."""
    whole = Case("6.9 B parameters, bf16", MoEConfig.preset("6.9b"), 8, 2048, "bf16")
    if quick:
        shapes = [("tiny", TINY, 2, 8)]
        whole = Case("tiny whole, bf16", TINY, 2, 8, "bf16")
    else:
        large = MoEConfig.preset("6.9b", num_layers=4)
        shapes = [("small", SMALL.model, 8, 256), ("1 B parameters", large, 4, 2048)]
    arithmetic: dict[str, Precision] = {"f32": "f32", "tf32": "f32", "bf16": "bf16"}
    return [
        Case(
            f"{name}, {kind}",
            model,
            batch,
            length,
            precision,
            tf32=kind == "tf32",
            asked=(2.0, 1.3) if kind == "bf16" else (None, None),
        )
        for name, model, batch, length in shapes
        for kind, precision in arithmetic.items()
    ] + [replace(whole, moments="bf16", recompute_experts=True, keep_experts=0 if quick else 15)]


@dataclass
class StepResult:
    """Of each side: tokens a second, their values of each round, and peak bytes. On a CPU these are resident bytes
    beyond the imported libraries, inputs and model included; on a GPU what was allocated there. `isa` is this library's
    instruction set, None on a GPU. `missing` says why a side is not there."""

    name: str
    isa: str | None = None
    tokens_per_second: dict[str, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, side: str, tokens: int, timing: Timing) -> None:
        """Adds a side's speed in steps of so many tokens."""
        self.tokens_per_second[side] = tokens / timing.median
        self.rounds[side] = [tokens / seconds for seconds in timing.rounds]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def ours(ctx: Context, case: Case) -> Callable[[], object]:
    """A call that makes one training step with this library."""
    from ..models import MoETransformer
    from ..train import TrainConfig, Trainer

    if ctx.device_type != 1:
        ctx.tf32 = case.tf32
    options = TrainConfig(
        sequence_length=case.length,
        precision=case.precision,
        moments=case.moments,
        recompute_experts=case.recompute_experts,
        keep_experts=case.keep_experts,
    )
    trainer = Trainer(MoETransformer(ctx, case.model, seed=0, precision=case.precision), options)
    ids, targets = case.batches()
    return lambda: trainer.train_step(ids, targets)


def peer(ctx: Context, case: Case, compiled: bool) -> Callable[[], object]:
    """A call that makes one training step with PyTorch."""
    import torch

    from . import torch_step, torch_work

    torch_work.prepare(ctx)
    torch.set_grad_enabled(True)
    device = "cpu" if ctx.device_type == 1 else f"cuda:{ctx.device_index}"
    if device != "cpu":
        torch.set_float32_matmul_precision("high" if case.tf32 else "highest")
    autocast = torch.bfloat16 if case.precision == "bf16" else None
    step = torch_step.Step(case.model, case.length, compiled, device, autocast)
    ids, targets = (torch.from_numpy(a.astype(np.int64)).to(device) for a in case.batches())
    return lambda: step(ids, targets)


#: Steps before a clock starts: captures, compiles, and torch.compile's again while shapes are new to it.
WARM_STEPS = 4

SIDES = {"nncuda": None, "torch eager": False, "torch compile": True}


def measure_cpu(case: Case, threads: int, isa: str, against_torch: bool) -> StepResult:
    """Times the sides in turn, then measures the memory of each in a process of its own."""
    ctx = Context("cpu", threads=threads, isa=isa)
    calls = {"nncuda": ours(ctx, case)}
    if against_torch:
        for side, compiled in list(SIDES.items())[1:]:
            calls[side] = peer(ctx, case, bool(compiled))
        for call in calls.values():
            for _ in range(WARM_STEPS):
                call()
    timings = interleave({side: Timed(call) for side, call in calls.items()}, Effort(budget=60.0))
    result = StepResult(case.name, isa)
    for side, timing in timings.items():
        result.timed(side, case.tokens, timing)
        result.peak_bytes[side] = _peak_of(case, side, threads, isa)
    return result


def measure_gpu(
    ctx: Context,
    case: Case,
    against_torch: bool,
    effort: Effort,
    missing: str | None,
    so_far: Callable[[StepResult], None],
) -> StepResult:
    """Times the sides one after another: they would not all fit. `missing` is why there is no torch for this device;
    `so_far` is called after each side, since a compiler may take longer than there is time."""
    result = StepResult(case.name)
    ctx.reset_peak()
    result.timed("nncuda", case.tokens, _timed(ours(ctx, case), device_clock(ctx), effort))
    result.peak_bytes["nncuda"] = ctx.bytes_peak
    so_far(result)
    gc.collect()
    ctx.trim()
    for side, compiled in list(SIDES.items())[1:]:
        if not against_torch or missing is not None:
            result.missing[side] = missing or "not asked for"
            continue
        import torch

        from . import torch_work

        torch.cuda.reset_peak_memory_stats()
        try:
            call = peer(ctx, case, bool(compiled))
            timing = _timed(call, torch_work.clock(ctx), effort)
        except Exception as error:  # whatever another library cannot do here must not end the run
            result.missing[side] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        else:
            result.timed(side, case.tokens, timing)
            result.peak_bytes[side] = torch.cuda.max_memory_allocated()
            so_far(result)
        call = None  # type: ignore[assignment]
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()
    return result


def _timed(call: Callable[[], object], clock: Stopwatch, effort: Effort) -> Timing:
    for _ in range(WARM_STEPS):
        call()
    return interleave({"": Timed(call, clock=clock)}, effort)[""]


def _peak_of(case: Case, side: str, threads: int, isa: str) -> int:
    """Peak resident memory of a process that makes five steps, beyond what its imports took."""
    command = [sys.executable, "-m", "nncuda.bench.step", case.name, side, str(threads), isa]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    return int(json.loads(done.stdout.splitlines()[-1])["peak_bytes"])


def alone(
    case: Case, side: str, threads: int, isa: str | None = None
) -> tuple[Callable[[], object], Callable[[], int]]:
    """A side's step in a process that does nothing else, and what tells that process's peak of resident bytes beyond
    what its imports took."""
    if side == "nncuda":
        from .. import models, train  # noqa: F401
    else:
        import torch  # noqa: F401

        from . import torch_step  # noqa: F401
    before = _status("VmRSS")
    ctx = Context("cpu", threads=threads, isa=isa)
    call = ours(ctx, case) if side == "nncuda" else peer(ctx, case, bool(SIDES[side]))
    return call, lambda: max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    """A line of this process's memory account, in bytes. (getrusage would also count what the parent process held.)"""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{field}:"))


def _main(name: str, side: str, threads: int, isa: str) -> None:
    call, peak = alone(next(case for case in cpu_cases() if case.name == name), side, threads, isa)
    for _ in range(5):
        call()
    print(json.dumps({"peak_bytes": peak()}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
