"""nncuda's MoE transformer and trainer, in Rust: the same numbers as `nncuda`'s, to the bit."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

_Path: TypeAlias = str | os.PathLike[str]
_Option: TypeAlias = int | float | bool | str | None
_Precision: TypeAlias = Literal["f32", "bf16", "f16", "fp8"]
_Floats: TypeAlias = NDArray[np.float32]
_Ids: TypeAlias = NDArray[np.int32]

class Error(Exception):
    """A call of the library failed. `status` is its code, `name` the code's name."""

    status: int
    name: str

class ArgumentError(Error, ValueError): ...
class OutOfRangeError(Error, IndexError): ...
class OutOfMemoryError(Error, MemoryError): ...
class UnsupportedError(Error, NotImplementedError): ...
class DeviceNotFoundError(Error, RuntimeError): ...
class StateError(Error, RuntimeError): ...
class DeviceError(Error, RuntimeError): ...
class LibraryError(Error, ImportError): ...  # type: ignore[misc]  # ImportError has a name of its own

class FormatError(ValueError):
    """A file is corrupt, truncated, or of another kind. `path` is the file, `problem` what is wrong with it."""

    path: str
    problem: str

@final
class Model:
    """A decoder-only transformer whose feed-forward networks are mixtures of experts, in Rust."""

    def __new__(
        cls,
        config: Mapping[str, _Option] | None = None,
        *,
        seed: int = 0,
        training: bool = True,
        precision: _Precision = "f32",
        device: str = "cpu",
        threads: int | None = None,
        isa: str | None = None,
    ) -> Model:
        """A model with random weights from `seed`; `config` holds options of `nncuda.MoEConfig`."""

    @staticmethod
    def load(
        path: _Path,
        *,
        best: bool = False,
        training: bool = False,
        precision: _Precision = "f32",
        device: str = "cpu",
        threads: int | None = None,
        isa: str | None = None,
    ) -> Model:
        """The model of a checkpoint, of a run's last (or `best`) checkpoint, or of a Mixtral folder."""

    @property
    def config(self) -> dict[str, _Option]:
        """All options by name."""

    def parameters(self) -> dict[str, _Floats]:
        """A copy of each parameter by name."""

    def gradients(self) -> dict[str, _Floats]:
        """A copy of each parameter's gradient by name."""

    def logits(self, input_ids: _Ids) -> _Floats:
        """Logits [batch, length, vocab] of ids [batch, length]."""

    def evaluate(self, input_ids: _Ids, targets: _Ids) -> tuple[float, int]:
        """Sum of the cross-entropy over the targets [batch, length] that are not -100, and their number."""

    def generate(
        self,
        prompt: Sequence[int] | _Ids,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        end_id: int | None = None,
    ) -> Generation:
        """Continues a prompt, token by token, up to and including `end_id`."""

@final
class Generation(Iterator[int]):
    """The tokens of a continuation."""

    def __next__(self) -> int: ...

@final
class Trainer:
    """Trains a model with AdamW, in Rust."""

    def __new__(
        cls,
        model_config: Mapping[str, _Option] | None = None,
        train_config: Mapping[str, _Option] | None = None,
        *,
        seed: int = 0,
        capture: bool = True,
        device: str = "cpu",
        threads: int | None = None,
        isa: str | None = None,
    ) -> Trainer:
        """A trainer at step 0 of a model with random weights from `seed`."""

    @staticmethod
    def load(
        path: _Path,
        *,
        changes: Mapping[str, _Option] | None = None,
        best: bool = False,
        device: str = "cpu",
        threads: int | None = None,
        isa: str | None = None,
    ) -> Trainer:
        """The trainer of a checkpoint, or of a run's last (or `best`) checkpoint, with `changes` of its options."""

    @property
    def model(self) -> Model:
        """The model that is trained, as it is now."""

    @property
    def config(self) -> dict[str, _Option]:
        """All options by name."""

    @property
    def step(self) -> int:
        """Steps done, those that were skipped included."""

    @property
    def eager_reason(self) -> str | None:
        """Why the last step ran call by call; None when it was replayed, or there was none yet."""

    @property
    def diverged_at(self) -> int | None:
        """The first step whose gradients were not finite, from which on nothing was updated; None in f16."""

    @property
    def loss_scaling(self) -> dict[str, _Option] | None:
        """What the next step's loss scaling depends on; None in another precision than f16."""

    def train_step(self, input_ids: _Ids, targets: _Ids) -> StepResult:
        """One update from ids and targets [batch, length]; targets of -100 are ignored."""

    def moments(self) -> tuple[dict[str, _Floats], dict[str, _Floats]]:
        """Copies of the first and of the second moments by parameter."""

    def save_checkpoint(
        self,
        root: _Path,
        *,
        data_position: int = 0,
        data_windows: int = 1,
        seconds: float = 0.0,
        held_out_loss: float | None = None,
        tokenizer: _Path | None = None,
    ) -> os.PathLike[str]:
        """Writes `root`/step-NNNNNNNN in one step and returns its path."""

@final
class StepResult:
    """What a step did."""

    @property
    def step(self) -> int:
        """Steps done, this one included."""

    @property
    def tokens(self) -> int:
        """Targets that counted."""

    @property
    def loss(self) -> float:
        """Mean cross-entropy over the targets of the whole batch, in nats."""

    @property
    def aux_loss(self) -> float:
        """Load-balancing loss, the mean over the micro-batches by their tokens."""

    @property
    def grad_norm(self) -> float:
        """Global norm of the gradients before clipping, the loss scale divided out; not finite in a skipped step."""

    @property
    def learning_rate(self) -> float:
        """Rate of this update; NaN in a skipped step, which makes none."""

    @property
    def loss_scale(self) -> float | None:
        """What the losses of this step were multiplied by; None in another precision than f16."""

    @property
    def skipped(self) -> bool:
        """Whether the gradients overflowed, so that nothing was updated."""

    @property
    def skipped_steps(self) -> int:
        """Steps skipped so far, this one included."""

@final
class Tokenizer:
    """A SentencePiece model, unigram or BPE, as the Rust crates read and run it."""

    def __new__(cls, path: _Path) -> Tokenizer:
        """Reads a tokenizer file."""

    @property
    def vocab_size(self) -> int:
        """How many pieces there are."""

    @property
    def begin_id(self) -> int:
        """The id that begins a text, -1 when this tokenizer has none."""

    @property
    def end_id(self) -> int:
        """The id that ends a text, -1 when this tokenizer has none."""

    def encode(self, text: str, *, begin: bool = False) -> list[int]:
        """Ids of a text, behind the begin id when asked for."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
