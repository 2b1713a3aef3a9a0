"""The training step of the `small` model: tokens a second and peak memory, of this library and of PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from .timing import Timing, interleave

TOKENS = 8 * 256
FLOPS_A_TOKEN = 30.7e6  # forward and backward of the products and of causal attention


@dataclass(frozen=True)
class StepResult:
    """Tokens a second of each side, and peak resident bytes beyond the imported libraries (inputs and model
    included)."""

    tokens_per_second: dict[str, float]
    peak_bytes: dict[str, int]

    def as_dict(self) -> dict[str, dict[str, float]]:
        return asdict(self)


def batch(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One batch of random ids and their successors, int32 [8, 256]."""
    ids = np.random.default_rng(seed).integers(0, 4096, (8, 257), dtype=np.int32)
    return np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])


def ours(threads: int) -> Callable[[], object]:
    """A call that makes one training step with this library."""
    from ..context import Context
    from ..models import MoEConfig, MoETransformer
    from ..train import Trainer

    ctx = Context("cpu", threads=threads)
    trainer = Trainer(MoETransformer(ctx, MoEConfig.preset("small"), seed=0))
    ids, targets = batch()
    return lambda: trainer.train_step(ids, targets)


def peer(threads: int, compiled: bool) -> Callable[[], object]:
    """A call that makes one training step with PyTorch."""
    import torch

    from . import torch_step, torch_work

    torch_work.prepare(threads)
    torch.set_grad_enabled(True)
    step = torch_step.Step(torch_step.SMALL, compiled)
    ids, targets = (torch.from_numpy(a.astype(np.int64)) for a in batch())
    return lambda: step(ids, targets)


def _peak_of(side: str, threads: int) -> int:
    """Peak resident memory of a process that makes five steps, beyond what its imports took."""
    command = [sys.executable, "-m", "nncuda.bench.step", side, str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    return int(json.loads(done.stdout.splitlines()[-1])["peak_bytes"])


def measure(threads: int, against_torch: bool, rounds: int = 9) -> StepResult:
    """Times the sides in turn, then measures the memory of each in a process of its own."""
    sides = {"nncuda": ours(threads)}
    if against_torch:
        sides["torch eager"] = peer(threads, compiled=False)
        sides["torch compile"] = peer(threads, compiled=True)
        for call in sides.values():  # torch.compile recompiles while shapes are new to it
            for _ in range(4):
                call()
    timings: dict[str, Timing] = interleave(sides, rounds=rounds, budget=60.0)
    names = {"nncuda": "ours"} | ({"torch eager": "eager", "torch compile": "compile"} if against_torch else {})
    return StepResult(
        tokens_per_second={name: TOKENS / timing.median for name, timing in timings.items()},
        peak_bytes={name: _peak_of(side, threads) for name, side in names.items()},
    )


def _status(field: str) -> int:
    """A line of this process's memory account, in bytes. (getrusage would also count what the parent process held.)"""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{field}:"))


def _main(side: str, threads: int) -> None:
    if side == "ours":
        from .. import models, train  # noqa: F401
    else:
        import torch  # noqa: F401

        from . import torch_step  # noqa: F401
    before = _status("VmRSS")
    call = ours(threads) if side == "ours" else peer(threads, compiled=side == "compile")
    for _ in range(5):
        call()
    print(json.dumps({"peak_bytes": max(0, _status("VmHWM") - before)}))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
