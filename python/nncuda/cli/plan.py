"""`nncuda plan`: the memory of a run or of generation, before there is any."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.table import Table

from ..device import Context
from ..models import USUAL_PRESET, MoEConfig
from ..train import TrainConfig
from ..train.data import open_shards
from ..train.devices import DEVICES
from ..train.fit import Way, ways_to_fit
from ..train.origin import Origin
from ..train.plan import (
    ALONE,
    KINDS,
    Machine,
    MemoryPlan,
    RanksPlan,
    Seat,
    TooLargeError,
    Work,
    inference_work,
    plan_growth,
    plan_inference,
    plan_ranks,
    plan_training,
    training_work,
)
from .arguments import config_file_option
from .config_file import ConfigFile
from .options import begun_configs, build_configs, config_options, preset_option, preset_vocabulary, read_config
from .ranks import expert_parallel_option
from .terminal import bytes_text, console, count_text, tell

#: Of a GPU that is planned for with --available alone.
_USUAL_CAPABILITY = 90


class DoesNotFitError(MemoryError):
    """The plan of a run needs more memory than the device has free."""


class _Size(click.ParamType):
    """A number of bytes: "141GB" (10^9), "24GiB" (2^30), "5e9"."""

    name = "size"
    _UNITS: ClassVar = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
              "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}  # fmt: skip

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,2})?) ?([a-z]*)", str(value).lower())
        size = float(match[1]) * self._UNITS[match[2]] if match and match[2] in self._UNITS else math.inf
        if size >= 2.0**63:
            self.fail(f"{value!r} is not a number of bytes, such as 141GB or 24GiB", param, ctx)
        return int(size)


@click.command()
@config_file_option
@preset_option
@click.option(
    "--data", type=click.Path(exists=True, path_type=Path), help="A token shard, whose vocabulary size the model gets."
)
@click.option(
    "--from",
    "from_folder",
    type=click.Path(exists=True, path_type=Path),
    help="The model that training begins with, as of train --from, in place of preset and data: it is planned for, its "
    "weights are not read.",
)
@click.option("--inference", is_flag=True, help="Plan generation: --batch-size sequences of --context tokens.")
@click.option(
    "--prompt", type=click.IntRange(min=1), help="With --inference, the longest prompt.  [default: --context]"
)
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="cpu, cuda, cuda:INDEX, or auto: a GPU if there is one. Or the name of a GPU that need not be here: "
    f"{', '.join(DEVICES)}.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    help="Number of worker threads; each needs scratch memory of its own.  [default: all cores]",
)
@click.option(
    "--available", type=_Size(), help="Plan for a device with this much free memory; a GPU need not be present."
)
@click.option(
    "--ranks",
    type=click.IntRange(1, 65536),
    help="Plan training on so many ranks, up to --replicas, for the rank that needs the most memory.",
)
@expert_parallel_option
@click.option("--growth", is_flag=True, help="With --ranks, also a table of what changes with the number of ranks.")
@click.option(
    "--link",
    type=_Size(),
    help="With --ranks and a GPU by its name, bytes a second that a rank sends, such as 50GB, for the time of a step.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@config_options
def plan(
    config_path: Path | None,
    preset: str | None,
    data: Path | None,
    from_folder: Path | None,
    inference: bool,
    prompt: int | None,
    device: str,
    threads: int | None,
    available: int | None,
    ranks: int | None,
    expert_parallel: int,
    growth: bool,
    link: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Show how much memory training or generation will need on a device, whether the device has it, and how many
    operations and bytes a step or the next token takes. Of a GPU that is named,
    also a time: that of its peak and bandwidth.

    Options are those of `nncuda train`, from the same sources. No part of the model is created.
    """
    if prompt is not None and not inference:
        raise click.UsageError("--prompt is for --inference")
    if ranks is not None and inference:
        raise click.UsageError("--ranks is for training, not for --inference")
    if expert_parallel != 1 and ranks is None:
        raise click.UsageError("--expert-parallel is for --ranks")
    if growth and ranks is None:
        raise click.UsageError("--growth is for --ranks")
    if link is not None and (ranks is None or device not in DEVICES):
        raise click.UsageError("--link is for --ranks and a GPU by its name")
    if link == 0:
        raise click.UsageError("--link is 0; it must be at least 1")
    if from_folder is not None and (preset is not None or data is not None):
        raise click.UsageError("--from gives the sizes of the model; leave out --preset and --data")
    file = read_config(config_path) if config_path else ConfigFile()
    capacity = flags.pop("context") if inference else None
    if inference and flags["batch_size"] is None:
        file["train"] = {"batch_size": 1, **file.get("train", {})}
    if from_folder is not None:
        model, train = begun_configs(file, flags, Origin(from_folder, read=False))
    else:
        model, train = build_configs(file, preset, flags, _vocabulary(file, preset, config_path, data))
    if train.lora_rank:
        raise ValueError(f"lora_rank is {train.lora_rank}; runs that train an adapter are not planned")
    machine, free = _machine(device, threads, available)
    if inference:
        capacity = model.context if capacity is None else capacity
        if not -(2**63) <= capacity < 2**63:
            raise ValueError(f"context is {capacity}; it must be a whole number of 64 bits")
        planned = plan_inference(model, train.precision, machine, train.batch_size, capacity, prompt or capacity)
        work = inference_work(model, train.precision, machine, train.batch_size, capacity)
        ways: list[Way] = []
    else:
        shared = plan_ranks(model, train, machine, ranks or 1, expert_parallel)
        planned, work = shared.memory, shared.work
        ways = ways_to_fit(model, train, machine, free, seat=shared.seat)[0] if planned.held > free else []
    seconds = work.seconds(DEVICES[device], train.precision) if device in DEVICES else None
    jobs: list[dict[str, Any]] = []  # the last one is what is planned
    if ranks is not None:
        plans = plan_growth(model, train, machine, shared) if growth else [shared]
        jobs = [_job_values(one) for one in plans]
        if link is not None:
            alone = plans[0].work if growth else training_work(model, train, machine)
            least = [one.seconds(DEVICES[device], train.precision) for one in (alone, *(one.work for one in plans))]
            for job, computing in zip(jobs, least[1:], strict=True):
                job["seconds"] = computing + job["sent"] / link
                job["efficiency"] = least[0] / (job["count"] * job["seconds"])
    if as_json:
        values = _values(model, planned, work, seconds, device, free, ways)
        values |= ({"ranks": jobs[-1]} if jobs else {}) | ({"growth": jobs} if growth else {})
        click.echo(json.dumps(values, indent=2))
    else:
        _show(model, planned, device, free, ways)
        _show_work(work, seconds, device, "the next token" if inference else "a step")
        if jobs:
            _show_ranks(jobs[-1])
        if growth:
            _show_growth(jobs)


