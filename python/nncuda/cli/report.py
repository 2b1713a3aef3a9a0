"""`nncuda report`: a training run as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from .outputs import require_room
from .terminal import tell


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it.  [default: RUN/report.html]"
)
def report(run: Path, out: Path | None) -> None:
    """Write one HTML page about the training run in RUN: curves, experts, checkpoints, options.

    The page is complete in itself: it needs no network and no other file. It may be written while the run is going on,
    and shows the run as it stands at that point; it says so where the run's files lack something, or hold it in a form
    that cannot be shown.
    """
    from ..report import write_report

    if out is not None:
        require_room(out, force=True)
    path = write_report(run, out)
    tell(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")
