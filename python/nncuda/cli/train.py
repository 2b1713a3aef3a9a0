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

from ..device import Comm, Context
from ..formats.errors import shown
from ..models import MoEConfig
from ..tokenizer import Tokenizer
from ..train import FrozenOrigin, Origin, TrainConfig, TrainingRun
from ..train.aborting import aborting
from ..train.config import CHANGEABLE, SCHEDULE
from ..train.data import open_shards
from ..train.divergence import DivergedError
from ..train.metrics import board_left_out
from ..train.plan import Seat
from ..train.record import read_record
from ..train.run import Progress as RunProgress
from .arguments import config_file_option, device_options
from .config_file import ConfigFile
from .options import begun_configs, build_configs, config_options, preset_option, read_config, trains_adapter
from .plan import require_fit
from .ranks import RankCommand, before_joining, local_device, rank_options
from .stopping import stopping
from .terminal import console, count_text, tell


@click.command(cls=RankCommand)
@click.argument("run", type=click.Path(file_okay=False, path_type=Path))
@config_file_option
@preset_option
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="A token shard, or a folder of them.")
@click.option("--held-out", type=click.Path(exists=True, path_type=Path), help="The same, for evaluation.")
@click.option(
    "--tokenizer",
    "tokenizer_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The tokenizer of the data, which is saved with the checkpoints.",
)
@click.option(
    "--from",
    "from_folder",
    type=click.Path(exists=True, path_type=Path),
    help="Begin with weights and tokenizer of a checkpoint, a run, a Mixtral, Llama, Mistral or Qwen of Hugging Face, "
    "or a GGUF file of one in f32, f16 or bf16; with --lora-rank, train beside any of these.",
)
@click.option(
    "--with-optimizer",
    is_flag=True,
    help="With --from: also with the moments, the step and the loss scale of that checkpoint.",
)
@click.option("--resume", is_flag=True, help="Resume the run from its last checkpoint, with its original options.")
@click.option(
    "--extend",
    is_flag=True,
    help="Continue the run, finished or not, up to a larger number of --steps; run.json records it.",
)
@device_options
@rank_options
@click.option("--start-anyway", is_flag=True, help="Start even if the device has less free memory than the run needs.")
@config_options
def train(
    run: Path,
    config_path: Path | None,
    preset: str | None,
    data: Path | None,
    held_out: Path | None,
    tokenizer_path: Path | None,
    from_folder: Path | None,
    with_optimizer: bool,
    resume: bool,
    extend: bool,
    device: str,
    threads: int | None,
    transport: str,
    peer_timeout: float,
    log_ranks: bool,
    expert_parallel: int,
    start_anyway: bool,
    **flags: Any,
) -> None:
    """Train a model in the folder RUN.

    Options come from --preset (with the vocabulary of the data), overridden by a TOML file with the tables [model]
    (also `preset`), [train] and [data] (`data`, `held_out`, `tokenizer`), overridden by the flags. A run may be
    interrupted or even killed: --resume continues from the last checkpoint, to the same bits as a run that never
    stopped. SIGINT or SIGTERM ends it after the current step, with a checkpoint; a second one ends it at once.

    --extend --steps N makes a run longer; the other options of its learning rate may change, too. The cosine is then
    stretched to the new end, so that the rate jumps; a line on standard error says how.

    --from MODEL begins with trained weights instead of random ones. The sizes of the model are those there; other
    values of its options are refused, but for --capacity-factor and --aux-alpha. Options of training begin at their
    defaults, not at a preset's, with 1000 steps and a rate of 5e-5. Checkpoints are folders, whatever MODEL is.

    --from MODEL --lora-rank R trains an adapter (LoRA) and leaves the model as it is stored: a dense Llama, Mistral or
    Qwen, a folder or a GGUF file in any format. Checkpoints are folders of PEFT, which --adapter of other commands
    takes, as it takes RUN. The rate is 2e-4 by default.

    A run that needs more memory than the device has free (`nncuda plan`) is not started.

    Several ranks share out a run with --replicas: `mpiexec -n 4 nncuda train RUN ...`. The first one talks. With
    --expert-parallel each holds only some of the experts. How many there are changes no bit; --resume may have others.

    If standard output is not a terminal, the lines of RUN/metrics.jsonl are written to it as they come, and nothing
    else.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    with before_joining():
        ctx = Context(local_device(device), threads=threads)
    with ctx:
        comm = Comm(ctx, transport, timeout=peer_timeout)  # type: ignore[arg-type]  # one of the choices
        first = comm.rank == 0
        seat = Seat.of(comm, expert_parallel)
        with aborting(comm):
            if resume or extend:
                others = {
                    "config": config_path,
                    "preset": preset,
                    "tokenizer": tokenizer_path,
                    "from": from_folder,
                    "with_optimizer": with_optimizer or None,
                }
                _refuse_others([*given, *(name for name, value in others.items() if value is not None)], resume, extend)
                changes = {name: None if value == "none" else value for name, value in given.items()}
                take_up = TrainingRun.extend if extend else TrainingRun.resume
                training = _take_up(take_up, run, ctx, data, held_out, start_anyway, changes, comm, seat)
            else:
                file = read_config(config_path) if config_path else ConfigFile()
                paths = _data_paths(file, data, held_out, tokenizer_path)
                adapter = trains_adapter(file, flags)
                origin = _origin(from_folder, with_optimizer, preset, paths[2], adapter)
                if origin is None:
                    model, options = build_configs(file, preset, flags, open_shards(paths[0])[0].vocab_size)
                else:
                    model, options = begun_configs(file, flags, origin)
                if not start_anyway:
                    require_fit(ctx, model, options, held_out=paths[1] is not None, seat=seat)
                training = _start(run, ctx, model, options, *paths, comm, expert_parallel, origin)
        if training.notice is not None and first:
            click.echo(training.notice, err=True)
        if first:
            run_to_end = run_with_progress if sys.stdout.isatty() else run_with_records
        else:
            run_to_end = partial(run_aside, tell_steps=log_ranks)
        stopped = run_to_end(training)
    if stopped and first:
        click.echo(
            f"stopped after step {training.trainer.step} of {training.trainer.config.steps}; "
            "--resume continues from there",
            err=True,
        )


def _refuse_others(given: list[str], resume: bool, extend: bool) -> None:
    """UsageError for the first flag of `given` that a resumed run does not take, or for --extend without --steps."""
    if resume and extend:
        raise click.UsageError("--resume continues a run as it is, --extend makes it longer; give one of them")
    verb, changeable = ("extend", (*SCHEDULE, *CHANGEABLE)) if extend else ("resume", CHANGEABLE)
    for name in given:
        if name not in changeable:
            taken = [f"--{other.replace('_', '-')}" for other in (*changeable, "device", "threads", "data", "held_out")]
            raise click.UsageError(
                f"--{verb} keeps the options of the run; leave out --{name.replace('_', '-')}. "
                f"It takes {', '.join(taken[:-1])} and {taken[-1]}"
            )
    if extend and "steps" not in given:
        raise click.UsageError("--extend needs --steps, the new total")


def _data_paths(file: ConfigFile, *flags: Path | None) -> tuple[Path, Path | None, Path | None]:
    """Data, held-out data and tokenizer: from the flags, else from the file's [data], relative to the file."""
    names, table = ("data", "held_out", "tokenizer"), file.get("data", {})
    for name, value in table.items():
        if name not in names or not isinstance(value, str):
            problem = f"[data] has {shown(name)}; it may have data, held_out and tokenizer, as text"
            raise file.wrong(problem, "data", name)
    data, held_out, tokenizer = (
        flag or (file.path.parent / table[name] if name in table else None)
        for name, flag in zip(names, flags, strict=True)
    )
    if data is None:
        raise click.UsageError("say what to train on: --data, or `data` under [data] in the --config file")
    return data, held_out, tokenizer


