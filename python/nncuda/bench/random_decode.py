"""Decoding by a model with random weights that are made on the device: for those too large to be written first.

    python -m nncuda.bench.random_decode 6.9b --device cuda --json figures.json

One sequence, then several together, greedily, each token read back; tokens a second of all, and the bytes a second that
they must read at least, beside what the device's memory copies.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..cli.arguments import device_option
from ..device import Context
from ..infer.language_model import LanguageModel
from ..models import MoEConfig, MoETransformer
from . import step
from .ceilings import DeviceBandwidth
from .nncuda_side import Nncuda

#: Tokens of a prompt; steps before those that are timed, which make what later ones reuse.
PROMPT, WARM = 35, 3


@dataclass(frozen=True)
class Work:
    """Numbers of sequences; rounds of so many timed steps; bytes that the probe of the memory copies."""

    rows: tuple[int, ...] = (1, 32)
    steps: int = 16
    rounds: int = 3
    probe_bytes: int = 1 << 29


#: To show that everything runs.
TINY = Work((1, 2), 2, 1, 1 << 20)


def measure(ctx: Context, config: MoEConfig, work: Work = Work()) -> Iterator[dict[str, Any]]:
    """The figures of each number of sequences, one by one: medians of rounds with a probe of the memory before each."""
    most = max(work.rows)
    context = -(-(PROMPT + WARM + work.rounds * work.steps + 1) // 128) * 128
    model = MoETransformer(ctx, config, seed=0, training=False, precision="bf16")
    probe = DeviceBandwidth(ctx, work.probe_bytes)
    rng = np.random.default_rng(0)
    with LanguageModel.of(model, context=context, cache_tokens=context * most, max_batch=most) as language:
        side = Nncuda(language, context)
        for rows in work.rows:
            side.start([rng.integers(3, config.vocab_size, PROMPT).tolist() for _ in range(rows)])
            side.step(WARM)
            speeds, shares = [], []
            for number in range(work.rounds):
                ceiling = probe.copy()
                seconds = side.step(work.steps)[0] / work.steps
                length = PROMPT + WARM + number * work.steps + work.steps // 2
                speeds.append(rows / seconds)
                shares.append(side.bytes_per_step([length] * rows) / seconds / ceiling)
            yield {
                "sequences": rows,
                "tokens_per_second": statistics.median(speeds),
                "share": statistics.median(shares),
            }


@click.command()
@click.argument("preset")
@device_option
@click.option("--quick", is_flag=True, help="A tiny model, to show that everything runs, not how fast.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this file.")
def main(preset: str, device: str, quick: bool, path: Path | None) -> None:
    """Time decoding by PRESET ("6.9b", "small" or "demo") with random weights in bf16, on a GPU."""
    with Context(device) as ctx:
        if ctx.device_type == 1:
            raise click.UsageError("this is for a GPU; `nncuda bench inference` is for a CPU")
        config = replace(step.TINY, context=128) if quick else MoEConfig.preset(preset)
        decode: list[dict[str, Any]] = []
        found = {"preset": preset, "decode": decode}
        for figures in measure(ctx, config, TINY if quick else Work()):
            decode.append(figures)
            if path is not None:  # anew each time: what is stopped later keeps these
                path.write_text(json.dumps(found, indent=1) + "\n")
    click.echo(json.dumps(found))


if __name__ == "__main__":
    main()
