"""`nncuda bench`: the command line of the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from ..binding import library
from ..cli.arguments import config_file_option, device_options
from ..cli.config_file import ConfigFile
from ..cli.options import build_configs, preset_option, preset_vocabulary, read_config
from ..cli.terminal import CommandConsole
from ..device import INSTRUCTION_SETS, Comm, Context
from ..golden.runner import available_isas
from ..models.config import Precision
from . import ceilings as ceilings_module
from . import compare as comparing
from . import measure as runner
from . import model_command, tables
from . import ranks as ranks_module
from . import step as step_module
from .growth_command import growth
from .inference import measure as measure_inference
from .machine import machine_of
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
_file_argument = click.Path(exists=True, dir_okay=False, path_type=Path)
_STEP = "training step of"


def _instruction_sets(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...] | None:
    """The sets that --isa names, from the plainest to the widest; None if it names none."""
    names = {name for value in values for name in value.split(",")}
    if not names:
        return None
    if unknown := sorted(names - {*INSTRUCTION_SETS, "all"}):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(INSTRUCTION_SETS)} and all")
    there = available_isas()
    if "all" in names:
        names = set(there)
    if missing := [name for name in INSTRUCTION_SETS if name in names and name not in there]:
        raise click.BadParameter(f"this processor has no {missing[0]}; it has {', '.join(there)}")
    return tuple(name for name in INSTRUCTION_SETS if name in names)


_isa_option = click.option(
    "--isa",
    "isas",
    multiple=True,
    callback=_instruction_sets,
    metavar="NAMES",
    help="Instruction sets of the CPU to measure in turn, with commas between them, or all.  [default: the widest]",
)


@click.group(invoke_without_command=True)
@device_options
@_isa_option
@click.option(
    "--against",
    type=click.Choice(["torch", "llama.cpp", "ik_llama.cpp"]),
    help="Also measure this peer at each task, in the same run.",
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
@click.option(
    "--binary",
    type=_file_argument,
    help="With --against ik_llama.cpp: the program that tests/interop/ik_llama_cpp/build.sh makes.",
)
@click.option(
    "--peer-model", type=_file_argument, help="With --model: the file that the peer reads, where it cannot read ours."
)
@click.option("--only", multiple=True, help="Only tasks whose group or name contains this text; may be repeated.")
@click.option(
    "--quick", is_flag=True, help="On a GPU: tiny sizes, once each, to show that everything runs, not how fast."
)
@click.option(
    "--compare",
    "old",
    type=_file_argument,
    help="Compare with the figures of this file, and exit with 1 if something became slower.",
)
@_json_option
@click.pass_context
def bench(
    click_context: click.Context,
    device: str,
    threads: int | None,
    isas: tuple[str, ...] | None,
    against: str | None,
    model: Path | None,
    rounds: int | None,
    python: str | None,
    binary: Path | None,
    peer_model: Path | None,
    only: tuple[str, ...],
    quick: bool,
    old: Path | None,
    path: Path | None,
) -> None:
    """Measure the kernels and the training step against this machine's ceilings, and against PyTorch.

    With --model, measure prefill, decoding and memory of a stored model; --against llama.cpp or ik_llama.cpp adds that
    program, on the same file and with as many threads, in alternation.

    The exit code is 1 if a measurement failed, its results differ from its peer's, or --compare finds something slower.
    """
    if click_context.invoked_subcommand is not None:
        return
    before = _read(old) if old is not None else None  # a wrong file shall not be found after an hour
    of_models = against in ("llama.cpp", "ik_llama.cpp") or rounds or python or binary or peer_model
    if model is None and of_models:
        raise click.UsageError(
            "--against llama.cpp or ik_llama.cpp, --rounds, --python, --binary and --peer-model are for --model"
        )
    if (binary and against != "ik_llama.cpp") or (python and against != "llama.cpp"):
        raise click.UsageError("--binary is for --against ik_llama.cpp, --python for --against llama.cpp")
    if peer_model and against is None:
        raise click.UsageError("--peer-model is for --against")
    if model is not None and (against == "torch" or only):
        raise click.UsageError("--model is measured against llama.cpp, ik_llama.cpp or nothing, and as a whole")
    with Context(device, threads=None if device.startswith("cuda") else threads) as ctx:
        on_gpu, machine, threads = ctx.device_type != 1, machine_of(ctx), ctx.threads
        place = f"cuda:{ctx.device_index}" if on_gpu else "cpu"
        if quick and not on_gpu:
            raise click.UsageError("--quick is for a GPU")
        if on_gpu and isas:
            raise click.UsageError("--isa is for the CPU")
        if on_gpu and model is not None and against is not None:
            raise click.UsageError(f"{against} is measured on the CPU; on a GPU --model stands alone")
        sets: tuple[str | None, ...] = (None,) if on_gpu else isas or (ctx.isa,)
        if model is None:
            content = _kernels(ctx, sets, against, only, quick, path)
    if model is not None:
        work = Work.tiny() if quick else Work()
        if rounds is not None:
            work = replace(work, rounds=rounds)
        peer = model_command.Peer(against, python, binary, peer_model) if against else None
        content = model_command.run(
            model, peer, sets, threads, work, machine, lambda found: _write(path, found), console, place
        )
    if path is not None:
        console.print(f"written to {path}", highlight=False)
    failed = any(row["error"] for row in content.get("rows", ()))
    if before is not None and _show_comparison(before, content):
        failed = True
    if failed:
        raise SystemExit(1)


def _kernels(
    ctx: Context, isas: Sequence[str | None], against: str | None, only: tuple[str, ...], quick: bool, path: Path | None
) -> dict[str, Any]:
    """Measures kernels and training steps, with each of the instruction sets (None on a GPU), and shows them."""
    from . import catalogue

    def wanted(name: str) -> bool:
        return not only or any(text in name for text in only)

    on_gpu = ctx.device_type != 1
    works = catalogue.gpu(quick) if on_gpu else catalogue.cpu()
    works = [work for work in works if wanted(f"{work.group} {work.name}")]
    cases = step_module.gpu_cases(quick) if on_gpu else step_module.cpu_cases()
    cases = [case for case in cases if wanted(f"{_STEP} {case.name}")]
    if not works and not cases:
        raise click.UsageError(f"no task matches {', '.join(only)}")
    peer, no_peer = _peer(against, ctx)
    figures: dict[str, Any] = {"machine": machine_of(ctx) | _peer_version(against), "peer_missing": no_peer}
    if no_peer:
        console.print(f"Without {against}: {no_peer}", highlight=False)
    probes: dict[str, Callable[[], float]]
    measured: dict[str | None, Any]
    if on_gpu:
        on_device = ceilings_module.DeviceBandwidth(ctx, 1 << (20 if quick else 30))
        measured, probes = {None: on_device.measure()}, {"copy": on_device.copy}
        figures["ceilings"] = measured[None].as_dict()
    else:
        bandwidth = ceilings_module.Bandwidth(ctx.threads)
        measured = {**ceilings_module.measure(ctx.threads, [isa for isa in isas if isa], bandwidth)}
        probes = {"read": bandwidth.read, "copy": bandwidth.copy}
        figures["threads"] = ctx.threads
        figures["ceilings"] = {isa: found.as_dict() for isa, found in measured.items()}
    console.print(tables.ceilings(list(measured.values()), _place(ctx)))
    effort = ONCE if quick else Effort()
    rows: list[Row] = []
    with contextlib.ExitStack() as stack, console.status("") as status:
        contexts = {
            isa: stack.enter_context(Context("cpu", threads=ctx.threads, isa=isa)) if isa else ctx for isa in isas
        }
        for work in works:
            for isa, own in contexts.items():
                status.update(f"{work.group}: {work.name}{f', {isa}' if len(isas) > 1 else ''}")
                rows += runner.measure(own, [work], measured[isa], probes, peer, effort)
                figures["rows"] = [row.as_dict() for row in rows]
                _write(path, figures)
    if rows:
        console.print(tables.kernels(rows, against))
        console.print(tables.legend(rows, against), highlight=False, soft_wrap=True)
    for row in rows:
        if row.error or (row.peer_missing and peer is not None):
            what = row.error or f"without {against}: {row.peer_missing}"
            console.print(f"{row.group}, {row.name}: {what}", highlight=False, markup=False)
    steps: dict[tuple[str, str | None], Any] = {}

    def keep(result: step_module.StepResult) -> None:
        steps[result.name, result.isa] = result.as_dict()
        figures["steps"] = list(steps.values())
        _write(path, figures)

    for case in cases:
        results = []
        for isa in isas:
            with console.status(f"{_STEP} {case.name}{f', {isa}' if len(isas) > 1 else ''}"):
                if isa is None:
                    found = step_module.measure_gpu(ctx, case, against is not None, effort, no_peer, keep)
                else:
                    found = step_module.measure_cpu(case, ctx.threads, isa, peer is not None)
            keep(found)
            results.append(found)
        peaks = {isa: tables.products_peak(measured[isa], case) for isa in isas}
        console.print(tables.step(case, results, peaks))
        for result in results:
            for line in tables.step_ratios(case, result):
                console.print(line, highlight=False, markup=False)
    return figures


def _read(path: Path) -> dict[str, Any]:
    """Figures to compare with."""
    try:
        content = comparing.read(path)
        comparing.figures(content)
    except comparing.CannotCompare as error:
        raise click.ClickException(str(error)) from error
    return content


def _show_comparison(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether something became slower."""
    try:
        found = comparing.compare(old, json.loads(json.dumps(new)))
    except comparing.CannotCompare as error:
        raise click.ClickException(str(error)) from error
    console.print(comparing.table(found))
    faster = sum(change.faster for change in found.changes)
    same = len(found.changes) - faster - len(found.slower)
    told = f"{len(found.slower)} slower, {faster} faster, {same} within the spread of the rounds"
    console.print(told, highlight=False)
    for name in found.gone:
        console.print(f"only in the old run: {name}", highlight=False, markup=False)
    for name in found.new:
        console.print(f"only in the new run: {name}", highlight=False, markup=False)
    return bool(found.slower)


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


