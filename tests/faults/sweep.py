"""Makes the n-th allocation of a training step fail, for n = 0, 1, ... until a step has no more of them.

Run by `test_allocations.py` in a process of its own, with the shim of `allocations.c` preloaded. After each failure the
context must be usable, and the same trainer must come to the bits of one that never met a failure. Prints, as JSON, the
number of points, how many of them were errors, and how many steps went on without being captured.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from nncuda import Context, OutOfMemoryError, kernels
from nncuda.models import MoEConfig, MoETransformer
from nncuda.train import TrainConfig, Trainer

CONFIG = MoEConfig(vocab_size=48, hidden_size=24, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, num_experts=4,
                   experts_per_token=2, ffn_size=20, context=32, extended_context=64, init_std=0.2)  # fmt: skip
OPTIONS = {"batch_size": 3, "micro_batch_size": 2, "sequence_length": 24, "warmup_steps": 2, "learning_rate": 0.01}
STEPS = 4


class Refusals:
    """Fails the n-th allocation: of the library from the system, or of device buffers from the library."""

    def __init__(self, shim: ctypes.CDLL, kind: str):
        self.shim = shim
        self.kind = kind
        self.left = -1
        self.struck = False

    def attach(self, ctx: Context) -> None:
        if self.kind == "buffers":
            real: Callable[..., int] = ctx._malloc

            def malloc(handle: Any, nbytes: int, out: Any) -> int:
                self.left -= 1
                if self.left == -1:
                    self.struck = True
                    return real(handle, 1 << 60, out)  # which no machine has: the library's own refusal
                return real(handle, nbytes, out)

            ctx._malloc = malloc

    def arm(self, point: int) -> None:
        self.struck, self.left = False, point
        if self.kind == "system":
            self.shim.fault_arm(point)

    def disarm(self) -> bool:
        if self.kind == "system":
            self.struck = self.shim.fault_disarm() > 0
        self.left = -1
        return self.struck


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    ids = np.random.default_rng(step).integers(0, CONFIG.vocab_size, (3, 25), dtype=np.int32)
    return ids[:, :-1], ids[:, 1:]


def state(trainer: Trainer) -> bytes:
    arenas = (trainer.model.parameters, trainer.first_moments, trainer.second_moments)
    return b"".join(arena.data.numpy().tobytes() for arena in arenas) + repr(trainer.loss_scaling).encode()


def run(options: TrainConfig, capture: bool, fail_at: int, point: int, refusals: Refusals) -> tuple[bytes, str]:
    """Trains, with the allocation `point` of step `fail_at` refused; gives the bits at the end and what happened."""
    with Context(threads=2) as ctx:
        refusals.attach(ctx)
        model = MoETransformer(ctx, CONFIG, seed=1, precision=options.precision)
        trainer = Trainer(model, options, capture=capture)
        happened = "nothing"
        while trainer.step < STEPS:
            step = trainer.step
            if step == fail_at and happened == "nothing":
                ctx._free_waiting()
                ctx.trim()
                refusals.arm(point)
                try:
                    trainer.train_step(*batch(step))
                    happened = "no error"
                except OutOfMemoryError as error:
                    happened = "error"
                    assert str(error)
                if not refusals.disarm():
                    happened = "untouched"
                elif happened == "no error":
                    # A step that cannot be captured runs call by call. The library itself tries again with less:
                    # without the memory that it pools, or without the room that scratch might need later.
                    fallback = str(trainer.eager_reason).startswith("the step could not be captured: ")
                    assert fallback or refusals.kind == "system", "a failure went by unseen"
                    happened = "fallback" if fallback else "recovered"
                if happened != "untouched":
                    assert kernels.scale(ctx.tensor(np.arange(9.0)), alpha=2.0).numpy()[8] == 16
            else:
                trainer.train_step(*batch(step))
        bits = state(trainer)
        del trainer, model
        gc.collect()
        ctx._free_waiting()
        assert ctx.bytes_used == 0, f"point {point}: {ctx.bytes_used} bytes are left over"
    return bits, happened


def sweep(refusals: Refusals, mode: str, options: dict[str, object], stride: int) -> dict[str, int]:
    config = TrainConfig.from_dict({**OPTIONS, **options})
    capture, fail_at = mode != "eager", {"eager": 1, "first": 0, "capture": 1, "replay": 2}[mode]
    expected, _ = run(config, capture, -1, 0, refusals)
    counts = {"points": 0, "error": 0, "fallback": 0, "recovered": 0, "untouched": 0}
    gc.collect()
    held = refusals.shim.fault_alive()
    point = 0
    while not counts["untouched"]:
        found, happened = run(config, capture, fail_at, point, refusals)
        gc.collect()
        left = refusals.shim.fault_alive() - held
        assert found == expected, f"{mode}, point {point}: after '{happened}' the bits are others"
        assert left == 0, f"{mode}, point {point}: {left} allocations are left over"
        counts[happened] += 1
        counts["points"] += happened != "untouched"
        point += stride
    return counts


def main(shim_path: str, kind: str, options: str, stride: int) -> None:
    refusals = Refusals(ctypes.CDLL(shim_path), kind)
    modes = ("eager", "first", "capture", "replay")
    print(json.dumps({mode: sweep(refusals, mode, json.loads(options), stride) for mode in modes}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
