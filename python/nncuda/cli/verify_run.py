"""`nncuda verify-run`: checks what a training run left behind, and computes steps of it again."""

from __future__ import annotations

from pathlib import Path

import click

from ..device import Comm, Context
from ..formats.run_folder import list_checkpoints
from ..train.verify import (
    Mismatch,
    check_checkpoint,
    check_files,
    read_chain,
    recompute,
    run_data,
)
from .arguments import device_options
from .ranks import RankCommand, before_joining, expert_parallel_option, joining_options, local_device


@click.command("verify-run", cls=RankCommand)
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    help="Compute again from the nearest checkpoint at or before this step.  [default: where the run began]",
)
@click.option("--to", "last", type=click.IntRange(min=0), help="Up to this step.  [default: the last that is recorded]")
@click.option("--files-only", is_flag=True, help="Check the files and the tensors of checkpoints, and compute nothing.")
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Where the data of the run is now.")
@device_options
@joining_options
@expert_parallel_option
def verify_run(
    run: Path,
    first: int | None,
    last: int | None,
    files_only: bool,
    data: Path | None,
    device: str,
    threads: int | None,
    transport: str,
    peer_timeout: float,
    expert_parallel: int,
) -> None:
    """Check the training run in the folder RUN against the chain of hashes that it wrote.

    First the chain itself, the files that it names, and every tensor of the checkpoints that are there; then the steps
    from --from to --to are computed again, with any number of threads and ranks, in this language, whatever language
    trained them. The first step and tensor that differ are named. TensorBoard's events are copies, and are not checked.

    Exits with 1 when something is not what the run had.
    """
    with before_joining():
        ctx = Context(local_device(device), threads=threads)
    with ctx:
        comm = Comm(ctx, transport, timeout=peer_timeout)  # type: ignore[arg-type]  # one of the choices
        say = click.echo if comm.rank == 0 else lambda _: None
        try:
            recorded = read_chain(run)
            say(f"{len(recorded.states)} recorded states, up to step {max(recorded.states, default=0)}")
            problems = list(check_files(run, recorded))
            for folder in list_checkpoints(run / "checkpoints"):
                try:
                    check_checkpoint(folder, ctx, recorded)
                except Mismatch as error:
                    problems.append(str(error))
            if problems:
                raise Mismatch("\n".join(problems))
            say(f"{len(recorded.files)} files and the tensors of the checkpoints are as they were written")
            if not files_only:
                windows = run_data(run, recorded, data)
                last = max(recorded.states, default=0) if last is None else last
                if first is not None and last < first:
                    raise click.UsageError(f"--to is {last}; it must be at least --from, which is {first}")
                done = recompute(run, recorded, windows, ctx, first, last, comm=comm, expert_parallel=expert_parallel)
                say(
                    f"steps {done.first} to {done.last}, computed again from {done.source}: all {done.states} recorded "
                    "states there are the same"
                )
        except Mismatch as error:
            raise click.ClickException(str(error)) from error