def _write(path: Path | None, content: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(content, indent=1) + "\n")


@bench.command("compare")
@click.argument("old", type=_file_argument)
@click.argument("new", type=_file_argument)
def compare_files(old: Path, new: Path) -> None:
    """Compare two files that `nncuda bench --json` wrote on one machine, and name what became slower.

    The threshold of a figure follows from how much its rounds spread. The exit code is 1 if something became slower.
    """
    if _show_comparison(_read(old), _read(new)):
        raise SystemExit(1)


@bench.command()
@device_options
@_isa_option
@_json_option
def ceilings(device: str, threads: int | None, isas: tuple[str, ...] | None, path: Path | None) -> None:
    """Measure what the device can do at most: FMA, bf16 and int8 peaks of a CPU, bandwidth of its memory."""
    with Context(device, threads=None if device.startswith("cuda") else threads) as ctx:
        if ctx.device_type == 1:
            measured = ceilings_module.measure(ctx.threads, isas or (ctx.isa,))
            console.print(tables.ceilings(list(measured.values()), _place(ctx)))
            content: dict[str, Any] = {isa: found.as_dict() for isa, found in measured.items()}
        elif isas:
            raise click.UsageError("--isa is for the CPU")
        else:
            of_device = ceilings_module.DeviceBandwidth(ctx).measure()
            console.print(tables.ceilings([of_device], _place(ctx)))
            content = of_device.as_dict()
        _write(path, {"machine": machine_of(ctx), "ceilings": content})


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
            tables.show_ranks(console, found, work, quick)
            _write(path, {"machine": machine_of(ctx), "ranks": found.as_dict()})


bench.add_command(growth)


def _peer_version(against: str | None) -> dict[str, str]:
    if against is None:
        return {}
    try:
        import torch
    except ImportError:
        return {}
    return {"torch": torch.__version__, "torch f32 precision": torch.get_float32_matmul_precision()}
