"""The tables that `nncuda bench` shows in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ..cli.terminal import bytes_text
from .ceilings import Ceilings, DeviceCeilings
from .measure import Row
from .ranks import Figures, Goals
from .step import Case, StepResult

CEILINGS = {
    "fma_f32": "multiply-adds in f32",
    "dot_bf16": "dot products in bf16",
    "dot_int8": "dot products of 8-bit integers",
    "read": "memory read, probed beside the row",
    "copy": "memory read and written, probed beside the row",
}


def time_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def rate_text(row: Row) -> str:
    """Of what limits the work: bytes when it runs against memory, or does little with each byte."""
    if not row.flops and not row.bytes:
        return ""
    if row.floor in ("read", "copy") or row.flops < 16 * row.bytes:
        return f"{row.bytes / 1e9:,.1f} GB/s"
    return f"{row.flops / 1e9:,.0f} GFLOP/s" if row.flops < 1e13 else f"{row.flops / 1e12:,.0f} TFLOP/s"


def ceilings(measured: Sequence[Ceilings] | Sequence[DeviceCeilings], place: str) -> Table:
    """Of one device, or of several instruction sets of a processor, a column each."""
    table = Table(title=f"Ceilings of {place}", title_justify="left")
    table.add_column("what")
    for each in measured:
        isa = each.isa if isinstance(each, Ceilings) and len(measured) > 1 else None
        table.add_column(isa or "at most", justify="right")
    for lines in zip(*(each.lines() for each in measured), strict=True):
        table.add_row(lines[0][0], *(text for _, text in lines))
    return table


def kernels(rows: Sequence[Row], against: str | None) -> Table:
    """A line a work. Rows of several instruction sets have their columns beside one another."""
    isas = list(dict.fromkeys(row.isa for row in rows))
    several = len(isas) > 1
    table = Table(title="Kernels: medians of interleaved runs", title_justify="left")
    table.add_column("work")
    for isa in isas:
        table.add_column(f"{isa}: time" if several else "time", justify="right")
        table.add_column("rate", justify="right")
        table.add_column("of ceiling", justify="right")
        if against:
            table.add_column(f"{against} / ours", justify="right")
        if not several:
            table.add_column("goal", justify="right")
        table.add_column("")
    group = ""
    lines: dict[tuple[str, str], dict[str | None, Row]] = {}
    for row in rows:
        lines.setdefault((row.group, row.name), {})[row.isa] = row
    for (own, name), found in lines.items():
        if own != group:
            group = own
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        cells = [f"  {name}"]
        for isa in isas:
            cells += _cells(found[isa], against, not several) if isa in found else [""] * (5 if against else 4)
        table.add_row(*cells)
    return table


def _cells(row: Row, against: str | None, goal: bool) -> list[str]:
    time = time_text(row.seconds) if row.seconds is not None else ""
    cells = [time, rate_text(row), f"{row.share:.0%} of {row.floor}" if row.share is not None else ""]
    if against:
        cells.append(f"{row.ratio:.2f}" if row.ratio else "")
    if goal:
        cells.append(row.asked)
    mark = "" if row.reached is None else "[green]reached[/]" if row.reached else "[red]short[/]"
    return [*cells, "[red]failed[/]" if row.error else mark]


def legend(rows: Sequence[Row], against: str | None) -> str:
    """What the columns of the table mean, as far as it has them."""
    lines = []
    if named := [name for name in CEILINGS if any(row.floor == name for row in rows)]:
        told = "; ".join(f"{name}: {CEILINGS[name]}" for name in named)
        lines.append(f"of ceiling: its share of the most that this machine can do ({told}).")
        if "read" in named or "copy" in named:
            lines.append("    More than 100% of memory's: caches kept a part.")
        if len({row.isa for row in rows}) > 1:
            lines.append("    Of arithmetic: the most that this machine can do with that instruction set.")
    if against:
        lines.append(f"{against} / ours: its time over ours; 2.00 is twice as fast as {against}.")
    if any(row.asked for row in rows):
        lines.append(
            "goal: what the project wants of it; 1.4 x: times as fast as torch, 60%: that share of the ceiling."
        )
    return "\n".join(lines)


def products_peak(measured: Ceilings | DeviceCeilings, case: Case) -> float | None:
    """What the products of a training step could do at most; on a GPU that is not measured."""
    if isinstance(measured, DeviceCeilings):
        return None
    return measured.of("dot_bf16" if case.precision == "bf16" else "fma_f32")[1]


def step(case: Case, results: Sequence[StepResult], peaks: Mapping[str | None, float | None]) -> Table:
    """The training step's sides, of each instruction set one after another; `peaks` are those of products, by set."""
    several, shares = len(results) > 1, any(peaks.values())
    table = Table(title=f"Training step of {case.name}", title_justify="left")
    for name in ("side", "tokens/s", "TFLOP/s", *(["share of peak"] if shares else []), "peak memory"):
        table.add_column(name, justify="left" if name == "side" else "right")
    for result in results:
        peak = peaks[result.isa]
        for side, speed in result.tokens_per_second.items():
            flops = speed * case.flops_a_token
            share = [f"{flops / peak:.0%}" if peak else ""] if shares else []
            label = f"{side}, beside {result.isa}" if several and side != "nncuda" else side
            label = f"{side}, {result.isa}" if several and side == "nncuda" else label
            memory = bytes_text(result.peak_bytes[side])
            table.add_row(label, f"{speed:,.0f}", f"{flops / 1e12:,.3g}", *share, memory)
    return table


