"""One training step: gradients over micro-batches, clipping, schedule, AdamW."""

from __future__ import annotations

import math

import numpy as np

from .. import errors, kernels
from ..models import MoETransformer, ParameterArena
from ..models.moe import IGNORE_INDEX
from ..tensor import Tensor
from .captured import CapturedStep
from .config import TrainConfig


class StepResult:
    """What a step did. Values stay on the device until they are asked for; each lasts until the next step."""

    def __init__(
        self, step: int, tokens: int, shares: list[float], losses: Tensor, aux: Tensor, norm: Tensor, lr: Tensor
    ):
        self.step = step
        self.tokens = tokens
        self._shares = shares
        self._losses = losses
        self._aux = aux
        self._norm = norm
        self._lr = lr

    @property
    def loss(self) -> float:
        """Mean cross-entropy over the targets of the whole batch, in nats."""
        return math.fsum(self._losses.numpy().tolist()) / self.tokens

    @property
    def aux_loss(self) -> float:
        """Load-balancing loss, the mean over the micro-batches by their tokens."""
        return math.fsum(share * value for share, value in zip(self._shares, self._aux.numpy().tolist(), strict=True))

    @property
    def grad_norm(self) -> float:
        """Global norm of the gradients before clipping."""
        return self._norm.item()

    @property
    def learning_rate(self) -> float:
        """Rate of this update."""
        return self._lr.item()


class Trainer:
    """Trains a model with AdamW.

    The state beside the model's parameters: first and second moments, arenas of the same layout, and the step.
    """

    def __init__(self, model: MoETransformer, config: TrainConfig | None = None, *, capture: bool = True):
        """With `capture`, steps of one shape of batch are captured as a graph and replayed: the same bits, sooner."""
        config = config or TrainConfig()
        if model.gradients is None:
            raise ValueError("this model was made for inference: it has no gradients")
        if config.sequence_length > model.config.context:
            raise ValueError(
                f"sequence_length is {config.sequence_length}; this model's context is {model.config.context}"
            )
        self.model = model
        self.config = config
        ctx = model.ctx
        self.first_moments = ParameterArena(ctx, model.layout)
        self.second_moments = ParameterArena(ctx, model.layout)
        self._capture = capture
        self._calls: CapturedStep | None = None
        self._done = 0  # what _step holds, so that nobody has to wait for the device to know it
        self._step = ctx.zeros((1,), "i32")
        self._lr = ctx.zeros((1,))
        self._norm = ctx.zeros((1,))
        self._clip = ctx.zeros((1,))

    @property
    def step(self) -> int:
        """Updates done."""
        return self._done

    @step.setter
    def step(self, value: int) -> None:
        self._step.copy_(np.array([value], np.int32))
        self._done = value

    def train_step(self, input_ids: np.ndarray | Tensor, targets: np.ndarray | Tensor) -> StepResult:
        """One update from ids and targets [batch, length]; targets of -100 count for nothing.

        The gradient is that of the mean cross-entropy over all targets of the batch, however it is cut into
        micro-batches, plus that of the load-balancing loss, which is the mean over micro-batches by their tokens.
        Raises ValueError when no target counts, and nncuda.Error when an id is out of range; the parameters then stay.
        """
        if tuple(input_ids.shape) != tuple(targets.shape) or len(input_ids.shape) != 2:
            raise ValueError(
                f"input_ids {list(input_ids.shape)} and targets {list(targets.shape)} must have one shape, "
                "[batch, length]"
            )
        inputs = _ids("input_ids", input_ids, self.model.config.vocab_size)
        wanted = _ids("targets", targets, self.model.config.vocab_size, IGNORE_INDEX)
        tokens = int(np.count_nonzero(wanted != IGNORE_INDEX))
        if tokens == 0:
            raise ValueError("no target counts: all are -100")
        batch, length = inputs.shape
        if self._calls is None or self._calls.shape != inputs.shape:
            micro = self.config.micro_batch_size or batch
            self._calls = None  # its memory first
            self._calls = CapturedStep(self.model, batch, length, micro, self._capture)
        calls = self._calls
        calls.run(inputs, wanted, tokens, self._update)
        self._done += 1
        return StepResult(self._done, tokens, calls.shares, calls.losses, calls.aux, self._norm, self._lr)

    def _update(self) -> None:
        config, model = self.config, self.model
        gradients = model.gradients.data
        kernels.grad_norm(gradients, norm=self._norm)
        limit = math.inf if config.clip_norm is None else config.clip_norm
        kernels.grad_clip(self._norm, scale=self._clip, max_norm=limit)
        warmup, total = config.schedule_steps
        kernels.lr_schedule(
            None,
            self._step,
            lr=self._lr,
            warmup=warmup,
            total=total,
            max_lr=config.learning_rate,
            min_lr=config.learning_rate * config.min_rate_share,
        )
        kernels.adamw_step(
            gradients,
            self._lr,
            self._step,
            self._clip,
            None,
            model.parameters.data,
            self.first_moments.data,
            self.second_moments.data,
            n_decay=model.layout.num_decayed,
            beta1=config.beta1,
            beta2=config.beta2,
            eps=config.eps,
            weight_decay=config.weight_decay,
        )


def _ids(name: str, ids: np.ndarray | Tensor, vocab: int, also: int | None = None) -> np.ndarray:
    """As int32 on the host, every one a token or `also`: before the device is given anything, so that it can go on."""
    array = ids.numpy() if isinstance(ids, Tensor) else np.asarray(ids)
    wrong = (array < 0) | (array >= vocab)
    if also is not None:
        wrong &= array != also
    if wrong.any():
        at = np.argwhere(wrong)[0]
        place = ", ".join(map(str, at.tolist()))
        rule = f"0 to {vocab - 1}" + (f", or {also}" if also is not None else "")
        raise errors.OutOfRangeError(20, f"{name}[{place}] is {array[tuple(at)]}; it must be {rule}")
    return np.ascontiguousarray(array, np.int32)
