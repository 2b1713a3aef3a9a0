"""How a training step grows: tokens a second and peak memory as a model gets wider, and as it gets deeper.

Each point is a process of its own, so that its memory is; the sides take turns, round after round. The models are
mixtures of 8 experts, of which a token meets 2, as `Case` describes a step.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..models import MoEConfig
from ..models.config import Precision, dtype_of
from .step import WARM_STEPS, Case, alone


@dataclass(frozen=True)
class Effort:
    """How long each process is timed: at least `steps` steps, and as many as end within `seconds`."""

    rounds: int = 3
    steps: int = 2
    seconds: float = 6.0


@dataclass(frozen=True)
class Point:
    """One model on one side. `axis` is "width" or "depth"; `bytes` are resident ones beyond the imports; `missing` says
    why the side has no figures there."""

    axis: str
    parameters: int
    layers: int
    side: str
    tokens_per_second: float | None = None
    bytes: int | None = None
    missing: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def models(quick: bool) -> dict[str, list[MoEConfig]]:
    """The models of each axis: 9 million to a billion parameters in 8 layers, and 1 to 32 layers of one width."""
    widths, depths = ((64, 128), (1, 2)) if quick else ((128, 256, 512, 832, 1536), (1, 2, 4, 8, 16, 32))
    width = 64 if quick else 256
    return {
        "width": [_model(hidden, 2 if quick else 8) for hidden in widths],
        "depth": [_model(width, layers) for layers in depths],
    }


def _model(hidden: int, layers: int) -> MoEConfig:
    return MoEConfig(
        vocab_size=8192,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=hidden // 64,
        num_kv_heads=1,
        head_dim=64,
        num_experts=8,
        experts_per_token=2,
        ffn_size=2 * hidden,
        context=256,
        extended_context=256,
    )


def case_of(axis: str, number: int, precision: Precision, quick: bool) -> Case:
    """A training step of the axis's model of that number: 1024 tokens in sequences of 256."""
    return Case(axis, models(quick)[axis][number], batch=1 if quick else 4, length=256, precision=precision)


def bytes_needed(model: MoEConfig, precision: Precision) -> int:
    """Bytes of weights, gradients and moments, without activations. torch's autocast keeps weights in f32."""
    return model.num_parameters * (16 if dtype_of(precision) == "f32" else 20)


def measure(
    threads: int,
    precision: Precision,
    sides: Sequence[str],
    effort: Effort,
    quick: bool,
    progress: Callable[[str], None],
) -> Iterator[Point]:
    """All points, model by model. `progress` is told what is measured next."""
    for axis, configs in models(quick).items():
        for number, model in enumerate(configs):
            needed, there = bytes_needed(model, precision), available_bytes()
            found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
            problems: dict[str, str] = {}
            if needed > there:
                problems = dict.fromkeys(sides, f"needs {needed / 1e9:.0f} GB; {there / 1e9:.0f} GB are free")
            for round_number in range(effort.rounds):
                for side in sides:
                    if side in problems:
                        continue
                    progress(
                        f"{model.num_parameters / 1e6:,.0f} M, {model.num_layers} layers, {side}, {round_number + 1}"
                    )
                    command = [
                        sys.executable,
                        "-m",
                        "nncuda.bench.growth",
                        axis,
                        str(number),
                        side,
                        str(threads),
                        precision,
                    ]
                    command += [str(effort.steps), str(effort.seconds), str(int(quick))]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        problems[side] = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][
                            :200
                        ]
                    else:
                        found[side].append(json.loads(done.stdout.splitlines()[-1]))
            for side, rounds in found.items():
                point = axis, model.num_parameters, model.num_layers, side
                if side in problems:
                    yield Point(*point, missing=problems[side])
                    continue
                speed, most = (statistics.median(one[key] for one in rounds) for key in ("tokens_per_second", "bytes"))
                yield Point(*point, speed, int(most))


def available_bytes() -> int:
    """Memory that a new process may take, as the kernel estimates it (proc(5), MemAvailable)."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _main(
    axis: str, number: str, side: str, threads: str, precision: Precision, steps: str, seconds: str, quick: str
) -> None:
    case = case_of(axis, int(number), precision, bool(int(quick)))
    call, peak = alone(case, side, int(threads))
    for _ in range(WARM_STEPS):
        call()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < int(steps) or time.perf_counter() - began < float(seconds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    print(json.dumps({"tokens_per_second": case.tokens / statistics.median(times), "bytes": peak()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])  # type: ignore[arg-type]