def _vocabulary(file: ConfigFile, preset: str | None, config_path: Path | None, data: Path | None) -> int:
    """That of the data where there are some, else that of the preset."""
    named = file.get("data", {}).get("data")
    if data is None and config_path is not None and isinstance(named, str):
        data = config_path.parent / named
    return preset_vocabulary(file, preset) if data is None else open_shards(data)[0].vocab_size


def _machine(device: str, threads: int | None, available: int | None) -> tuple[Machine, int]:
    """What to plan for, and the bytes that it has free."""
    if device in DEVICES:
        named = DEVICES[device]
        machine = Machine("cuda", capability=named.capability, multiprocessors=named.multiprocessors)
        return machine, named.memory if available is None else available
    if available is not None and re.fullmatch("cuda(:[0-9]+)?", device):
        return Machine("cuda", capability=_USUAL_CAPABILITY), available
    with Context(device, threads=threads) as ctx:
        return Machine.of(ctx), ctx.memory_info()[0] if available is None else available


def require_fit(ctx: Context, model: MoEConfig, train: TrainConfig, held_out: bool, seat: Seat = ALONE) -> None:
    """DoesNotFitError, with up to three computed ways out, when a rank of a run needs more than its device has free.
    Of a run that trains an adapter that is not known."""
    if train.lora_rank:
        return
    machine, free = Machine.of(ctx), ctx.memory_info()[0]
    try:
        held = plan_training(model, train, machine, held_out=held_out, seat=seat).held
    except TooLargeError:
        needed = "more memory than any machine has"
    else:
        if held <= free:
            return
        needed = bytes_text(held)
    ways, least = ways_to_fit(model, train, machine, free, held_out=held_out, seat=seat)
    problem = f"this run needs {needed}; {ctx.device} has {bytes_text(free)} free. "
    if ways:
        problem += f"It fits with {'; or with '.join(map(_way_text, ways))}."
    elif least is not None:
        problem += f"The least that options can reach is {_way_text(least)}: the model itself is too large."
        smaller = plan_training(MoEConfig.preset(USUAL_PRESET), TrainConfig.preset(USUAL_PRESET), machine)
        if smaller.held <= free:
            problem += f" A model that fits is --preset {USUAL_PRESET} ({bytes_text(smaller.held)})."
    raise DoesNotFitError(f"{problem} --start-anyway starts it nevertheless")


