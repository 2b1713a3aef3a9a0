"""What a run's folder tells, read so that a run that is going on, was cut off or was damaged still gives a report.

A folder may come from anywhere, so nothing in it is believed: a record or value that is not what docs/formats.md says
is left out, and a note says so. What comes out is a JSON object, described there too; the page makes words and figures
of it. The languages read alike, so that the object is the same to the byte.
"""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import numpy as np

from ..formats import FormatError
from ..formats.errors import missing_file
from ..formats.json_values import json_lines, read_json
from ..formats.regular import present
from ..models import MoEConfig, config_from_mixtral
from ..train import TrainConfig, list_checkpoints
from ..train.checkpoint import TrainingState, read_training_state
from ..train.data import open_shards, unigram_entropy
from .thinning import chosen_rows, recent_mean, rounded, thin, thin_experts

#: Numbers of the records that are shown as series.
SERIES = (
    "loss", "held_out_loss", "aux_loss", "grad_norm", "learning_rate", "tokens_per_second", "loss_scale",
    "skipped_steps", "bytes_peak",
)  # fmt: skip
_COLUMNS = ("loss", "held_out_loss", "learning_rate", "grad_norm", "tokens_per_second")
#: Texts that a run notes of itself in run.json, or in results.json.
_NOTED = ("program", "library", "abi", "device", "data", "data_sha256", "held_out", "held_out_sha256")

_MOST_STEPS = 2**53  # where a float, which figures count in, would skip whole numbers
_LARGEST_NUMBER = 1e100  # what f32 holds is far below, and sums have room above it
_MOST_EXPERTS = 4096
_MOST_SAMPLES = 200
_MOST_NOTES = 12
_LONGEST_SAMPLE, _LONGEST_NOTED = 10_000, 1000  # characters
# Beyond these, counting the tokens of held-out data would take noticeable memory or time.
_LARGEST_VOCABULARY = 2**24
_MOST_COUNTED_TOKENS = 10**8

Record = dict[str, object]


def read_run(folder: str | os.PathLike[str]) -> dict:
    """Reads a run's folder. Raises FormatError when it holds no metrics at all: then there is nothing to report."""
    folder = Path(folder)
    path = folder / "metrics.jsonl"
    notes: list[list] = []
    if not present(path):
        raise missing_file(folder, "is no training run: it holds no metrics.jsonl")
    records = _read_lines(path, notes)
    if not records:
        raise FormatError(path, "holds no record of a step yet; the first comes after `log_every` steps")
    points = {name: _points(records, name) for name in SERIES}
    for name, words in (("loss", "training loss"), ("held_out_loss", "held-out loss")):
        missing = [step for step, value in points[name] if math.isnan(value)]
        if missing:
            notes.append(["not finite", words, len(missing), missing[0]])
    experts = _read_experts(records, notes)
    checkpoints, model, state = _read_checkpoints(folder / "checkpoints", notes)
    noted, results = (_read_object(folder / name, notes) for name in ("run.json", "results.json"))
    train = None if state is None else state.train
    if model is None or train is None:
        model, train = _noted_options(noted, notes)
    samples = _read_samples(folder / "samples.jsonl", notes)
    entropy = _find_entropy(results, noted, model, points["held_out_loss"])
    if len(notes) > _MOST_NOTES:
        notes = [*notes[:_MOST_NOTES], ["more", len(notes) - _MOST_NOTES]]
    return {
        "version": 1,
        "name": _text(folder.resolve().name, _LONGEST_NOTED),
        "last_step": records[-1]["step"],
        "notes": notes,
        "options": {
            "model": None if model is None else _options(model.to_dict(), MoEConfig),
            "train": None if train is None else _options(train.to_dict(), TrainConfig),
        },
        "parameters": None if model is None else model.num_parameters,
        "active_parameters": None if model is None else model.num_active_parameters,
        "tokens": _last(records, "tokens"),
        "data_windows": None if state is None else state.data_windows,
        "seconds": _last(records, "seconds"),
        "bytes_peak": _or_none(number(results.get("bytes_peak"))),
        "unigram_entropy": _or_none(entropy),
        "recent_loss": recent_mean(points["loss"]),
        "noted": _noted_texts(noted, results),
        "clipped": _count_clipped(points["grad_norm"], train),
        "checkpoints": checkpoints,
        "samples": samples,
        "table": _table(points),
        "series": {name: made for name in SERIES if (made := thin(points[name])) is not None},
        "experts": experts,
    }


