"""Runs that train an adapter: where they begin, and their checkpoints.

    RUN/checkpoints/step-00000300/
        adapter_config.json        the adapter, as a folder of PEFT
        adapter_model.safetensors  its factors, f32
        optimizer.safetensors      the moments of these, as in `checkpoint`
        training.json              as in `checkpoint`, and `base`: the folder or file of the model, and SHA-256 of its
                                   weights (`FrozenBase.sha256`)

The model itself stays where it is, with its tokenizer. A run goes on beside the same weights alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..device import Comm, Context
from ..formats import FormatError, SafetensorsFile
from ..formats.errors import missing_file, shown, told_of
from ..formats.regular import present
from ..models import MoEConfig
from ..models.adapter import CONFIG, Adapter
from ..models.frozen import FrozenBase
from ..models.low_rank import LowRankLayout, LowRankOptions, LowRankTransformer
from .checkpoint import Checkpoint, open_moments, read_training_state
from .config import ADAPTER_TUNING, FINE_TUNING, TrainConfig
from .origin import Beginning
from .trainer import Trainer, check_alone

_SHOWN = 12  # digits of a hash in a message


def adapter_options(train: TrainConfig) -> LowRankOptions:
    """The options of a run's adapter."""
    assert train.lora_alpha is not None  # since __post_init__, where there is one
    return LowRankOptions(train.lora_rank, train.lora_alpha, train.adapted)


class FrozenOrigin(Beginning):
    """The model beside which a run trains an adapter, a folder or a GGUF file, opened, with the methods of `Origin`.

    config      its sizes
    tokenizer   None: it stays with the model
    """

    tokenizer = None

    def __init__(self, path: str | os.PathLike[str]):
        self.base = FrozenBase(path)
        super().__init__(self.base.stored.path, self.base.config, self.base.stored.config.window)
        self._record = self.base.record()  # which reads all of it: before anything is begun

    def options(self) -> dict[str, object]:
        """Options of training that are the defaults of such a run."""
        return {name: value for name, value in ADAPTER_TUNING.items() if FINE_TUNING[name] != value}

    def trainer(
        self, ctx: Context, model: MoEConfig, train: TrainConfig, comm: Comm | None, expert_parallel: int
    ) -> Trainer:
        """A trainer of a new adapter, whose factors are drawn by the seed."""
        check_alone(comm, expert_parallel)
        self.check(model, train)
        return Trainer(LowRankTransformer(ctx, self.base, adapter_options(train), seed=train.seed), train)

    def record(self) -> dict[str, object]:
        """As of `Origin`: without moments, which are of an adapter alone."""
        return {**self._record, "optimizer_sha256": None}


class AdapterCheckpoint:
    """A checkpoint of such a run, opened and checked, with the methods of `Checkpoint`. FormatError when it is wrong,
    or when the model is not there."""

    tokenizer = None

    def __init__(self, folder: str | os.PathLike[str]):
        self.path = Path(folder)
        if not present(self.path / "training.json"):
            raise missing_file(self.path, "has no training.json: it can be run, but not trained further")
        self.training = read_training_state(self.path / "training.json")
        if self.training.base is None:
            raise FormatError(self.path / "training.json", "has no base, beside which an adapter is trained")
        base = str(self.training.base["folder"])
        if not present(Path(base)):
            raise FormatError(self.path, f"is an adapter of {shown(base)}, which is not there: put it back")
        self.base = FrozenBase(base)
        self.config: MoEConfig = self.base.config
        adapter = Adapter.open(self.path, self.base.stored.config)
        self._options = adapter_options(self.training.train)
        self.layout = LowRankLayout(self.config, self._options)
        if (adapter.rank, adapter.scale) != (self._options.rank, self._options.scale):
            raise FormatError(
                self.path / CONFIG,
                f"has r {adapter.rank} and a scale of {adapter.scale:g}; training.json makes them "
                f"{self._options.rank} and {self._options.scale:g}",
            )
        matrices = self.layout.matrices()
        if set(matrices) != set(adapter.factors):
            (name, *_) = sorted(set(matrices) ^ set(adapter.factors))
            raise FormatError(self.path, f"its options and its factors differ: one of them alone has {name}")
        #: The factors by the names of the layout.
        self.tensors: Mapping[str, np.ndarray] = {
            ours: part.numbers()
            for name, names in matrices.items()
            for ours, part in zip(names, adapter.factors[name], strict=True)
        }
        for name, array in self.tensors.items():
            if array.dtype != np.float32:
                raise FormatError(self.path, f"tensor {name} is in {array.dtype}; what is trained is in f32")

    def moments(self) -> SafetensorsFile:
        """The file of the moments, checked but for the values of f32 and bf16."""
        return open_moments(self.path / "optimizer.safetensors", self.layout, self.training.train.moments)

    def trainer(
        self,
        ctx: Context,
        admit: Callable[[MoEConfig, TrainConfig], None] | None = None,
        changes: Mapping[str, object] | None = None,
        comm: Comm | None = None,
        expert_parallel: int = 1,
    ) -> Trainer:
        """As of `Checkpoint`. FormatError when the model's weights are not those that it had."""
        check_alone(comm, expert_parallel)
        moments = self.moments()
        train = replace(self.training.train, **(changes or {}))  # type: ignore[arg-type]
        if admit is not None:
            admit(self.config, train)
        self._check_base()
        model = LowRankTransformer(ctx, self.base, self._options, seed=None)
        with told_of(self.path):
            model.load_arrays(self.tensors)
        try:
            trainer = Trainer(model, train)
        except ValueError as error:
            if changes:  # perhaps of these, and not of the file
                raise
            raise FormatError(self.path / "training.json", str(error)) from error
        trainer.moments.load(moments)
        trainer.restore(self.training.step, self.training.loss_scaling)
        return trainer

    def _check_base(self) -> None:
        assert self.training.base is not None  # as __init__ found
        recorded, found = str(self.training.base["weights_sha256"]), self.base.sha256
        if found != recorded:
            raise FormatError(
                self.base.stored.path,
                "has other weights than when this adapter was begun "
                f"(SHA-256 {recorded[:_SHOWN]}… then, {found[:_SHOWN]}… now)",
            )


def open_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint | AdapterCheckpoint:
    """A checkpoint of a run, whatever that trains."""
    return AdapterCheckpoint(folder) if present(Path(folder) / CONFIG) else Checkpoint(folder)
