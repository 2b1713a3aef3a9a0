"""`nncuda train`: start a training run, or take one up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..context import Context
from ..formats import FormatError, Tokenizer
from ..formats.errors import shown
from ..models import MoEConfig
from ..train import TrainConfig, TrainingRun
from ..train.config import CHANGEABLE, SCHEDULE
from ..train.data import open_shards
from ..train.divergence import DivergedError
from ..train.record import read_record
from ..train.run import Progress as RunProgress
from .options import build_configs, config_options, preset_option, read_config
from .plan import require_fit
from .stopping import stopping
from .terminal import console, count_text


@click.command()
@click.argument("run", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--config", "config_path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A TOML file."
)
@preset_option
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="A token shard, or a folder of them.")
@click.option("--held-out", type=click.Path(exists=True, path_type=Path), help="The same, to evaluate on.")
@click.option(
    "--tokenizer",
    "tokenizer_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The tokenizer of the data; it goes into the checkpoints.",
)
@click.option(
    "--resume", is_flag=True, help="Take the run up from its last checkpoint, with the options it began with."
)
@click.option(
    "--extend",
    is_flag=True,
    help="Take the run up, done or not, for the larger number of --steps; run.json records it.",
)
@click.option(
    "--device", default="cpu", show_default=True, help="cpu, cuda, cuda:INDEX, or auto: a GPU if there is one."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="Worker threads; results do not depend on it.  [default: all cores]",
)
@click.option("--start-anyway", is_flag=True, help="Start even when the device has less memory free than is needed.")
@config_options
def train(
    run: Path,
    config_path: Path | None,
    preset: str | None,
    data: Path | None,
    held_out: Path | None,
    tokenizer_path: Path | None,
    resume: bool,
    extend: bool,
    device: str,
    threads: int | None,
    start_anyway: bool,
    **flags: Any,
) -> None:
    """Train a model in the folder RUN.

    Options come from --preset (with the vocabulary of the data), over it those of a TOML file with the tables [model]
    (also `preset`), [train] and [data] (`data`, `held_out`, `tokenizer`), over them the flags. Interrupt it, even kill
    it: --resume goes on from the last checkpoint and comes to the same bits as a run that never stopped. SIGINT and
    SIGTERM end it behind the step that it is in, with a checkpoint; a second one ends it at once.

    --extend --steps N makes a run longer; the other options of its learning rate may change, too. The cosine is then
    stretched to the new end, so that the rate jumps; a line on the standard error says how.

    A run that needs more memory than the device has free (`nncuda plan`) is not started.

    Where the standard output is no terminal it gets the lines of RUN/metrics.jsonl as they come, and nothing else.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    with Context(device, threads=threads) as ctx:
        if resume or extend:
            others = {"config": config_path, "preset": preset, "tokenizer": tokenizer_path}
            _refuse_others([*given, *(name for name, value in others.items() if value is not None)], resume, extend)
            changes = {name: None if value == "none" else value for name, value in given.items()}
            take_up = TrainingRun.extend if extend else TrainingRun.resume
            training = _take_up(take_up, run, ctx, data, held_out, start_anyway, changes)
            if training.notice is not None:
                click.echo(training.notice, err=True)
        else:
            file = read_config(config_path) if config_path else {}
            paths = _data_paths(file.get("data", {}), config_path, data, held_out, tokenizer_path)
            model, options = build_configs(file, preset, flags, open_shards(paths[0])[0].vocab_size)
            if not start_anyway:
                require_fit(ctx, model, options, held_out=paths[1] is not None)
            training = _start(run, ctx, model, options, *paths)
        run_to_end = run_with_progress if sys.stdout.isatty() else run_with_records
        stopped = run_to_end(training)
    if stopped:
        click.echo(
            f"stopped after step {training.trainer.step} of {training.trainer.config.steps}; "
            "--resume goes on from there",
            err=True,
        )


def _refuse_others(given: list[str], resume: bool, extend: bool) -> None:
    """UsageError for the first of the flags `given` that a run does not go on with, or when --extend has no --steps."""
    if resume and extend:
        raise click.UsageError("--resume takes a run up as it is, --extend makes it longer; give one of them")
    verb, changeable = ("extend", (*SCHEDULE, *CHANGEABLE)) if extend else ("resume", CHANGEABLE)
    for name in given:
        if name not in changeable:
            taken = [f"--{other.replace('_', '-')}" for other in (*changeable, "device", "threads", "data", "held_out")]
            raise click.UsageError(
                f"--{verb} goes on with the options of the run; leave out --{name.replace('_', '-')}. "
                f"It takes {', '.join(taken[:-1])} and {taken[-1]}"
            )
    if extend and "steps" not in given:
        raise click.UsageError("--extend needs --steps: how many there shall be in all")