def number(value: object) -> float:
    """A JSON value as a finite number; NaN for everything else, so that it leaves a gap in a curve."""
    if type(value) not in (int, float):
        return math.nan
    try:
        converted = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.nan
    return converted if abs(converted) <= _LARGEST_NUMBER else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else rounded(value)


def _text(text: str, longest: int) -> str:
    """Text without halves of characters, cut to `longest` characters."""
    text = re.sub("[\ud800-\udfff]", "\ufffd", text)
    return text if len(text) <= longest else text[:longest] + "…"


def _read_lines(path: Path, notes: list[list]) -> list[Record]:
    """The objects of a JSONL file that have a step, in the order of steps.

    A last line without its end is one that is being written.
    """
    found: list[Record] = []
    for index, (line, record) in enumerate(json_lines(path), 1):
        if not line.strip(b" \t\r\n"):
            continue
        step = None if record is None else record.get("step")
        if record is not None and type(step) is int and 0 <= step < _MOST_STEPS:
            found.append(record)
        elif not line.endswith(b"\n"):
            notes.append(["cut", path.name])
        else:
            notes.append(["line", path.name, index])
    return sorted(found, key=lambda record: record["step"])  # type: ignore[arg-type, return-value]


def _points(records: list[Record], name: str) -> list[tuple[int, float]]:
    return [(record["step"], number(record[name])) for record in records if name in record]  # type: ignore[misc]


def _last(records: list[Record], name: str) -> float | None:
    finite = [value for _, value in _points(records, name) if not math.isnan(value)]
    return rounded(finite[-1]) if finite else None


def _read_experts(records: list[Record], notes: list[list]) -> dict | None:
    """What is shown of the experts' shares: those of records whose tables have the size of the first one's."""
    steps: list[int] = []
    found: list[np.ndarray] = []
    given = 0
    for record in records:
        if "expert_shares" not in record:
            continue
        given += 1
        shares = _matrix(record["expert_shares"])
        if shares is not None and (not found or shares.shape == found[0].shape):
            steps.append(record["step"])  # type: ignore[arg-type]
            found.append(shares)
    if len(found) < given:
        notes.append(["shares", given - len(found)])
    return thin_experts(steps, np.stack(found)) if found else None


