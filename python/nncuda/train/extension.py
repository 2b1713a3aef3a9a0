"""Runs that become longer than they were begun: `extensions` in their run.json, and what that does to their schedule.

    "extensions": [{"from_step": 1000, "steps": 3000, "learning_rate": 0.002, "min_rate_share": 0.1,
                    "warmup_steps": 50}]

An entry is the schedule that holds after a step. Checkpoints after it have it in their options; the one of that step
does not, so a run that is taken up there is given it again. What a kill leaves is therefore an extended run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np

from ..device import Context
from ..formats import FormatError, write_file
from ..formats.errors import missing_file, shown
from ..formats.json_values import read_json
from ..formats.limits import COUNT
from ..formats.regular import present
from .config import SCHEDULE, TrainConfig
from .record import RECORD_FILE
from .trainer import advance_schedule


def extended(folder: str | os.PathLike[str], step: int, train: TrainConfig) -> TrainConfig:
    """The options of a run whose last checkpoint is of `step` and has `train`: with an extension from there, if any.

    FormatError for a run.json whose extensions are none.
    """
    path = Path(folder) / RECORD_FILE
    if not present(path):
        return train
    found = train
    for entry in _entries(path, read_json(path)):
        try:
            options = dataclasses.replace(train, **{name: entry[name] for name in SCHEDULE})  # type: ignore[arg-type]
        except ValueError as error:
            raise FormatError(path, f"extensions: {error}") from error
        if entry["from_step"] == step:
            found = options
    return found


def _entries(path: Path, record: dict[str, object]) -> list[dict[str, object]]:
    entries = record.get("extensions", [])
    if not isinstance(entries, list):
        raise FormatError(path, f"extensions is {shown(entries)}; it must be a list")
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"from_step", *SCHEDULE}:
            raise FormatError(
                path, f"extensions has {shown(entry)}; an entry must have from_step, {', '.join(SCHEDULE)}"
            )
        step = entry["from_step"]
        if type(step) is not int or not 0 <= step <= COUNT:
            problem = f"extensions: from_step is {shown(step)}; it must be a whole number, from 0 to {COUNT}"
            raise FormatError(path, problem)
    return entries


def check_extension(before: TrainConfig, after: TrainConfig) -> None:
    """ValueError unless `after` is longer than `before`, and than its warm-up."""
    if after.steps <= before.steps:
        raise ValueError(f"steps is {after.steps}; this run has {before.steps} already: extend it to more")
    after.check_schedule()


def record_extension(folder: str | os.PathLike[str], step: int, train: TrainConfig) -> None:
    """Adds to a run's record that `train` holds after `step`."""
    path = Path(folder) / RECORD_FILE
    if not present(path):
        raise missing_file(path, "is not there, where an extension is recorded")
    values = train.to_dict()
    entry = {"from_step": step, **{name: values[name] for name in SCHEDULE}}
    record = read_json(path)
    record["extensions"] = [*_entries(path, record), entry]
    write_file(path, json.dumps(record, indent=2) + "\n")


def extension_text(ctx: Context, step: int, updates: int, before: TrainConfig, after: TrainConfig) -> str:
    """What an extension does to the schedule of a run, in words."""
    rates = [float(f"{_rate(ctx, config, updates):.2e}") for config in (before, after)]
    return (
        f"extended at step {step} from {before.steps} to {after.steps} steps: the cosine is stretched to the new end, "
        f"and the rate at step {step} changes from {rates[0]!r} to {rates[1]!r}"
    )


def _rate(ctx: Context, config: TrainConfig, updates: int) -> float:
    """The rate of an update."""
    step, rate = ctx.tensor(np.array([max(updates, 1) - 1], np.int32)), ctx.zeros((1,))
    advance_schedule(config, None, step, rate)
    return rate.item()
