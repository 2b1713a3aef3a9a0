"""What the language costs: the same training step, decoding and call from each, in turns.

    python -m tools.language_bench build/bin/nncuda-go build/bin/nncuda-rs

Every round starts each language's worker once, one after the other, so that a drift of the machine meets all of them
alike; the medians of the rounds count. `make bench-languages` builds what it needs first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from nncuda.bench.step import SMALL
from nncuda.binding import library
from nncuda.cli.terminal import console
from nncuda.formats import write_shard

#: What is measured: the key in a worker's line, its title, and whether more is better.
MEASURES = (
    ("train_tokens_per_second", "training, tokens/s", True),
    ("decode_tokens_per_second", "decoding, tokens/s", True),
    ("call_nanoseconds", "a call, ns", False),
)
#: The compiled languages may differ by 3 %, Python from the better of them by 10 %; calls are only shown.
BETWEEN_COMPILED, PYTHON_BEHIND = 0.03, 0.10

PYTHON = (sys.executable, str(Path(__file__).with_name("language_worker.py")))


@dataclass(frozen=True)
class Effort:
    """Rounds, and what a worker does in each: steps of training, tokens decoded."""

    rounds: int = 7
    steps: int = 12
    decode: int = 512


def workload(folder: Path) -> list[str]:
    """Writes the options and data of the step that `nncuda bench` times, too; returns a worker's arguments for them."""
    config, data = folder / "small.toml", folder / "random.tokens"
    config.write_text(
        f'[model]\npreset = "small"\n[train]\nbatch_size = {SMALL.batch}\nsequence_length = {SMALL.length}\n'
    )
    vocab = SMALL.model.vocab_size
    write_shard(data, [np.random.default_rng(0).integers(0, vocab, 64 * SMALL.tokens)], vocab)
    return ["--config", str(config), "--data", str(data)]


def measure_once(worker: Sequence[str], arguments: Sequence[str]) -> dict[str, Any]:
    """The line of a worker, checked. Raises ClickException with the worker's own words when it fails."""
    environment = {**os.environ, library.ENVIRONMENT_VARIABLE: os.path.abspath(library.load().path)}
    done = subprocess.run([*worker, *arguments, "--json"], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise click.ClickException(f"{' '.join(worker)} exited with {done.returncode}: {done.stderr.strip()}")
    line: dict[str, Any] = json.loads(done.stdout)
    for key, _, _ in MEASURES:
        if type(line.get(key)) not in (int, float) or line[key] <= 0:
            raise click.ClickException(f"{' '.join(worker)} says {key} is {line.get(key)!r}")
    return line


def compare(workers: Sequence[Sequence[str]], arguments: Sequence[str], rounds: int) -> dict[str, dict[str, float]]:
    """Medians of each measure by language, over rounds in which the workers take turns."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for worker in workers:
            line = measure_once(worker, arguments)
            found.setdefault(line["language"], []).append(line)
    return {
        language: {key: statistics.median(line[key] for line in lines) for key, _, _ in MEASURES}
        for language, lines in found.items()
    }


def shortfalls(medians: dict[str, dict[str, float]]) -> list[str]:
    """What is not as near as asked, in words."""
    said = []
    compiled = [language for language in medians if language != "python"]
    for key, title, more_is_better in MEASURES:
        if not more_is_better or not compiled:
            continue
        best = max(medians[language][key] for language in compiled)
        for language, measures in medians.items():
            allowed = PYTHON_BEHIND if language == "python" else BETWEEN_COMPILED
            behind = 1 - measures[key] / best
            if behind > allowed:
                said.append(f"{title}: {language} is {behind:.1%} behind, asked are at most {allowed:.0%}")
    return said


@click.command()
@click.argument("commands", nargs=-1)
@click.option("--rounds", type=click.IntRange(min=1), default=Effort.rounds, show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=Effort.steps, show_default=True)
@click.option("--decode", type=click.IntRange(min=1), default=Effort.decode, show_default=True)
@click.option("--threads", type=click.IntRange(1, 256), help="Number of worker threads; default: all cores.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False), help="Write the medians here, too.")
def main(
    commands: tuple[str, ...], rounds: int, steps: int, decode: int, threads: int | None, path: Path | None
) -> None:
    """Measure Python beside COMMANDS, the programs of other languages that have the subcommand `bench`."""
    workers = [PYTHON, *((command, "bench") for command in commands)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*workload(Path(folder)), "--steps", str(steps), "--decode", str(decode)]
        if threads is not None:
            arguments += ["--threads", str(threads)]
        medians = compare(workers, arguments, rounds)
    terminal = console()
    terminal.print(_table(medians, rounds))
    for sentence in shortfalls(medians):
        terminal.print(sentence, highlight=False)
    if path is not None:
        path.write_text(json.dumps({"rounds": rounds, "steps": steps, "decode": decode, **medians}, indent=1) + "\n")


def _table(medians: dict[str, dict[str, float]], rounds: int) -> Table:
    title = f"The same work from each language: {SMALL.name}, batch {SMALL.batch} x {SMALL.length}; {rounds} rounds"
    table = Table("language", title=title, title_justify="left")
    best = {}
    for key, heading, more_is_better in MEASURES:
        table.add_column(heading, justify="right")
        if more_is_better:
            best[key] = max(measures[key] for measures in medians.values())
            table.add_column("of the best", justify="right")
    for language, measures in medians.items():
        cells = []
        for key, _, more_is_better in MEASURES:
            cells.append(f"{measures[key]:,.0f}")
            if more_is_better:
                cells.append(f"{measures[key] / best[key]:.1%}")
        table.add_row(language, *cells)
    return table


if __name__ == "__main__":
    main()