def _way_text(way: Way) -> str:
    flags = []
    for name, value in way.changes.items():
        flag = name.replace("_", "-")
        if value is True:
            flags.append(f"--{flag}")
        elif value is not False:
            flags.append(f"--{flag} {value}")
    return f"{' '.join(flags)} ({bytes_text(way.held)})"


def _values(
    model: MoEConfig, planned: MemoryPlan, work: Work, seconds: float | None, device: str, free: int, ways: list[Way]
) -> dict[str, Any]:
    kinds = {name: {"total": total, "active": met} for name, (total, met) in model.parameters_by_kind().items()}
    return {
        "parameters": {"total": model.num_parameters, "active": model.num_active_parameters, "kinds": kinds},
        "device": device,
        "bytes": planned.bytes,
        "peak": planned.peak,
        "held": planned.held,
        "free": free,
        "fits": planned.held <= free,
        "ways": [{"options": way.changes, "bytes": way.held} for way in ways],
        "work": {"flops": work.flops, "bytes": work.bytes, "seconds": seconds},
    }


def _job_values(plan: RanksPlan) -> dict[str, Any]:
    """What JSON says of ranks, as yet without times."""
    return {
        "count": plan.seat.ranks,
        "expert_parallel": plan.seat.expert_parallel,
        "rank": plan.seat.rank,
        "held": plan.memory.held,
        "sent": plan.sent,
        "seconds": None,
        "efficiency": None,
    }


def _show(model: MoEConfig, planned: MemoryPlan, device: str, free: int, ways: list[Way]) -> None:
    terminal = console()
    counts = Table("parameters", "total", "active per token")
    for name, (total, met) in model.parameters_by_kind().items():
        counts.add_row(name, count_text(total), count_text(met))
    counts.add_section()
    counts.add_row("all", count_text(model.num_parameters), count_text(model.num_active_parameters))
    terminal.print(counts)
    table = Table(f"memory of {device} at the peak", "size")
    for kind, size in planned.bytes.items():
        if size:
            table.add_row(KINDS[kind], bytes_text(size))
    table.add_section()
    table.add_row("peak", bytes_text(planned.peak))
    if planned.held != planned.peak:
        table.add_row("peak, in the pages of the device", bytes_text(planned.held))
    table.add_row("free", bytes_text(free))
    terminal.print(table)
    if planned.held <= free:
        verdict = f"It fits, with {bytes_text(free - planned.held)} to spare."
    else:
        verdict = f"It does not fit: {bytes_text(planned.held - free)} more are needed."
    terminal.print(verdict, highlight=False)
    for way in ways:
        tell(f"It fits with {_way_text(way)}.")


def _show_work(work: Work, seconds: float | None, device: str, what: str) -> None:
    text = f"{what[0].upper()}{what[1:]} takes {work.flops:.3g} operations and moves {bytes_text(work.bytes)}"
    if seconds is not None:
        text += f": at the peak of {device}, {seconds:.3g} s"
    tell(f"{text}.")


def _show_ranks(job: dict[str, Any]) -> None:
    text = f"Of {job['count']} ranks, rank {job['rank']} needs the most memory, this. "
    text += f"A rank sends up to {bytes_text(job['sent'])} in a step"
    if job["seconds"] is not None:
        text += f", which then takes {job['seconds']:.3g} s if nothing is computed meanwhile"
        text += f": an efficiency of {100 * job['efficiency']:.0f} % against one rank"
    tell(f"{text}.")


def _show_growth(jobs: list[dict[str, Any]]) -> None:
    timed = jobs[0]["seconds"] is not None
    table = Table("ranks", "expert-parallel", "memory", "sent in a step", *(["a step", "efficiency"] if timed else []))
    for job in jobs:
        row = [str(job["count"]), str(job["expert_parallel"]), bytes_text(job["held"]), bytes_text(job["sent"])]
        table.add_row(*row, *([f"{job['seconds']:.3g} s", f"{100 * job['efficiency']:.0f} %"] if timed else []))
    console().print(table)
