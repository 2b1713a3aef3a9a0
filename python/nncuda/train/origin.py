"""Where a run begins: with random weights, a checkpoint, or a model from elsewhere."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..device import Comm, Context
from ..formats import FormatError, SafetensorsFile
from ..formats.errors import shown, told_of
from ..formats.regular import open_regular
from ..layers import ExpertParallel
from ..models import MoEConfig, MoETransformer, ParameterLayout
from ..models.model_file import ModelFile
from ..models.transformer import check_finite
from ..tokenizer.carried import CarriedTokenizer
from .checkpoint import Checkpoint, TrainingState, resolve_checkpoint
from .config import TrainConfig
from .replicas import partitions_gradients
from .trainer import Trainer

#: Options of a model that its weights do not depend on: they decide how it is trained, and may be others.
OF_TRAINING = ("capacity_factor", "aux_alpha")


def random_weights(
    ctx: Context, model: MoEConfig, train: TrainConfig, comm: Comm | None, expert_parallel: int
) -> Trainer:
    """A trainer of a new model, whose weights are drawn by the seed, on the ranks of `comm`, of which so many share the
    experts out."""
    ranks = 1 if comm is None else comm.ranks
    made = MoETransformer(
        ctx,
        model,
        seed=train.seed,
        precision=train.precision,
        experts=ExpertParallel.of(comm, expert_parallel, model.num_experts),
        comm=comm,
        partition_gradients=partitions_gradients(model, train, ctx.device, ranks, expert_parallel),
    )
    return Trainer(made, train, comm=comm)


class Beginning:
    """Where a run begins that has its model from there: a folder or a file, the model's options, and its `window` where
    a token does not see all of what came before."""

    #: Options of the model that a run may have otherwise.
    free: tuple[str, ...] = ()
    #: What who begins a run here should know, a sentence.
    notice: str | None = None

    def __init__(self, path: Path, config: MoEConfig, window: int = 0):
        self.path = path
        self.config = config
        self._window = window

    def check(self, model: MoEConfig, train: TrainConfig) -> None:
        """ValueError, which begins with the option, when a run with these options cannot begin here."""
        if self._window and train.sequence_length > self._window:
            raise ValueError(
                f"sequence_length is {train.sequence_length}, but in the model of {self.path} a token sees "
                f"{self._window} (sliding_window): give at most that"
            )
        for name, value in self.config.to_dict().items():
            if name not in self.free and getattr(model, name) != value:
                raise ValueError(self.contradiction(name, getattr(model, name)))

    def contradiction(self, name: str, value: object) -> str:
        """What is wrong with a value of a model's option that is not the one there."""
        return (
            f"{name} is {shown(value)}, but the model of {self.path} has "
            f"{shown(getattr(self.config, name))}: leave it out"
        )


