"""What a run's folder tells, read so that a run that is going on, was cut off or was damaged still gives a report.

A folder may come from anywhere, so nothing in it is believed: a record or value that is not what docs/formats.md says
is left out, and `ReportedRun.notes` says so.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..formats import FormatError
from ..formats.safetensors import read_json
from ..models import MoEConfig, config_from_mixtral
from ..train import list_checkpoints
from ..train.checkpoint import TrainingState, read_training_state
from ..train.data import open_shards, unigram_entropy

_MOST_STEPS = 2**53  # where a float, which plots count in, would skip whole numbers
_LARGEST_NUMBER = 1e100  # what f32 holds is far below, and axes have room above it
_MOST_SAMPLES = 200
_MOST_NOTES = 12
# Beyond these, counting the tokens of held-out data would take noticeable memory or time.
_LARGEST_VOCABULARY = 2**24
_MOST_COUNTED_TOKENS = 10**8


@dataclass(frozen=True)
class Series:
    """A quantity over the steps: both f64 [n], steps ascending, values NaN where they were no finite number."""

    steps: np.ndarray
    values: np.ndarray

    def __bool__(self) -> bool:
        return bool(np.isfinite(self.values).any())


@dataclass(frozen=True)
class ReportedCheckpoint:
    """A checkpoint: step, held-out loss if it was measured, seconds of training before it, bytes on the disk."""

    name: str
    step: int
    held_out_loss: float | None
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Sample:
    """Text that the model wrote after a step."""

    step: int
    prompt: str
    text: str


@dataclass
class ReportedRun:
    """All that a report shows. What a run does not tell is None or empty."""

    name: str
    records: list[dict[str, object]]
    checkpoints: list[ReportedCheckpoint] = field(default_factory=list)
    model: MoEConfig | None = None
    state: TrainingState | None = None
    sources: dict[str, object] = field(default_factory=dict)
    results: dict[str, object] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    unigram_entropy: float | None = None
    notes: list[str] = field(default_factory=list)

    def series(self, name: str) -> Series:
        """A number of the records by its name."""
        points = [(record["step"], number(record[name])) for record in self.records if name in record]
        steps, values = np.array(points, np.float64).reshape(-1, 2).T
        return Series(steps, values)

    def expert_shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps [n], and the share of choices that each expert got, [n, layers, experts]; both may be empty."""
        found: list[tuple[int, np.ndarray]] = []
        for record in self.records:
            shares = _matrix(record.get("expert_shares"))
            if shares is not None and (not found or shares.shape == found[0][1].shape):
                found.append((record["step"], shares))  # type: ignore[arg-type]
        if not found:
            return np.zeros(0), np.zeros((0, 0, 0))
        return np.array([step for step, _ in found], np.float64), np.stack([shares for _, shares in found])

    @property
    def last_step(self) -> int:
        return self.records[-1]["step"]  # type: ignore[return-value]

    @property
    def best_checkpoint(self) -> ReportedCheckpoint | None:
        measured = [checkpoint for checkpoint in self.checkpoints if checkpoint.held_out_loss is not None]
        return min(measured, key=lambda checkpoint: checkpoint.held_out_loss) if measured else None  # type: ignore[arg-type, return-value]


def number(value: object) -> float:
    """A JSON value as a finite number; NaN for everything else, so that it leaves a gap in a curve."""
    if type(value) not in (int, float):
        return math.nan
    try:
        converted = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.nan
    return converted if abs(converted) <= _LARGEST_NUMBER else math.nan


def read_run(folder: str | os.PathLike[str]) -> ReportedRun:
    """Reads a run's folder. Raises FormatError when it holds no metrics at all: then there is nothing to report."""
    folder = Path(folder)
    path = folder / "metrics.jsonl"
    notes: list[str] = []
    try:
        records = _read_lines(path, notes)
    except OSError as error:
        raise FormatError(folder, f"is no training run: metrics.jsonl cannot be read ({error.strerror})") from error
    records = sorted(records, key=lambda record: record["step"])  # type: ignore[arg-type, return-value]
    if not records:
        raise FormatError(path, "holds no record of a step yet; the first comes after `log_every` steps")
    run = ReportedRun(folder.resolve().name, records, notes=notes)
    _note_odd_values(run)
    _read_checkpoints(run, folder / "checkpoints")
    for name in ("run", "results"):
        source = folder / f"{name}.json"
        if source.exists():
            try:
                setattr(run, "sources" if name == "run" else name, read_json(source))
            except FormatError as error:
                notes.append(f"{source.name} {error.problem}")
    _read_samples(run, folder / "samples.jsonl")
    run.unigram_entropy = _find_entropy(run)
    if len(notes) > _MOST_NOTES:
        run.notes = [*notes[:_MOST_NOTES], f"and {len(notes) - _MOST_NOTES} more like these"]
    return run


