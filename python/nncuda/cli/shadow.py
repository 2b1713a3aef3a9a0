"""`nncuda shadow`: a training step, or generation, with every kernel call a second time on another engine."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from ..device import INSTRUCTION_SETS, Context, Difference, ShadowRun
from ..formats import write_file
from ..golden.oracle import oracle_shadow
from ..infer import generate_batch
from ..models import MoETransformer
from ..train import Checkpoint, Trainer, resolve_checkpoint
from .arguments import config_file_option, device_option, threads_option
from .config_file import ConfigFile
from .generate import prompt_ids
from .options import build_configs, config_options, preset_option, preset_vocabulary, read_config
from .outputs import require_room
from .terminal import console

_ENGINES = {"baseline": "baseline", "cpu": None}  # the instruction set of each
_ORACLE = "f64"


@click.command()
@click.argument("model", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--reference",
    type=click.Choice([*_ENGINES, _ORACLE]),
    help="What to compare with: the CPU engine with its plainest instruction set, or with the widest; or the formulas "
    "in float64, which takes long.  [default: cpu for a GPU, else baseline]",
)
@click.option("--prompt", metavar="TEXT", help="With MODEL: continue this text instead of training.")
@click.option("--ids", "as_ids", is_flag=True, help="TEXT is token ids; no tokenizer is needed.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=16, show_default=True, help="With --prompt: tokens to write."
)
@click.option("--best", is_flag=True, help="Of a run, take the checkpoint with the lowest held-out loss, not the last.")
@config_file_option
@preset_option
@device_option
@click.option("--isa", type=click.Choice(INSTRUCTION_SETS), help="Instruction set to check.  [default: the widest]")
@threads_option
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write what was found to this file.",
)
@config_options
def shadow(
    model: Path | None,
    reference: str | None,
    prompt: str | None,
    as_ids: bool,
    max_tokens: int,
    best: bool,
    config_path: Path | None,
    preset: str | None,
    device: str,
    isa: str | None,
    threads: int | None,
    json_path: Path | None,
    **flags: Any,
) -> None:
    """Run every kernel call of a training step a second time on another engine, and compare what they wrote.

    The step is that of a new model, whose options come from the same sources as those of `nncuda train`; of MODEL, a
    checkpoint or the folder of a run, the next one of its trainer; its token ids are made up. With --prompt, MODEL
    continues a text instead.

    An element may differ by as much as the roundings of its call explain. The exit code is 1 if any differs by more,
    or if nothing could be compared.
    """
    options = {"config": config_path, "preset": preset, **flags}
    given = [name.replace("_", "-") for name, value in options.items() if value is not None]
    if model is None and (prompt is not None or best):
        raise click.UsageError("--prompt and --best need MODEL, a checkpoint or the folder of a run")
    if model is not None and given:
        raise click.UsageError(f"MODEL has its own options; leave out --{given[0]}")
    if json_path is not None:
        require_room(json_path, force=True)
    checkpoint = None if model is None else Checkpoint(resolve_checkpoint(model, "best" if best else "last"))
    ids = None
    if prompt is not None and checkpoint is not None:
        ids = prompt_ids(prompt, as_ids, checkpoint.config.vocab_size, checkpoint.tokenizer, checkpoint.path)
    with Context(device, threads=threads) as ctx:
        if isa is not None:
            if ctx.device != "cpu":
                raise click.UsageError("--isa is for --device cpu")
            ctx.isa = isa
        reference = reference or ("baseline" if ctx.device == "cpu" else "cpu")
        if checkpoint is None:
            work = _new_step(ctx, config_path, preset, flags)
        elif ids is None:
            work = _step(checkpoint.trainer(ctx))
        else:
            work = _generation(checkpoint.model(ctx), ids, max_tokens)
        with _shadow(ctx, reference, threads) as run:
            work()
        described = {"device": ctx.device, "isa": ctx.isa if ctx.device == "cpu" else None, "reference": reference}
    if json_path is not None:
        write_file(json_path, json.dumps({**described, **run.json()}, indent=2) + "\n")
    _show(run, reference)
    if run.over:
        raise click.ClickException(f"{run.over} of {run.compared} calls are beyond their bound")
    if not run.compared:
        raise click.ClickException("no call could be compared")


@contextlib.contextmanager
def _shadow(ctx: Context, reference: str, threads: int | None) -> Iterator[ShadowRun]:
    if reference == _ORACLE:
        with oracle_shadow(ctx) as run:
            yield run
    else:
        with Context(threads=threads, isa=_ENGINES[reference]) as other, ctx.shadow(other) as run:
            yield run


def _new_step(ctx: Context, config_path: Path | None, preset: str | None, flags: dict[str, Any]) -> Callable[[], None]:
    file = read_config(config_path) if config_path else ConfigFile()
    model, train = build_configs(file, preset, flags, preset_vocabulary(file, preset))
    made = MoETransformer(ctx, model, seed=train.seed, precision=train.precision)
    return _step(Trainer(made, train, capture=False))


def _step(trainer: Trainer) -> Callable[[], None]:
    """A training step on made-up ids, the same in every language."""
    rows, length, vocab = trainer.config.batch_size, trainer.config.sequence_length, trainer.model.config.vocab_size
    count = np.arange(rows * (length + 1), dtype=np.int64).reshape(rows, length + 1)
    ids = ((31 * count * count + 17 * count) % vocab).astype(np.int32)

    def step() -> None:
        trainer.train_step(ids[:, :-1], ids[:, 1:])

    return step


def _generation(model: MoETransformer, ids: list[int], max_tokens: int) -> Callable[[], None]:
    def generation() -> None:
        for _ in generate_batch(model, [ids], max_tokens, capture=False):
            pass

    return generation


def _share(largest: Difference | None) -> str:
    if largest is None:
        return "-"
    return f"{largest.share:.3g}" if math.isfinite(largest.share) else "beyond"


def _show(run: ShadowRun, reference: str) -> None:
    terminal = console()
    table = Table("kernel", "calls", "compared", "over", "largest share")
    for kernel in run.kernels:
        counts = str(kernel.calls), str(kernel.compared), str(kernel.over)
        table.add_row(kernel.kernel, *counts, _share(kernel.largest))
    terminal.print(table)
    lines = [f"{run.calls} calls, {run.compared} compared with {reference}, {run.moves} moves of bytes."]
    lines += [f"{kernel.kernel} was not compared: {kernel.why}" for kernel in run.kernels if kernel.why is not None]
    if (first := run.first) is not None:
        place = f" in {first.label}" if first.label else ""
        lines.append(
            f"First beyond its bound: call {first.call}, {first.kernel}{place}: {first.argument} {list(first.shape)} "
            f"at {list(first.index)} is {first.value:.9g}, the reference has {first.reference:.9g}; "
            f"bound {first.bound:.3g}."
        )
    for line in lines:
        terminal.print(line, highlight=False, markup=False, soft_wrap=True)
