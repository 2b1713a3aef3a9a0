"""`nncuda bench`: the command line of the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click
from rich.table import Table

from .. import __version__
from ..binding import library
from ..cli.arguments import config_file_option, device_options
from ..cli.config_file import ConfigFile
from ..cli.options import build_configs, preset_option, preset_vocabulary, read_config
from ..cli.terminal import CommandConsole, bytes_text
from ..device import Comm, Context
from ..models.config import Precision
from . import ceilings as ceilings_module
from . import measure as runner
from . import model_command
from . import ranks as ranks_module
from . import step as step_module
from .inference import measure as measure_inference
from .measure import Row
from .model import Work
from .timing import ONCE, Effort

console = CommandConsole()
if not console.is_terminal:  # a file or a pipe has no width of its own
    console.width = 140


_json_option = click.option(
    "--json",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the figures to this file, again after each task.",
)
_STEP = "training step of"


@click.group(invoke_without_command=True)
@device_options
@click.option(
    "--against", type=click.Choice(["torch", "llama.cpp"]), help="Also measure this peer at each task, in the same run."
)
@click.option(
    "--model",
    type=click.Path(exists=True, path_type=Path),
    help="Measure how fast this GGUF file or Hugging Face folder runs instead.",
)
@click.option("--rounds", type=click.IntRange(1, 100), help="With --model: number of rounds.  [default: 3]")
@click.option(
    "--python", help="With --model: the Python that has llama-cpp-python; default: this one, or that of .venv-interop."
)
@click.option("--only", multiple=True, help="Only tasks whose group or name contains this text; may be repeated.")
@click.option(
    "--quick", is_flag=True, help="On a GPU: tiny sizes, once each, to show that everything runs, not how fast."
)
@_json_option
@click.pass_context
def bench(
    click_context: click.Context,
    device: str,
    threads: int | None,
    against: str | None,
    model: Path | None,
    rounds: int | None,
    python: str | None,
    only: tuple[str, ...],
    quick: bool,
    path: Path | None,
) -> None:
    """Measure the kernels and the training step against this machine's ceilings, and against PyTorch.

    With --model, measure prefill, decoding and memory of a stored model; --against llama.cpp adds that program, on the
    same file and with as many threads, in alternation.

    The exit code is 1 if a measurement failed, or its results differ from its peer's.
    """
    if click_context.invoked_subcommand is not None:
        return
    if model is None and (against == "llama.cpp" or rounds or python):
        raise click.UsageError("--against llama.cpp, --rounds and --python are for --model")
    if model is not None:
        if against == "torch" or only:
            raise click.UsageError("--model is measured against llama.cpp or nothing, and as a whole")
        with Context(device, threads=None if device.startswith("cuda") else threads) as ctx:
            on_gpu, machine, threads = ctx.device_type != 1, _machine(ctx), ctx.threads
            place = f"cuda:{ctx.device_index}" if on_gpu else "cpu"
        if quick and not on_gpu:
            raise click.UsageError("--quick is for a GPU")
        if on_gpu and against is not None:
            raise click.UsageError("llama.cpp is measured on the CPU; on a GPU --model stands alone")
        work = Work.tiny() if quick else Work()
        if rounds is not None:
            work = replace(work, rounds=rounds)
        model_command.run(model, against, python, threads, work, machine, path, console, place)
        return
    from . import catalogue

    def wanted(name: str) -> bool:
        return not only or any(text in name for text in only)

    with Context(device, threads=None if device.startswith("cuda") else threads) as ctx:
        on_gpu = ctx.device_type != 1
        if quick and not on_gpu:
            raise click.UsageError("--quick is for a GPU")
        works = catalogue.gpu(quick) if on_gpu else catalogue.cpu()
        works = [work for work in works if wanted(f"{work.group} {work.name}")]
        cases = step_module.gpu_cases(quick) if on_gpu else step_module.cpu_cases()
        cases = [case for case in cases if wanted(f"{_STEP} {case.name}")]
        if not works and not cases:
            raise click.UsageError(f"no task matches {', '.join(only)}")
        peer, no_peer = _peer(against, ctx)
        figures: dict[str, Any] = {"machine": _machine(ctx) | _peer_version(against), "peer_missing": no_peer}
        if no_peer:
            console.print(f"Without {against}: {no_peer}", highlight=False)

        probes: dict[str, Callable[[], float]]
        measured: ceilings_module.Ceilings | ceilings_module.DeviceCeilings
        if on_gpu:
            on_device = ceilings_module.DeviceBandwidth(ctx, 1 << (20 if quick else 30))
            measured, probes = on_device.measure(), {"copy": on_device.copy}
        else:
            bandwidth = ceilings_module.Bandwidth(ctx.threads)
            measured = ceilings_module.measure(ctx.threads, bandwidth)
            probes = {"read": bandwidth.read, "copy": bandwidth.copy}
        _show_ceilings(measured, _place(ctx))
        figures["ceilings"] = measured.as_dict()
        effort = ONCE if quick else Effort()
        rows: list[Row] = []
        with console.status("") as status:
            for row in runner.measure(
                ctx, works, measured, probes, peer, effort, lambda w: status.update(f"{w.group}: {w.name}")
            ):
                rows.append(row)
                figures["rows"] = [row.as_dict() for row in rows]
                _write(path, figures)
        if rows:
            console.print(_table(rows, against))
            console.print(_legend(rows, against), highlight=False, soft_wrap=True)
        for row in rows:
            if row.error or (row.peer_missing and peer is not None):
                what = row.error or f"without {against}: {row.peer_missing}"
                console.print(f"{row.group}, {row.name}: {what}", highlight=False, markup=False)
        steps: dict[str, Any] = {}

        def keep(result: step_module.StepResult) -> None:
            steps[result.name] = result.as_dict()
            figures["steps"] = list(steps.values())
            _write(path, figures)

        for case in cases:
            with console.status(f"{_STEP} {case.name}"):
                if on_gpu:
                    found = step_module.measure_gpu(ctx, case, against is not None, effort, no_peer, keep)
                else:
                    found = step_module.measure_cpu(case, ctx.threads, peer is not None)
            _show_step(case, found, _products_peak(measured, case))
            keep(found)
    if path is not None:
        console.print(f"written to {path}", highlight=False)
    if any(row.error for row in rows):
        raise SystemExit(1)


def _peer(against: str | None, ctx: Context) -> tuple[Any, str | None]:
    """The module of the peer's sides, or None and why."""
    if against is None:
        return None, None
    on_gpu = ctx.device_type != 1
    try:
        import torch
    except ImportError:
        if on_gpu:
            return None, "PyTorch is not installed here"
        raise click.ClickException(
            "PyTorch is not installed here; `make interop` installs it, or `pip install torch`"
        ) from None
    if not on_gpu:
        runner.at_its_best()
    elif not torch.cuda.is_available():
        return None, f"this PyTorch ({torch.__version__}) has no CUDA device"
    from . import torch_work

    torch_work.prepare(ctx)
    return torch_work, None