def step_ratios(case: Case, result: StepResult) -> list[str]:
    """How the step stands beside each peer, a line each."""
    lines, speeds, peaks = [], result.tokens_per_second, result.peak_bytes
    isa = f"{result.isa}: " if result.isa else ""
    for side, asked in zip(("torch eager", "torch compile"), case.asked, strict=True):
        if side in speeds:
            bar = f" (goal: {asked})" if asked else ""
            most = f" (goal: at most {case.asked_memory})" if case.asked_memory else ""
            lines.append(
                f"{isa}{speeds['nncuda'] / speeds[side]:.2f} x {side}{bar}, peak memory "
                f"{peaks['nncuda'] / max(peaks[side], 1):.2f} x{most}"
            )
        elif side in result.missing and result.missing[side] != "not asked for":
            lines.append(f"without {side}: {result.missing[side]}")
    return lines


def show_ranks(console: Console, found: Figures, work: Case, quick: bool) -> None:
    title = f"{work.name}, on {found.cores} cores; load {found.load[0]:.1f} to {found.load[1]:.1f}"
    table = Table("what", title=title, title_justify="left")
    sides = f"{found.ranks} ranks x 1 thread", "beside", ""
    for name, justify in (*zip(sides, ("right", "left", "left"), strict=True), ("share", "right"), ("goal", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    shares, goals = found.shares(), Goals()
    one = f"one rank x {found.ranks} threads"
    speeds = [f"{work.tokens / seconds:,.0f} tokens/s" for seconds in (found.step, found.step_alone)]
    rows = [
        ("a step, in its time", *speeds, one, f"{shares['step']:.2f}", f"{goals.step:.2f}"),
        ("gradients added up, longer by so much of a step", time_text(found.tree), time_text(found.transport),
         "MPI_Allreduce", f"{shares['tree']:.1%}", f"{goals.tree:.0%}"),
        ("sent in a step by the rank that sends most", bytes_text(found.bytes), bytes_text(found.ring_bytes), "a ring",
         f"{shares['bytes']:.3f}", f"{goals.bytes:.2f}"),
        ("a checkpoint, in its time", time_text(found.checkpoint), time_text(found.checkpoint_alone), one,
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
