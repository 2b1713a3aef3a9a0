"""The worker of the language benchmark, Python's side.

`nncuda-go bench` and `nncuda-rs bench` take the same options, do the same work and print the same line. The work:

- 3 steps of training to warm up, then `--steps` timed ones, each on the batch of a run; nothing is read back;
- the ids 1 to 16 and 4 greedy tokens to warm up, then `--decode` timed ones, each read back;
- 1000 calls of `cuda_add` on one element to warm up, then 10000 timed ones.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from nncuda import kernels
from nncuda.cli.options import build_configs, read_config
from nncuda.device import Context
from nncuda.infer import generate
from nncuda.models import MoETransformer
from nncuda.train import Trainer
from nncuda.train.data import TokenWindows, open_shards

WARM_STEPS = 3
PROMPT = tuple(range(1, 17))
WARM_TOKENS = 4
WARM_CALLS, CALLS = 1000, 10000


@click.command()
@click.option("--config", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--data", required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--steps", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--decode", "tokens", type=click.IntRange(min=1), default=64, show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), help="Worker threads.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
def measure(config: Path, data: Path, steps: int, tokens: int, threads: int | None, as_json: bool) -> None:
    """Time a training step, a decoded token and a call from Python."""
    shards = open_shards(data)
    model_config, train_config = build_configs(read_config(config), None, {}, shards[0].vocab_size)
    windows = TokenWindows(shards, train_config.sequence_length)
    with Context("cpu", threads=threads) as ctx:
        model = MoETransformer(ctx, model_config, seed=train_config.seed, precision=train_config.precision)
        trainer = Trainer(model, train_config)
        result = {
            "language": "python",
            "train_tokens_per_second": _train(trainer, windows, steps),
            "decode_tokens_per_second": _decode(trainer.model, tokens),
            "call_nanoseconds": _call(ctx),
            "threads": ctx.threads,
        }
    if as_json:
        click.echo(json.dumps(result))
        return
    for name, value in result.items():
        click.echo(f"{name}: {value:,.1f}" if isinstance(value, float) else f"{name}: {value}")


def _train(trainer: Trainer, windows: TokenWindows, steps: int) -> float:
    """Tokens a second over so many steps."""
    config, ctx = trainer.config, trainer.model.ctx
    began = 0.0
    for step in range(WARM_STEPS + steps):
        if step == WARM_STEPS:
            ctx.synchronize()
            began = time.perf_counter()
        trainer.train_step(*windows.batch(ctx, config.seed, step * config.batch_size, config.batch_size))
    ctx.synchronize()
    return steps * config.batch_size * config.sequence_length / (time.perf_counter() - began)


def _decode(model: MoETransformer, count: int) -> float:
    """Tokens a second of a sequence that goes on greedily."""
    stream = generate(model, PROMPT, WARM_TOKENS + count)
    for _ in range(WARM_TOKENS):
        next(stream)
    began = time.perf_counter()
    for _ in range(count):
        next(stream)
    return count / (time.perf_counter() - began)


def _call(ctx: Context) -> float:
    """Nanoseconds of a call that has next to nothing to do."""
    a, b, y = (ctx.zeros((1,)) for _ in range(3))
    began = 0.0
    for call in range(WARM_CALLS + CALLS):
        if call == WARM_CALLS:
            ctx.synchronize()
            began = time.perf_counter()
        kernels.add(a, b, y=y)
    ctx.synchronize()
    return (time.perf_counter() - began) * 1e9 / CALLS


if __name__ == "__main__":
    measure()
