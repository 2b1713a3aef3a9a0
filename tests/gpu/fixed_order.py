"""What a step of training is made of, and what torch pays for its own determinism: the yardstick for the cost of a
fixed order of sums, which this library has no switch to turn off.

    python tests/gpu/fixed_order.py FILE [--quick]
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from nncuda import Context
from nncuda.bench import step
from nncuda.bench.timing import ONCE, Effort


def profile(ctx: Context, case: step.Case) -> Any:
    """Each kernel's calls and time in one step."""
    call = step.ours(ctx, case)
    for _ in range(3):
        call()
    with ctx.profile() as found:
        call()
    return found.json()


def torch_seconds(ctx: Context, case: step.Case, deterministic: bool, effort: Effort) -> float:
    """Median of an eager step."""
    import torch

    from nncuda.bench import torch_work

    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    call, clock = step.peer(ctx, case, compiled=False), torch_work.clock(ctx)
    for _ in range(3):
        call()
    return statistics.median(clock(call, 1) for _ in range(effort.rounds))


def main(path: Path, quick: bool) -> None:
    case = next(case for case in step.gpu_cases(quick) if quick or case.name == "1 B parameters, bf16")
    effort = ONCE if quick else Effort()
    with Context("cuda") as ctx:
        found: dict[str, Any] = {"case": case.name, "profile": profile(ctx, case)}
        path.write_text(json.dumps(found, indent=1) + "\n")
        ctx.trim()
        if importlib.util.find_spec("torch") is None:
            print("torch is not here: its own determinism was not timed")
            return
        found["torch"] = {str(on).lower(): torch_seconds(ctx, case, on, effort) for on in (False, True)}
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--quick" in sys.argv[2:])
