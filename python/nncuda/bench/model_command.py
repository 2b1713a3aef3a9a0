"""`nncuda bench --model`: its table and its file. What is measured is in model.py."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..cli.terminal import bytes_text
from .model import LLAMA_CPP, OURS, Figures, SideFailed, Work, measure, ratios, summary

#: Where `make interop` has the package of the other side.
_INTEROP = Path(".venv-interop/bin/python")


def run(
    model: Path,
    against: str | None,
    python: str | None,
    threads: int,
    work: Work,
    machine: dict[str, Any],
    path: Path | None,
    console: Console,
    device: str = "cpu",
) -> None:
    """Measures a model, shows the figures and writes them to `path`, those of one sequence before the rest."""
    sides = [(sys.executable, OURS)]
    if against is not None:
        sides.append((_python_with_llama_cpp(python), LLAMA_CPP))

    def write(figures: list[Figures]) -> None:
        content = {
            "machine": machine,
            "model": str(model),
            "device": device,
            "threads": threads,
            "work": work.__dict__,
            "sides": [summary(found) for found in figures],
            "rounds": [found.__dict__ for found in figures],
            "times_as_fast": _compared(figures),
        }
        if path is not None:
            path.write_text(json.dumps(content, indent=1) + "\n")

    try:
        with console.status("") as status:
            figures = measure(model, sides, threads, work, status.update, device, write)
    except SideFailed as error:
        raise click.ClickException(str(error)) from error
    place = f"{threads} threads" if device == "cpu" else device
    console.print(_table(model, figures, _compared(figures), work, place))
    write(figures)
    if path is not None:
        console.print(f"written to {path}", highlight=False)


def _compared(figures: list[Figures]) -> dict[str, Any] | None:
    return ratios(figures[0], figures[1]) if len(figures) > 1 else None


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


def _table(model: Path, figures: list[Figures], compared: dict[str, Any] | None, work: Work, place: str) -> Table:
    files = sum(each.stat().st_size for each in (model.glob("*.safetensors") if model.is_dir() else [model]))
    table = Table(title=f"{model.name}, {bytes_text(files)}, {place}: medians", title_justify="left")
    table.add_column("what")
    for found in figures:
        table.add_column(found.name.split(" (")[0], justify="right")
    if compared:
        table.add_column("times as fast", justify="right")
    short = [summary(found) for found in figures]

    def row(what: str, text: Callable[[dict[str, Any]], str], ratio: float | None = None) -> None:
        cells = [what, *(text(each) for each in short)]
        table.add_row(*cells, *([f"{ratio:.2f}" if ratio else ""] if compared else []))

    of = compared or {"batched": {}}
    row(f"prefill of {work.prefill}, tokens/s", lambda s: f"{s['prefill']:,.1f}", of.get("prefill"))
    row(f"decoding {work.decode}, tokens/s", lambda s: f"{s['decode']:,.2f}", of.get("decode"))
    row("  bytes read at least", lambda s: f"{s['bandwidth'] / 1e9:,.1f} GB/s")
    row("  share of the probed bandwidth", lambda s: f"{s['share']:.0%}")
    row("  time outside the library", lambda s: f"{s['outside']:.1%}")
    row(f"first token after {work.prompt}", lambda s: f"{s['first_token'] * 1e3:,.0f} ms", of.get("first_token"))
    row(f"{work.answer} tokens after {work.prompt}", lambda s: f"{s['answer']:,.2f} s", of.get("answer"))
    for rows in work.batches:
        key = str(rows)
        row(f"{rows} together, tokens/s", lambda s, key=key: f"{s['batched'][key]:,.1f}", of["batched"].get(key))
    row("peak memory", lambda s: bytes_text(s["memory"]["peak"]))
    row("  pages of the file", lambda s: bytes_text(s["memory"]["file"]))
    row("  other memory", lambda s: bytes_text(s["memory"]["anonymous"]))
    row("load, file not in memory", lambda s: f"{s['seconds_to_load_cold']:,.2f} s")
    row("  and the first token", lambda s: f"{s['first_token_cold']:,.2f} s")
    row("load, file in memory", lambda s: f"{s['seconds_to_load']:,.2f} s")
    return table