def _data_paths(
    table: dict[str, Any], config_path: Path | None, *flags: Path | None
) -> tuple[Path, Path | None, Path | None]:
    """Data, held-out data and tokenizer: from the flags, else from the file's [data], relative to the file."""
    names = ("data", "held_out", "tokenizer")
    for name, value in table.items():
        if name not in names or not isinstance(value, str):
            raise FormatError(
                config_path or "", f"[data] has {shown(name)}; it may have data, held_out and tokenizer, as text"
            )
    data, held_out, tokenizer = (
        flag or (config_path.parent / table[name] if config_path and name in table else None)
        for name, flag in zip(names, flags, strict=True)
    )
    if data is None:
        raise click.UsageError("say what to train on: --data, or `data` under [data] in the --config file")
    return data, held_out, tokenizer


def _start(
    run: Path,
    ctx: Context,
    model: MoEConfig,
    options: TrainConfig,
    data: Path,
    held_out: Path | None,
    tokenizer_path: Path | None,
) -> TrainingRun:
    tokenizer = Tokenizer.load(tokenizer_path) if tokenizer_path else None
    return TrainingRun.start(run, ctx, model, options, data, held_out, tokenizer)


def _take_up(
    take_up: Callable[..., TrainingRun],
    run: Path,
    ctx: Context,
    data: Path | None,
    held_out: Path | None,
    start_anyway: bool,
    changes: dict[str, Any],
) -> TrainingRun:
    sources = read_record(run)
    held_out = held_out or sources["held_out"]
    admit = None if start_anyway else partial(require_fit, ctx, held_out=held_out is not None)
    return take_up(run, ctx, data or sources["data"], held_out, admit, changes)


class _EndColumn(ProgressColumn):
    """When the last step is expected: the time of the day, with the date unless that is today."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        if task.time_remaining is None or task.finished:
            return Text("")
        now = datetime.now()
        end = now + timedelta(seconds=task.time_remaining)
        return Text(f"ends {end:%H:%M}" if end.date() == now.date() else f"ends {end:%d %b %H:%M}", style="cyan")


def run_with_progress(training: TrainingRun, after_step: Callable[[RunProgress], None] | None = None) -> bool:
    """Runs to the end with a progress bar; an interrupt makes it save and stop. Returns whether it stopped before.

    `after_step` is called with the progress after each step.
    """
    trainer, terminal = training.trainer, console()
    config = trainer.model.config
    terminal.print(
        f"{count_text(config.num_parameters)} parameters, {count_text(config.num_active_parameters)} active a token; "
        f"{count_text(training.data.windows * training.data.length)} tokens to train on; {trainer.model.ctx}"
    )
    bar = Progress(
        TextColumn("training"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[losses]}"),
        TimeRemainingColumn(),
        _EndColumn(),
        console=terminal,
        speed_estimate_period=600,
    )
    with _stoppable(training), bar:
        task = bar.add_task("", total=trainer.config.steps, completed=trainer.step, losses="")
        for progress in training.steps():
            held_out = "" if progress.held_out_loss is None else f", held-out {progress.held_out_loss:.3f}"
            skipped = f", {progress.skipped_steps} steps skipped" if progress.skipped_steps else ""
            losses = f"loss {progress.loss:.3f}{held_out}{skipped} · {progress.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=progress.step, losses=losses)
            if after_step is not None:
                after_step(progress)
    done = f"{trainer.step} of {trainer.config.steps} steps"
    terminal.print(f"{done}; checkpoints in {training.checkpoints}", soft_wrap=True, highlight=False)
    return trainer.step < trainer.config.steps


def run_with_records(training: TrainingRun) -> bool:
    """The same for programs: the standard output gets the lines of metrics.jsonl, each as soon as it is there."""
    with _stoppable(training):
        for _ in training.steps(echo=sys.stdout):
            pass
    return training.trainer.step < training.trainer.config.steps


@contextmanager
def _stoppable(training: TrainingRun) -> Iterator[None]:
    """While it lasts, a signal makes the run save and stop, and divergence is an error of the command."""
    try:
        with stopping(training.stop):
            yield
    except DivergedError as error:
        raise click.ClickException(str(error)) from error
