"""Checking a training run: its files by their sums, checkpoints by their digests, and steps by doing them again.

What a run leaves behind for it is in `chain.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from ..device import Comm, Context, Tensor
from ..formats import FormatError
from ..formats.errors import shown
from ..formats.json_values import json_lines
from ..formats.regular import present
from ..formats.run_folder import list_checkpoints
from ..models import MoEConfig
from .aborting import aborting
from .adapter import AdapterCheckpoint, FrozenOrigin, open_checkpoint
from .chain import (
    CHAIN_FILE,
    different,
    digests_of,
    digits,
    file_sum,
    first_hash,
    next_hash,
    seal_of,
    state_digests,
    state_names,
)
from .checkpoint import Checkpoint
from .config import TrainConfig
from .data import TokenWindows, open_shards
from .extension import extended
from .metrics import read_metrics
from .origin import Origin, random_weights
from .record import check_digest, read_record
from .trainer import StepResult, Trainer

#: Of a line of metrics what a step computed.
_COMPUTED = ("loss", "aux_loss", "grad_norm", "learning_rate")


class Mismatch(Exception):
    """What is there is not what the run had. The message is a sentence that names it."""


@dataclass
class Recorded:
    """What `chain.jsonl` says, as far as it holds together.

    tensors     names of the tensors of the state
    data_sha256, seed, sequence_length  what positions of the data order are of
    states      digests after a step
    positions   position in the data order after a step, where a hash has it
    files       of a file of the run how many bytes, and their SHA-256
    """

    tensors: list[str] = field(default_factory=list)
    data_sha256: str = ""
    seed: int = 0
    sequence_length: int = 0
    states: dict[int, str] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)


def read_chain(folder: str | os.PathLike[str]) -> Recorded:
    """The chain of a run. Mismatch for the first line that is not the one that was written; FormatError without a
    chain."""
    path = Path(folder) / CHAIN_FILE
    found, seal, link = Recorded(), "", ""
    for number, (line, record) in enumerate(json_lines(path), 1):
        where = f"{path}: line {number}"
        if record is None:
            raise Mismatch(f"{where} is cut off or damaged")
        if b"," not in line or record.get("seal") != seal_of(seal, line):
            raise Mismatch(f"{where} is not the one that was written, or one before it is missing: its seal is another")
        seal = str(record["seal"])
        try:
            if number == 1:
                _take_head(found, record)
                link = first_hash(found.data_sha256, found.seed, found.sequence_length, found.tensors)
                continue
            step, digests = _whole(record["step"]), str(record["digests"])
            if "hash" in record:
                inputs = [_whole(one) for one in _list_of(record["inputs"])]
                link = next_hash(link, step, (inputs[0], inputs[1]), digests)
                if record["hash"] != link:
                    raise Mismatch(f"{where}: its hash is not that of its step, inputs and digests")
                found.positions[step] = inputs[1]
            found.files.update(_files(record.get("files", {})))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise FormatError(path, f"line {number} is no line of a chain of this version") from error
        if found.states.setdefault(step, digests) != digests:
            raise Mismatch(f"{where}: the digests of step {step} are others than in a line before")
    if not found.tensors:
        raise FormatError(path, "is empty")
    return found


def _take_head(found: Recorded, record: dict[str, object]) -> None:
    if record["format"] != "nncuda chain" or record["version"] != 1 or type(record["seed"]) is not int:
        raise ValueError
    found.tensors = [str(name) for name in _list_of(record["tensors"])]
    found.data_sha256, found.seed = str(record["data_sha256"]), record["seed"]
    found.sequence_length = max(_whole(record["sequence_length"]), 1)


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _list_of(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _files(value: object) -> dict[str, tuple[int, str]]:
    """Of each file how many bytes, and their sum; ValueError for one that is not in the folder."""
    if not isinstance(value, dict):
        raise TypeError
    found = {}
    for name, one in value.items():
        count, digest = _list_of(one)
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError
        found[name] = _whole(count), str(digest)
    return found


def check_files(folder: str | os.PathLike[str], recorded: Recorded) -> Iterator[str]:
    """What is wrong with the files of a run, a sentence each: they are not what they were when they were written.
    Checkpoints that are not there any more count as removed."""
    folder = Path(folder)
    for name, (count, digest) in recorded.files.items():
        path = folder / name
        if "checkpoints" in Path(name).parts and not path.parent.is_dir():
            continue
        if not present(path):
            yield f"{path} is missing"
            continue
        size = path.stat().st_size
        if size < count:
            yield f"{path} has {size} bytes; it had {count}"
        elif file_sum(path, count)[1] != digest:
            part = "its header has" if path.suffix == ".safetensors" else "it has"
            yield f"{path} is not the file that was written: {part} other bytes"


def check_checkpoint(folder: Path, ctx: Context, recorded: Recorded) -> None:
    """Mismatch when the tensors of a checkpoint are not those that the run had; it names the first one."""
    checkpoint = open_checkpoint(folder)
    state = checkpoint.training
    if state is None:
        assert isinstance(checkpoint, Checkpoint)
        raise checkpoint.untrainable()
    expected = recorded.states.get(state.step)
    if expected is None:
        raise Mismatch(f"{folder}: the run recorded no state at step {state.step}")
    names = state_names(checkpoint.layout, state.train)
    _check_names(folder, names, recorded)
    sums = digests_of(ctx, _parts(checkpoint, ctx), names)
    if tensors := different(names, expected, digits(sums)):
        raise Mismatch(f"{folder}: {_list(tensors)} not what the run had at step {state.step}")


def _check_names(where: object, names: Sequence[str], recorded: Recorded) -> None:
    if list(names) != recorded.tensors:
        raise Mismatch(f"{where}: its tensors are others than those of the chain")


def _parts(checkpoint: Checkpoint | AdapterCheckpoint, ctx: Context) -> Iterator[tuple[str, int, Tensor]]:
    """The state that a checkpoint holds, tensor by tensor."""
    state = checkpoint.training
    assert state is not None  # as check_checkpoint found
    for name in checkpoint.layout.shapes():
        yield name, 0, ctx.tensor(np.ascontiguousarray(checkpoint.tensors[name]))
    moments = checkpoint.moments()
    for name in moments:
        yield name, 0, ctx.tensor(np.ascontiguousarray(moments[name]))
    scaling = state.loss_scaling
    skipped = 0 if scaling is None else scaling.skipped
    yield "updates", 0, ctx.tensor(np.array([state.step - skipped], np.int32))
    if scaling is not None:
        yield "loss_scale", 0, ctx.tensor(np.array([scaling.scale], np.float32))
        yield "good_steps", 0, ctx.tensor(np.array([scaling.good_steps], np.int32))
        yield "skipped_steps", 0, ctx.tensor(np.array([skipped], np.int32))


def _list(tensors: Sequence[str]) -> str:
    if len(tensors) == 1:
        return f"{tensors[0]} is"
    return f"{tensors[0]} and {len(tensors) - 1} more tensors are"


def run_data(folder: str | os.PathLike[str], recorded: Recorded, data: str | os.PathLike[str] | None) -> TokenWindows:
    """The data of a run, from where it was or is now. FormatError, or Mismatch, when it is not what it was."""
    record = read_record(folder)
    source = data or str(record["data"])
    windows = TokenWindows(open_shards(source), recorded.sequence_length)
    check_digest(folder, "data", source, windows)
    if windows.digest != recorded.data_sha256:
        raise Mismatch(f"{source} is not the data that the chain of this run was made with")
    return windows


@dataclass(frozen=True)
class Recomputed:
    """What was computed again: from `source`, from step `first` to `last`; `states` that are recorded, all the same."""

    source: str
    first: int
    last: int
    states: int


def recompute(
    folder: str | os.PathLike[str],
    recorded: Recorded,
    data: TokenWindows,
    ctx: Context,
    first: int | None,
    last: int,
    *,
    comm: Comm | None = None,
    expert_parallel: int = 1,
) -> Recomputed:
    """Does the steps after `first` up to `last` again, from the nearest checkpoint at or before `first`, from what it
    began with, or from the initial weights; without `first` all from its beginning, whatever step that is.

    Mismatch at the first recorded state, or line of metrics, that is another, by step and tensor.

    All ranks of `comm` call it. How many there are, and of threads, need not be what they were.
    """
    with aborting(comm):
        source, trainer, position = _begin(folder, ctx, first, comm, expert_parallel)
        names = state_names(trainer.model.layout, trainer.config)
        _check_names(folder, names, recorded)
        metrics = {
            line["step"]: line for line in read_metrics(Path(folder) / "metrics.jsonl") if "loss" in line
        }  # of a step the last, as a run has it
        began, same, states = trainer.step, None, 0
        while True:
            step = trainer.step
            if step in recorded.states:
                expected, found = recorded.states[step], state_digests(trainer)
                if tensors := different(names, expected, found):
                    since = "" if same is None else f"; at step {same} all was the same"
                    raise Mismatch(f"step {step}: {_list(tensors)} not what the run had{since}")
                same, states = step, states + 1
            if step in recorded.positions and recorded.positions[step] != position:
                raise Mismatch(
                    f"step {step}: the run had read {recorded.positions[step]} windows, which are {position}"
                )
            if step >= last:
                return Recomputed(source, began, step, states)
            config = extended(folder, step, trainer.config)
            if config != trainer.config:
                trainer.config = config
                trainer.forget_capture()
            rows = None if comm is None else trainer.rows()
            result = trainer.train_step(*data.batch(ctx, config.seed, position, config.batch_size, rows))
            position += config.batch_size
            if result.step in metrics:
                _compare(result, metrics[result.step])


def _begin(
    folder: str | os.PathLike[str], ctx: Context, first: int | None, comm: Comm | None, expert_parallel: int
) -> tuple[str, Trainer, int]:
    """Where the nearest state comes from, the state, and its position in the data order."""
    checkpoints = list_checkpoints(Path(folder) / "checkpoints") if first is not None else []
    if before := [one for one in checkpoints if first is not None and int(one.name[5:]) <= first]:
        checkpoint = open_checkpoint(before[-1])
        trainer = checkpoint.trainer(ctx, comm=comm, expert_parallel=expert_parallel)
        assert checkpoint.training is not None  # since there is a trainer
        return str(before[-1]), trainer, checkpoint.training.data_position
    record = read_record(folder)
    path = Path(folder) / "run.json"
    tables = record.get("model"), record.get("train")
    if not all(isinstance(table, dict) for table in tables):
        raise FormatError(path, "does not say what was trained: model and train must be objects")
    model, train = MoEConfig.from_dict(tables[0]), TrainConfig.from_dict(tables[1])  # type: ignore[arg-type]
    if "from" in record:
        origin = _origin(path, record["from"], train)
        trainer = origin.trainer(ctx, model, train, comm, expert_parallel)
        if first is not None and trainer.step > first:
            raise FormatError(path, f"began at step {trainer.step}: there is no state at step {first} or before")
        return f"{origin.record()['folder']}, where it began", trainer, 0
    return "the initial weights", random_weights(ctx, model, train, comm, expert_parallel), 0


def _origin(path: Path, told: object, train: TrainConfig) -> Origin | FrozenOrigin:
    """What a run began from, if it is still what it was; `told` is what run.json says of it."""
    if not (isinstance(told, dict) and isinstance(told.get("folder"), str)):
        raise FormatError(path, f"from is {shown(told)}; it must be an object with a folder")
    if not present(Path(told["folder"])):
        raise FormatError(path, f"began from {shown(told['folder'])}, which is not there: put it back")
    origin: Origin | FrozenOrigin
    if train.lora_rank:
        origin = FrozenOrigin(told["folder"])
    else:
        origin = Origin(told["folder"], optimizer=told.get("optimizer_sha256") is not None)
    for name, value in origin.record().items():
        if name != "folder" and told.get(name) != value:
            raise Mismatch(f"{told['folder']} is not what the run began from: its {name} is {value}")
    return origin


def _compare(result: StepResult, line: dict[str, object]) -> None:
    for name in _COMPUTED:
        expected, found = line.get(name), getattr(result, name)
        if expected is not None and expected != found:
            raise Mismatch(f"step {result.step}: {name} is {found!r}, and {expected!r} in metrics.jsonl")