def _place(ctx: Context) -> str:
    if ctx.device_type == 1:
        return f"this machine, {ctx.threads} threads"
    return library.load().device_text(ctx.device_type, ctx.device_index)


def _machine(ctx: Context) -> dict[str, Any]:
    if ctx.device_type != 1:
        loaded = library.load()
        name = loaded.device_text(ctx.device_type, ctx.device_index)
        return {"nncuda": __version__, "gpu": name, "build": loaded.build_info, "python": platform.python_version()}
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {"nncuda": __version__, "processor": model, "isa": ctx.isa, "python": platform.python_version()}


def _write(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n")


def _show_ceilings(measured: ceilings_module.Ceilings | ceilings_module.DeviceCeilings, place: str) -> None:
    table = Table(title=f"Ceilings of {place}", title_justify="left")
    table.add_column("what")
    table.add_column("at most", justify="right")
    for line in measured.lines():
        table.add_row(*line)
    console.print(table)


@bench.command()
@device_options
@_json_option
def ceilings(device: str, threads: int | None, path: Path | None) -> None:
    """Measure what the device can do at most: FMA, bf16 and int8 peaks of a CPU, bandwidth of its memory."""
    with Context(device, threads=None if device.startswith("cuda") else threads) as ctx:
        if ctx.device_type == 1:
            measured: Any = ceilings_module.measure(ctx.threads)
        else:
            measured = ceilings_module.DeviceBandwidth(ctx).measure()
        _show_ceilings(measured, _place(ctx))
        _write(path, {"machine": _machine(ctx), "ceilings": measured.as_dict()})


@bench.command()
@config_file_option
@preset_option
@click.option("--precision", type=click.Choice(get_args(Precision)), default="bf16", show_default=True,
              help="What the model computes in.")  # fmt: skip
@click.option("--prompt", type=click.IntRange(min=1), default=128, show_default=True, help="Tokens of the prompt.")
@click.option("--tokens", type=click.IntRange(min=1), default=64, show_default=True, help="Timed tokens.")
@device_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
def inference(
    config_path: Path | None,
    preset: str | None,
    precision: Precision,
    prompt: int,
    tokens: int,
    device: str,
    threads: int | None,
    as_json: bool,
) -> None:
    """Time generation by a model with random weights: to the first token, and each token after it.

    On a CPU beside the bandwidth of its memory, probed between tokens.
    """
    file = read_config(config_path) if config_path else ConfigFile()
    config, _ = build_configs(file, preset, {}, preset_vocabulary(file, preset))
    with Context(device, threads=threads if device == "cpu" else None) as ctx:
        result = measure_inference(ctx, config, precision, prompt, tokens)
    if as_json:
        click.echo(json.dumps(result))
        return
    for name, value in result.items():
        click.echo(f"{name}: {value:,.3f}" if isinstance(value, float) else f"{name}: {value}")


@bench.command()
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Where checkpoints are written, and removed; default: the folder for temporary files.")  # fmt: skip
@click.option("--quick", is_flag=True, help="A tiny model, once each, to show that everything runs, not how fast.")
@_json_option
def ranks(folder: Path | None, quick: bool, path: Path | None) -> None:
    """Measure what several ranks cost: `mpiexec -n 2 nncuda bench ranks`.

    A training step and a checkpoint beside one rank with as many threads, a step with the experts divided beside one
    without, sums of gradients beside MPI's own, in alternation.
    """
    runner.at_its_best()  # MPICH takes memory for each sum
    with Context("cpu", threads=1) as ctx, Comm(ctx, "mpi") as comm:
        if comm.ranks == 1:
            raise click.UsageError("there is one rank; the launcher must start at least two")
        work = ranks_module.case(comm.ranks, quick)
        first = comm.rank == 0
        place = (folder or Path(tempfile.gettempdir())) / f"nncuda-bench-{comm.sum(os.getpid() if first else 0)}"
        with contextlib.ExitStack() as stack:
            if first:
                place.mkdir()
                stack.callback(shutil.rmtree, place)
            found = ranks_module.measure(comm, work, place, ranks_module.QUICK if quick else ranks_module.EFFORT)
        if first:
            _show_ranks(found, work, quick)
            _write(path, {"machine": _machine(ctx), "ranks": found.as_dict()})


def _show_ranks(found: ranks_module.Figures, work: step_module.Case, quick: bool) -> None:
    title = f"{work.name}, on {found.cores} cores; load {found.load[0]:.1f} to {found.load[1]:.1f}"
    table = Table("what", title=title, title_justify="left")
    sides = f"{found.ranks} ranks x 1 thread", "beside", ""
    for name, justify in (*zip(sides, ("right", "left", "left"), strict=True), ("share", "right"), ("goal", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    shares, goals = found.shares(), ranks_module.Goals()
    one = f"one rank x {found.ranks} threads"
    speeds = [f"{work.tokens / seconds:,.0f} tokens/s" for seconds in (found.step, found.step_alone)]
    rows = [
        ("a step, in its time", *speeds, one, f"{shares['step']:.2f}", f"{goals.step:.2f}"),
        ("gradients added up, longer by so much of a step", _time(found.tree), _time(found.transport), "MPI_Allreduce",
         f"{shares['tree']:.1%}", f"{goals.tree:.0%}"),
        ("sent in a step by the rank that sends most", bytes_text(found.bytes), bytes_text(found.ring_bytes), "a ring",
         f"{shares['bytes']:.3f}", f"{goals.bytes:.2f}"),
        ("a checkpoint, in its time", _time(found.checkpoint), _time(found.checkpoint_alone), one,
         f"{found.checkpoint / found.checkpoint_alone:.2f}", ""),
    ]  # fmt: skip
    if (divided := found.divided) is not None:
        speed, beside = f"{work.tokens / divided.step:,.0f} tokens/s", "every rank with all experts"
        rows += [
            (f"a step with the experts divided by {divided.ranks}, in its time", speed, speeds[0], beside,
             f"{divided.step / found.step:.2f}", ""),
            ("sent in that by the rank that sends most", bytes_text(divided.bytes), bytes_text(found.bytes), beside,
             f"{divided.bytes / found.bytes:.3f}", ""),
        ]  # fmt: skip
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for name in () if quick else found.shortfalls():
        console.print(f"{name}: {shares[name]:.3f}, asked is at most {getattr(goals, name)}", highlight=False)


def _table(rows: list[Row], against: str | None) -> Table:
    table = Table(title="Kernels: medians of interleaved runs", title_justify="left")
    for name, justify in (("work", "left"), ("time", "right"), ("rate", "right"), ("of ceiling", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    if against:
        table.add_column(f"{against} / ours", justify="right")
    table.add_column("goal", justify="right")
    table.add_column("")
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        time = _time(row.seconds) if row.seconds is not None else ""
        share = f"{row.share:.0%} of {row.floor}" if row.share is not None else ""
        cells = [f"  {row.name}", time, _rate(row), share]
        if against:
            cells.append(f"{row.ratio:.2f}" if row.ratio else "")
        mark = "" if row.reached is None else "[green]reached[/]" if row.reached else "[red]short[/]"
        table.add_row(*cells, row.asked, "[red]failed[/]" if row.error else mark)
    return table


_CEILINGS = {
    "fma_f32": "multiply-adds in f32",
    "dot_bf16": "dot products in bf16",
    "dot_int8": "dot products of 8-bit integers",
    "read": "memory read, probed beside the row",
    "copy": "memory read and written, probed beside the row",
}


def _legend(rows: list[Row], against: str | None) -> str:
    """What the columns of the table mean, as far as it has them."""
    lines = []
    if named := [name for name in _CEILINGS if any(row.floor == name for row in rows)]:
        told = "; ".join(f"{name}: {_CEILINGS[name]}" for name in named)
        lines.append(f"of ceiling: its share of the most that this machine can do ({told}).")
        if "read" in named or "copy" in named:
            lines.append("    More than 100% of memory's: caches kept a part.")
    if against:
        lines.append(f"{against} / ours: its time over ours; 2.00 is twice as fast as {against}.")
    if any(row.asked for row in rows):
        lines.append(
            "goal: what the project wants of it; 1.4 x: times as fast as torch, 60%: that share of the ceiling."
        )
    return "\n".join(lines)


def _rate(row: Row) -> str:
    """Of what limits the work: bytes when it runs against memory, or does little with each byte."""
    if not row.flops and not row.bytes:
        return ""
    if row.floor in ("read", "copy") or row.flops < 16 * row.bytes:
        return f"{row.bytes / 1e9:,.1f} GB/s"
    return f"{row.flops / 1e9:,.0f} GFLOP/s" if row.flops < 1e13 else f"{row.flops / 1e12:,.0f} TFLOP/s"


def _products_peak(
    measured: ceilings_module.Ceilings | ceilings_module.DeviceCeilings, case: step_module.Case
) -> float | None:
    """What the products of a training step could do at most; on a GPU that is not measured."""
    if isinstance(measured, ceilings_module.DeviceCeilings):
        return None
    return measured.dot_bf16 if case.precision == "bf16" else measured.fma_f32


def _show_step(case: step_module.Case, result: step_module.StepResult, peak: float | None) -> None:
    table = Table(title=f"Training step of {case.name}", title_justify="left")
    for name in ("side", "tokens/s", "TFLOP/s", *(["share of peak"] if peak else []), "peak memory"):
        table.add_column(name, justify="left" if name == "side" else "right")
    speeds, peaks = result.tokens_per_second, result.peak_bytes
    for side, speed in speeds.items():
        flops = speed * case.flops_a_token
        share = [f"{flops / peak:.0%}"] if peak else []
        table.add_row(side, f"{speed:,.0f}", f"{flops / 1e12:,.3g}", *share, f"{peaks[side] / 2**20:,.0f} MiB")
    console.print(table)
    for side, asked in zip(("torch eager", "torch compile"), case.asked, strict=True):
        if side in speeds:
            bar = f" (goal: {asked})" if asked else ""
            most = f" (goal: at most {case.asked_memory})" if case.asked_memory else ""
            console.print(
                f"{speeds['nncuda'] / speeds[side]:.2f} x {side}{bar}, peak memory "
                f"{peaks['nncuda'] / max(peaks[side], 1):.2f} x{most}",
                highlight=False,
            )
        elif side in result.missing and result.missing[side] != "not asked for":
            console.print(f"without {side}: {result.missing[side]}", highlight=False, markup=False)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _peer_version(against: str | None) -> dict[str, str]:
    if against is None:
        return {}
    try:
        import torch
    except ImportError:
        return {}
    return {"torch": torch.__version__, "torch f32 precision": torch.get_float32_matmul_precision()}