def _read_lines(path: Path, notes: list[str]) -> list[dict[str, object]]:
    """The objects of a JSONL file that have a step. A last line without its end is one that is being written."""
    content = path.read_bytes()
    lines = content.split(b"\n")
    found: list[dict[str, object]] = []
    for index, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            if index == len(lines):
                notes.append(f"the last line of {path.name} is cut off: the run was writing it, or was killed")
            else:
                notes.append(f"line {index} of {path.name} is not JSON and is left out")
            continue
        step = record.get("step") if isinstance(record, dict) else None
        if type(step) is not int or not 0 <= step < _MOST_STEPS:
            notes.append(f"line {index} of {path.name} has no step and is left out")
            continue
        found.append(record)
    return found


def _note_odd_values(run: ReportedRun) -> None:
    """Says where losses were no numbers, and which expert shares could not be shown."""
    for name, words in (("loss", "training loss"), ("held_out_loss", "held-out loss")):
        series = run.series(name)
        missing = series.steps[np.isnan(series.values)]
        if len(missing):
            run.notes.append(f"the {words} is no finite number at {len(missing)} steps, first at step {missing[0]:.0f}")
    given = sum("expert_shares" in record for record in run.records)
    shown = len(run.expert_shares()[0])
    if shown < given:
        run.notes.append(f"the expert shares of {given - shown} records are not a table of shares like the others'")


def _matrix(value: object) -> np.ndarray | None:
    """Shares as an array [layers, experts]; None when they are none."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        return None
    if len({len(row) for row in value}) != 1:
        return None
    shares = np.array([[number(share) for share in row] for row in value])
    return shares if ((shares >= 0) & (shares <= 1)).all() else None


def _read_checkpoints(run: ReportedRun, root: Path) -> None:
    """Checkpoints that are whole. The run may remove one while it is read, which is no fault."""
    for folder in list_checkpoints(root):
        try:
            state = read_training_state(folder / "training.json")
            config = config_from_mixtral(read_json(folder / "config.json"))
            size = sum(file.stat().st_size for file in folder.iterdir())
        except (ValueError, OSError) as error:
            if folder.exists():
                problem = error.problem if isinstance(error, FormatError) else error
                run.notes.append(f"checkpoint {folder.name} is left out: {problem}")
            continue
        loss = number(state.held_out_loss)
        run.checkpoints.append(
            ReportedCheckpoint(folder.name, state.step, None if math.isnan(loss) else loss, number(state.seconds), size)
        )
        run.model, run.state = config, state


def _read_samples(run: ReportedRun, path: Path) -> None:
    if not path.is_file():
        return
    for record in _read_lines(path, run.notes):
        if isinstance(record.get("prompt"), str) and isinstance(record.get("text"), str):
            run.samples.append(Sample(record["step"], record["prompt"], record["text"]))  # type: ignore[arg-type]
    run.samples.sort(key=lambda sample: sample.step)
    if len(run.samples) > _MOST_SAMPLES:
        run.notes.append(f"of {len(run.samples)} samples the last {_MOST_SAMPLES} are shown")
        del run.samples[:-_MOST_SAMPLES]


def _find_entropy(run: ReportedRun) -> float | None:
    """The unigram entropy that the run noted, else that of its held-out data, when that still lies where it did."""
    noted = number(run.results.get("unigram_entropy"))
    if not math.isnan(noted):
        return noted
    path = run.sources.get("held_out")
    if not isinstance(path, str) or run.model is None or not run.series("held_out_loss"):
        return None
    try:
        shards = open_shards(path)
        fitting = all(shard.vocab_size == run.model.vocab_size <= _LARGEST_VOCABULARY for shard in shards)
        if not fitting or not 0 < sum(shard.count for shard in shards) <= _MOST_COUNTED_TOKENS:
            return None
        for shard in shards:
            shard.check_ids()
        return unigram_entropy(*shards)
    except (ValueError, OSError):
        return None