class Origin(Beginning):
    """The folder or file that a run begins from, opened and checked to the last value: what is not finite is refused.

    It is a checkpoint of this library, a run, of which the last one is taken, a Mixtral, Llama or the like of Hugging
    Face, or a GGUF file of one in f32, f16 or bf16. With `optimizer` the moments, the step and, in f16, the loss scale
    go on as the checkpoint has them. Without `read` the weights are read no sooner than a run begins here.

    config            the architecture
    tokenizer         what the run's checkpoints carry on
    """

    free = OF_TRAINING
    tokenizer: CarriedTokenizer

    def __init__(self, path: str | os.PathLike[str], optimizer: bool = False, read: bool = True):
        self._weights: Checkpoint | ModelFile = _open(path)
        super().__init__(self._weights.path, self._weights.config, self._weights.window)
        self._moments: SafetensorsFile | None = None
        self._state: TrainingState | None = None  # where the training stands that is taken along
        if isinstance(self._weights, ModelFile):
            if optimizer:
                raise FormatError(self.path, "is a GGUF file, which has no optimizer's state to go on with")
            try:
                self.tokenizer = self._weights.tokenizer()
            except FormatError as error:  # of a kind that this program does not have, as a rule
                self.tokenizer = CarriedTokenizer.none()
                self.notice = f"the tokenizer does not come along: {error}"
        else:
            self.tokenizer = CarriedTokenizer.of(self.path)
            if optimizer:
                self._moments, self._state = self._weights.moments(), self._weights.training
        if read:
            _ = self._weights_sha256  # before anything is begun
        self._moments_sha256: str | None = None
        if self._moments is not None:
            with told_of(self._moments.path):
                for name in self._moments:
                    if self._moments.dtype(name).kind != "u":
                        check_finite(name, self._moments[name])
            digest = hashlib.sha256()
            with open_regular(self._moments.path) as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
            self._moments_sha256 = digest.hexdigest()

    @functools.cached_property
    def _weights_sha256(self) -> str:
        with told_of(self.path):
            return _digest_of_finite(self._weights.tensors, ParameterLayout(self.config))

    def options(self) -> dict[str, object]:
        """Training options that go with the optimiser's state: the defaults of a run that takes it along."""
        state = self._state
        if state is None:
            return {}
        return {"moments": state.train.moments, "precision": state.train.precision}

    def check(self, model: MoEConfig, train: TrainConfig) -> None:
        """ValueError, which begins with the option, when a run with these options cannot begin here."""
        super().check(model, train)
        state = self._state
        if state is None:
            return
        if train.moments != state.train.moments:
            raise ValueError(self._other("moments", train.moments, state.train.moments))
        if "f16" in (train.precision, state.train.precision) and train.precision != state.train.precision:
            raise ValueError(self._other("precision", train.precision, state.train.precision))
        if train.steps <= state.step:
            raise ValueError(
                f"steps is {train.steps}, but the optimizer of {self.path} has done {state.step}: "
                "give more, of which those are the first"
            )

    def _other(self, name: str, value: object, theirs: object) -> str:
        return f"{name} is {value}, but the optimizer of {self.path} has {theirs}: leave it out"

    def trainer(
        self, ctx: Context, model: MoEConfig, train: TrainConfig, comm: Comm | None, expert_parallel: int
    ) -> Trainer:
        """A trainer that begins here, of a model with these options, on the ranks of `comm`, of which so many share the
        experts out."""
        self.check(model, train)
        ranks = 1 if comm is None else comm.ranks
        self._weights.config = replace(self.config, **{name: getattr(model, name) for name in OF_TRAINING})
        made = self._weights.model(
            ctx,
            training=True,
            precision=train.precision,
            experts=ExpertParallel.of(comm, expert_parallel, model.num_experts),
            comm=comm,
            partition_gradients=partitions_gradients(model, train, ctx.device, ranks, expert_parallel),
        )
        trainer = Trainer(made, train, comm=comm)
        if trainer.comm is not None:
            trainer.comm.agree("initial weights", f"{self._weights_sha256} {self._moments_sha256}")
        state = self._state
        if self._moments is not None and state is not None:
            trainer.moments.load(self._moments)
            trainer.restore(state.step, state.loss_scaling)
        return trainer

    def record(self) -> dict[str, object]:
        """What run.json says of it: the folder or file, SHA-256 of the parameters' stored bytes, in the order of the
        layout, and of the file of the moments, where they were taken along."""
        return {
            "folder": str(self.path.resolve()),
            "weights_sha256": self._weights_sha256,
            "optimizer_sha256": self._moments_sha256,
        }


def _open(path: str | os.PathLike[str]) -> Checkpoint | ModelFile:
    return ModelFile(path) if Path(path).is_file() else Checkpoint(resolve_checkpoint(path))


def _digest_of_finite(tensors: Mapping[str, np.ndarray], layout: ParameterLayout) -> str:
    """SHA-256 of the parameters' bytes. ValueError for the first that is not a finite number."""
    digest = hashlib.sha256()
    for spec in layout:
        array = tensors[spec.name]
        if array.dtype.kind not in "fV":  # V: bfloat16, which NumPy does not know as a float
            raise ValueError(f"tensor {spec.name} has dtype {array.dtype}; weights are floating-point numbers")
        check_finite(spec.name, array)
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
    return digest.hexdigest()
