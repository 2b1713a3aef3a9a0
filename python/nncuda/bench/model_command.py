"""`nncuda bench --model`: its table and its file. What is measured is in model.py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..cli.terminal import bytes_text
from .model import LLAMA_CPP, OURS, Figures, Program, SideFailed, Work, measure, ratios, summary

#: Where `make interop` has the package of the other side.
_INTEROP = Path(".venv-interop/bin/python")


@dataclass(frozen=True)
class Peer:
    """Another program: its name, and of llama.cpp the Python that has its package; of ik_llama.cpp the program that
    tests/interop/ik_llama_cpp/build.sh makes. `model` is the file that it reads, where it cannot read ours."""

    name: str
    python: str | None = None
    binary: Path | None = None
    model: Path | None = None

    def program(self) -> Program:
        """Raises a click error that says what is missing."""
        if self.name == "llama.cpp":
            side = Program.in_python(_python_with_llama_cpp(self.python), LLAMA_CPP)
            return Program(side.command, ours=False, model=self.model)
        if self.binary is None:
            raise click.UsageError(
                "--against ik_llama.cpp needs --binary, the program that tests/interop/ik_llama_cpp/build.sh makes of "
                "a folder of its sources"
            )
        return Program((str(self.binary.resolve()),), ours=False, model=self.model)


def run(
    model: Path,
    peer: Peer | None,
    isas: Sequence[str | None],
    threads: int,
    work: Work,
    machine: dict[str, Any],
    write: Callable[[dict[str, Any]], None],
    console: Console,
    device: str = "cpu",
) -> dict[str, Any]:
    """Measures a model with each of the instruction sets (None is the widest), shows the figures, and gives them to
    `write`, those of one sequence before the rest. Returns the content of the file."""
    sides = [Program.in_python(sys.executable, OURS, isa=isa) for isa in isas]
    if peer is not None:
        sides.append(peer.program())

    def content(figures: list[Figures]) -> dict[str, Any]:
        return {
            "machine": machine,
            "model": str(model),
            "device": device,
            "threads": threads,
            "work": work.__dict__,
            "sides": [summary(found) for found in figures],
            "rounds": [found.__dict__ for found in figures],
            "times_as_fast": _compared(figures),
        }

    try:
        with console.status("") as status:
            figures = measure(model, sides, threads, work, status.update, device, lambda found: write(content(found)))
    except SideFailed as error:
        raise click.ClickException(str(error)) from error
    place = f"{threads} threads" if device == "cpu" else device
    console.print(_table(model, figures, _compared(figures), work, place))
    write(content(figures))
    return content(figures)


def _compared(figures: list[Figures]) -> list[dict[str, Any]]:
    """How many times as fast as the peer each of ours is, in their order; nothing without one."""
    peers = [found for found in figures if not found.ours]
    return [ratios(found, peers[0]) for found in figures if found.ours] if peers else []


def _python_with_llama_cpp(python: str | None) -> str:
    """The interpreter that has llama-cpp-python: the one given, this one, or that of `make interop`."""
    if python is None and importlib.util.find_spec("llama_cpp") is not None:
        return sys.executable
    chosen = python or str(_INTEROP)
    looked = (
        subprocess.run([chosen, "-c", "import llama_cpp"], capture_output=True, text=True)
        if (python or _INTEROP.exists())
        else None
    )
    if looked is None or looked.returncode:
        raise click.ClickException(
            "llama-cpp-python is not installed here; `make interop` installs it in .venv-interop, or give --python the "
            "interpreter that has it"
        )
    return chosen


def _table(model: Path, figures: list[Figures], compared: list[dict[str, Any]], work: Work, place: str) -> Table:
    files = sum(each.stat().st_size for each in (model.glob("*.safetensors") if model.is_dir() else [model]))
    table = Table(title=f"{model.name}, {bytes_text(files)}, {place}: medians", title_justify="left")
    table.add_column("what")
    several = sum(found.ours for found in figures) > 1
    for found in figures:
        name = found.name.split(" (")[0]
        table.add_column(f"{name}, {found.isa}" if several and found.isa else name, justify="right")
    for _, found in zip(compared, figures, strict=False):
        table.add_column(f"times as fast{f', {found.isa}' if several else ''}", justify="right")
    short = [summary(found) for found in figures]

    def row(what: str, text: Callable[[dict[str, Any]], str], *ratio: str) -> None:
        def value(each: dict[str, Any]) -> float | None:
            for key in ratio:
                each = each.get(key, {})
            return each if ratio and isinstance(each, float) else None

        found = [value(each) for each in compared]
        table.add_row(what, *(text(each) for each in short), *("" if v is None else f"{v:.2f}" for v in found))

    row(f"prefill of {work.prefill}, tokens/s", lambda s: f"{s['prefill']:,.1f}", "prefill")
    row(f"decoding {work.decode}, tokens/s", lambda s: f"{s['decode']:,.2f}", "decode")
    row("  bytes read at least", lambda s: f"{s['bandwidth'] / 1e9:,.1f} GB/s" if s["bandwidth"] else "")
    row("  share of the probed bandwidth", lambda s: f"{s['share']:.0%}" if s["share"] else "")
    row("  time outside the library", lambda s: f"{s['outside']:.1%}")
    row(f"first token after {work.prompt}", lambda s: f"{s['first_token'] * 1e3:,.0f} ms", "first_token")
    row(f"{work.answer} tokens after {work.prompt}", lambda s: f"{s['answer']:,.2f} s", "answer")
    for rows in work.batches:
        key = str(rows)
        row(f"{rows} together, tokens/s", lambda s, key=key: f"{s['batched'][key]:,.1f}", "batched", key)
    row("peak memory", lambda s: bytes_text(s["memory"]["peak"]))
    row("  pages of the file", lambda s: bytes_text(s["memory"]["file"]))
    row("  other memory", lambda s: bytes_text(s["memory"]["anonymous"]))
    row("load, file not in memory", lambda s: f"{s['seconds_to_load_cold']:,.2f} s")
    row("  and the first token", lambda s: f"{s['first_token_cold']:,.2f} s")
    row("load, file in memory", lambda s: f"{s['seconds_to_load']:,.2f} s")
    return table
