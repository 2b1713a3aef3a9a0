"""`nncuda bench growth`: how a training step grows with its model, beside PyTorch's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import click
from rich.table import Table

from ..cli.terminal import CommandConsole, bytes_text
from ..device import Context
from ..models.config import Precision
from .growth import Effort, Point, measure
from .machine import machine_of


@click.command()
@click.option("--against", type=click.Choice(["torch"]), help="Also measure compiled PyTorch, in turn.")
@click.option("--precision", type=click.Choice(get_args(Precision)[:2]), default="f32", show_default=True,
              help="What the models compute in.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1, 256), default=os.cpu_count, help="Default: all cores.")
@click.option("--quick", is_flag=True, help="Tiny models, once each, to show that everything runs, not how fast.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the figures to this file, again after each point.")  # fmt: skip
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Draw them, as SVG, PDF or PNG.")
def growth(
    against: str | None, precision: Precision, threads: int, quick: bool, path: Path | None, picture: Path | None
) -> None:
    """Measure training steps of 9 million to a billion parameters, and of 1 to 32 layers.

    Each in a process of its own, three times. A model that the memory cannot hold is named and left out.
    """
    if picture is not None:
        from .growth_plot import plot_growth
    sides = ["nncuda", "torch compile"] if against else ["nncuda"]
    console = CommandConsole()
    with Context("cpu", threads=threads) as ctx:
        content: dict[str, Any] = {"machine": machine_of(ctx), "precision": precision, "threads": threads}
    points: list[Point] = []
    effort = Effort(1, 1, 0.0) if quick else Effort()
    with console.status("") as status:
        for point in measure(threads, precision, sides, effort, quick, status.update):
            points.append(point)
            if path is not None:
                path.write_text(json.dumps({**content, "points": [one.as_dict() for one in points]}, indent=1) + "\n")
    console.print(_table(points))
    if picture is not None:
        plot_growth(points, picture)


def _table(points: list[Point]) -> Table:
    table = Table("axis", "parameters", "layers", "side", "tokens/s", "peak memory")
    for one in points:
        speed = one.missing if one.tokens_per_second is None else f"{one.tokens_per_second:,.0f}"
        memory = "" if one.bytes is None else bytes_text(one.bytes)
        table.add_row(one.axis, f"{one.parameters / 1e6:,.1f} M", str(one.layers), one.side, speed, memory)
    return table
