"""`nncuda verify`: runs the golden tests on this machine."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import click

from ..binding import library
from ..golden import verified
from ..golden.fixtures import FixtureError, find_folder, read_folder
from ..golden.report import Report
from ..golden.runner import ISAS, Runner, available_isas
from .arguments import device_option
from .terminal import CommandConsole

console = CommandConsole()
FAILURES_SHOWN = 20


@click.command()
@device_option
@click.option(
    "--isa", type=click.Choice([*ISAS, "all"]), help="Instruction set of the CPU engine; default: the widest."
)
@click.option("--threads", type=click.IntRange(1, 256), help="Number of worker threads; default: all cores.")
@click.option("--kernel", "kernels", multiple=True, help="Only this kernel; may be repeated.")
@click.option("--family", "families", multiple=True, help="Only this family of kernels; may be repeated.")
@click.option("--fixtures", type=click.Path(path_type=Path, file_okay=False), help="Another folder of fixtures.")
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Record the results of a GPU in this file, which doctor shows. Needs all kernels, or whole families.",
)
def verify(
    device: str,
    isa: str | None,
    threads: int | None,
    kernels: tuple[str, ...],
    families: tuple[str, ...],
    fixtures: Path | None,
    record: Path | None,
) -> None:
    """Run every kernel on the stored cases and compare with float64, within each case's tolerance.

    The table gives the part of the tolerance that the worst output used. Exits with 1 when a case fails.
    """
    try:
        cases = list(read_folder(find_folder(fixtures), kernels))
    except FixtureError as error:
        raise click.ClickException(str(error)) from error
    if families:
        known = sorted({fixture.family for fixture in cases})
        if unknown := sorted(set(families) - set(known)):
            raise click.UsageError(f"no cases of {', '.join(unknown)}; there are those of {', '.join(known)}")
        cases = [fixture for fixture in cases if fixture.family in families]
    kind, index = library.load().device_named(device)
    if device == "auto" and kind == "cuda":
        isa = threads = None  # they were for the other case
    if record is not None:
        _check_recordable(kind, index, kernels)
    failed = False
    for chosen in available_isas() if isa == "all" else [isa]:
        report = Report()
        with Runner(kind, index, chosen, threads) as runner:
            for fixture in cases:
                report.add(runner.run(fixture))
        place = f"{kind} {index}" + (f", {chosen}" if chosen else "")
        console.print(report.table(f"Golden tests on {place}: part of the tolerance used"))
        for outcome in report.failures[:FAILURES_SHOWN]:
            console.print(f"[red]failed[/red] {outcome}", highlight=False)
        if len(report.failures) > FAILURES_SHOWN:
            console.print(f"... and {len(report.failures) - FAILURES_SHOWN} more")
        bad = len(report.failed_cases())
        console.print(f"{report.cases - bad} of {report.cases} cases passed")
        failed = failed or bool(bad)
        if record is not None:
            verified.write(record, _verifications(report, library.load(), index, families))
            console.print(f"recorded in {record}", highlight=False)
    if failed:
        raise SystemExit(1)


def _check_recordable(kind: str, index: int, kernels: tuple[str, ...]) -> None:
    """Only whole runs on real GPUs are worth a record."""
    if kind != "cuda" or kernels:
        raise click.UsageError("--record is for --device cuda and all kernels, or whole families")
    loaded = library.load()
    there = loaded.device_count(library.DEVICES[kind]) > index
    if there and "emulated" in loaded.device_text(library.DEVICES[kind], index).lower():
        raise click.UsageError("--record is for real GPUs, and this one is emulated")


def _verifications(
    report: Report, loaded: library.Library, index: int, families: tuple[str, ...]
) -> dict[str, verified.Verification]:
    gpu = loaded.device_text(library.DEVICES["cuda"], index)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {
        family: verified.Verification(
            source, gpu, loaded.build_info, date, *report.family(family), report.family_share(family)
        )
        for family, source in verified.source_hashes().items()
        if not families or family in families
    }