def _origin(
    folder: Path | None, with_optimizer: bool, preset: str | None, tokenizer: Path | None, adapter: bool
) -> Origin | FrozenOrigin | None:
    """Where a run begins that has --from; UsageError for what does not go with it, or needs it."""
    if folder is None:
        if adapter:
            raise click.UsageError("--lora-rank needs --from, the model beside which an adapter is trained")
        if with_optimizer:
            raise click.UsageError("--with-optimizer needs --from, the checkpoint that has its state")
        return None
    if preset is not None:
        raise click.UsageError("--from gives the sizes of the model; leave out --preset")
    if adapter:
        if with_optimizer:
            raise click.UsageError("--lora-rank begins with an optimizer of its own; leave out --with-optimizer")
        if tokenizer is not None:
            raise click.UsageError("the tokenizer stays with the model of --from; leave out --tokenizer")
        return FrozenOrigin(folder)
    origin = Origin(folder, with_optimizer)
    if tokenizer is not None and origin.tokenizer.has_tokenizer:
        raise click.UsageError(f"the tokenizer of {folder} comes along; leave out --tokenizer")
    return origin


def _start(
    run: Path,
    ctx: Context,
    model: MoEConfig,
    options: TrainConfig,
    data: Path,
    held_out: Path | None,
    tokenizer_path: Path | None,
    comm: Comm,
    expert_parallel: int,
    origin: Origin | FrozenOrigin | None,
) -> TrainingRun:
    tokenizer = Tokenizer.load(tokenizer_path) if tokenizer_path else None
    ranks: dict[str, Any] = {"comm": comm, "expert_parallel": expert_parallel, "origin": origin}
    return TrainingRun.start(run, ctx, model, options, data, held_out, tokenizer, **ranks)