def _matrix(value: object) -> np.ndarray | None:
    """Shares as an array [layers, experts]; None when they are none."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        return None
    if len({len(row) for row in value}) != 1 or len(value[0]) > _MOST_EXPERTS:
        return None
    shares = np.array([[number(share) for share in row] for row in value])
    return shares if ((shares >= 0) & (shares <= 1)).all() else None


def _read_checkpoints(root: Path, notes: list[list]) -> tuple[list[dict], MoEConfig | None, TrainingState | None]:
    """Checkpoints that are whole, and the model and state of the last. The run may remove one meanwhile: no fault."""
    found: list[dict] = []
    model, state = None, None
    for folder in list_checkpoints(root):
        name = "training.json"
        try:
            read_state = read_training_state(folder / name)
            name = "config.json"
            read_model = config_from_mixtral(read_json(folder / name))
            size = sum(file.stat().st_size for file in folder.iterdir())
        except (ValueError, OSError):
            if folder.exists():
                notes.append(["checkpoint", folder.name, name])
            continue
        model, state = read_model, read_state
        found.append(
            {
                "name": folder.name,
                "step": state.step,
                "held_out_loss": _or_none(number(state.held_out_loss)),
                "seconds": _or_none(number(state.seconds)),
                "bytes": size,
            }
        )
    return found, model, state


def _read_object(path: Path, notes: list[list]) -> Record:
    if not present(path):
        return {}
    try:
        return read_json(path)
    except ValueError:
        notes.append(["file", path.name])
        return {}


def _noted_options(noted: Record, notes: list[list]) -> tuple[MoEConfig | None, TrainConfig | None]:
    """The options that the run noted when it began, for as long as it has no checkpoint."""
    model, train = noted.get("model"), noted.get("train")
    if model is None and train is None:
        return None, None
    try:
        if not isinstance(model, dict) or not isinstance(train, dict):
            raise ValueError("they are no objects")
        return MoEConfig.from_dict(model), TrainConfig.from_dict(train)
    except ValueError:
        notes.append(["options"])
        return None, None


def _options(values: Record, kind: type) -> Record:
    """Options with whole numbers as floating-point ones where that is the option's type."""
    floating = {name for name, field in kind.__dataclass_fields__.items() if str(field.type).startswith("float")}
    return {
        name: float(value) if name in floating and type(value) is int else value  # type: ignore[arg-type]
        for name, value in values.items()
    }


def _noted_texts(noted: Record, results: Record) -> dict[str, str]:
    found = {}
    for name in _NOTED:
        value = next((source[name] for source in (noted, results) if isinstance(source.get(name), str)), None)
        if value is not None:
            found[name] = _text(value, _LONGEST_NOTED)  # type: ignore[arg-type]
    return found


def _count_clipped(norms: list[tuple[int, float]], train: TrainConfig | None) -> int | None:
    """In how many records the gradient was clipped; None when it is not known whether it is at all."""
    if train is None or train.clip_norm is None:
        return None
    return sum(value > train.clip_norm for _, value in norms)


def _read_samples(path: Path, notes: list[list]) -> list[dict]:
    if not present(path):
        return []
    try:
        records = _read_lines(path, notes)
    except FormatError:
        notes.append(["file", path.name])
        return []
    found = [one for one in records if isinstance(one.get("prompt"), str) and isinstance(one.get("text"), str)]
    if len(found) > _MOST_SAMPLES:
        notes.append(["samples", len(found), _MOST_SAMPLES])
    return [
        {"step": one["step"], **{name: _text(one[name], _LONGEST_SAMPLE) for name in ("prompt", "text")}}  # type: ignore[arg-type]
        for one in found[-_MOST_SAMPLES:]
    ]


def _table(points: dict[str, list[tuple[int, float]]]) -> list[list]:
    """The curves in numbers: at the evaluations, or at evenly spaced steps when there were none."""
    values = {name: dict(points[name]) for name in _COLUMNS}
    steps = sorted(values["held_out_loss"]) or sorted(values["loss"])
    return [[step, *(_or_none(values[name].get(step, math.nan)) for name in _COLUMNS)] for step in chosen_rows(steps)]


def _find_entropy(results: Record, noted: Record, model: MoEConfig | None, held_out: list[tuple[int, float]]) -> float:
    """The unigram entropy that the run noted, else that of its held-out data, when that still lies where it did."""
    entropy = number(results.get("unigram_entropy"))
    path = noted.get("held_out")
    if not math.isnan(entropy) or not isinstance(path, str) or model is None:
        return entropy
    if all(math.isnan(value) for _, value in held_out):
        return entropy
    try:
        shards = open_shards(path)
        fitting = all(shard.vocab_size == model.vocab_size <= _LARGEST_VOCABULARY for shard in shards)
        if not fitting or not 0 < sum(shard.count for shard in shards) <= _MOST_COUNTED_TOKENS:
            return math.nan
        for shard in shards:
            shard.check_ids()
        return unigram_entropy(*shards)
    except (ValueError, OSError):
        return math.nan
