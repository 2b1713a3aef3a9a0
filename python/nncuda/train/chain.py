"""The chain of a run: `chain.jsonl`, by which a training run can be checked (see `verify.py`), one JSON object a line.

    {"step": 0, "format": "nncuda chain", "version": 1, "data_sha256": ..., "seed": 7, "sequence_length": 16,
     "tensors": [...], "seal": ...}                                                 first
    {"step": 10, "inputs": [0, 80], "digests": "...", "hash": ..., "seal": ...}     every hash_every steps, and at 0
    {"step": 10, "files": {"run.json": [1034, ...], ...}, "digests": ..., "seal": ...}  a checkpoint; a run that goes on

digests     of the tensors of the state, in the order of `tensors`, 32 digits each: both sums of `cuda_digest`
inputs      which positions of the data order were trained on since the last such line: from, and up to
hash        SHA-256 of the hash before, step, inputs and digests. It is the same wherever the run is computed, and
            however often it was stopped
files       how many bytes of a file, and their SHA-256; of safetensors those of the header, as digests have the rest
seal        SHA-256 of the seal before and all of the line in front of its last comma; it is of this folder

Digests find faults of hardware and programs. They are no commitment: one can make other tensors with the same digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .. import kernels
from ..device import Context, Tensor
from ..formats import FormatError
from ..formats.atomic import naming
from ..formats.errors import shown
from ..formats.json_values import json_lines
from ..formats.regular import open_regular, present
from ..models.parameters import Layout, own_parts
from .config import TrainConfig
from .metrics import drop_records
from .moments import moments_shapes

if TYPE_CHECKING:
    from .data import TokenWindows
    from .trainer import Trainer

CHAIN_FILE = "chain.jsonl"
_VERSION = 1
_DIGITS = 32  # of a digest
_SCALING = ("loss_scale", "good_steps", "skipped_steps")


def state_names(layout: Layout, config: TrainConfig) -> list[str]:
    """The tensors that a step depends on, in the order of the digests: parameters and moments as checkpoints name them,
    the number of updates, and the loss scaling of f16."""
    scaling = _SCALING if config.precision == "f16" else ()
    return [*layout.shapes(), *moments_shapes(layout, config.moments), "updates", *scaling]


def digests_of(ctx: Context, parts: Iterator[tuple[str, int, Tensor]], names: Sequence[str]) -> np.ndarray:
    """Both sums of `cuda_digest` of each of the tensors `names`, u64 [names, 2], over `parts`: a name, the first of its
    elements, and the elements from there on, dense and of 1, 2 or 4 bytes."""
    sums = ctx.zeros((len(names), 2), "i64")
    _add_up(sums, parts, names)
    return sums.numpy().view(np.uint64)


def _add_up(sums: Tensor, parts: Iterator[tuple[str, int, Tensor]], names: Sequence[str]) -> None:
    places = {name: number for number, name in enumerate(names)}
    for name, first, part in parts:
        kernels.digest(part.view(part.size).as_bytes(), sums=sums[places[name]], first=first)


def state_digests(trainer: Trainer) -> str:
    """The digests of the state of a trainer, the same with any number of ranks; all of them call it."""
    ctx, comm = trainer.ctx, trainer.comm
    names = state_names(trainer.model.layout, trainer.config)
    ranks, rank = (1, 0) if comm is None else (comm.ranks, comm.rank)
    sums = ctx.zeros((ranks, len(names), 2), "i64")
    _add_up(sums[rank], _parts(trainer, small=rank == 0), names)
    if comm is not None:
        comm.all_gather(sums, sums.nbytes // ranks)
    return digits(sums.numpy().view(np.uint64).sum(axis=0, dtype=np.uint64))


def digits(sums: np.ndarray) -> str:
    """Digests u64 [n, 2] as text."""
    return "".join(f"{one:016x}" for one in sums.ravel().tolist())


def _parts(trainer: Trainer, small: bool) -> Iterator[tuple[str, int, Tensor]]:
    """What this rank has of the state; with `small` also the numbers that all have."""
    for own in trainer.moments.own:
        yield from own_parts(trainer.model.layout, own, trainer.model.parameters_in(own))
    yield from trainer.moments.parts()
    if small:
        for name, number in trainer.counters().items():
            yield name, 0, number


def different(names: Sequence[str], expected: str, found: str) -> list[str]:
    """The tensors whose digests differ."""
    at = range(0, _DIGITS * len(names), _DIGITS)
    return [name for name, i in zip(names, at, strict=True) if expected[i : i + _DIGITS] != found[i : i + _DIGITS]]


def first_hash(data_sha256: str, seed: int, length: int, names: Sequence[str]) -> str:
    """What the first hash is chained to."""
    return _sha256("\n".join([data_sha256, str(seed), str(length), *names, ""]))


def next_hash(previous: str, step: int, inputs: tuple[int, int], digests: str) -> str:
    """The hash of a line."""
    return _sha256(f"{previous}\n{step}\n{inputs[0]} {inputs[1]}\n{digests}\n")


def seal_of(previous: str, line: bytes) -> str:
    """The seal that a line, which has one, must have."""
    return _sha256(previous.encode() + line[: line.rindex(b",")])


def _sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def file_sum(path: Path, size: int | None = None) -> tuple[int, str]:
    """How many bytes of a file count, and their SHA-256: the first `size`, or all, or the header of safetensors."""
    whole = hashlib.sha256()
    with open_regular(path) as file:
        if size is None and path.suffix == ".safetensors":
            size = 8 + struct.unpack("<Q", file.read(8))[0]
            file.seek(0)
        count = 0
        while part := file.read(1 << 20 if size is None else min(1 << 20, size - count)):
            whole.update(part)
            count += len(part)
    return count, whole.hexdigest()


class Chain:
    """Appends to `chain.jsonl` of a run that is at `step`; lines of later steps are dropped: these come again."""

    def __init__(
        self, folder: str | os.PathLike[str], step: int, data: TokenWindows, config: TrainConfig, names: Sequence[str]
    ):
        self._folder = Path(folder)
        self._path = self._folder / CHAIN_FILE
        drop_records(self._path, step)
        self._step, self._seal, self._until = step, "", 0
        self._hash: str | None = None
        self._digests: str | None = None
        if present(self._path):
            self._read()
        if not self._seal:
            self._write(
                {
                    "step": step,
                    "format": "nncuda chain",
                    "version": _VERSION,
                    "data_sha256": data.digest,
                    "seed": config.seed,
                    "sequence_length": config.sequence_length,
                    "tensors": list(names),
                }
            )
        if self._hash is None:
            self._hash = first_hash(data.digest, config.seed, config.sequence_length, names)

    def _read(self) -> None:
        for _, record in json_lines(self._path):
            assert record is not None  # of these lines drop_records leaves none
            self._seal = self._text(record, "seal")
            if "hash" in record:
                self._hash = self._text(record, "hash")
                inputs = record.get("inputs")
                if not (isinstance(inputs, list) and len(inputs) == 2 and all(type(one) is int for one in inputs)):
                    raise FormatError(self._path, f"inputs is {shown(inputs)}; it must be two whole numbers")
                self._until = inputs[1]
            if "digests" in record and record["step"] == self._step:
                self._digests = self._text(record, "digests")

    def _text(self, record: dict[str, object], name: str) -> str:
        value = record.get(name)
        if not isinstance(value, str):
            raise FormatError(self._path, f"{name} is {shown(value)}; it must be text")
        return value

    def begin(self, names: Sequence[str], digests: str, position: int) -> None:
        """Where a run starts or goes on. FormatError when the state is not the one that was there at this step."""
        if self._digests is not None and (tensors := different(names, self._digests, digests)):
            raise FormatError(
                self._folder,
                f"the state at step {self._step} is not the one that this run had there: {tensors[0]} differs"
                f"{f', and {len(tensors) - 1} more' if len(tensors) > 1 else ''}",
            )
        if self._step == 0 and self._digests is None:
            self.add(0, position, digests)
        self.add_files(self._step, digests)

    def add(self, step: int, position: int, digests: str) -> str:
        """The state after a step, and the windows up to `position`; gives its hash."""
        assert self._hash is not None
        inputs = (self._until, position)
        self._hash, self._until = next_hash(self._hash, step, inputs, digests), position
        self._write({"step": step, "inputs": list(inputs), "digests": digests, "hash": self._hash})
        return self._hash

    def add_files(self, step: int, digests: str, checkpoint: Path | None = None) -> None:
        """The files of the run as they are now, and those of a checkpoint of this step."""
        paths = [path for name in ("run.json", "metrics.jsonl") if present(path := self._folder / name)]
        if checkpoint is not None:
            paths += sorted(checkpoint.iterdir())
        sums = {path.relative_to(self._folder).as_posix(): list(file_sum(path)) for path in paths}
        self._write({"step": step, "files": sums, "digests": digests})

    def _write(self, record: dict[str, object]) -> None:
        line = json.dumps({**record, "seal": ""})
        self._seal = seal_of(self._seal, line.encode())
        with naming(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(f'{line[:-3]}"{self._seal}"}}\n')
