"""Checkpoints: folders that transformers opens as a Mixtral and from which training continues, bit for bit.

    RUN/checkpoints/step-00000300/
        config.json              the model, as transformers' Mixtral
        model.safetensors        its weights, f32, in the order of the arena (or shards with their index)
        tokenizer.model          SentencePiece
        tokenizer_config.json    the same tokenizer for transformers
        generation_config.json   its begin, end and padding, likewise
        optimizer.safetensors    first_moment.NAME and second_moment.NAME of each parameter, f32 or bf16; or, of moments
                                 in 8 bits, first.codes, first.scales, second.codes and second.scales
        training.json            step, data position, options, held-out loss, loss scale

A folder appears under its name in one step, when all of it is on the disk: what has the name is whole, so "the last" is
simply the highest number, and "the best" the one with the lowest held-out loss. No pointer can go stale.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..device import Comm, Context
from ..dtypes import to_numpy
from ..formats import FormatError, SafetensorsFile, write_folder
from ..formats.atomic import remove_folder, temporary_path
from ..formats.errors import missing_file, shown, told_of
from ..formats.json_values import read_json
from ..formats.limits import COUNT
from ..formats.regular import present
from ..formats.run_folder import last_checkpoint, list_checkpoints
from ..formats.safetensors import DEFAULT_SHARD_BYTES, SafetensorsLayout
from ..layers import ExpertParallel
from ..models import MoEConfig, MoETransformer, ParameterLayout
from ..models.config import Precision, check_number
from ..models.folder import ModelFiles, ModelFolder
from ..models.low_rank import AdapterFiles, LowRankTransformer
from ..models.parameters import Layout
from ..models.transformer import check_names, on_host
from ..tokenizer import Tokenizer
from ..tokenizer.carried import CarriedTokenizer
from .aborting import aborting, together
from .config import LARGEST_LOSS_SCALE, LEAST_LOSS_SCALE, MomentsKind, TrainConfig
from .moments import check_moments, moments_shapes
from .replicas import partitions_gradients
from .scaling import LossScalingState
from .trainer import Trainer

_VERSION = 1
_MOST_WINDOWS = (1 << 62) - 1
#: The least and the largest value of the numbers of a state; tests/bounds.json has the reasons.
BOUNDS = {"seconds": (0.0, 1e12), "held_out_loss": (-1.0, 1e38)}


@dataclass(frozen=True)
class TrainingState:
    """What a run needs besides weights and moments to continue.

    data_position counts the windows visited, data_windows how many the data had, seconds the time spent training.
    loss_scaling is there when the precision is f16, and only then; base, which is `FrozenBase.record` of the model
    beside which an adapter is trained, when one is.
    """

    step: int
    data_position: int
    data_windows: int
    seconds: float
    train: TrainConfig
    held_out_loss: float | None = None
    loss_scaling: LossScalingState | None = None
    base: dict[str, object] | None = None

    def to_dict(self) -> dict[str, object]:
        """All of it as plain values, as `training.json` has them; without loss_scaling where there is none, and without
        a loss that is not finite, which JSON has no number for."""
        values = {**vars(self), "train": self.train.to_dict()}
        if self.held_out_loss is not None and not math.isfinite(self.held_out_loss):
            values["held_out_loss"] = None
        for name in ("loss_scaling", "base"):
            if values[name] is None:
                del values[name]
        return values if self.loss_scaling is None else {**values, "loss_scaling": vars(self.loss_scaling)}


class Checkpoint(ModelFolder):
    """A checkpoint folder, opened: all of it checked except the values of the tensors, nothing loaded yet.

    A folder from elsewhere with a Mixtral in it opens too; its `tokenizer` and `training` may be None.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        super().__init__(folder)
        path = self.path / "tokenizer.model"
        self.tokenizer = Tokenizer.load(path) if present(path) else None
        path = self.path / "training.json"
        self.training = read_training_state(path) if present(path) else None

    def untrainable(self) -> FormatError:
        """What to raise for a folder that has a model alone."""
        return missing_file(self.path, "has no training.json: it can be run, but not trained further")

    @property
    def layout(self) -> Layout:
        """The places of what is trained."""
        return ParameterLayout(self.config)

    def moments(self) -> SafetensorsFile:
        """The file of the moments, checked but for the values of f32 and bf16."""
        if self.training is None:
            raise self.untrainable()
        return open_moments(self.path / "optimizer.safetensors", self.layout, self.training.train.moments)

    def trainer(
        self,
        ctx: Context,
        admit: Callable[[MoEConfig, TrainConfig], None] | None = None,
        changes: Mapping[str, object] | None = None,
        comm: Comm | None = None,
        expert_parallel: int = 1,
    ) -> Trainer:
        """Model, moments and step as they were saved, with `changes` of the training options, on the ranks of `comm`,
        of which so many share the experts out.

        `admit` may refuse, by raising, before memory is taken.
        """
        if self.training is None:
            raise self.untrainable()
        experts = ExpertParallel.of(comm, expert_parallel, self.config.num_experts)
        moments = self.moments()
        train = replace(self.training.train, **(changes or {}))  # type: ignore[arg-type]
        try:
            if admit is not None:
                admit(self.config, train)
            ranks = 1 if comm is None else comm.ranks
            model = self.model(
                ctx,
                training=True,
                precision=train.precision,
                experts=experts,
                comm=comm,
                partition_gradients=partitions_gradients(self.config, train, ctx.device, ranks, expert_parallel),
            )
            trainer = Trainer(model, train, comm=comm)
        except FormatError:
            raise
        except ValueError as error:
            if changes:  # perhaps of these, and not of the file
                raise
            raise FormatError(self.path / "training.json", str(error)) from error
        trainer.moments.load(moments)
        trainer.restore(self.training.step, self.training.loss_scaling)
        return trainer


