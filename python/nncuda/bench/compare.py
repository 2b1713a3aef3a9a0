"""Compares the figures of two runs of `nncuda bench`, and says what became slower.

A figure is the median of some rounds, each of which is noisy. The standard error of a median of n values whose middle
half is `iqr` wide is about 1.25 iqr / (1.349 sqrt(n)), for values that are normally distributed (Kendall & Stuart, "The
Advanced Theory of Statistics", vol. 1, 14.6; McGill, Tukey & Larsen 1978, "Variations of Box Plots"). A few rounds may
agree by chance, so a figure's error is at least the median error of all figures of its run. Slower is what differs by
more than LIMIT errors of the difference: of 100 figures of the same program that is about one in a hundred runs.

What runs against memory is compared by its share of the bandwidth that was probed in the same rounds, since that of a
shared machine drifts from one run to the next.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

#: Errors of the difference that count as a difference: 4 of a normal distribution are exceeded once in 30,000 times.
LIMIT = 4.0
LEAST_ROUNDS = 3
#: Keys of a file's machine that must be the same in both.
_SAME = ("processor", "gpu", "cores")


class CannotCompare(ValueError):
    """Two files that do not belong together, or one that has no figures."""


@dataclass(frozen=True)
class Figure:
    """What a figure cost in each round, in any unit in which less is better, equal in both runs."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def error(self) -> float:
        """The standard error of the median as a share of it."""
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return 1.25 * (high - low) / (1.349 * math.sqrt(len(self.rounds))) / self.median


@dataclass(frozen=True)
class Change:
    """A figure of both runs. `ratio` is its cost in the new run over that in the old one, `threshold` the least ratio
    that the spread of the rounds does not explain."""

    name: str
    ratio: float
    threshold: float

    @property
    def slower(self) -> bool:
        return self.ratio > self.threshold

    @property
    def faster(self) -> bool:
        return self.ratio < 1 / self.threshold


@dataclass(frozen=True)
class Comparison:
    """Changes in the order of the old run; and names that only one of the runs has."""

    changes: tuple[Change, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def slower(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.slower)


def read(path: Path) -> dict[str, Any]:
    """The content of a file that `nncuda bench --json` wrote. Raises CannotCompare when it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CannotCompare(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("machine"), dict):
        raise CannotCompare(f"{path} was not written by nncuda bench --json: it names no machine")
    return content


def figures(content: Mapping[str, Any]) -> dict[str, Figure]:
    """The figures of a file by their names: of kernels and training steps, or of a model's first side."""
    try:
        found = dict(_model(content) if "sides" in content else _kernels(content))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotCompare(f"this is no file of nncuda bench --json, or one of an older version: {error!r}") from error
    for name, figure in found.items():
        if len(figure.rounds) < LEAST_ROUNDS:
            rounds = len(figure.rounds)
            raise CannotCompare(f"{name} has {rounds} rounds; it takes {LEAST_ROUNDS} to see how they spread")
        if not all(isinstance(value, (int, float)) and 0 < value < math.inf for value in figure.rounds):
            raise CannotCompare(f"{name} has a round that is no positive number")
    return found


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> Comparison:
    """Raises CannotCompare for runs of two machines, and when no figure is in both."""
    for key in _SAME:
        mine, theirs = (content["machine"].get(key) for content in (old, new))
        if mine != theirs:
            raise CannotCompare(f"the runs are of two machines: {key} is {mine} in the old one and {theirs} in the new")
    if old.get("threads") != new.get("threads"):
        raise CannotCompare(f"the old run has {old.get('threads')} threads, the new one {new.get('threads')}")
    before, after = figures(old), figures(new)
    both = [name for name in before if name in after]
    if not both:
        raise CannotCompare("the runs have no figure in common")
    floors = [statistics.median(found[name].error for name in both) for found in (before, after)]
    changes = []
    for name in both:
        errors = (max(found[name].error, floor) for found, floor in zip((before, after), floors, strict=True))
        ratio = after[name].median / before[name].median
        changes.append(Change(name, ratio, 1 + LIMIT * math.hypot(*errors)))
    gone = tuple(name for name in before if name not in after)
    return Comparison(tuple(changes), gone, tuple(name for name in after if name not in before))


def table(found: Comparison) -> Table:
    """What changed by more than the rounds spread, the worst first."""
    made = Table(title="Changes beyond the spread of the rounds", title_justify="left")
    for name in ("figure", "time", "threshold", ""):
        made.add_column(name, justify="left" if name in ("figure", "") else "right")
    for change in sorted(found.changes, key=lambda change: -change.ratio):
        if change.slower or change.faster:
            mark = "[red]slower[/]" if change.slower else "[green]faster[/]"
            made.add_row(change.name, f"x {change.ratio:.3f}", f"x {change.threshold:.3f}", mark)
    return made


def _kernels(content: Mapping[str, Any]) -> Iterable[tuple[str, Figure]]:
    for row in content.get("rows", ()):
        if row["error"] is None:
            seconds, probes = row["rounds"], row["probes"]
            costs = [s * p for s, p in zip(seconds, probes, strict=True)] if probes else seconds
            yield _named(row["isa"], f"{row['group']}, {row['name']}"), Figure(tuple(costs))
    for step in content.get("steps", ()):
        yield _named(step["isa"], f"training step of {step['name']}"), _of_rates(step["rounds"]["nncuda"])


def _model(content: Mapping[str, Any]) -> Iterable[tuple[str, Figure]]:
    model = Path(content["model"]).name
    for side in content["rounds"]:
        if not side["ours"]:
            continue
        start = _named(side["isa"], model)
        yield f"{start}: prefill", _of_rates(side["prefill"])
        yield f"{start}: decoding, by its share of the bandwidth", _of_rates(side["share"])
        yield f"{start}: first token", Figure(tuple(side["first_token"]))
        yield f"{start}: answer", Figure(tuple(side["answer"]))
        for rows, rates in side["batched"].items():
            yield f"{start}: {rows} together", _of_rates(rates)


def _of_rates(rates: Sequence[float]) -> Figure:
    return Figure(tuple(1 / rate for rate in rates))


def _named(isa: str | None, name: str) -> str:
    return f"{isa}: {name}" if isa else name