def _take_up(
    take_up: Callable[..., TrainingRun],
    run: Path,
    ctx: Context,
    data: Path | None,
    held_out: Path | None,
    start_anyway: bool,
    changes: dict[str, Any],
    comm: Comm,
    seat: Seat,
) -> TrainingRun:
    sources = read_record(run)
    held_out = held_out or sources["held_out"]
    admit = None if start_anyway else partial(require_fit, ctx, held_out=held_out is not None, seat=seat)
    return take_up(run, ctx, data or sources["data"], held_out, admit, changes, comm, seat.expert_parallel)


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
    beside = f"an adapter of {count_text(trainer.model.layout.size)} beside " if trainer.model.lora_rank else ""
    terminal.print(
        f"{beside}{count_text(config.num_parameters)} parameters, "
        f"{count_text(config.num_active_parameters)} active per token; "
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
    with _running(training), bar:
        task = bar.add_task("", total=trainer.config.steps, completed=trainer.step, losses="")
        for progress in training.steps():
            held_out = "" if progress.held_out_loss is None else f", held-out {progress.held_out_loss:.3f}"
            skipped = f", {progress.skipped_steps} steps skipped" if progress.skipped_steps else ""
            losses = f"loss {progress.loss:.3f}{held_out}{skipped} · {progress.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=progress.step, losses=losses)
            if after_step is not None:
                after_step(progress)
    done = f"{trainer.step} of {trainer.config.steps} steps"
    tell(f"{done}; checkpoints in {training.checkpoints}")
    return trainer.step < trainer.config.steps


def run_with_records(training: TrainingRun) -> bool:
    """The same for programs: the standard output gets the lines of metrics.jsonl, each as soon as it is there."""
    with _running(training):
        for _ in training.steps(echo=sys.stdout):
            pass
    return training.trainer.step < training.trainer.config.steps


def run_aside(training: TrainingRun, tell_steps: bool = False) -> bool:
    """The same for another rank than the first: nothing is told, or a line a step on standard error."""
    comm = training.trainer.comm
    with _stopping(training):
        for progress in training.steps():
            if tell_steps and comm is not None:
                speed = f"{progress.tokens_per_second:,.0f} tokens/s of all ranks"
                click.echo(f"rank {comm.rank}: step {progress.step}, loss {progress.loss:.3f} · {speed}", err=True)
    return training.trainer.step < training.trainer.config.steps


@contextmanager
def _running(training: TrainingRun) -> Iterator[None]:
    """Says first what the run will not leave behind; for the rank that talks."""
    if missing := board_left_out():
        click.echo(missing, err=True)
    with _stopping(training):
        yield


@contextmanager
def _stopping(training: TrainingRun) -> Iterator[None]:
    """While it lasts, a signal makes the run save and stop, and divergence is an error of the command. Of whatever
    else ends it the other ranks are told."""
    try:
        with stopping(training.stop), aborting(training.trainer.comm):
            yield
    except DivergedError as error:
        raise click.ClickException(str(error)) from error
