"""`nncuda bench`: the command line of the benchmarks."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .. import __version__
from ..context import Context
from . import ceilings as ceilings_module
from . import run as runner
from .run import Row

console = Console()
if not console.is_terminal:  # a file or a pipe has no width of its own
    console.width = 120


_threads_option = click.option("--threads", type=click.IntRange(1, 256), help="Worker threads; default: all cores.")
_json_option = click.option(
    "--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write figures here."
)
_STEP = "training step of small"


@click.group(invoke_without_command=True)
@_threads_option
@click.option("--against", type=click.Choice(["torch"]), help="Measure this peer beside each work, in the same run.")
@click.option("--only", multiple=True, help="Works whose group or name contains this text; may be repeated.")
@_json_option
@click.pass_context
def bench(
    click_context: click.Context, threads: int | None, against: str | None, only: tuple[str, ...], path: Path | None
) -> None:
    """Measure the kernels and the training step beside this machine's ceilings, and beside PyTorch."""
    if click_context.invoked_subcommand is not None:
        return
    from .work import catalogue

    def wanted(name: str) -> bool:
        return not only or any(text in name for text in only)

    works = [work for work in catalogue() if wanted(f"{work.group} {work.name}")]
    if not works and not wanted(_STEP):
        raise click.UsageError(f"no work matches {', '.join(only)}")
    if against:
        _require_torch()
        runner.at_its_best()
    count = _threads(threads)
    bandwidth = ceilings_module.Bandwidth(count)
    measured = ceilings_module.measure(count, bandwidth)
    _show_ceilings(measured)
    figures: dict[str, Any] = {"ceilings": measured.as_dict()}
    if works:
        with Context("cpu", threads=count) as ctx, console.status("") as status:
            rows = list(
                runner.run(
                    ctx,
                    works,
                    measured,
                    bandwidth,
                    against is not None,
                    lambda w: status.update(f"{w.group}: {w.name}"),
                )
            )
        console.print(_table(rows, against))
        figures["rows"] = [row.as_dict() for row in rows]
    if wanted(_STEP):
        figures["step"] = _step(count, against, measured)
    _write(path, {"machine": _machine() | _peer_version(against), **figures})


def _threads(wanted: int | None) -> int:
    with Context("cpu", threads=wanted) as ctx:
        return ctx.threads


def _machine() -> dict[str, Any]:
    with Context("cpu") as ctx:
        isa = ctx.isa
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"nncuda": __version__, "processor": model, "isa": isa, "python": platform.python_version()}


def _write(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n")
        console.print(f"written to {path}")


def _show_ceilings(measured: ceilings_module.Ceilings) -> None:
    table = Table(title=f"Ceilings of this machine, {measured.threads} threads", title_justify="left")
    table.add_column("what")
    table.add_column("at most", justify="right")
    for label, value, unit in (
        ("f32 multiply-add", measured.fma_f32, "GFLOP/s"),
        ("bf16 dot products", measured.dot_bf16, "GFLOP/s"),
        ("int8 dot products", measured.dot_int8, "GOP/s"),
        ("DRAM read", measured.read, "GB/s"),
        ("DRAM copy (read + written)", measured.copy, "GB/s"),
    ):
        table.add_row(label, f"{value / 1e9:,.0f} {unit}" if value else "no such instruction")
    console.print(table)


@bench.command()
@_threads_option
@_json_option
def ceilings(threads: int | None, path: Path | None) -> None:
    """Measure FMA, bf16 and int8 peaks and DRAM bandwidth."""
    measured = ceilings_module.measure(_threads(threads))
    _show_ceilings(measured)
    _write(path, {"machine": _machine(), "ceilings": measured.as_dict()})


def _table(rows: list[Row], against: str | None) -> Table:
    table = Table(title="Kernels: medians of interleaved runs", title_justify="left")
    for name, justify in (("work", "left"), ("time", "right"), ("rate", "right"), ("share of floor", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    if against:
        table.add_column(f"{against} / ours", justify="right")
    table.add_column("asked", justify="right")
    table.add_column("")
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        compute = row.floor in ("fma_f32", "dot_bf16")
        rate = f"{row.gflops:,.0f} GFLOP/s" if compute else f"{row.gbytes:,.1f} GB/s"
        cells = [f"  {row.name}", _time(row.seconds), rate, f"{row.share:.0%} of {row.floor}"]
        if against:
            cells.append(f"{row.ratio:.2f}" if row.ratio else "")
        mark = "" if row.reached is None else "[green]reached[/]" if row.reached else "[red]short[/]"
        table.add_row(*cells, row.asked, mark)
    return table


def _step(threads: int, against: str | None, measured: ceilings_module.Ceilings) -> dict[str, Any]:
    from . import step

    with console.status(_STEP):
        result = step.measure(threads, against is not None)
    table = Table(title="Training step of `small`, f32", title_justify="left")
    for name in ("side", "tokens/s", "share of FMA peak", "peak memory"):
        table.add_column(name, justify="left" if name == "side" else "right")
    for side, speed in result.tokens_per_second.items():
        share = speed * step.FLOPS_A_TOKEN / measured.fma_f32 if measured.fma_f32 else 0.0
        table.add_row(side, f"{speed:,.0f}", f"{share:.0%}", f"{result.peak_bytes[side] / 2**20:,.0f} MiB")
    console.print(table)
    if against:
        speeds, peaks = result.tokens_per_second, result.peak_bytes
        best = max((side for side in speeds if side != "nncuda"), key=lambda side: speeds[side])
        console.print(
            f"{speeds['nncuda'] / speeds[best]:.2f} x {best} (asked: 1.4), peak memory "
            f"{peaks['nncuda'] / peaks[best]:.2f} x (asked: at most 0.7)"
        )
    return result.as_dict()


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise click.ClickException(
            "PyTorch is not installed here; `make interop` installs it, or `pip install torch`"
        ) from None


def _peer_version(against: str | None) -> dict[str, str]:
    if against is None:
        return {}
    import torch

    return {"torch": torch.__version__, "torch f32 precision": torch.get_float32_matmul_precision()}