def open_moments(path: Path, layout: Layout, kind: MomentsKind) -> SafetensorsFile:
    """A file of moments, checked but for the values of f32 and bf16."""
    moments = SafetensorsFile(path)
    expected = moments_shapes(layout, kind)
    with told_of(path):
        check_names(moments, expected)
        for name, (dtype, shape) in expected.items():
            if moments.shape(name) != shape or moments.dtype(name) != to_numpy(dtype):
                raise ValueError(f"tensor {name} is not {dtype} of shape {list(shape)}")
        check_moments(moments, kind)
    return moments


def load_model(
    path: str | os.PathLike[str], ctx: Context, *, training: bool = False, precision: Precision = "f32"
) -> tuple[MoETransformer, Tokenizer | None]:
    """A model and its tokenizer from a checkpoint, the last checkpoint of a run, or a Mixtral folder from elsewhere."""
    checkpoint = Checkpoint(resolve_checkpoint(path))
    return checkpoint.model(ctx, training=training, precision=precision), checkpoint.tokenizer


def save_checkpoint(
    root: str | os.PathLike[str],
    trainer: Trainer,
    state: TrainingState,
    tokenizer: Tokenizer | CarriedTokenizer | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> Path:
    """Writes `root`/step-NNNNNNNN, in one step, and returns it."""
    folder = Path(root) / f"step-{state.step:08d}"
    write_checkpoint(folder, trainer, state, tokenizer, max_shard_bytes)
    return folder


def write_checkpoint(
    folder: str | os.PathLike[str],
    trainer: Trainer,
    state: TrainingState,
    tokenizer: Tokenizer | CarriedTokenizer | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> None:
    """Writes a checkpoint, in one step, as `folder`; FileExistsError when there is one. Of several ranks each calls it
    and writes what it owns; the files are those that one rank writes."""
    comm, own = trainer.comm, trainer.moments.own
    shapes = moments_shapes(trainer.model.layout, trainer.moments.kind)
    moments = SafetensorsLayout({name: (to_numpy(dtype), shape) for name, (dtype, shape) in shapes.items()})
    files = _files(trainer, tokenizer, max_shard_bytes)
    with aborting(comm), _folder_of_all(folder, comm) as temporary:
        with together(comm):
            if comm is None or comm.rank == 0:
                files.create(temporary)
                moments.create(temporary / "optimizer.safetensors")
                values = {"format": "nncuda training state", "version": _VERSION, **state.to_dict()}
                text = json.dumps(values, indent=2) + "\n"
                (temporary / "training.json").write_text(text, encoding="utf-8")
        with together(comm):
            files.write(temporary, own)
            parts = ((name, first, on_host(part)) for name, first, part in trainer.moments.parts())
            moments.write(temporary / "optimizer.safetensors", parts)


def _files(
    trainer: Trainer, tokenizer: Tokenizer | CarriedTokenizer | None, max_shard_bytes: int
) -> ModelFiles | AdapterFiles:
    """Those of the model itself, or of the adapter that is trained beside it."""
    model = trainer.model
    if isinstance(model, LowRankTransformer):
        return AdapterFiles(model)
    assert isinstance(model, MoETransformer)
    return ModelFiles(model, tokenizer, max_shard_bytes)


@contextlib.contextmanager
def _folder_of_all(folder: str | os.PathLike[str], comm: Comm | None) -> Iterator[Path]:
    """`write_folder` of rank 0, into which all ranks write. Where it ends, the folder has its name."""
    if comm is None:
        with write_folder(folder) as temporary:
            yield temporary
        return
    if comm.rank == 0:
        with write_folder(folder) as temporary:
            comm.sum(os.getpid())
            yield temporary
    else:
        yield temporary_path(folder, comm.sum(0))
    comm.barrier()


def read_training_state(path: str | os.PathLike[str]) -> TrainingState:
    """Reads and checks a `training.json`."""
    values = read_json(path)
    if values.pop("format", None) != "nncuda training state":
        raise FormatError(path, "is not a training state of nncuda")
    version = values.pop("version", None)
    if version != _VERSION:
        raise FormatError(
            path, f"is a training state of version {shown(version)}; this program reads version {_VERSION}"
        )
    whole = {"step": (0, COUNT), "data_position": (0, _MOST_WINDOWS), "data_windows": (1, _MOST_WINDOWS)}
    scaling, base = values.pop("loss_scaling", None), values.pop("base", None)
    if set(values) != {*whole, "seconds", "train", "held_out_loss"}:
        raise FormatError(
            path, f"has the entries {', '.join(sorted(values))}; some are missing, or should not be there"
        )
    for name, (least, most) in whole.items():
        if type(values[name]) is not int or not least <= values[name] <= most:  # type: ignore[operator]
            problem = f"{name} is {shown(values[name])}; it must be a whole number, from {least} to {most}"
            raise FormatError(path, problem)
    if not isinstance(values["train"], dict):
        raise FormatError(path, "train is not an object")
    loss = values["held_out_loss"]
    with told_of(path):
        check_number("seconds", values["seconds"], BOUNDS["seconds"])
        if loss is not None and not (isinstance(loss, float) and not math.isfinite(loss)):  # which a loss may become
            check_number("held_out_loss", loss, BOUNDS["held_out_loss"])
        train = TrainConfig.from_dict(values["train"])
    if (scaling is None) != (train.precision != "f16"):
        raise FormatError(
            path, f"has {'no' if scaling is None else 'a'} loss_scaling; its precision is {train.precision}"
        )
    state = None if scaling is None else _loss_scaling(path, scaling, most_skipped=values["step"])  # type: ignore[arg-type]
    if (base is None) != (train.lora_rank == 0):
        raise FormatError(path, f"has {'no' if base is None else 'a'} base; its lora_rank is {train.lora_rank}")
    if base is not None:
        of_text = isinstance(base, dict) and all(isinstance(value, str) for value in base.values())
        if not of_text or set(base) != {"folder", "weights_sha256"}:  # type: ignore[arg-type]
            raise FormatError(path, f"base is {shown(base)}; it must have folder and weights_sha256, as text")
    return TrainingState(**{**values, "train": train, "loss_scaling": state, "base": base})  # type: ignore[arg-type]


def _loss_scaling(path: str | os.PathLike[str], values: object, most_skipped: int) -> LossScalingState:
    counters = {"good_steps": 2**31 - 1, "skipped": min(most_skipped, 2**31 - 1)}
    if not isinstance(values, dict) or set(values) != {"scale", *counters}:
        raise FormatError(path, f"loss_scaling is {shown(values)}; it must have scale, good_steps and skipped")
    scale = values["scale"]
    if type(scale) not in (int, float) or not LEAST_LOSS_SCALE <= scale <= LARGEST_LOSS_SCALE:
        raise FormatError(path, f"the scale of loss_scaling is {shown(scale)}; it must be a number, 2^-24 to 2^24")
    for name, most in counters.items():
        if type(values[name]) is not int or not 0 <= values[name] <= most:
            raise FormatError(
                path, f"{name} of loss_scaling is {shown(values[name])}; it must be a whole number, 0 to {most}"
            )
    return LossScalingState(float(scale), values["good_steps"], values["skipped"])


def best_checkpoint(root: str | os.PathLike[str]) -> Path | None:
    """The checkpoint with the lowest held-out loss; None when none has one."""
    losses = []
    for number, folder in enumerate(list_checkpoints(root)):
        loss = read_training_state(folder / "training.json").held_out_loss
        if loss is not None and math.isfinite(loss):
            losses.append((loss, number, folder))
    return min(losses)[2] if losses else None


def prune_checkpoints(root: str | os.PathLike[str], keep: int) -> None:
    """Removes all but the `keep` newest checkpoints and the best."""
    best = best_checkpoint(root)
    for folder in list_checkpoints(root)[:-keep]:
        if folder != best:
            remove_folder(folder)


def resolve_checkpoint(path: str | os.PathLike[str], which: str = "last") -> Path:
    """A checkpoint folder from the path of one, or of a run, of which the "last" or the "best" is taken."""
    if which != "best":
        return last_checkpoint(path)
    path = Path(path)
    root = path / "checkpoints"
    if not root.is_dir():
        return path
    found = best_checkpoint(root)
    if found is None:
        raise missing_file(root, "holds no evaluated checkpoint yet")
    return found
